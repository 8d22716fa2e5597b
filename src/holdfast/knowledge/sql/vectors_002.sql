-- The meaning of a record in the form that every store keeps: the vectors of its pieces and of their words, a byte a number. The pieces once
-- more as halfvec, by which the index finds the nearest. Vectors of the form before are made again.
DROP TABLE knowledge_pieces;
CREATE TABLE knowledge_meanings (
    record   bigint NOT NULL REFERENCES knowledge_records (number) ON DELETE CASCADE,
    embedder text NOT NULL,
    hash     bytea NOT NULL,
    pieces   integer NOT NULL,
    vectors  bytea NOT NULL,
    tokens   bytea NOT NULL,
    PRIMARY KEY (record, embedder)
);
CREATE INDEX knowledge_meanings_by_hash ON knowledge_meanings (hash);
CREATE TABLE knowledge_pieces (
    record     bigint NOT NULL REFERENCES knowledge_records (number) ON DELETE CASCADE,
    place      integer NOT NULL,
    collection integer NOT NULL,
    embedder   text NOT NULL,
    dimension  integer NOT NULL,
    vector     halfvec NOT NULL,
    PRIMARY KEY (record, embedder, place)
);
