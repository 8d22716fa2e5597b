-- Memory moves behind the storage seam: documents, histories and quarantines become documents and logs by their keys.
INSERT INTO storage_documents (key, text, modified)
SELECT CASE scope WHEN '' THEN '' ELSE 'agents/' || scope || '/' END || 'memory.json', document::text, written FROM memory_documents
ON CONFLICT (key) DO NOTHING;

INSERT INTO storage_documents (key, text)
SELECT CASE scope WHEN '' THEN '' ELSE 'agents/' || scope || '/' END || 'memory.d/quarantine.json',
       '{"schema": 1, "held": [' || string_agg(held::text, ', ' ORDER BY number) || ']}'
FROM memory_held GROUP BY scope
ON CONFLICT (key) DO NOTHING;

INSERT INTO storage_logs (key)
SELECT DISTINCT CASE scope WHEN '' THEN '' ELSE 'agents/' || scope || '/' END || 'memory.d/history.jsonl' FROM memory_changes
ON CONFLICT (key) DO NOTHING;

INSERT INTO storage_records (key, number, record)
SELECT CASE scope WHEN '' THEN '' ELSE 'agents/' || scope || '/' END || 'memory.d/history.jsonl',
       row_number() OVER (PARTITION BY scope ORDER BY number), record::text
FROM memory_changes
ON CONFLICT (key, number) DO NOTHING;

INSERT INTO storage_documents (key, text)
SELECT CASE scope WHEN '' THEN '' ELSE 'agents/' || scope || '/' END
       || CASE kind WHEN 'document' THEN 'memory.json' ELSE 'memory.d/quarantine.json' END
       || '.damaged-' || to_char(moved AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"') || '-' || number, content
FROM memory_damaged
ON CONFLICT (key) DO NOTHING;

DROP TABLE memory_documents, memory_changes, memory_held, memory_damaged;
