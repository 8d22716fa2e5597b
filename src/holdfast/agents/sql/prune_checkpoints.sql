-- The newest checkpoint that needs none before it and has at least :keep rows at or after it: everything older can go.
-- `rowid` is the order of writing; ids of two processes whose clocks differ need not sort that way.
SELECT whole.rowid FROM checkpoints AS whole
WHERE whole.thread_id = :thread AND whole.checkpoint_ns = :ns
  AND json_extract(CAST(whole.metadata AS TEXT), '$.counters_since_delta_snapshot') IS NULL
  AND (
    SELECT count(*) FROM checkpoints AS later
    WHERE later.thread_id = :thread AND later.checkpoint_ns = :ns AND later.rowid >= whole.rowid
  ) >= :keep
ORDER BY whole.rowid DESC LIMIT 1;
