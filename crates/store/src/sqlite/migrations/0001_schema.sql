-- The schema. Until the first release this file is edited in place: a store of another edition is refused at the start (see
-- sqlite/open.rs). Dates are integer milliseconds since 1970 (UTC), identifiers UUIDv7 text, amounts of money integer millionths of
-- a US dollar, structures JSON text.

-- Who owns a lane. Every write on a lane's behalf compares owner and epoch.
CREATE TABLE sessions (
    session        TEXT PRIMARY KEY NOT NULL,
    owner          TEXT NOT NULL,
    epoch          INTEGER NOT NULL CHECK (epoch >= 1),
    thread         TEXT NOT NULL, -- the active one
    opened_at      INTEGER NOT NULL, -- when its lane was last opened: what is being used is not too old
    loop_detection INTEGER NOT NULL DEFAULT 1 CHECK (loop_detection = 0 OR loop_detection = 1), -- a person may switch it off
    options        TEXT -- what it asks of all its runs: JSON; none where nothing is asked
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
    summary        TEXT,
    -- Of a session that was created for one request: not listed by default, and deleted soon. A thread that is left without its
    -- session still has the mark.
    ephemeral      INTEGER NOT NULL DEFAULT 0 CHECK (ephemeral IN (0, 1))
) STRICT, WITHOUT ROWID;
CREATE INDEX threads_of_session ON threads (session);
CREATE INDEX threads_by_age ON threads (last_active_at);
CREATE INDEX threads_ephemeral ON threads (last_active_at) WHERE ephemeral = 1;

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
    estimated_calls INTEGER NOT NULL DEFAULT 0, -- requests whose tokens and cost the provider did not report
    cost_micro_usd INTEGER NOT NULL DEFAULT 0,
    reason         TEXT,
    evidence       TEXT,
    work           TEXT NOT NULL, -- what it is, a chat, a job or a routine run: JSON
    channel        TEXT NOT NULL,
    principal      TEXT NOT NULL,
    asker_place    TEXT NOT NULL
                   CHECK (asker_place = 'conversation' OR asker_place = 'token' OR asker_place = 'operator'),
    relayed        INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    spoken         INTEGER NOT NULL CHECK (spoken = 0 OR spoken = 1), -- whether a person said it
    reply_to       TEXT,
    key_channel    TEXT,
    key_account    TEXT,
    key_message    TEXT,
    digest         TEXT, -- of what was sent, where it has a key or an id of its platform
    message_ref    TEXT, -- the platform's id of the message, unique within the session
    edited         TEXT, -- digest of the last edit that was taken; none: none was
    options        TEXT, -- what it asks: JSON; none where nothing is asked
    provenance     TEXT, -- who wrote it and what came with it: JSON; none: the text alone
    reply          TEXT,
    state          TEXT, -- of the loop, at the last checkpoint
    text           TEXT NOT NULL,
    history        TEXT, -- brought along, until the first start
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'stopped', 'failed'))),
    CHECK ((ended_at IS NULL) = (reason IS NULL)),
    CHECK ((thread IS NULL) = (turn IS NULL)),
    CHECK (digest IS NOT NULL OR (key_message IS NULL AND message_ref IS NULL))
) STRICT;
CREATE UNIQUE INDEX runs_key ON runs (key_channel, key_account, key_message) WHERE key_message IS NOT NULL;
CREATE INDEX runs_of_session ON runs (session);
CREATE INDEX runs_open ON runs (session) WHERE ended_at IS NULL;
CREATE INDEX runs_by_message ON runs (session, message_ref) WHERE message_ref IS NOT NULL;
CREATE INDEX runs_without_thread ON runs (ended_at) WHERE thread IS NULL AND ended_at IS NOT NULL;

-- Whole conversations are deleted, never a part of one that goes on, so the highest position of a thread only grows.
CREATE TABLE messages (
    thread   TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 1),
    turn     INTEGER NOT NULL,
    run_id   TEXT, -- none for a history that was brought along
    role     TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    scope    TEXT NOT NULL CHECK (scope IN ('thread', 'run')),
    shown    TEXT NOT NULL DEFAULT 'visible' CHECK (shown IN ('visible', 'undone', 'cleared')),
    at       INTEGER NOT NULL,
    doc      INTEGER, -- its row in message_words, where it has words
    summarised INTEGER NOT NULL DEFAULT 0, -- the thread's summary stands for it: no later load of the thread has it
    body     TEXT NOT NULL,
    PRIMARY KEY (thread, position)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_doc ON messages (doc) WHERE doc IS NOT NULL;

-- The words of what people and model said; the texts stand in messages.
CREATE VIRTUAL TABLE message_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

