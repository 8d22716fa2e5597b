-- The meaning of each piece of a record: one vector, and those of its words for the comparison word by word. Embedders differ in how many
-- numbers a vector has, so the column has no size, and each size gets an index of its own (knowledge_pieces_N).
CREATE TABLE knowledge_pieces (
    record     bigint NOT NULL REFERENCES knowledge_records (number) ON DELETE CASCADE,
    place      integer NOT NULL,
    collection integer NOT NULL,
    embedder   text NOT NULL,
    hash       bytea NOT NULL,
    dimension  integer NOT NULL,
    vector     halfvec NOT NULL,
    tokens     bytea,                       -- one signed byte for each number, row by row
    words      text[] NOT NULL,
    PRIMARY KEY (record, embedder, place)
);
CREATE INDEX knowledge_pieces_by_hash ON knowledge_pieces (hash, embedder);
