-- The schema. Until the first release this file is edited in place: a store of another edition is refused at the start (see
-- sqlite/open.rs). Dates are integer milliseconds since 1970 (UTC). Identifiers are the 16 bytes of a UUIDv7. Amounts of money are
-- integer millionths of a US dollar. Structures are JSON text; queries read `untrusted` of messages. Words of closed lists are
-- checked here, by `OR`: for `IN` with more than two words, SQLite builds a temporary b-tree in each statement that writes
-- the column.

-- The owner of each lane. Every write for a lane compares owner and epoch.
CREATE TABLE sessions (
    session        TEXT PRIMARY KEY NOT NULL,
    owner          BLOB, -- none: no daemon has opened the lane yet
    epoch          INTEGER NOT NULL CHECK (epoch >= 1),
    thread         BLOB NOT NULL, -- the active one
    opened_at      INTEGER NOT NULL, -- when its lane was last opened; pruning reads it
    loop_detection INTEGER NOT NULL DEFAULT 1 CHECK (loop_detection = 0 OR loop_detection = 1), -- /loops on|off
    options        TEXT, -- the options of all its runs: JSON; none: the defaults
    hidden         INTEGER NOT NULL DEFAULT 0 CHECK (hidden = 0 OR hidden = 1) -- left out of lists until its next run
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_of_owner ON sessions (owner) WHERE owner IS NOT NULL;

CREATE TABLE threads (
    id             BLOB PRIMARY KEY NOT NULL,
    session        TEXT NOT NULL,
    state          TEXT NOT NULL
                    CHECK (state = 'idle' OR state = 'processing' OR state = 'awaiting_approval'
                           OR state = 'interrupted' OR state = 'completed'),
    turns          INTEGER NOT NULL DEFAULT 0 CHECK (turns >= 0), -- number of the last turn
    undone         INTEGER NOT NULL DEFAULT 0 CHECK (undone BETWEEN 0 AND 20), -- turns that /redo can restore
    last_active_at INTEGER NOT NULL,
    summary_upto   INTEGER NOT NULL DEFAULT 0, -- a load skips the messages up to here
    summary        TEXT,
    skills         TEXT, -- the skills that it began with; none: there were none, or it has not begun
    title          TEXT, -- written by a model; none: lists show the first words
    title_tries    INTEGER NOT NULL DEFAULT 0 CHECK (title_tries >= 0), -- failed attempts
    -- 1: the session was created for one request. Lists omit it by default, and it is deleted soon. A thread keeps the mark
    -- without its session.
    ephemeral      INTEGER NOT NULL DEFAULT 0 CHECK (ephemeral = 0 OR ephemeral = 1)
) STRICT, WITHOUT ROWID;
CREATE INDEX threads_of_session ON threads (session);
CREATE INDEX threads_with_skills ON threads (skills) WHERE skills IS NOT NULL;
CREATE INDEX threads_ephemeral ON threads (last_active_at) WHERE ephemeral = 1;

-- How far each thread is indexed. A table of its own: the writer that indexes updates no row of a thread that another one owns.
CREATE TABLE thread_index (
    thread BLOB PRIMARY KEY NOT NULL,
    upto   INTEGER NOT NULL -- messages up to this position are in message_index
) STRICT, WITHOUT ROWID;

-- The skills that conversations began with, by the digest of their text. Deleted with the last thread that refers to it.
CREATE TABLE skill_snapshots (
    digest TEXT PRIMARY KEY NOT NULL,
    text   TEXT NOT NULL -- JSON, without values of variables
) STRICT, WITHOUT ROWID;

-- The people and programs that have sent a message. Written with the message, at most once an hour for each.
CREATE TABLE principals (
    channel       TEXT NOT NULL,
    id            TEXT NOT NULL, -- unique within the channel
    name          TEXT, -- as the platform shows it; none: the platform gives none
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL, -- at most one hour before the newest message
    PRIMARY KEY (channel, id)
) STRICT, WITHOUT ROWID;

-- Codes of strangers that no operator has entered yet. Expired rows are deleted with the next code.
CREATE TABLE pairings (
    channel      TEXT NOT NULL,
    id           TEXT NOT NULL, -- unique within the channel
    name         TEXT NOT NULL, -- as the platform shows it
    conversation TEXT NOT NULL, -- the private conversation
    code_digest  TEXT NOT NULL, -- the code itself is not stored
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (channel, id)
) STRICT, WITHOUT ROWID;

-- People whom pairing has admitted to their private conversation, until an operator removes them.
CREATE TABLE paired_people (
    channel          TEXT NOT NULL,
    id               TEXT NOT NULL, -- unique within the channel
    name             TEXT NOT NULL, -- as the platform showed it
    conversation     TEXT NOT NULL, -- the private conversation
    admitted_by      TEXT NOT NULL, -- the operator
    admitted_through TEXT NOT NULL, -- the channel of the operator
    admitted_at      INTEGER NOT NULL,
    PRIMARY KEY (channel, id)
) STRICT, WITHOUT ROWID;

-- Conversations to which their platform has given another address, such as groups that became supergroups.
CREATE TABLE moved_conversations (
    channel       TEXT NOT NULL,
    moved_from    TEXT NOT NULL,
    moved_to      TEXT NOT NULL,
    keeps_session INTEGER NOT NULL, -- 1: messages from the new address continue the session of the old one
    PRIMARY KEY (channel, moved_from)
) STRICT, WITHOUT ROWID;

-- The browsers that are signed in at the console.
CREATE TABLE sign_ins (
    id         TEXT NOT NULL PRIMARY KEY,
    digest     TEXT NOT NULL UNIQUE, -- of the secret in the cookie
    tokens     TEXT NOT NULL,        -- the digest of the tokens that were configured
    principal  TEXT NOT NULL,
    agent      TEXT NOT NULL,        -- the browser, as it names itself
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The inbox and the runs in one table: a message makes exactly one run.
CREATE TABLE runs (
    seq             INTEGER PRIMARY KEY, -- order of acceptance
    id              BLOB NOT NULL UNIQUE,
    session         TEXT NOT NULL,
    status          TEXT NOT NULL
                    CHECK (status = 'accepted' OR status = 'queued' OR status = 'running' OR status = 'paused'
                           OR status = 'completed' OR status = 'stopped' OR status = 'failed'),
    attempt         INTEGER NOT NULL DEFAULT 0,
    thread          BLOB,    -- from the first start on
    turn            INTEGER, -- its number in the thread
    accepted_at     INTEGER NOT NULL,
    started_at      INTEGER,
    ended_at        INTEGER,
    input_tokens    INTEGER NOT NULL DEFAULT 0,
    output_tokens   INTEGER NOT NULL DEFAULT 0,
    model_calls     INTEGER NOT NULL DEFAULT 0,
    tool_calls      INTEGER NOT NULL DEFAULT 0,
    estimated_calls INTEGER NOT NULL DEFAULT 0, -- model calls whose tokens and cost are estimates
    cost_micro_usd  INTEGER NOT NULL DEFAULT 0,
    reason          TEXT,
    -- The model that answered the last step; none: it has not ended, or no step was answered since the last restart.
    model           TEXT,
    evidence        TEXT,
    work            TEXT NOT NULL, -- the kind of work: a chat, a job or a routine run: JSON
    channel         TEXT NOT NULL,
    principal       TEXT NOT NULL,
    authority       TEXT NOT NULL
                    CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    indexed         INTEGER NOT NULL DEFAULT 0 CHECK (indexed = 0 OR indexed = 1), -- see the table indexed
    relayed         INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    from_person     INTEGER NOT NULL CHECK (from_person = 0 OR from_person = 1), -- 0: a timer or a program sent it
    reply_to        TEXT,
    key_channel     TEXT,
    key_account     TEXT,
    key_message     TEXT,
    digest          TEXT, -- of the submitted text, for a message with a key or a platform id
    message_ref     TEXT, -- the platform's id of the message, unique within the session
    edited          TEXT, -- digest of the last accepted edit
    options         TEXT, -- its options: JSON; none: the defaults
    provenance      TEXT, -- the author and the context of the message: JSON
    reply           TEXT,
    files           TEXT, -- the files that it has sent: JSON; none: it has sent none
    state           TEXT, -- state of the loop at the last checkpoint: JSON
    text            TEXT NOT NULL,
    history         TEXT, -- earlier messages that the request carried: JSON, until the first start
    CHECK ((ended_at IS NOT NULL) = (status = 'completed' OR status = 'stopped' OR status = 'failed')),
    CHECK ((ended_at IS NULL) = (reason IS NULL)),
    CHECK (indexed = 0 OR ended_at IS NOT NULL),
    CHECK ((thread IS NULL) = (turn IS NULL)),
    CHECK (digest IS NOT NULL OR (key_message IS NULL AND message_ref IS NULL))
) STRICT;
CREATE UNIQUE INDEX runs_key ON runs (key_channel, key_account, key_message) WHERE key_message IS NOT NULL;
-- The open runs are among those that are not indexed yet. The end of a run changes no index.
CREATE INDEX runs_unindexed ON runs (session) WHERE indexed = 0;
CREATE INDEX runs_of_session ON runs (session) WHERE indexed = 1;
CREATE INDEX runs_by_reason ON runs (reason, seq, ended_at) WHERE indexed = 1;
CREATE INDEX runs_by_message ON runs (session, message_ref) WHERE message_ref IS NOT NULL;
CREATE INDEX runs_without_thread ON runs (ended_at) WHERE thread IS NULL AND ended_at IS NOT NULL;

-- Only whole conversations are deleted, so the highest position of a thread only grows.
CREATE TABLE messages (
    thread     BLOB NOT NULL,
    position   INTEGER NOT NULL CHECK (position >= 1),
    turn       INTEGER NOT NULL,
    run_id     BLOB, -- none: the message came as history with a request
    role       TEXT NOT NULL CHECK (role = 'system' OR role = 'user' OR role = 'assistant' OR role = 'tool'),
    scope      TEXT NOT NULL CHECK (scope = 'thread' OR scope = 'run'),
    visibility TEXT NOT NULL DEFAULT 'visible'
                    CHECK (visibility = 'visible' OR visibility = 'undone' OR visibility = 'cleared'),
    at         INTEGER NOT NULL,
    index_row  INTEGER, -- its row in message_index; none: it has no searchable text, or is not indexed yet
    summarised INTEGER NOT NULL DEFAULT 0, -- 1: the thread's summary replaces it in later loads
    body       TEXT NOT NULL,
    PRIMARY KEY (thread, position)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX messages_by_index_row ON messages (index_row) WHERE index_row IS NOT NULL;

-- Full-text index of the messages of people and the model. The text itself is in messages.
CREATE VIRTUAL TABLE message_index USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

-- What rare queries need is indexed behind the reply, in batches (sql/index.rs): the events of each run, the ended runs of each
-- session, and the words of messages. A query reads the rest of the events from the end of their table.
CREATE TABLE indexed (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    event INTEGER NOT NULL -- all events up to this one are indexed, with the runs that they end and the messages before them
) STRICT;
INSERT INTO indexed VALUES (1, 0);

-- seq is the order of commit of all sessions, so it is the order within each session and each run too. It is the cursor of every feed
-- (since=, Last-Event-ID, the WebSocket's cursor). One thread writes, so a reader that has seen a number has seen all lower ones. The
-- newest event is never deleted, so a number is never used again.
CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    indexed INTEGER NOT NULL DEFAULT 0 CHECK (indexed = 0 OR indexed = 1),
    session TEXT,
    run_id  BLOB,
    kind    TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_run ON events (run_id) WHERE indexed = 1 AND run_id IS NOT NULL;
CREATE INDEX events_without_run ON events (session) WHERE run_id IS NULL AND session IS NOT NULL;

CREATE TABLE outbox (
    seq          INTEGER PRIMARY KEY, -- order of commit, and of delivery within a conversation
    id           BLOB NOT NULL UNIQUE,
    run_id       BLOB,
    channel      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    reply_to     TEXT,
    state        TEXT NOT NULL DEFAULT 'waiting'
                    CHECK (state = 'waiting' OR state = 'sending' OR state = 'sent' OR state = 'ambiguous'
                           OR state = 'failed'),
    attempts     INTEGER NOT NULL DEFAULT 0,
    pieces_sent  INTEGER NOT NULL DEFAULT 0,
    send_epoch   INTEGER, -- the epoch of the channel's lease under which it is being sent; none: there are no leases
    due_at       INTEGER, -- earliest delivery; none: at once
    unsure_since INTEGER, -- start of the first attempt whose result is unknown; none: the results of all attempts are known
    preview      TEXT, -- platform id of the preview message that this one replaces
    question     TEXT, -- the approval request that it carries: JSON
    callback     TEXT, -- the address to which it is posted; none: it is a text for people
    unchecked    TEXT -- the kind of a text that hooks have not checked yet; none: they have
                    CHECK (unchecked = 'reply' OR unchecked = 'message' OR unchecked = 'question'
                           OR unchecked = 'reminder' OR unchecked = 'command' OR unchecked = 'notice'),
    file         TEXT, -- the file that it carries: JSON
    text         TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_open ON outbox (channel, conversation, seq) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_of_run ON outbox (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_without_run ON outbox (id) WHERE run_id IS NULL;
-- A delivery needs its file until its row is deleted.
CREATE TRIGGER outbox_file AFTER DELETE ON outbox WHEN OLD.file IS NOT NULL BEGIN
    DELETE FROM blob_references WHERE owner = OLD.id;
END;

-- One row for each approval request. Rows are deleted with their run only.
CREATE TABLE approvals (
    seq         INTEGER PRIMARY KEY, -- order of the requests
    id          BLOB NOT NULL UNIQUE,
    run_id      BLOB NOT NULL,
    session     TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    tool        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind = 'approval' OR kind = 'credential' OR kind = 'client_calls' OR kind = 'form'),
    secret_name TEXT, -- the requested secret, for a credential
    results     TEXT, -- of a client that carries the calls out, or the answers to a form: JSON
    summary     TEXT NOT NULL,
    arguments   TEXT NOT NULL, -- JSON; sensitive values are masked; for a client its calls, for a form its fields
    detail      TEXT NOT NULL,
    bound       TEXT NOT NULL, -- JSON: the (name, value) pairs that the digest covers
    digest      TEXT NOT NULL,
    covers      TEXT,
    added       TEXT, -- the texts that hooks have put before and after the question: JSON
    principal   TEXT NOT NULL,
    authority   TEXT NOT NULL CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    relayed     INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    place       TEXT, -- the conversation in which autonomous work asks: JSON
    second      TEXT, -- two persons must approve: the first approval, and where the second person is asked: JSON
    asked_at    INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    reminded_at INTEGER,
    state       TEXT NOT NULL DEFAULT 'waiting'
                CHECK (state = 'waiting' OR state = 'approved' OR state = 'used' OR state = 'denied'
                       OR state = 'expired' OR state = 'withdrawn'),
    decided_by  TEXT,
    decided_at  INTEGER,
    CHECK ((kind = 'credential') = (secret_name IS NOT NULL)),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    CHECK (state <> 'waiting' OR decided_by IS NULL)
) STRICT;
CREATE INDEX approvals_of_run ON approvals (run_id);
CREATE INDEX approvals_of_session ON approvals (session);
CREATE INDEX approvals_waiting ON approvals (session) WHERE state = 'waiting';

-- The answers "always" of a session: the principal that has given it, and the one whose work had asked.
CREATE TABLE grants (
    session         TEXT NOT NULL,
    tool            TEXT NOT NULL,
    covers          TEXT NOT NULL,
    principal       TEXT NOT NULL,
    authority       TEXT NOT NULL CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    asked           TEXT NOT NULL,
    asked_authority TEXT NOT NULL CHECK (asked_authority = 'conversation' OR asked_authority = 'token' OR asked_authority = 'operator'),
    at              INTEGER NOT NULL,
    PRIMARY KEY (session, tool, covers, principal, authority, asked, asked_authority)
) STRICT, WITHOUT ROWID;

-- Uploaded files that messages can name, for a day. Also counts the bytes of each person.
CREATE TABLE uploads (
    id         BLOB PRIMARY KEY NOT NULL,
    channel    TEXT NOT NULL,
    principal  TEXT NOT NULL, -- unique within the channel
    at         INTEGER NOT NULL,
    bytes      INTEGER NOT NULL CHECK (bytes >= 0),
    attachment TEXT -- JSON; none: its conversation was deleted, and the row counts for the limit of the day alone
) STRICT;
CREATE INDEX uploads_of_principal ON uploads (channel, principal, at, bytes);

-- Which runs, copied threads, uploads and deliveries need which files of the blob store. A file without a row is deleted by the
-- next sweep.
CREATE TABLE blob_references (
    owner  BLOB NOT NULL, -- a run, a copied thread, an upload, or a delivery
    digest TEXT NOT NULL,
    PRIMARY KEY (owner, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_references_of_digest ON blob_references (digest);

-- Secrets from people, encrypted. The key is not in this file.
CREATE TABLE secrets (
    session TEXT NOT NULL,
    name    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    sealed  BLOB NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX secrets_of_mail ON secrets (at) WHERE name >= 'node_mail:' AND name < 'node_mail;';

-- Keys of commands and approval answers: a second delivery has no effect, even after a restart or at another node.
CREATE TABLE handled_inputs (
    seq         INTEGER PRIMARY KEY,
    key_channel TEXT NOT NULL,
    key_account TEXT NOT NULL,
    key_message TEXT NOT NULL,
    digest      TEXT, -- distinguishes another input with the same key; none for a secret
    refused     INTEGER NOT NULL CHECK (refused = 0 OR refused = 1), -- 1: refused permanently
    claimed_by  BLOB, -- the daemon that carries it out; none: it is carried out or refused
    at          INTEGER NOT NULL,
    UNIQUE (key_channel, key_account, key_message)
) STRICT;

-- Money, tokens and requests by day, purpose, principal and model. micro_usd is the sum of the reservations, so that the budget
-- check of a day reads one range of this key and no reservation. Calls that cost nothing are not here. channel and principal are the sender of the run's message, or the creator of its job or routine;
-- both are '' for a model call outside every run.
CREATE TABLE spend (
    utc_day   INTEGER NOT NULL, -- days since 1970-01-01
    purpose   TEXT NOT NULL,
    channel   TEXT NOT NULL,
    principal TEXT NOT NULL, -- unique within the channel
    model     TEXT NOT NULL, -- the one that answered, as far as it is known
    micro_usd INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL, -- of settled calls
    output_tokens INTEGER NOT NULL,
    calls         INTEGER NOT NULL, -- requests to the model, including failed ones
    -- The opening of the store that has added it, so that two daemons never update one row. Empty: on SQLite, and for merged rows
    -- of old days. Only sums over all nodes mean something: one node may settle what another one has reserved.
    node          BLOB NOT NULL,
    PRIMARY KEY (utc_day, purpose, channel, principal, model, node)
) STRICT, WITHOUT ROWID;
CREATE TABLE reservations (
    id        INTEGER PRIMARY KEY,
    utc_day   INTEGER NOT NULL,
    run_id    BLOB NOT NULL,
    purpose   TEXT NOT NULL,
    channel   TEXT NOT NULL,
    principal TEXT NOT NULL,
    model     TEXT NOT NULL,
    micro_usd INTEGER NOT NULL CHECK (micro_usd >= 0), -- the reserved amount; the cost once settled
    settled   INTEGER NOT NULL DEFAULT 0 CHECK (settled = 0 OR settled = 1),
    node      BLOB -- the node of a cluster whose slices pay it; none: the daemon is alone
) STRICT;
CREATE INDEX reservations_of_node ON reservations (node, utc_day) WHERE node IS NOT NULL;

-- Notes outlive the sessions in which they were written. Those of a group are deleted with its session.
CREATE TABLE notes (
    id        INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    kind      TEXT NOT NULL CHECK (kind = 'person' OR kind = 'group'),
    channel   TEXT NOT NULL, -- of the person; '' for a group
    owner     TEXT NOT NULL, -- the id of the person within the channel, or the session of the group
    key       TEXT, -- none: only the id names the note
    at        INTEGER NOT NULL, -- of the last change
    untrusted INTEGER NOT NULL CHECK (untrusted = 0 OR untrusted = 1), -- 1: its run had read untrusted content
    session   TEXT NOT NULL, -- in which it was written
    text      TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX notes_of_owner ON notes (kind, channel, owner, key);

-- Vectors of notes for the search by meaning; none unless memory.embeddings is set.
CREATE TABLE note_embeddings (
    note    INTEGER PRIMARY KEY,
    model   TEXT NOT NULL, -- vectors of another model are not compared
    note_at INTEGER NOT NULL, -- notes.at when the vector was made: that of a changed note is not used
    vector  BLOB NOT NULL -- of length 1, 32-bit numbers, little-endian
) STRICT;
CREATE TRIGGER notes_deleted AFTER DELETE ON notes BEGIN
    DELETE FROM note_embeddings WHERE note = OLD.id;
END;

-- Work that outlives the turn that started it.
CREATE TABLE jobs (
    seq            INTEGER PRIMARY KEY, -- order of commit
    id             BLOB NOT NULL UNIQUE,
    session        TEXT NOT NULL, -- its own
    state          TEXT NOT NULL
                   CHECK (state = 'pending' OR state = 'in_progress' OR state = 'completed' OR state = 'submitted'
                          OR state = 'accepted' OR state = 'failed' OR state = 'stuck' OR state = 'cancelled'),
    plan           INTEGER NOT NULL CHECK (plan = 0 OR plan = 1),
    runs_in        TEXT NOT NULL, -- JSON
    budget         TEXT NOT NULL, -- JSON
    grants         TEXT, -- the calls that need no approval: JSON
    channel        TEXT NOT NULL,
    principal      TEXT NOT NULL,
    authority      TEXT NOT NULL CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    relayed        INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    creator        TEXT NOT NULL CHECK (creator = json_array(channel, principal)), -- its cap counts this job
    requested_in   TEXT NOT NULL,
    reply_to       TEXT, -- JSON
    parent_run_id  BLOB,
    routine_run_id BLOB,
    attempt        INTEGER NOT NULL,
    crashes        INTEGER NOT NULL,
    parked         INTEGER NOT NULL DEFAULT 0 CHECK (parked = 0 OR parked = 1),
    owner          BLOB, -- the boot that works on it; none: it waits, or was released
    run_id         BLOB,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    changed_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    detail         TEXT NOT NULL,
    title          TEXT NOT NULL,
    task           TEXT NOT NULL, -- long values are last: SQLite reads a row from its start
    result         TEXT,
    CHECK ((ended_at IS NULL) = (state = 'pending' OR state = 'in_progress' OR state = 'stuck'))
) STRICT;
-- Each index covers the columns of its condition, so that counting reads no row.
CREATE INDEX jobs_open ON jobs (creator, ended_at) WHERE ended_at IS NULL;
CREATE INDEX jobs_pending ON jobs (creator, seq, state) WHERE state = 'pending';
CREATE INDEX jobs_at_work ON jobs (creator, state) WHERE state IN ('in_progress', 'stuck');
CREATE INDEX jobs_by_requester ON jobs (requested_in, seq);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE INDEX jobs_over ON jobs (ended_at) WHERE ended_at IS NOT NULL;

-- A new routine with the name of a deleted one has another id.
CREATE TABLE routines (
    name            TEXT NOT NULL UNIQUE, -- its small index serves COUNT(*)
    id              BLOB NOT NULL UNIQUE,
    spec            TEXT NOT NULL, -- JSON
    path            TEXT, -- path of its webhook
    channel         TEXT NOT NULL,
    principal       TEXT NOT NULL,
    authority       TEXT NOT NULL
                    CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    relayed         INTEGER NOT NULL CHECK (relayed = 0 OR relayed = 1),
    created_in      TEXT NOT NULL,
    reply_to        TEXT, -- JSON
    origin          TEXT NOT NULL, -- JSON
    enabled         INTEGER NOT NULL CHECK (enabled = 0 OR enabled = 1),
    disabled_detail TEXT NOT NULL,
    revision        INTEGER NOT NULL,
    next_at         INTEGER,
    not_before      INTEGER, -- deferred until then
    due_at          INTEGER GENERATED ALWAYS AS (max(next_at, COALESCE(not_before, next_at))) VIRTUAL,
    claimed_to      INTEGER,
    last_run_at     INTEGER,
    triggered_at    INTEGER, -- as last_run_at, without manual runs
    run_count       INTEGER NOT NULL,
    failures        INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    changed_at      INTEGER NOT NULL,
    CHECK (enabled = 1 OR next_at IS NULL)
) STRICT;
CREATE UNIQUE INDEX routines_by_path ON routines (path) WHERE path IS NOT NULL;
CREATE INDEX routines_due ON routines (due_at, name) WHERE due_at IS NOT NULL;
CREATE INDEX routines_of_owner ON routines (channel, principal, origin);

-- Incremented by each change of a trigger.
CREATE TABLE routine_changes (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO routine_changes (id, changes) VALUES (1, 1);

-- One row for each execution of a routine, and for each missed scheduled time. The unique pair (routine_id, key) lets one daemon
-- claim a routine run.
CREATE TABLE routine_runs (
    seq             INTEGER PRIMARY KEY, -- order of commit
    id              BLOB NOT NULL UNIQUE,
    session         TEXT NOT NULL, -- its own
    routine_id      BLOB NOT NULL,
    routine         TEXT NOT NULL, -- its name at that time
    key             TEXT NOT NULL,
    revision        INTEGER NOT NULL,
    triggered_by    TEXT NOT NULL,
    scheduled_at    INTEGER,
    content         TEXT, -- digest of the payload, for deduplication
    status          TEXT NOT NULL
                    CHECK (status = 'running' OR status = 'ok' OR status = 'attention' OR status = 'failed'
                           OR status = 'missed' OR status = 'skipped'),
    run_id          BLOB,
    job_id          BLOB,
    input_tokens    INTEGER NOT NULL DEFAULT 0,
    output_tokens   INTEGER NOT NULL DEFAULT 0,
    model_calls     INTEGER NOT NULL DEFAULT 0,
    tool_calls      INTEGER NOT NULL DEFAULT 0,
    estimated_calls INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd  INTEGER NOT NULL DEFAULT 0,
    boot            BLOB, -- the boot that claimed it or took it over; none: a missed time
    claimed_at      INTEGER NOT NULL,
    ended_at        INTEGER,
    detail          TEXT NOT NULL,
    summary         TEXT,
    payload         TEXT,
    UNIQUE (routine_id, key),
    CHECK ((status = 'running') = (ended_at IS NULL))
) STRICT;
CREATE INDEX routine_runs_running ON routine_runs (routine_id, status) WHERE status = 'running';
CREATE INDEX routine_runs_by_name ON routine_runs (routine, seq);
CREATE INDEX routine_runs_by_content ON routine_runs (routine_id, content, claimed_at) WHERE content IS NOT NULL;
CREATE INDEX routine_runs_ended ON routine_runs (ended_at) WHERE ended_at IS NOT NULL;

-- The circuit breakers of tools and MCP servers. A row is replaced, never deleted: the higher revision is the newer write.
CREATE TABLE tool_breakers (
    name     TEXT PRIMARY KEY, -- a tool, or mcp: and an MCP server
    revision INTEGER NOT NULL,
    since    INTEGER,          -- when it was disabled; none: it is enabled, and the columns below are none too
    until    INTEGER,          -- none: until a person enables it
    for_s    INTEGER,
    actor    TEXT,             -- rule, or the person who disabled it
    detail   TEXT,
    failures INTEGER,
    runs     INTEGER
) STRICT, WITHOUT ROWID;

-- Freezes by operators: each stops a part of the work until its thaw. Rows are kept as a record.
CREATE TABLE freezes (
    id        BLOB PRIMARY KEY NOT NULL,
    at        INTEGER NOT NULL,
    thawed_at INTEGER, -- none: it is in force
    scope     TEXT NOT NULL, -- what is frozen: JSON
    detail    TEXT, -- the reason
    actor     TEXT NOT NULL, -- the operator
    source    TEXT NOT NULL, -- the channel of the operator
    receipt   TEXT -- what it has stopped: JSON; none: not known yet
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX freezes_in_force ON freezes (scope) WHERE thawed_at IS NULL;

-- The readiness check writes here.
CREATE TABLE pings (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    count INTEGER NOT NULL
) STRICT;
INSERT INTO pings VALUES (1, 0);

-- The daemons of a cluster. A daemon that uses its database alone has no row, and neither has any daemon of SQLite. A node lives from its
-- registration until ended_at is set, once: by its own drain, or by another node after the end of its lease. Ownership (sessions.owner,
-- jobs.owner, routine_runs.boot, work_leases.owner) depends on ended_at alone, never on lease_until: a renewal may be on its way.
CREATE TABLE nodes (
    boot        BLOB PRIMARY KEY NOT NULL,
    name        TEXT NOT NULL, -- unique among the living
    version     TEXT NOT NULL,
    schema_min  INTEGER NOT NULL, -- the oldest schema that its program migrates
    schema_max  INTEGER NOT NULL, -- the schema of its program
    settings    TEXT NOT NULL, -- the digest of the settings that all nodes must share
    started_at  INTEGER NOT NULL, -- by the clock of the database, as all dates here
    lease_until INTEGER NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0 CHECK (draining = 0 OR draining = 1),
    ended_at    INTEGER,
    ended_by    TEXT CHECK (ended_by = 'drain' OR ended_by = 'lease'),
    CHECK ((ended_at IS NULL) = (ended_by IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX nodes_alive ON nodes (name) WHERE ended_at IS NULL;

-- Work that one node of a cluster does at a time: the polling and sending of a channel, and tasks such as pruning. A lease is free without
-- an owner, and when its owner has ended. Each claim raises the epoch.
CREATE TABLE work_leases (
    kind  TEXT NOT NULL CHECK (kind = 'channel' OR kind = 'task'),
    name  TEXT NOT NULL,
    owner BLOB,
    epoch INTEGER NOT NULL CHECK (epoch >= 1),
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Stops that a node was asked for, for all nodes: written before the stop is answered. Deleted after an hour.
CREATE TABLE stop_orders (
    seq     INTEGER PRIMARY KEY,
    id      BLOB NOT NULL UNIQUE,
    at      INTEGER NOT NULL,
    run_id  BLOB,
    session TEXT, -- without a run and a session: all runs
    cause   TEXT NOT NULL, -- JSON
    source  BLOB NOT NULL -- the node that was asked
) STRICT;
CREATE TABLE stop_acks (
    order_id BLOB NOT NULL,
    boot     BLOB NOT NULL,
    report   TEXT NOT NULL, -- what the node has stopped: JSON
    PRIMARY KEY (order_id, boot)
) STRICT, WITHOUT ROWID;

-- Messages, commands and answers for a lane that another node owns. The owner handles them in this order, and writes the answer.
CREATE TABLE node_mail (
    seq         INTEGER PRIMARY KEY,
    id          BLOB NOT NULL UNIQUE,
    session     TEXT NOT NULL,
    source      BLOB NOT NULL, -- the node that received it
    run_id      BLOB, -- the run of a message
    at          INTEGER NOT NULL,
    body        TEXT, -- JSON; none once it is answered
    taken_by    BLOB, -- the node that began to handle it
    taken_epoch INTEGER, -- the epoch of its lane then
    promised    INTEGER NOT NULL DEFAULT 0 CHECK (promised = 0 OR promised = 1), -- 1: its sender has acknowledged the message
    ack         TEXT, -- the answer: JSON; none: it is open
    reason      TEXT, -- why the run of an answered message that was not accepted has ended
    evidence    TEXT, -- JSON
    ended_at    INTEGER,
    CHECK ((body IS NULL) = (ack IS NOT NULL)),
    CHECK (reason IS NULL OR (run_id IS NOT NULL AND ack IS NOT NULL)),
    CHECK ((reason IS NULL) = (evidence IS NULL) AND (reason IS NULL) = (ended_at IS NULL)),
    CHECK ((taken_by IS NULL) = (taken_epoch IS NULL))
) STRICT;
CREATE INDEX node_mail_open ON node_mail (session, seq) WHERE ack IS NULL;
CREATE INDEX node_mail_by_run ON node_mail (run_id) WHERE run_id IS NOT NULL;

-- The money of a day that was handed out to the nodes of a cluster, spent or not. Its sum never exceeds the limit.
CREATE TABLE budgets (
    utc_day INTEGER NOT NULL,
    budget  TEXT NOT NULL, -- a purpose; '': all purposes
    granted INTEGER NOT NULL CHECK (granted >= 0), -- in millionths of a US dollar
    PRIMARY KEY (utc_day, budget)
) STRICT, WITHOUT ROWID;
CREATE TABLE budget_slices (
    utc_day    INTEGER NOT NULL,
    budget     TEXT NOT NULL,
    boot       BLOB NOT NULL,
    granted    INTEGER NOT NULL CHECK (granted >= 0),
    reconciled INTEGER NOT NULL DEFAULT 0 CHECK (reconciled = 0 OR reconciled = 1), -- 1: its node has ended, and the rest was returned
    PRIMARY KEY (utc_day, budget, boot)
) STRICT, WITHOUT ROWID;

-- Files of the blob store of a cluster, in parts of 256 KiB. A daemon that uses its database alone keeps files in a directory.
CREATE TABLE blobs (
    digest TEXT NOT NULL,
    part   INTEGER NOT NULL CHECK (part >= 0),
    at     INTEGER NOT NULL,
    bytes  BLOB NOT NULL,
    PRIMARY KEY (digest, part)
) STRICT;

-- Outputs of tools that are too long for a model, in parts of 256 KiB, of a cluster. A daemon that uses its database alone keeps them
-- in a directory. An output has a size from its end on: without one it is still being written, and nobody reads it.
CREATE TABLE kept_outputs (
    run_id BLOB NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 1), -- within the run
    part   INTEGER NOT NULL CHECK (part >= 0),
    call   TEXT NOT NULL, -- digest of the id of the call
    at     INTEGER NOT NULL, -- when the part was written; of part 0: when the last one was
    size   INTEGER, -- of the whole output, in part 0
    bytes  BLOB NOT NULL,
    PRIMARY KEY (run_id, number, part),
    CHECK (part = 0 OR size IS NULL)
) STRICT;
CREATE INDEX kept_outputs_sizes ON kept_outputs (run_id, number, size) WHERE part = 0;

-- The approved descriptions of MCP tools, of a cluster. One row. A daemon that uses its database alone keeps them in a file.
CREATE TABLE mcp_pins (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    pins TEXT NOT NULL -- JSON, see belay_tools
) STRICT;

-- How far channels have read their sources.
CREATE TABLE cursors (
    channel TEXT NOT NULL,
    name    TEXT NOT NULL, -- the source within the channel
    value   TEXT NOT NULL, -- in the form of the platform
    PRIMARY KEY (channel, name)
) STRICT, WITHOUT ROWID;

-- One-time links to the console.
CREATE TABLE sign_in_links (
    digest     TEXT PRIMARY KEY NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
