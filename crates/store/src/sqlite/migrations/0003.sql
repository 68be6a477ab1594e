-- Questions to people, what they granted, the secrets they gave, and for whom a run works.

-- Who answers a run's questions: the place that its message came from, beside the principal that is there already.
ALTER TABLE runs ADD COLUMN asker_place TEXT NOT NULL DEFAULT 'conversation'
    CHECK (asker_place = 'conversation' OR asker_place = 'token' OR asker_place = 'operator');
ALTER TABLE runs ADD COLUMN relayed INTEGER NOT NULL DEFAULT 0 CHECK (relayed = 0 OR relayed = 1);

-- The question that a message asks, if it is one: JSON.
ALTER TABLE outbox ADD COLUMN question TEXT;

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
