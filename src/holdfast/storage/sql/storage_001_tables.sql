-- Everything that is kept behind the storage seam, by its key. A person may read and change it here: a mark is another one after any change.
CREATE TABLE storage_documents (
    key      text COLLATE "C" PRIMARY KEY,
    text     text,                                              -- the document, where it is text
    data     bytea,                                             -- otherwise its bytes
    mark     text GENERATED ALWAYS AS (coalesce(md5(text), md5(data))) STORED,
    modified timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((text IS NULL) <> (data IS NULL))
);

CREATE TABLE storage_logs (
    key        text COLLATE "C" PRIMARY KEY,
    generation text NOT NULL DEFAULT md5(random()::text || clock_timestamp()::text),
    modified   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE storage_records (
    key    text COLLATE "C" NOT NULL REFERENCES storage_logs (key) ON DELETE CASCADE,
    number bigint NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (key, number)
);

-- Who follows a log reads it anew once a record in it was changed or removed, by whomever.
CREATE FUNCTION storage_another_log() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE storage_logs SET generation = md5(random()::text || clock_timestamp()::text), modified = clock_timestamp()
    WHERE key IN (SELECT key FROM gone);
    RETURN NULL;
END
$$;
CREATE TRIGGER storage_records_changed AFTER UPDATE ON storage_records REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION storage_another_log();
CREATE TRIGGER storage_records_removed AFTER DELETE ON storage_records REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION storage_another_log();

CREATE TABLE storage_blobs (
    prefix   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    data     bytea NOT NULL,
    modified timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (prefix, name)
);

-- Who holds a lease. It says nothing without the advisory lock that the connection `backend` has.
CREATE TABLE storage_leases (
    key       text COLLATE "C" PRIMARY KEY,
    token     text NOT NULL,
    name      text NOT NULL,
    host      text NOT NULL,
    pid       integer NOT NULL,
    since     text NOT NULL,
    backend   integer NOT NULL,
    heartbeat timestamptz NOT NULL DEFAULT clock_timestamp()
);
