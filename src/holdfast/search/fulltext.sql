-- A full-text index. `pieces` says where each piece of a document is; `words` holds its analysed terms, parted by spaces.
-- The tokenizer only cuts at spaces: every printable ASCII mark that a term may hold counts as a letter.
CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE totals (one INTEGER PRIMARY KEY CHECK (one = 1), pieces INTEGER NOT NULL, size REAL NOT NULL);
INSERT INTO totals VALUES (1, 0, 0);

CREATE TABLE languages (code TEXT PRIMARY KEY, pieces INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE pieces (
    row INTEGER PRIMARY KEY,
    document TEXT NOT NULL,
    ref INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time TEXT NOT NULL,
    scope TEXT NOT NULL,
    language TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    size REAL NOT NULL
);
CREATE INDEX pieces_by_document ON pieces (document);
CREATE INDEX pieces_by_time ON pieces (time);

CREATE VIRTUAL TABLE words USING fts5(a, b, c, d, tokenize = "ascii tokenchars '!#$%&()*+,-./:;<=>?@[\]^_{|}~'");
CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, row);
