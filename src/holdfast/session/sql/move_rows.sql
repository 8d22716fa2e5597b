-- The rows of the first version, moved to the keys under which the storage seam keeps the same things as files (O7). {prefix} is `sessions`.
INSERT INTO storage_documents (key, text) SELECT {prefix} || '/' || id || '.json', document FROM sessions ON CONFLICT DO NOTHING;
INSERT INTO storage_documents (key, text) SELECT {prefix} || '/' || id || '/claim', '' FROM session_ids ON CONFLICT DO NOTHING;
INSERT INTO storage_documents (key, text) SELECT {prefix} || '/' || session || '/stages/' || name, text FROM session_files ON CONFLICT DO NOTHING;
INSERT INTO storage_documents (key, text)
SELECT {prefix} || '/' || session || '.json.damaged-' || number, document FROM session_damaged ON CONFLICT DO NOTHING;

INSERT INTO storage_logs (key) SELECT DISTINCT {prefix} || '/' || session || '/checkpoints.jsonl' FROM session_checkpoints ON CONFLICT DO NOTHING;
INSERT INTO storage_records (key, number, record)
SELECT {prefix} || '/' || session || '/checkpoints.jsonl', row_number() OVER (PARTITION BY session ORDER BY number),
    json_build_object('checkpoint', name, 'at', at, 'document', document)::text
FROM session_checkpoints ON CONFLICT DO NOTHING;

INSERT INTO storage_blobs (prefix, name, data)
SELECT DISTINCT ON (r.session, r.ref) {prefix} || '/' || r.session || '/raw', substr(r.ref, 5), b.data
FROM session_raw r JOIN session_blobs b USING (ref) ON CONFLICT DO NOTHING;
INSERT INTO storage_logs (key) SELECT DISTINCT {prefix} || '/' || session || '/raw/index.jsonl' FROM session_raw ON CONFLICT DO NOTHING;
INSERT INTO storage_records (key, number, record)
SELECT {prefix} || '/' || r.session || '/raw/index.jsonl', row_number() OVER (PARTITION BY r.session ORDER BY r.number),
    json_build_object('ref', r.ref, 'media_type', r.media_type, 'source', r.source, 'size', length(b.data), 'at', r.at)::text
FROM session_raw r JOIN session_blobs b USING (ref) ON CONFLICT DO NOTHING;

DROP TABLE session_raw, session_blobs, session_checkpoints, session_files, session_damaged, session_cancels, session_owners, session_ids, sessions;
UPDATE schemas SET number = 2 WHERE component = 'session';
