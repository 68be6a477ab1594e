-- The first schema. Dates are integer milliseconds since 1970 (UTC), identifiers UUIDv7 text, amounts of money
-- integer millionths of a US dollar, structures JSON text.

-- Who owns a lane. Every write on a lane's behalf compares owner and epoch.
CREATE TABLE sessions (
    session TEXT PRIMARY KEY NOT NULL,
    owner   TEXT NOT NULL,
    epoch   INTEGER NOT NULL CHECK (epoch >= 1),
    thread  TEXT NOT NULL -- the active one
) STRICT, WITHOUT ROWID;

CREATE TABLE threads (
    id             TEXT PRIMARY KEY NOT NULL,
    session        TEXT NOT NULL,
    state          TEXT NOT NULL
                   CHECK (state IN ('idle', 'processing', 'awaiting_approval', 'interrupted', 'completed')),
    turns          INTEGER NOT NULL DEFAULT 0 CHECK (turns >= 0),                -- number of the last turn
    undone         INTEGER NOT NULL DEFAULT 0 CHECK (undone BETWEEN 0 AND 20),   -- turns that redo could show again
    last_active_at INTEGER NOT NULL,
    summary_upto   INTEGER NOT NULL DEFAULT 0, -- messages up to here are left out of a load
    summary        TEXT
) STRICT, WITHOUT ROWID;

-- The inbox and the runs in one: a message makes exactly one run, and one row is written instead of two.
CREATE TABLE runs (
    seq            INTEGER PRIMARY KEY, -- order of acceptance
    id             TEXT NOT NULL UNIQUE,
    session        TEXT NOT NULL,
    status         TEXT NOT NULL
                   CHECK (status IN ('accepted', 'queued', 'running', 'paused', 'completed', 'stopped', 'failed')),
    attempt        INTEGER NOT NULL DEFAULT 0,
    thread         TEXT,    -- from the first start on
    turn           INTEGER, -- its number in the thread
    accepted_at    INTEGER NOT NULL,
    started_at     INTEGER,
    ended_at       INTEGER,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    model_calls    INTEGER NOT NULL DEFAULT 0,
    tool_calls     INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd INTEGER NOT NULL DEFAULT 0,
    reason         TEXT,
    evidence       TEXT,
    channel        TEXT NOT NULL,
    principal      TEXT NOT NULL,
    reply_to       TEXT,
    key_channel    TEXT,
    key_account    TEXT,
    key_message    TEXT,
    digest         TEXT, -- of the text, where there is a key
    reply          TEXT,
    state          TEXT, -- of the loop, at the last checkpoint
    text           TEXT NOT NULL,
    history        TEXT, -- brought along, until the first start
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'stopped', 'failed'))),
    CHECK ((ended_at IS NULL) = (reason IS NULL)),
    CHECK ((thread IS NULL) = (turn IS NULL)),
    CHECK ((key_message IS NULL) = (digest IS NULL))
) STRICT;
CREATE UNIQUE INDEX runs_key ON runs (key_channel, key_account, key_message) WHERE key_message IS NOT NULL;
CREATE INDEX runs_of_session ON runs (session);
CREATE INDEX runs_open ON runs (session) WHERE ended_at IS NULL;

-- Rows are hidden and never deleted, so the highest position of a thread only grows.
CREATE TABLE messages (
    thread   TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    turn     INTEGER NOT NULL,
    run_id   TEXT, -- none for a history that was brought along
    role     TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    scope    TEXT NOT NULL CHECK (scope IN ('thread', 'run')),
    shown    TEXT NOT NULL DEFAULT 'visible' CHECK (shown IN ('visible', 'undone', 'cleared')),
    at       INTEGER NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (thread, position)
) STRICT, WITHOUT ROWID;

-- Rows are never deleted, so the number only grows.
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    session TEXT,
    run_id  TEXT,
    kind    TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_run ON events (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE outbox (
    seq          INTEGER PRIMARY KEY, -- order of commit, which is the order of delivery within a conversation
    id           TEXT NOT NULL UNIQUE,
    run_id       TEXT,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    reply_to     TEXT,
    state        TEXT NOT NULL DEFAULT 'waiting'
                 CHECK (state IN ('waiting', 'sending', 'sent', 'ambiguous', 'failed')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    pieces_sent  INTEGER NOT NULL DEFAULT 0,
    due_at       INTEGER, -- not before; none: at once
    text         TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_open ON outbox (channel, conversation, seq) WHERE state IN ('waiting', 'sending');

-- The sum of a day is kept beside its reservations, so that asking for it costs the same after a million calls.
CREATE TABLE spend_days (
    utc_day   INTEGER PRIMARY KEY,
    micro_usd INTEGER NOT NULL
) STRICT;
CREATE TABLE reservations (
    id        INTEGER PRIMARY KEY,
    utc_day   INTEGER NOT NULL,
    run_id    TEXT NOT NULL,
    micro_usd INTEGER NOT NULL CHECK (micro_usd >= 0), -- reserved; once settled, what it cost
    settled   INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1))
) STRICT;

CREATE TABLE notes (
    session TEXT NOT NULL,
    key     TEXT NOT NULL,
    at      INTEGER NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- What a readiness check writes.
CREATE TABLE pings (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    count INTEGER NOT NULL
) STRICT;
INSERT INTO pings VALUES (1, 0);
