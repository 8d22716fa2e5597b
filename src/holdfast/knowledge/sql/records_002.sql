-- What the ranking needs of every record besides its terms, and of all records together. Rows that were written before are analysed and
-- counted again by the store when it is opened.
ALTER TABLE knowledge_records
    ADD COLUMN analysis text NOT NULL DEFAULT '',       -- how its text was analysed; empty: not counted yet
    ADD COLUMN role     text,
    ADD COLUMN speaker  text,                           -- the bare words of the name, small
    ADD COLUMN size     integer NOT NULL DEFAULT 0;     -- how many terms it has
CREATE INDEX knowledge_records_by_analysis ON knowledge_records (collection, analysis);
CREATE INDEX knowledge_records_by_speaker ON knowledge_records (collection, speaker) WHERE speaker IS NOT NULL;

ALTER TABLE knowledge_terms ADD COLUMN spoken bigint NOT NULL DEFAULT 0;        -- of them no assistant's answers
ALTER TABLE knowledge_collections
    ADD COLUMN spoken      bigint NOT NULL DEFAULT 0,   -- records that are no assistant's answers
    ADD COLUMN size        bigint NOT NULL DEFAULT 0,   -- terms of these
    ADD COLUMN answer_size bigint NOT NULL DEFAULT 0;   -- terms of answers
UPDATE knowledge_collections SET records = 0;
DELETE FROM knowledge_terms;
DELETE FROM knowledge_languages;
