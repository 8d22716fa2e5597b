-- Records by collection, with the terms that they are found under. Terms are our own stems, so no configuration of the server's full text
-- search is involved: the vectors are made by array_to_tsvector.
CREATE TABLE knowledge_collections (
    number  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    records bigint NOT NULL DEFAULT 0,
    token   text NOT NULL DEFAULT ''        -- of the newest change
);

CREATE TABLE knowledge_records (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    collection integer NOT NULL REFERENCES knowledge_collections (number),
    id         text NOT NULL,
    record     json NOT NULL,
    session    text,
    position   bigint,
    time       timestamptz,
    kind       text NOT NULL,
    tags       text[] NOT NULL,
    language   text NOT NULL,
    counts     jsonb NOT NULL,              -- how often each term comes
    terms      tsvector NOT NULL,
    UNIQUE (collection, id)
);
CREATE INDEX knowledge_records_by_terms ON knowledge_records USING gin (terms);
CREATE INDEX knowledge_records_by_tags ON knowledge_records USING gin (tags);
CREATE INDEX knowledge_records_by_session ON knowledge_records (collection, session, position);
CREATE INDEX knowledge_records_by_time ON knowledge_records (collection, time) WHERE time IS NOT NULL;

-- In how many records of a collection a term comes.
CREATE TABLE knowledge_terms (
    collection integer NOT NULL,
    term       text COLLATE "C" NOT NULL,
    records    bigint NOT NULL,
    PRIMARY KEY (collection, term)
);

-- In how many records of a collection each language was found.
CREATE TABLE knowledge_languages (
    collection integer NOT NULL,
    language   text NOT NULL,
    records    bigint NOT NULL,
    PRIMARY KEY (collection, language)
);
