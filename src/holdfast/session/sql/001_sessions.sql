-- Sessions with everything that belongs to them. `document` is the text of the session's JSON file, byte for byte: a person may read and
-- edit it here too, so what it holds is checked at reading and not by a type.
CREATE TABLE sessions (
    id       text PRIMARY KEY,
    revision bigint NOT NULL,
    updated  text NOT NULL,
    document text NOT NULL,
    mark     text GENERATED ALWAYS AS (md5(document)) STORED,   -- another one after any edit
    brief    json,                                              -- the line of a list, true while `of` is the mark
    of       text
);

-- Ids that were given out, also where the session was not made yet.
CREATE TABLE session_ids (id text PRIMARY KEY);

-- Who runs a session. It says nothing without the advisory lock that the connection `backend` holds.
CREATE TABLE session_owners (
    id        text PRIMARY KEY,
    token     text NOT NULL,
    name      text NOT NULL,
    host      text NOT NULL,
    pid       integer NOT NULL,
    since     text NOT NULL,
    backend   integer NOT NULL,
    heartbeat timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE session_cancels (id text PRIMARY KEY, at text NOT NULL);

CREATE TABLE session_checkpoints (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session       text NOT NULL,
    name          text NOT NULL,
    at            text NOT NULL,
    revision      bigint NOT NULL,
    status        text NOT NULL,
    current_stage text,
    completed     integer NOT NULL,
    document      text NOT NULL,
    UNIQUE (session, name)
);

-- Bytes by their hash, kept once for all sessions, and what each session knows of them.
CREATE TABLE session_blobs (ref text PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE session_raw (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session    text NOT NULL,
    ref        text NOT NULL REFERENCES session_blobs (ref),
    media_type text NOT NULL,
    source     text,
    at         text NOT NULL
);
CREATE UNIQUE INDEX session_raw_facts ON session_raw (session, ref, media_type, coalesce(source, ''), (source IS NULL));
CREATE INDEX session_raw_by_ref ON session_raw (ref);

-- What a stage was given and what it wrote: NN-name/context.md, NN-name/output.md.
CREATE TABLE session_files (
    session text NOT NULL,
    name    text NOT NULL,
    text    text NOT NULL,
    PRIMARY KEY (session, name)
);

-- States that could not be read, as they were found.
CREATE TABLE session_damaged (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session  text NOT NULL,
    moved    timestamptz NOT NULL DEFAULT now(),
    document text NOT NULL
);
