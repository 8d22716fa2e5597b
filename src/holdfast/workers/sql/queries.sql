-- The queries of the queue, each under its name. `procrastinate_*` are the engine's tables; they are only read here.

-- name: is_there
SELECT to_regclass('queued_sessions') IS NOT NULL AND to_regclass('procrastinate_jobs') IS NOT NULL

-- name: announce
INSERT INTO queued_sessions (session, priority, options) VALUES (%s, %s, %s) ON CONFLICT (session) DO NOTHING RETURNING session

-- name: retract
DELETE FROM queued_sessions WHERE session = %s

-- name: want
INSERT INTO queued_sessions (session, priority, options) VALUES (%(session)s, coalesce(%(priority)s, 0), %(options)s)
ON CONFLICT (session) DO UPDATE SET wanted = true, ticket = queued_sessions.ticket + 1, queued_at = clock_timestamp(),
    priority = coalesce(%(priority)s, queued_sessions.priority), options = queued_sessions.options || excluded.options,
    failures = 0, deaths = 0, problem = NULL, outcome = NULL, ended_at = NULL
RETURNING priority

-- name: unwant
UPDATE queued_sessions SET wanted = false, ended_at = clock_timestamp(), outcome = 'cancelled' WHERE session = %s AND wanted
RETURNING session

-- name: row
SELECT priority, options, wanted, ticket, failures, deaths, progress, problem, outcome,
    extract(epoch FROM clock_timestamp() - queued_at)::double precision FROM queued_sessions WHERE session = %s

-- name: waiting_job
SELECT id FROM procrastinate_jobs WHERE queueing_lock = %s AND status = 'todo'

-- name: begun
UPDATE queued_sessions SET worker = %(worker)s, begun_at = clock_timestamp(), progress = %(progress)s,
    failures = CASE WHEN progress < %(progress)s THEN 0 ELSE failures END,
    deaths = CASE WHEN progress < %(progress)s THEN 0 ELSE deaths END
WHERE session = %(session)s

-- name: ended
UPDATE queued_sessions SET wanted = false, ended_at = clock_timestamp(), outcome = %s, problem = %s WHERE session = %s AND ticket = %s

-- name: failed
UPDATE queued_sessions SET failures = failures + 1, problem = %s WHERE session = %s AND ticket = %s RETURNING failures

-- name: died
WITH dead AS (
    UPDATE queued_sessions SET deaths = deaths + 1 WHERE session = %s
        AND pg_postmaster_start_time() <= clock_timestamp() - make_interval(secs => %s) RETURNING 1
)
UPDATE queue_totals SET takeovers = takeovers + (SELECT count(*) FROM dead) RETURNING (SELECT count(*) FROM dead)

-- name: counts_takeovers
SELECT to_regclass('queue_totals') IS NOT NULL

-- name: takeovers
SELECT takeovers FROM queue_totals

-- name: without_job
SELECT q.session, q.priority, extract(epoch FROM clock_timestamp() - q.queued_at) FROM queued_sessions q
WHERE q.wanted AND q.queued_at < clock_timestamp() - make_interval(secs => %s)
    AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j WHERE j.lock = q.session AND j.status = 'doing')
    AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j WHERE j.queueing_lock = q.session AND j.status = 'todo')
ORDER BY q.priority DESC, q.queued_at LIMIT 100

-- name: sign_worker
INSERT INTO queue_workers (worker, name, host, pid, concurrency, version, engine) VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (worker) DO NOTHING

-- name: forget_workers
DELETE FROM queue_workers q WHERE NOT EXISTS (SELECT 1 FROM procrastinate_workers w WHERE w.id = q.worker)

-- name: forget_sessions
DELETE FROM queued_sessions q WHERE NOT wanted AND NOT EXISTS (SELECT 1 FROM storage_logs l WHERE l.key = %s || q.session || '/log.jsonl')
    AND NOT EXISTS (SELECT 1 FROM storage_documents d WHERE d.key = %s || q.session || '.json')

