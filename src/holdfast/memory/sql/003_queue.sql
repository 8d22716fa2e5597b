-- Conversations that wait to be learned from, of all machines, as in `queue.sql`. Moments are seconds since the epoch by this server's clock.
CREATE TABLE memory_queue_items (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id       text COLLATE "C" NOT NULL UNIQUE,
    thread   text COLLATE "C" NOT NULL,
    agent    text COLLATE "C" NOT NULL DEFAULT '',     -- '' is the global memory
    turns    text NOT NULL,                            -- JSON
    queued   double precision NOT NULL,
    due      double precision NOT NULL,
    claims   integer NOT NULL DEFAULT 0,               -- how often somebody began with it
    failures integer NOT NULL DEFAULT 0,
    holder   text,                                     -- who works on it now
    lease    double precision,                         -- until when the holder is believed
    error    text,
    gave_up  double precision
);
CREATE INDEX memory_queue_items_by_thread ON memory_queue_items (thread, agent, number);

CREATE TABLE memory_queue_seen (
    mark bytea PRIMARY KEY,
    time double precision NOT NULL
);
