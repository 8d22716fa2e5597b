-- Which sessions are the queue's. The job that advances one is procrastinate's; this row says whether there should be one.
CREATE TABLE queued_sessions (
    session   text COLLATE "C" PRIMARY KEY,
    priority  integer NOT NULL DEFAULT 0,
    options   jsonb NOT NULL DEFAULT '{}',          -- how it is run: model, knowledge, remember
    wanted    boolean NOT NULL DEFAULT true,        -- whether it is to be advanced
    ticket    integer NOT NULL DEFAULT 1,           -- another one each time it is queued: an older job does not end a newer wish
    queued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    begun_at  timestamptz,
    ended_at  timestamptz,
    worker    text,                                 -- who advanced it last
    progress  integer NOT NULL DEFAULT 0,           -- completed stages when it was last begun
    failures  integer NOT NULL DEFAULT 0,           -- since then
    deaths    integer NOT NULL DEFAULT 0,           -- workers that died at it since then
    outcome   text,                                 -- how it ended: the status of the session, or `given up`
    problem   text
);
CREATE INDEX queued_sessions_wanted ON queued_sessions (queued_at) WHERE wanted;
CREATE INDEX queued_sessions_ended ON queued_sessions (ended_at) WHERE ended_at IS NOT NULL;

-- Who works. The number and the sign of life are those of procrastinate's worker.
CREATE TABLE queue_workers (
    worker      bigint PRIMARY KEY,
    name        text NOT NULL,
    host        text NOT NULL,
    pid         integer NOT NULL,
    concurrency integer NOT NULL,
    version     text NOT NULL,
    engine      text NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Calls of a model that may be made now, over all workers.
CREATE TABLE queue_rates (
    model     text PRIMARY KEY,
    available double precision NOT NULL,
    updated   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Workflows that are begun by the clock.
CREATE TABLE queue_schedules (
    name       text PRIMARY KEY,
    cron       text NOT NULL,
    timezone   text NOT NULL,
    workflow   jsonb NOT NULL,
    file       text,
    task       text,
    parameters jsonb NOT NULL DEFAULT '{}',
    options    jsonb NOT NULL DEFAULT '{}',
    priority   integer NOT NULL DEFAULT 0,
    next_at    timestamptz NOT NULL,
    last_at    timestamptz,
    last       text,                                -- the session that was begun last
    problem    text
);

-- Steps of procrastinate's own tables that were carried out.
CREATE TABLE queue_engine_steps (
    name text PRIMARY KEY
);
