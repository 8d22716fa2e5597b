-- The vectors of a piece, made by whoever ranks results by meaning; lost without harm.
CREATE TABLE meanings (row INTEGER PRIMARY KEY, vectors BLOB NOT NULL, tokens BLOB NOT NULL);