-- The newest event is never deleted, so the number only grows.
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    session TEXT,
    run_id  TEXT,
    kind    TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_run ON events (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX events_of_session ON events (session) WHERE run_id IS NULL AND session IS NOT NULL;

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
    preview      TEXT, -- the message on the platform that this one takes the place of
    question     TEXT, -- the question that it asks, if it is one: JSON
    text         TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_open ON outbox (channel, conversation, seq) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_of_run ON outbox (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_of_nobody ON outbox (id) WHERE run_id IS NULL;

-- One row for each question. Rows are never deleted.
CREATE TABLE gates (
    seq         INTEGER PRIMARY KEY, -- order of asking
    id          TEXT NOT NULL UNIQUE,
    run_id      TEXT NOT NULL,
    session     TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    tool        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind = 'approval' OR kind = 'credential'),
    secret_name TEXT, -- which secret, for a credential
    summary     TEXT NOT NULL,
    arguments   TEXT NOT NULL, -- JSON, sensitive ones replaced
    why         TEXT NOT NULL,
    bound       TEXT NOT NULL, -- JSON: pairs of name and value
    digest      TEXT NOT NULL,
    covers      TEXT,
    principal   TEXT NOT NULL,
    asker_place TEXT NOT NULL CHECK (asker_place = 'conversation' OR asker_place = 'token' OR asker_place = 'operator'),
    relayed     INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    asked_at    INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    state       TEXT NOT NULL DEFAULT 'waiting'
                CHECK (state = 'waiting' OR state = 'approved' OR state = 'used' OR state = 'denied'
                       OR state = 'expired' OR state = 'withdrawn'),
    decided_by  TEXT,
    decided_at  INTEGER,
    CHECK ((kind = 'credential') = (secret_name IS NOT NULL)),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    CHECK (state <> 'waiting' OR decided_by IS NULL)
) STRICT;
CREATE INDEX gates_of_run ON gates (run_id);
CREATE INDEX gates_of_session ON gates (session);
CREATE INDEX gates_waiting ON gates (session) WHERE state = 'waiting';

-- What a session has said "always" to.
CREATE TABLE grants (
    session TEXT NOT NULL,
    tool    TEXT NOT NULL,
    covers  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (session, tool, covers)
) STRICT, WITHOUT ROWID;

-- Secrets that people gave, sealed: without the key, which is not in this file, they cannot be read.
CREATE TABLE secrets (
    session TEXT NOT NULL,
    name    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    sealed  BLOB NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

-- Commands and answers to questions that were acted on: a second delivery, also after a restart, does nothing.
CREATE TABLE acted_on (
    seq         INTEGER PRIMARY KEY,
    key_channel TEXT NOT NULL,
    key_account TEXT NOT NULL,
    key_message TEXT NOT NULL,
    digest      TEXT, -- tells it from something else under its key; none for a secret, of which no digest is kept
    refused     INTEGER NOT NULL CHECK (refused = 0 OR refused = 1), -- for good
    at          INTEGER NOT NULL,
    UNIQUE (key_channel, key_account, key_message)
) STRICT;

-- Money by what it goes for. The sum of a day is kept beside its reservations, so that asking for it costs the same after a
-- million calls.
CREATE TABLE spend (
    utc_day   INTEGER NOT NULL,
    purpose   TEXT NOT NULL, -- the word of a purpose
    micro_usd INTEGER NOT NULL,
    PRIMARY KEY (utc_day, purpose)
) STRICT, WITHOUT ROWID;
CREATE TABLE reservations (
    id        INTEGER PRIMARY KEY,
    utc_day   INTEGER NOT NULL,
    run_id    TEXT NOT NULL,
    purpose   TEXT NOT NULL,
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

-- Work that outlives the chat.
CREATE TABLE jobs (
    seq         INTEGER PRIMARY KEY, -- order of commit
    id          TEXT NOT NULL UNIQUE,
    session     TEXT NOT NULL, -- its own
    state       TEXT NOT NULL
                CHECK (state = 'pending' OR state = 'in_progress' OR state = 'completed' OR state = 'submitted'
                       OR state = 'accepted' OR state = 'failed' OR state = 'stuck' OR state = 'cancelled'),
    plan        INTEGER NOT NULL CHECK (plan = 0 OR plan = 1),
    room        TEXT NOT NULL, -- JSON
    budget      TEXT NOT NULL, -- JSON
    channel     TEXT NOT NULL,
    principal   TEXT NOT NULL,
    asker_place TEXT NOT NULL CHECK (asker_place = 'conversation' OR asker_place = 'token' OR asker_place = 'operator'),
    relayed     INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    creator     TEXT NOT NULL CHECK (creator = json_array(channel, principal)), -- whose cap it counts for
    asked_in    TEXT NOT NULL,
    reply_to    TEXT, -- JSON
    parent      TEXT,
    firing      TEXT,
    attempt     INTEGER NOT NULL,
    crashes     INTEGER NOT NULL,
    parked      INTEGER NOT NULL DEFAULT 0 CHECK (parked = 0 OR parked = 1),
    run_id      TEXT,
    created_at  INTEGER NOT NULL,
    started_at  INTEGER,
    changed_at  INTEGER NOT NULL,
    ended_at    INTEGER,
    why         TEXT NOT NULL,
    title       TEXT NOT NULL,
    task        TEXT NOT NULL, -- what may be long stands last, so that nothing is read past it
    result      TEXT,
    CHECK ((ended_at IS NULL) = (state = 'pending' OR state = 'in_progress' OR state = 'stuck'))
) STRICT;
-- What they select by stands in them too, so that counting reads no row.
CREATE INDEX jobs_open ON jobs (creator, ended_at) WHERE ended_at IS NULL;
CREATE INDEX jobs_pending ON jobs (creator, seq, state) WHERE state = 'pending';
CREATE INDEX jobs_at_work ON jobs (creator, state) WHERE state IN ('in_progress', 'stuck');
CREATE INDEX jobs_asked_in ON jobs (asked_in, seq);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE INDEX jobs_over ON jobs (ended_at) WHERE ended_at IS NOT NULL;

-- The daemon that took up jobs last: it counts no crash twice.
CREATE TABLE jobs_taken_up (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    boot TEXT NOT NULL
) STRICT;

-- A routine has an id of its own: one that is made under the name of a deleted one is another one.
CREATE TABLE routines (
    name         TEXT NOT NULL UNIQUE, -- its index is small: counting the routines goes through it
    id           TEXT NOT NULL UNIQUE,
    spec         TEXT NOT NULL, -- JSON
    path         TEXT, -- of its webhook
    channel      TEXT NOT NULL,
    principal    TEXT NOT NULL,
    asker_place  TEXT NOT NULL
                 CHECK (asker_place = 'conversation' OR asker_place = 'token' OR asker_place = 'operator'),
    relayed      INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    made_in      TEXT NOT NULL,
    reply_to     TEXT, -- JSON
    origin       TEXT NOT NULL, -- JSON
    enabled      INTEGER NOT NULL CHECK (enabled = 0 OR enabled = 1),
    disabled_why TEXT NOT NULL,
    revision     INTEGER NOT NULL,
    next_at      INTEGER,
    not_before   INTEGER, -- laid aside until then
    due_at       INTEGER GENERATED ALWAYS AS (max(next_at, COALESCE(not_before, next_at))) VIRTUAL,
    claimed_to   INTEGER,
    fired_at     INTEGER,
    set_off_at   INTEGER, -- as fired_at, without what was fired by hand
    firings      INTEGER NOT NULL,
    failures     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    CHECK (enabled = 1 OR next_at IS NULL)
) STRICT;
CREATE UNIQUE INDEX routines_by_path ON routines (path) WHERE path IS NOT NULL;
CREATE INDEX routines_due ON routines (due_at, name) WHERE due_at IS NOT NULL;
CREATE INDEX routines_of_owner ON routines (channel, principal, origin);

-- Raised by one with each change of what sets routines off.
CREATE TABLE routine_changes (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO routine_changes (id, changes) VALUES (1, 1);

-- One row for each time that a routine was set off, and for each scheduled time that was missed. The unique pair is what makes
-- a firing one, whoever claims it.
CREATE TABLE firings (
    seq            INTEGER PRIMARY KEY, -- order of commit
    id             TEXT NOT NULL UNIQUE,
    session        TEXT NOT NULL, -- its own
    routine_id     TEXT NOT NULL,
    routine        TEXT NOT NULL, -- its name
    key            TEXT NOT NULL,
    revision       INTEGER NOT NULL,
    set_off_by     TEXT NOT NULL,
    scheduled_at   INTEGER,
    content        TEXT, -- digest
    status         TEXT NOT NULL
                   CHECK (status = 'running' OR status = 'ok' OR status = 'attention' OR status = 'failed'
                          OR status = 'missed' OR status = 'skipped'),
    run_id         TEXT,
    job_id         TEXT,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    model_calls    INTEGER NOT NULL DEFAULT 0,
    tool_calls     INTEGER NOT NULL DEFAULT 0,
    estimated_calls INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd INTEGER NOT NULL DEFAULT 0,
    boot           TEXT, -- the daemon that claimed it; none for a missed time
    claimed_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    detail         TEXT NOT NULL,
    summary        TEXT,
    payload        TEXT,
    UNIQUE (routine_id, key),
    CHECK ((status = 'running') = (ended_at IS NULL))
) STRICT;
CREATE INDEX firings_running ON firings (routine_id, status) WHERE status = 'running';
CREATE INDEX firings_of_routine ON firings (routine, seq);
CREATE INDEX firings_by_content ON firings (routine_id, content, claimed_at) WHERE content IS NOT NULL;
CREATE INDEX firings_ended ON firings (ended_at) WHERE ended_at IS NOT NULL;

-- Which tools, and MCP servers, are switched off, and why. A row is written over, never deleted: its revision says which of
-- two writes is the newer one.

CREATE TABLE tool_switches (
    name     TEXT PRIMARY KEY, -- of a tool, or mcp: and that of a server
    revision INTEGER NOT NULL,
    since    INTEGER,          -- since when it is off, in milliseconds; NULL: it is on, and so are all that follow
    until    INTEGER,          -- NULL: until somebody switches it on
    for_s    INTEGER,
    switcher TEXT,             -- who: rule, or a person
    why      TEXT,
    failures INTEGER,
    runs     INTEGER
) STRICT, WITHOUT ROWID;

-- What a readiness check writes.
CREATE TABLE pings (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    count INTEGER NOT NULL
) STRICT;
INSERT INTO pings VALUES (1, 0);
