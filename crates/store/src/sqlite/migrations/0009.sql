-- Work that outlives the chat: jobs, routines, and the firings of routines.

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

CREATE TABLE routines (
    name         TEXT NOT NULL UNIQUE, -- its index is small: counting the routines goes through it
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
CREATE INDEX routines_due ON routines (next_at) WHERE next_at IS NOT NULL;

-- One row for each time that a routine was set off, and for each scheduled time that was missed. The unique pair is what makes
-- a firing one, whoever claims it.
CREATE TABLE firings (
    seq            INTEGER PRIMARY KEY, -- order of commit
    id             TEXT NOT NULL UNIQUE,
    session        TEXT NOT NULL, -- its own
    routine        TEXT NOT NULL,
    key            TEXT NOT NULL,
    revision       INTEGER NOT NULL,
    set_off_by     TEXT NOT NULL,
    scheduled_at   INTEGER,
    content        TEXT, -- digest
    status         TEXT NOT NULL
                   CHECK (status = 'running' OR status = 'ok' OR status = 'attention' OR status = 'failed'
                          OR status = 'missed'),
    run_id         TEXT,
    job_id         TEXT,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    model_calls    INTEGER NOT NULL DEFAULT 0,
    tool_calls     INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd INTEGER NOT NULL DEFAULT 0,
    boot           TEXT, -- the daemon that claimed it; none for a missed time
    claimed_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    detail         TEXT NOT NULL,
    summary        TEXT,
    payload        TEXT,
    UNIQUE (routine, key),
    CHECK ((status = 'running') = (ended_at IS NULL))
) STRICT;
CREATE INDEX firings_running ON firings (routine, status) WHERE status = 'running';
CREATE INDEX firings_of_routine ON firings (routine, seq);
CREATE INDEX firings_by_content ON firings (routine, content, claimed_at) WHERE content IS NOT NULL;
CREATE INDEX firings_ended ON firings (ended_at) WHERE ended_at IS NOT NULL;
