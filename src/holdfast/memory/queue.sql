-- Conversations that wait to be learned from. Moments are seconds since the epoch.
CREATE TABLE items (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    id      TEXT    NOT NULL UNIQUE,
    thread  TEXT    NOT NULL,
    agent   TEXT    NOT NULL DEFAULT '',       -- '' is the global memory
    turns   TEXT    NOT NULL,                  -- JSON
    queued  REAL    NOT NULL,
    due     REAL    NOT NULL,
    claims  INTEGER NOT NULL DEFAULT 0,        -- how often somebody began with it
    failures INTEGER NOT NULL DEFAULT 0,
    holder  TEXT,                              -- who works on it now
    lease   REAL,                              -- until when the holder is believed
    error   TEXT,
    gave_up REAL
);
CREATE INDEX items_by_thread ON items (thread, agent, number);

-- Marks of the turns that were queued once: the same conversation sent again teaches nothing new. Hashes, no words.
CREATE TABLE seen (
    mark BLOB PRIMARY KEY,
    time REAL NOT NULL
) WITHOUT ROWID;
