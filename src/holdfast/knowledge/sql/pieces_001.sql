-- The table of vectors_002 once more, for a database in which it is missing.
CREATE TABLE knowledge_pieces (
    record     bigint NOT NULL REFERENCES knowledge_records (number) ON DELETE CASCADE,
    place      integer NOT NULL,
    collection integer NOT NULL,
    embedder   text NOT NULL,
    dimension  integer NOT NULL,
    vector     halfvec NOT NULL,
    PRIMARY KEY (record, embedder, place)
);
