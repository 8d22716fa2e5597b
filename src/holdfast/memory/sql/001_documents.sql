-- Memory documents with their history and quarantine. A scope is '' for the global memory, else the name of an agent.
-- JSON stands in columns of type json, not jsonb: unknown members keep their order, and a NUL character, which jsonb refuses, survives.
CREATE TABLE memory_documents (
    scope    text PRIMARY KEY,
    revision bigint NOT NULL,
    written  timestamptz NOT NULL DEFAULT now(),
    document json NOT NULL
);

CREATE TABLE memory_changes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope  text NOT NULL,
    id     text NOT NULL,
    item   text,                -- the update of the queue that the change comes from
    time   text NOT NULL,
    record json NOT NULL,
    UNIQUE (scope, id)
);
CREATE INDEX memory_changes_by_scope ON memory_changes (scope, number);
CREATE INDEX memory_changes_by_item ON memory_changes (scope, item) WHERE item IS NOT NULL;

CREATE TABLE memory_held (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope  text NOT NULL,
    id     text NOT NULL,
    held   json NOT NULL,
    UNIQUE (scope, id)
);

-- What could not be read, as it was found.
CREATE TABLE memory_damaged (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope   text NOT NULL,
    kind    text NOT NULL,
    moved   timestamptz NOT NULL DEFAULT now(),
    reason  text NOT NULL,
    content text NOT NULL
);
