-- A routine has an id of its own, so that one which is made under the name of a deleted one is another one, and its firings are
-- nobody else's. One that waits can be laid aside.

CREATE TABLE routine_ids AS
SELECT name, lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-a'
                   || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))) AS id
FROM (SELECT name FROM routines UNION SELECT routine FROM firings);
CREATE UNIQUE INDEX routine_ids_by_name ON routine_ids (name);

ALTER TABLE routines RENAME TO routines_before;
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
INSERT INTO routines (name, id, spec, path, channel, principal, asker_place, relayed, made_in, reply_to, origin, enabled,
                      disabled_why, revision, next_at, claimed_to, fired_at, set_off_at, firings, failures, created_at, changed_at)
SELECT name, (SELECT id FROM routine_ids i WHERE i.name = b.name), spec, path, channel, principal, asker_place, relayed, made_in,
       reply_to, origin, enabled, disabled_why, revision, next_at, claimed_to, fired_at, set_off_at, firings, failures,
       created_at, changed_at
FROM routines_before b;
DROP TABLE routines_before;
CREATE UNIQUE INDEX routines_by_path ON routines (path) WHERE path IS NOT NULL;
CREATE INDEX routines_due ON routines (due_at, name) WHERE due_at IS NOT NULL;
CREATE INDEX routines_of_owner ON routines (channel, principal, origin);

-- Raised by one with each change of what sets routines off.
CREATE TABLE routine_changes (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO routine_changes (id, changes) VALUES (1, 1);

ALTER TABLE firings RENAME TO firings_before;
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
INSERT INTO firings (seq, id, session, routine_id, routine, key, revision, set_off_by, scheduled_at, content, status, run_id, job_id,
                     input_tokens, output_tokens, model_calls, tool_calls, cost_micro_usd, boot, claimed_at, ended_at, detail,
                     summary, payload)
SELECT seq, id, session, (SELECT i.id FROM routine_ids i WHERE i.name = b.routine), routine, key, revision, set_off_by,
       scheduled_at, content, status, run_id, job_id, input_tokens, output_tokens, model_calls, tool_calls, cost_micro_usd,
       boot, claimed_at, ended_at, detail, summary, payload
FROM firings_before b;
DROP TABLE firings_before;
DROP TABLE routine_ids;
CREATE INDEX firings_running ON firings (routine_id, status) WHERE status = 'running';
CREATE INDEX firings_of_routine ON firings (routine, seq);
CREATE INDEX firings_by_content ON firings (routine_id, content, claimed_at) WHERE content IS NOT NULL;
CREATE INDEX firings_ended ON firings (ended_at) WHERE ended_at IS NOT NULL;