-- name: living_engines
SELECT engine FROM queue_workers q JOIN procrastinate_workers w ON w.id = q.worker
WHERE w.last_heartbeat > clock_timestamp() - interval '1 minute'

-- name: left
SELECT count(*) FROM queued_sessions WHERE wanted

-- name: counts
SELECT count(*) FILTER (WHERE NOT doing), count(*) FILTER (WHERE doing),
    max(extract(epoch FROM clock_timestamp() - queued_at)) FILTER (WHERE NOT doing), count(*) FILTER (WHERE failures > 0)
FROM (
    SELECT queued_at, failures, EXISTS (SELECT 1 FROM procrastinate_jobs j WHERE j.lock = q.session AND j.status = 'doing') AS doing
    FROM queued_sessions q WHERE wanted
) AS wanted

-- name: rates
SELECT count(*) FILTER (WHERE ended_at > clock_timestamp() - interval '1 minute' AND outcome = 'completed'),
    count(*) FILTER (WHERE outcome = 'completed'),
    count(*) FILTER (WHERE outcome = 'given up')
FROM queued_sessions WHERE ended_at > clock_timestamp() - interval '1 hour'

-- name: workers
SELECT q.worker, q.name, q.host, q.pid, q.concurrency, q.version, q.since, extract(epoch FROM clock_timestamp() - w.last_heartbeat),
    ARRAY(SELECT j.lock FROM procrastinate_jobs j WHERE j.worker_id = q.worker AND j.status = 'doing' ORDER BY j.id)
FROM queue_workers q JOIN procrastinate_workers w ON w.id = q.worker
WHERE w.last_heartbeat > clock_timestamp() - interval '15 seconds' OR EXISTS (SELECT 1 FROM procrastinate_jobs j WHERE j.worker_id = q.worker AND j.status = 'doing')
ORDER BY q.name, q.worker

-- name: places
SELECT q.session, q.wanted, q.priority, q.worker, q.problem, q.outcome, q.failures,
    EXISTS (SELECT 1 FROM procrastinate_jobs j WHERE j.lock = q.session AND j.status = 'doing')
FROM queued_sessions q WHERE q.session = ANY(%s)

-- name: take_call
INSERT INTO queue_rates AS r (model, available) VALUES (%(model)s, %(burst)s::double precision - 1)
ON CONFLICT (model) DO UPDATE SET updated = clock_timestamp(),
    available = least(%(burst)s, r.available + %(rate)s * greatest(0, extract(epoch FROM clock_timestamp() - r.updated))) - 1
WHERE least(%(burst)s, r.available + %(rate)s * greatest(0, extract(epoch FROM clock_timestamp() - r.updated))) >= 1
RETURNING available

-- name: rates_of_a_later_clock
UPDATE queue_rates SET updated = clock_timestamp() WHERE updated > clock_timestamp()

-- name: calls_left
SELECT least(%(burst)s, available + %(rate)s * greatest(0, extract(epoch FROM clock_timestamp() - updated))) FROM queue_rates WHERE model = %(model)s

-- name: slots_held
SELECT count(DISTINCT objid::bigint | (classid::bigint << 32)) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND ((classid::bigint << 32) | objid::bigint) = ANY(%s)

-- name: schedules
SELECT name, cron, timezone, task, priority, next_at, last_at, last, problem, file FROM queue_schedules ORDER BY name

-- name: put_schedule
INSERT INTO queue_schedules (name, cron, timezone, workflow, file, task, parameters, options, priority, next_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, timezone = excluded.timezone, workflow = excluded.workflow, file = excluded.file,
    task = excluded.task, parameters = excluded.parameters, options = excluded.options, priority = excluded.priority,
    next_at = excluded.next_at, problem = NULL

-- name: drop_schedule
DELETE FROM queue_schedules WHERE name = %s RETURNING name

-- name: due_schedule
SELECT name, cron, timezone, workflow, file, task, parameters, options, priority, next_at, clock_timestamp()
FROM queue_schedules WHERE next_at <= clock_timestamp() ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED

-- name: schedule_fired
UPDATE queue_schedules SET next_at = %s, last_at = %s, last = %s, problem = %s WHERE name = %s
