-- The queries of the storage backend, each under its name.

-- name: get
SELECT text, data, mark FROM storage_documents WHERE key = %s

-- name: document_mark
SELECT mark FROM storage_documents WHERE key = %s

-- name: locked_document_mark
SELECT mark FROM storage_documents WHERE key = %s FOR UPDATE

-- name: log_mark
SELECT generation, (SELECT max(number) FROM storage_records r WHERE r.key = l.key) FROM storage_logs l WHERE key = %s

-- name: locked_log_mark
SELECT generation, (SELECT max(number) FROM storage_records r WHERE r.key = l.key) FROM storage_logs l WHERE key = %s FOR UPDATE OF l

-- name: read
SELECT l.generation, r.number, r.record
FROM storage_logs l
LEFT JOIN storage_records r ON r.key = l.key AND r.number > CASE WHEN l.generation = %s THEN %s ELSE 0 END
WHERE l.key = %s
ORDER BY r.number
LIMIT %s

-- name: last
SELECT '', number, record FROM storage_records WHERE key = %s ORDER BY number DESC LIMIT 8

-- name: at
SELECT '', number, record FROM storage_records WHERE key = %s AND number = %s

-- name: insert
INSERT INTO storage_documents (text, data, key) VALUES (%s, %s, %s) RETURNING mark

-- name: put
INSERT INTO storage_documents (text, data, key) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET text = excluded.text, data = excluded.data, modified = clock_timestamp()
RETURNING mark

-- name: delete_document
DELETE FROM storage_documents WHERE key = %s

-- name: begin_log
INSERT INTO storage_logs (key) VALUES (%s) ON CONFLICT (key) DO UPDATE SET modified = clock_timestamp() RETURNING generation

-- name: append
WITH log AS (
    INSERT INTO storage_logs (key) VALUES (%(key)s) ON CONFLICT (key) DO UPDATE SET modified = clock_timestamp() RETURNING generation
), before AS (
    SELECT coalesce(max(number), 0) AS number FROM storage_records WHERE key = %(key)s
), added AS (
    INSERT INTO storage_records (key, number, record)
    SELECT %(key)s, before.number + line.number, line.record FROM before, unnest(%(lines)s::text[]) WITH ORDINALITY AS line (record, number)
)
SELECT log.generation, before.number + cardinality(%(lines)s::text[]) FROM log, before

-- name: is_appended
SELECT true FROM storage_records WHERE key = %s AND number = %s AND record = %s

-- name: empty_log
DELETE FROM storage_records WHERE key = %s

-- name: another_log
UPDATE storage_logs SET generation = md5(random()::text || clock_timestamp()::text), modified = clock_timestamp() WHERE key = %s
RETURNING generation

-- name: delete_log
DELETE FROM storage_logs WHERE key = %s

-- name: put_blob
INSERT INTO storage_blobs (prefix, name, data) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING

-- name: get_blob
SELECT data FROM storage_blobs WHERE prefix = %s AND name = %s

-- name: delete_blob
DELETE FROM storage_blobs WHERE prefix = %s AND name = %s

-- name: list
SELECT key, 'document', octet_length(coalesce(text, '')) + octet_length(coalesce(data, '')), extract(epoch FROM modified)
FROM storage_documents WHERE key >= %(from)s AND key < %(to)s
UNION ALL
SELECT key, 'log', (SELECT coalesce(sum(octet_length(record)), 0) FROM storage_records r WHERE r.key = l.key), extract(epoch FROM modified)
FROM storage_logs l WHERE key >= %(from)s AND key < %(to)s
UNION ALL
SELECT prefix || '/' || name, 'blob', octet_length(data), extract(epoch FROM modified)
FROM storage_blobs WHERE prefix || '/' || name >= %(from)s AND prefix || '/' || name < %(to)s
ORDER BY 1

-- name: children
SELECT DISTINCT split_part(substr(key, %(skip)s), '/', 1) COLLATE "C" FROM (
    SELECT key FROM storage_documents WHERE key >= %(from)s AND key < %(to)s
    UNION ALL SELECT key FROM storage_logs WHERE key >= %(from)s AND key < %(to)s
    UNION ALL SELECT prefix || '/' || name FROM storage_blobs WHERE prefix || '/' || name >= %(from)s AND prefix || '/' || name < %(to)s
) AS keys
ORDER BY 1

-- name: recent
SELECT left(rest, length(rest) - length(ending)) COLLATE "C" AS name, max(extract(epoch FROM modified))
FROM (
    SELECT substr(key, %(skip)s) AS rest, modified FROM storage_documents WHERE key >= %(from)s AND key < %(to)s
    UNION ALL SELECT substr(key, %(skip)s), modified FROM storage_logs WHERE key >= %(from)s AND key < %(to)s
) AS keys, unnest(%(endings)s::text[]) AS ending
WHERE right(rest, length(ending)) = ending AND length(rest) > length(ending)
    AND strpos(left(rest, length(rest) - length(ending)), '/') = 0
GROUP BY 1
ORDER BY 2 DESC, 1 DESC

-- name: remove_documents
DELETE FROM storage_documents WHERE key >= %(from)s AND key < %(to)s

-- name: remove_logs
DELETE FROM storage_logs WHERE key >= %(from)s AND key < %(to)s

-- name: remove_blobs
DELETE FROM storage_blobs WHERE prefix = %(itself)s OR (prefix >= %(from)s AND prefix < %(to)s)

-- name: lease_holder
SELECT o.name, o.host, o.pid, o.since, o.heartbeat FROM storage_leases o JOIN pg_locks l ON l.pid = o.backend
WHERE o.key = %s AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = %s AND l.objid = %s

-- name: lease_in_doubt
SELECT name, host, pid, since, heartbeat, token, heartbeat < pg_postmaster_start_time() AS restarted FROM storage_leases
WHERE key = %s AND clock_timestamp() < greatest(heartbeat, pg_postmaster_start_time()) + make_interval(secs => %s)

-- name: lease_signed
SELECT name, host, pid, since, heartbeat FROM storage_leases WHERE key = %s

-- name: lease_token
SELECT token FROM storage_leases WHERE key = %s

-- name: sign_lease
INSERT INTO storage_leases (key, token, name, host, pid, since, backend) VALUES (%s, %s, %s, %s, %s, %s, pg_backend_pid())
ON CONFLICT (key) DO UPDATE SET token = excluded.token, name = excluded.name, host = excluded.host, pid = excluded.pid,
    since = excluded.since, backend = excluded.backend, heartbeat = excluded.heartbeat

-- name: beat_lease
UPDATE storage_leases SET heartbeat = clock_timestamp() WHERE key = %s AND token = %s

-- name: end_lease
DELETE FROM storage_leases WHERE key = %s AND token = %s
