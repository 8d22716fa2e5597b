-- What the queue asks, in SQLite and PostgreSQL alike, each under its name. {queue} begins the names of its tables, {listed} are the
-- members of a JSON array. Moments are seconds since the epoch.

-- name: mark
INSERT INTO {queue}seen (mark, time) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: joinable
SELECT id, turns, queued FROM {queue}items WHERE thread = ? AND agent = ? AND claims = 0 AND gave_up IS NULL ORDER BY number DESC LIMIT 1

-- name: join
UPDATE {queue}items SET turns = ?, due = ? WHERE id = ?

-- name: add
INSERT INTO {queue}items (id, thread, agent, turns, queued, due, claims, failures, error, gave_up) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: claim
UPDATE {queue}items SET holder = ?, lease = ?, claims = claims + 1 WHERE number = (
    SELECT number FROM {queue}items AS mine
    WHERE gave_up IS NULL AND (holder IS NULL OR lease < ?) AND (? OR due <= ? OR queued > ?)
        AND id NOT IN ({listed}) AND (? OR id IN ({listed}))
        AND NOT EXISTS (
            SELECT 1 FROM {queue}items AS older
            WHERE older.thread = mine.thread AND older.agent = mine.agent AND older.number < mine.number AND older.gave_up IS NULL
        )
    ORDER BY due, number LIMIT 1
)
RETURNING id, thread, agent, turns, queued, due, claims, failures, holder, error, gave_up

-- name: holds
SELECT 1 FROM {queue}items WHERE id = ? AND holder = ?

-- name: complete
DELETE FROM {queue}items WHERE id = ? AND holder = ?

-- name: release
UPDATE {queue}items SET holder = NULL, lease = NULL WHERE id = ? AND holder = ?

-- name: fail
UPDATE {queue}items SET holder = NULL, lease = NULL, failures = ?, error = ?, due = ? WHERE id = ? AND holder = ?

-- name: give_up
UPDATE {queue}items SET holder = NULL, lease = NULL, failures = failures + 1, error = ?, gave_up = ? WHERE id = ? AND holder = ?

-- name: held
SELECT id, holder FROM {queue}items WHERE holder IS NOT NULL

-- name: retry
UPDATE {queue}items SET gave_up = NULL, failures = 0, due = ? WHERE gave_up IS NOT NULL

-- name: items
SELECT id, thread, agent, turns, queued, due, claims, failures, holder, error, gave_up FROM {queue}items ORDER BY number

-- name: count
SELECT count(*) FROM {queue}items WHERE gave_up IS NULL

-- name: next_due
SELECT min(CASE WHEN holder IS NULL THEN due ELSE lease END) FROM {queue}items WHERE gave_up IS NULL

-- name: remove
DELETE FROM {queue}items WHERE id = ?

-- name: shorten
UPDATE {queue}items SET turns = ?, holder = NULL, lease = NULL WHERE id = ?

-- name: count_given_up
SELECT count(*) FROM {queue}items WHERE gave_up < ?

-- name: prune
DELETE FROM {queue}items WHERE gave_up < ?

-- name: marks
SELECT mark, time FROM {queue}seen

-- name: unmark
DELETE FROM {queue}seen WHERE time < ?
