-- The records are what counts; everything else is made from them and can be made again.
CREATE TABLE records (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT NOT NULL UNIQUE,
    session TEXT,
    time    INTEGER,          -- milliseconds since 1970
    kind    TEXT NOT NULL,
    record  TEXT NOT NULL,    -- all of it, as JSON
    meaning INTEGER,          -- its row in meanings, where it has one
    segment INTEGER           -- the segment that it is indexed in; NULL: not yet
);
CREATE INDEX records_by_segment ON records (segment);
CREATE INDEX records_by_meaning ON records (meaning) WHERE meaning IS NOT NULL;
CREATE INDEX records_by_session ON records (session) WHERE session IS NOT NULL;

CREATE TABLE tags (
    tag    TEXT NOT NULL,
    record INTEGER NOT NULL REFERENCES records (number) ON DELETE CASCADE,
    PRIMARY KEY (tag, record)
) WITHOUT ROWID;
CREATE INDEX tags_by_record ON tags (record);

-- What a text means to an embedder: computed once for equal texts, and kept as long as a record needs it.
CREATE TABLE meanings (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    hash    BLOB NOT NULL UNIQUE,
    vectors BLOB NOT NULL,
    tokens  BLOB NOT NULL
);

-- The index, in parts that never change: one is added, several become one, one is replaced by another without what was forgotten.
CREATE TABLE segments (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    form     TEXT NOT NULL,   -- how its texts were analysed, and by which embedder
    records  INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body     BLOB NOT NULL
);
