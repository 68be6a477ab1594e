-- The schema, as sqlite/migrations/0001_schema.sql has it: the same tables, columns, checks and indexes (a test compares them). Until
-- the first release this file is edited in place: a database of another edition is refused at the start (see postgres/schema.rs).
-- It is applied in one transaction, in the schema that search_path names.
--
-- Every number is a BIGINT, because the parameters of all statements are. Texts are compared by their bytes, as SQLite does.
-- Numbers of rows come from sequences: they ascend, and a transaction that is rolled back leaves a gap.

-- The version of this schema. One row.
CREATE TABLE belay_schema (
    id         BIGINT PRIMARY KEY CHECK (id = 1),
    version    BIGINT NOT NULL, -- the number of the last migration
    -- The oldest program that may use the tables, by the number of its last migration.
    oldest_program BIGINT NOT NULL CHECK (oldest_program BETWEEN 1 AND version),
    edition    BIGINT NOT NULL, -- of the first migration
    cluster_id UUID NOT NULL DEFAULT gen_random_uuid(), -- of all daemons that use this schema
    key_check  BYTEA, -- recognises the key of the vault; none: no node of a cluster has started yet
    created_at BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
);

-- The processes that write. Each transaction counts in the row of its writer: a writer whose connection was lost during a commit
-- reads there whether the commit was done.
CREATE TABLE writers (
    boot    BYTEA PRIMARY KEY,
    commits BIGINT NOT NULL,
    -- A loss of committed transactions that this writer noticed, as after the promotion of a standby that was behind.
    lost       BIGINT NOT NULL DEFAULT 0, -- how many of its own were lost
    lost_at    BIGINT, -- when it noticed; none: it has noticed none
    kept_until BIGINT -- the date of the newest event then
) WITH (fillfactor = 50);

-- Functions that SQLite has. The translation of statements (postgres/dialect) calls them.
--
-- A text as JSON. PostgreSQL cannot read the escape of the character NUL, which a message may contain: it becomes U+FFFD.
CREATE FUNCTION belay_json(value TEXT) RETURNS JSON LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(value, '\u0000') > 0 THEN replace(value, '\u0000', '\ufffd') ELSE value END::json
$$;
-- An array of two texts, without spaces, as SQLite writes it.
CREATE FUNCTION belay_json_array(a TEXT, b TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '[' || COALESCE(to_json(a)::text, 'null') || ',' || COALESCE(to_json(b)::text, 'null') || ']'
$$;
-- The elements of an array: texts as they are, others as JSON.
CREATE FUNCTION belay_json_each(list TEXT) RETURNS TABLE (value TEXT) LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT element #>> '{}' FROM json_array_elements(belay_json(list)) AS each (element)
$$;
-- A checked JSON text.
CREATE FUNCTION belay_json_text(value TEXT) RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT value::json::text
$$;
-- Appends to an array without spaces. The one path of it is '$[#]'.
CREATE FUNCTION belay_json_insert(list TEXT, path TEXT, element TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN path = '$[#]' THEN left(list, -1) || CASE list WHEN '[]' THEN '' ELSE ',' END || element || ']' END
$$;
-- The bytes of hexadecimal digits, between which the characters of the second text may be. Others: none.
CREATE FUNCTION belay_unhex(digits TEXT, ignored TEXT) RETURNS BYTEA LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN translate(digits, ignored, '') ~ '^([0-9a-fA-F][0-9a-fA-F])*$'
                THEN decode(translate(digits, ignored, ''), 'hex') END
$$;
-- The date of seconds since 1970 (UTC).
CREATE FUNCTION belay_date(seconds BIGINT, kind TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_char(to_timestamp(seconds) AT TIME ZONE 'UTC', 'YYYY-MM-DD')
$$;

-- The owner of each lane. Every write for a lane compares owner and epoch.
CREATE TABLE sessions (
    session        TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    owner          BYTEA, -- none: no daemon has opened the lane yet
    epoch          BIGINT NOT NULL CHECK (epoch >= 1),
    thread         BYTEA NOT NULL, -- the active one
    opened_at      BIGINT NOT NULL, -- when its lane was last opened; pruning reads it
    loop_detection BIGINT NOT NULL DEFAULT 1 CHECK (loop_detection = 0 OR loop_detection = 1), -- /loops on|off
    options        TEXT COLLATE "C", -- the options of all its runs: JSON; none: the defaults
    hidden         BIGINT NOT NULL DEFAULT 0 CHECK (hidden = 0 OR hidden = 1) -- left out of lists until its next run
);
CREATE INDEX sessions_of_owner ON sessions (owner) WHERE owner IS NOT NULL;

CREATE TABLE threads (
    id             BYTEA PRIMARY KEY NOT NULL,
    session        TEXT COLLATE "C" NOT NULL,
    state          TEXT COLLATE "C" NOT NULL
                    CHECK (state = 'idle' OR state = 'processing' OR state = 'awaiting_approval'
                           OR state = 'interrupted' OR state = 'completed'),
    turns          BIGINT NOT NULL DEFAULT 0 CHECK (turns >= 0), -- number of the last turn
    undone         BIGINT NOT NULL DEFAULT 0 CHECK (undone BETWEEN 0 AND 20), -- turns that /redo can restore
    last_active_at BIGINT NOT NULL,
    summary_upto   BIGINT NOT NULL DEFAULT 0, -- a load skips the messages up to here
    summary        TEXT COLLATE "C",
    skills         TEXT COLLATE "C", -- the skills that it began with; none: there were none, or it has not begun
    title          TEXT COLLATE "C", -- written by a model; none: lists show the first words
    title_tries    BIGINT NOT NULL DEFAULT 0 CHECK (title_tries >= 0), -- failed attempts
    -- 1: the session was created for one request. Lists omit it by default, and it is deleted soon. A thread keeps the mark
    -- without its session.
    ephemeral      BIGINT NOT NULL DEFAULT 0 CHECK (ephemeral = 0 OR ephemeral = 1)
);
CREATE INDEX threads_of_session ON threads (session);
CREATE INDEX threads_with_skills ON threads (skills) WHERE skills IS NOT NULL;
CREATE INDEX threads_ephemeral ON threads (last_active_at) WHERE ephemeral = 1;

-- How far each thread is indexed. A table of its own: the writer that indexes updates no row of a thread that another one owns.
CREATE TABLE thread_index (
    thread BYTEA PRIMARY KEY NOT NULL,
    upto   BIGINT NOT NULL -- messages up to this position are in message_index
);

-- The skills that conversations began with, by the digest of their text. Deleted with the last thread that refers to it.
CREATE TABLE skill_snapshots (
    digest TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    text   TEXT COLLATE "C" NOT NULL -- JSON, without values of variables
);

-- The people and programs that have sent a message. Written with the message, at most once an hour for each.
CREATE TABLE principals (
    channel       TEXT COLLATE "C" NOT NULL,
    id            TEXT COLLATE "C" NOT NULL, -- unique within the channel
    name          TEXT COLLATE "C", -- as the platform shows it; none: the platform gives none
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL, -- at most one hour before the newest message
    PRIMARY KEY (channel, id)
);

-- Codes of strangers that no operator has entered yet. Expired rows are deleted with the next code.
CREATE TABLE pairings (
    channel      TEXT COLLATE "C" NOT NULL,
    id           TEXT COLLATE "C" NOT NULL, -- unique within the channel
    name         TEXT COLLATE "C" NOT NULL, -- as the platform shows it
    conversation TEXT COLLATE "C" NOT NULL, -- the private conversation
    code_digest  TEXT COLLATE "C" NOT NULL, -- the code itself is not stored
    expires_at   BIGINT NOT NULL,
    PRIMARY KEY (channel, id)
);

-- People whom pairing has admitted to their private conversation, until an operator removes them.
CREATE TABLE paired_people (
    channel          TEXT COLLATE "C" NOT NULL,
    id               TEXT COLLATE "C" NOT NULL, -- unique within the channel
    name             TEXT COLLATE "C" NOT NULL, -- as the platform showed it
    conversation     TEXT COLLATE "C" NOT NULL, -- the private conversation
    admitted_by      TEXT COLLATE "C" NOT NULL, -- the operator
    admitted_through TEXT COLLATE "C" NOT NULL, -- the channel of the operator
    admitted_at      BIGINT NOT NULL,
    PRIMARY KEY (channel, id)
);

-- Conversations to which their platform has given another address, such as groups that became supergroups.
CREATE TABLE moved_conversations (
    channel       TEXT COLLATE "C" NOT NULL,
    moved_from    TEXT COLLATE "C" NOT NULL,
    moved_to      TEXT COLLATE "C" NOT NULL,
    keeps_session BIGINT NOT NULL, -- 1: messages from the new address continue the session of the old one
    PRIMARY KEY (channel, moved_from)
);

-- The browsers that are signed in at the console.
CREATE TABLE sign_ins (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    digest     TEXT COLLATE "C" NOT NULL UNIQUE, -- of the secret in the cookie
    tokens     TEXT COLLATE "C" NOT NULL,        -- the digest of the tokens that were configured
    principal  TEXT COLLATE "C" NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL,        -- the browser, as it names itself
    created_at BIGINT NOT NULL,
    used_at    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- The inbox and the runs in one table: a message makes exactly one run.
CREATE TABLE runs (
    seq             BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- order of acceptance
    id              BYTEA NOT NULL UNIQUE,
    session         TEXT COLLATE "C" NOT NULL,
    status          TEXT COLLATE "C" NOT NULL
                    CHECK (status = 'accepted' OR status = 'queued' OR status = 'running' OR status = 'paused'
                           OR status = 'completed' OR status = 'stopped' OR status = 'failed'),
    attempt         BIGINT NOT NULL DEFAULT 0,
    thread          BYTEA,    -- from the first start on
    turn            BIGINT, -- its number in the thread
    accepted_at     BIGINT NOT NULL,
    started_at      BIGINT,
    ended_at        BIGINT,
    input_tokens    BIGINT NOT NULL DEFAULT 0,
    output_tokens   BIGINT NOT NULL DEFAULT 0,
    model_calls     BIGINT NOT NULL DEFAULT 0,
    tool_calls      BIGINT NOT NULL DEFAULT 0,
    estimated_calls BIGINT NOT NULL DEFAULT 0, -- model calls whose tokens and cost are estimates
    cost_micro_usd  BIGINT NOT NULL DEFAULT 0,
    reason          TEXT COLLATE "C",
    -- The model that answered the last step; none: it has not ended, or no step was answered since the last restart.
    model           TEXT COLLATE "C",
    evidence        TEXT COLLATE "C",
    work            TEXT COLLATE "C" NOT NULL, -- the kind of work: a chat, a job or a routine run: JSON
    channel         TEXT COLLATE "C" NOT NULL,
    principal       TEXT COLLATE "C" NOT NULL,
    authority       TEXT COLLATE "C" NOT NULL
                    CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    indexed         BIGINT NOT NULL DEFAULT 0 CHECK (indexed = 0 OR indexed = 1), -- see the table indexed
    relayed         BIGINT NOT NULL CHECK (relayed = 0 OR relayed = 1),
    from_person     BIGINT NOT NULL CHECK (from_person = 0 OR from_person = 1), -- 0: a timer or a program sent it
    reply_to        TEXT COLLATE "C",
    key_channel     TEXT COLLATE "C",
    key_account     TEXT COLLATE "C",
    key_message     TEXT COLLATE "C",
    digest          TEXT COLLATE "C", -- of the submitted text, for a message with a key or a platform id
    message_ref     TEXT COLLATE "C", -- the platform's id of the message, unique within the session
    edited          TEXT COLLATE "C", -- digest of the last accepted edit
    options         TEXT COLLATE "C", -- its options: JSON; none: the defaults
    provenance      TEXT COLLATE "C", -- the author and the context of the message: JSON
    reply           TEXT COLLATE "C",
    files           TEXT COLLATE "C", -- the files that it has sent: JSON; none: it has sent none
    state           TEXT COLLATE "C", -- state of the loop at the last checkpoint: JSON
    text            TEXT COLLATE "C" NOT NULL,
    history         TEXT COLLATE "C", -- earlier messages that the request carried: JSON, until the first start
    CHECK ((ended_at IS NOT NULL) = (status = 'completed' OR status = 'stopped' OR status = 'failed')),
    CHECK ((ended_at IS NULL) = (reason IS NULL)),
    CHECK (indexed = 0 OR ended_at IS NOT NULL),
    CHECK ((thread IS NULL) = (turn IS NULL)),
    CHECK (digest IS NOT NULL OR (key_message IS NULL AND message_ref IS NULL))
);
CREATE UNIQUE INDEX runs_key ON runs (key_channel, key_account, key_message) WHERE key_message IS NOT NULL;
-- The open runs are among those that are not indexed yet. The end of a run changes no index.
CREATE INDEX runs_unindexed ON runs (session) WHERE indexed = 0;
CREATE INDEX runs_of_session ON runs (session) WHERE indexed = 1;
CREATE INDEX runs_by_reason ON runs (reason, seq, ended_at) WHERE indexed = 1;
CREATE INDEX runs_by_message ON runs (session, message_ref) WHERE message_ref IS NOT NULL;
CREATE INDEX runs_without_thread ON runs (ended_at) WHERE thread IS NULL AND ended_at IS NOT NULL;

-- Only whole conversations are deleted, so the highest position of a thread only grows.
CREATE TABLE messages (
    thread     BYTEA NOT NULL,
    position   BIGINT NOT NULL CHECK (position >= 1),
    turn       BIGINT NOT NULL,
    run_id     BYTEA, -- none: the message came as history with a request
    role       TEXT COLLATE "C" NOT NULL CHECK (role = 'system' OR role = 'user' OR role = 'assistant' OR role = 'tool'),
    scope      TEXT COLLATE "C" NOT NULL CHECK (scope = 'thread' OR scope = 'run'),
    visibility TEXT COLLATE "C" NOT NULL DEFAULT 'visible'
                    CHECK (visibility = 'visible' OR visibility = 'undone' OR visibility = 'cleared'),
    at         BIGINT NOT NULL,
    index_row  BIGINT, -- its row in message_index; none: it has no searchable text, or is not indexed yet
    summarised BIGINT NOT NULL DEFAULT 0, -- 1: the thread's summary replaces it in later loads
    body       TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (thread, position)
);
CREATE UNIQUE INDEX messages_by_index_row ON messages (index_row) WHERE index_row IS NOT NULL;

-- Full-text index of the messages of people and the model. The text itself is in messages. Belay cuts and folds the words itself
-- (postgres/words.rs), so that both engines find the same. There is one row for each message, as in the index of SQLite.
CREATE TABLE message_index (
    rowid BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    words TSVECTOR NOT NULL
);
CREATE INDEX message_index_words ON message_index USING GIN (words);

-- What rare queries need is indexed behind the reply, in batches (sqlite/index.rs): the events of each run, the ended runs of each
-- session, and the words of messages. A query reads the rest of the events from the end of their table.
CREATE TABLE indexed (
    id    BIGINT PRIMARY KEY CHECK (id = 1),
    event BIGINT NOT NULL -- all events up to this one are indexed, with the runs that they end and the messages before them
);
INSERT INTO indexed VALUES (1, 0);

-- seq is the order of commit of all sessions, so it is the order within each session and each run too. It is the cursor of every feed
-- (since=, Last-Event-ID, the WebSocket's cursor). One thread writes, so a reader that has seen a number has seen all lower ones. The
-- newest event is never deleted, so a number is never used again.
CREATE TABLE events (
    seq     BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at      BIGINT NOT NULL,
    indexed BIGINT NOT NULL DEFAULT 0 CHECK (indexed = 0 OR indexed = 1),
    session TEXT COLLATE "C",
    run_id  BYTEA,
    kind    TEXT COLLATE "C" NOT NULL
);
CREATE INDEX events_of_run ON events (run_id) WHERE indexed = 1 AND run_id IS NOT NULL;
CREATE INDEX events_without_run ON events (session) WHERE run_id IS NULL AND session IS NOT NULL;

CREATE TABLE outbox (
    seq          BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- order of commit, and of delivery within a conversation
    id           BYTEA NOT NULL UNIQUE,
    run_id       BYTEA,
    channel      TEXT COLLATE "C" NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL,
    reply_to     TEXT COLLATE "C",
    state        TEXT COLLATE "C" NOT NULL DEFAULT 'waiting'
                    CHECK (state = 'waiting' OR state = 'sending' OR state = 'sent' OR state = 'ambiguous'
                           OR state = 'failed'),
    attempts     BIGINT NOT NULL DEFAULT 0,
    pieces_sent  BIGINT NOT NULL DEFAULT 0,
    send_epoch   BIGINT, -- the epoch of the channel's lease under which it is being sent; none: there are no leases
    due_at       BIGINT, -- earliest delivery; none: at once
    unsure_since BIGINT, -- start of the first attempt whose result is unknown; none: the results of all attempts are known
    preview      TEXT COLLATE "C", -- platform id of the preview message that this one replaces
    question     TEXT COLLATE "C", -- the approval request that it carries: JSON
    callback     TEXT COLLATE "C", -- the address to which it is posted; none: it is a text for people
    unchecked    TEXT COLLATE "C" -- the kind of a text that hooks have not checked yet; none: they have
                    CHECK (unchecked = 'reply' OR unchecked = 'message' OR unchecked = 'question'
                           OR unchecked = 'reminder' OR unchecked = 'command' OR unchecked = 'notice'),
    file         TEXT COLLATE "C", -- the file that it carries: JSON
    text         TEXT COLLATE "C" NOT NULL
);
CREATE INDEX outbox_open ON outbox (channel, conversation, seq) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_of_run ON outbox (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_without_run ON outbox (id) WHERE run_id IS NULL;
-- A delivery needs its file until its row is deleted.
CREATE FUNCTION outbox_file() RETURNS TRIGGER LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM blob_references WHERE owner = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_file AFTER DELETE ON outbox FOR EACH ROW WHEN (OLD.file IS NOT NULL) EXECUTE FUNCTION outbox_file();

-- One row for each approval request. Rows are deleted with their run only.
CREATE TABLE approvals (
    seq         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- order of the requests
    id          BYTEA NOT NULL UNIQUE,
    run_id      BYTEA NOT NULL,
    session     TEXT COLLATE "C" NOT NULL,
    call_id     TEXT COLLATE "C" NOT NULL,
    tool        TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL CHECK (kind = 'approval' OR kind = 'credential' OR kind = 'client_calls' OR kind = 'form'),
    secret_name TEXT COLLATE "C", -- the requested secret, for a credential
    results     TEXT COLLATE "C", -- of a client that carries the calls out, or the answers to a form: JSON
    summary     TEXT COLLATE "C" NOT NULL,
    arguments   TEXT COLLATE "C" NOT NULL, -- JSON; sensitive values are masked; for a client its calls, for a form its fields
    detail      TEXT COLLATE "C" NOT NULL,
    bound       TEXT COLLATE "C" NOT NULL, -- JSON: the (name, value) pairs that the digest covers
    digest      TEXT COLLATE "C" NOT NULL,
    covers      TEXT COLLATE "C",
    added       TEXT COLLATE "C", -- the texts that hooks have put before and after the question: JSON
    principal   TEXT COLLATE "C" NOT NULL,
    authority   TEXT COLLATE "C" NOT NULL CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    relayed     BIGINT NOT NULL CHECK (relayed = 0 OR relayed = 1),
    place       TEXT COLLATE "C", -- the conversation in which autonomous work asks: JSON
    second      TEXT COLLATE "C", -- two persons must approve: the first approval, and where the second person is asked: JSON
    asked_at    BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    reminded_at BIGINT,
    state       TEXT COLLATE "C" NOT NULL DEFAULT 'waiting'
                CHECK (state = 'waiting' OR state = 'approved' OR state = 'used' OR state = 'denied'
                       OR state = 'expired' OR state = 'withdrawn'),
    decided_by  TEXT COLLATE "C",
    decided_at  BIGINT,
    CHECK ((kind = 'credential') = (secret_name IS NOT NULL)),
    CHECK ((decided_by IS NULL) = (decided_at IS NULL)),
    CHECK (state <> 'waiting' OR decided_by IS NULL)
);
CREATE INDEX approvals_of_run ON approvals (run_id);
CREATE INDEX approvals_of_session ON approvals (session);
CREATE INDEX approvals_waiting ON approvals (session) WHERE state = 'waiting';

-- The answers "always" of a session: the principal that has given it, and the one whose work had asked.
CREATE TABLE grants (
    session         TEXT COLLATE "C" NOT NULL,
    tool            TEXT COLLATE "C" NOT NULL,
    covers          TEXT COLLATE "C" NOT NULL,
    principal       TEXT COLLATE "C" NOT NULL,
    authority       TEXT COLLATE "C" NOT NULL CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    asked           TEXT COLLATE "C" NOT NULL,
    asked_authority TEXT COLLATE "C" NOT NULL CHECK (asked_authority = 'conversation' OR asked_authority = 'token' OR asked_authority = 'operator'),
    at              BIGINT NOT NULL,
    PRIMARY KEY (session, tool, covers, principal, authority, asked, asked_authority)
);

-- Uploaded files that messages can name, for a day. Also counts the bytes of each person.
CREATE TABLE uploads (
    id         BYTEA PRIMARY KEY NOT NULL,
    channel    TEXT COLLATE "C" NOT NULL,
    principal  TEXT COLLATE "C" NOT NULL, -- unique within the channel
    at         BIGINT NOT NULL,
    bytes      BIGINT NOT NULL CHECK (bytes >= 0),
    attachment TEXT COLLATE "C" -- JSON; none: its conversation was deleted, and the row counts for the limit of the day alone
);
CREATE INDEX uploads_of_principal ON uploads (channel, principal, at, bytes);

-- Which runs, copied threads, uploads and deliveries need which files of the blob store. A file without a row is deleted by the
-- next sweep.
CREATE TABLE blob_references (
    owner  BYTEA NOT NULL, -- a run, a copied thread, an upload, or a delivery
    digest TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, digest)
);
CREATE INDEX blob_references_of_digest ON blob_references (digest);

-- Secrets from people, encrypted. The key is not in this file.
CREATE TABLE secrets (
    session TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    at      BIGINT NOT NULL,
    sealed  BYTEA NOT NULL,
    PRIMARY KEY (session, name)
);
CREATE INDEX secrets_of_mail ON secrets (at) WHERE name >= 'node_mail:' AND name < 'node_mail;';

-- Keys of commands and approval answers: a second delivery has no effect, even after a restart or at another node.
CREATE TABLE handled_inputs (
    seq         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    key_channel TEXT COLLATE "C" NOT NULL,
    key_account TEXT COLLATE "C" NOT NULL,
    key_message TEXT COLLATE "C" NOT NULL,
    digest      TEXT COLLATE "C", -- distinguishes another input with the same key; none for a secret
    refused     BIGINT NOT NULL CHECK (refused = 0 OR refused = 1), -- 1: refused permanently
    claimed_by  BYTEA, -- the daemon that carries it out; none: it is carried out or refused
    at          BIGINT NOT NULL,
    UNIQUE (key_channel, key_account, key_message)
);

-- Money, tokens and requests by day, purpose, principal and model. micro_usd is the sum of the reservations, so that the budget
-- check of a day reads one range of this key and no reservation. Calls that cost nothing are not here. channel and principal are the sender of the run's message, or the creator of its job or routine;
-- both are '' for a model call outside every run.
CREATE TABLE spend (
    utc_day   BIGINT NOT NULL, -- days since 1970-01-01
    purpose   TEXT COLLATE "C" NOT NULL,
    channel   TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL, -- unique within the channel
    model     TEXT COLLATE "C" NOT NULL, -- the one that answered, as far as it is known
    micro_usd BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL, -- of settled calls
    output_tokens BIGINT NOT NULL,
    calls         BIGINT NOT NULL, -- requests to the model, including failed ones
    -- The opening of the store that has added it, so that two daemons never update one row. Empty: on SQLite, and for merged rows
    -- of old days. Only sums over all nodes mean something: one node may settle what another one has reserved.
    node          BYTEA NOT NULL,
    PRIMARY KEY (utc_day, purpose, channel, principal, model, node)
);
CREATE TABLE reservations (
    id        BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    utc_day   BIGINT NOT NULL,
    run_id    BYTEA NOT NULL,
    purpose   TEXT COLLATE "C" NOT NULL,
    channel   TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    model     TEXT COLLATE "C" NOT NULL,
    micro_usd BIGINT NOT NULL CHECK (micro_usd >= 0), -- the reserved amount; the cost once settled
    settled   BIGINT NOT NULL DEFAULT 0 CHECK (settled = 0 OR settled = 1),
    node      BYTEA -- the node of a cluster whose slices pay it; none: the daemon is alone
);
CREATE INDEX reservations_of_node ON reservations (node, utc_day) WHERE node IS NOT NULL;

-- Notes outlive the sessions in which they were written. Those of a group are deleted with its session.
CREATE TABLE notes (
    id        BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- never used again
    kind      TEXT COLLATE "C" NOT NULL CHECK (kind = 'person' OR kind = 'group'),
    channel   TEXT COLLATE "C" NOT NULL, -- of the person; '' for a group
    owner     TEXT COLLATE "C" NOT NULL, -- the id of the person within the channel, or the session of the group
    key       TEXT COLLATE "C", -- none: only the id names the note
    at        BIGINT NOT NULL, -- of the last change
    untrusted BIGINT NOT NULL CHECK (untrusted = 0 OR untrusted = 1), -- 1: its run had read untrusted content
    session   TEXT COLLATE "C" NOT NULL, -- in which it was written
    text      TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX notes_of_owner ON notes (kind, channel, owner, key);

-- Vectors of notes for the search by meaning; none unless memory.embeddings is set.
CREATE TABLE note_embeddings (
    note    BIGINT PRIMARY KEY,
    model   TEXT COLLATE "C" NOT NULL, -- vectors of another model are not compared
    note_at BIGINT NOT NULL, -- notes.at when the vector was made: that of a changed note is not used
    vector  BYTEA NOT NULL -- of length 1, 32-bit numbers, little-endian
);
CREATE FUNCTION notes_deleted() RETURNS TRIGGER LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM note_embeddings WHERE note = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER notes_deleted AFTER DELETE ON notes FOR EACH ROW EXECUTE FUNCTION notes_deleted();

-- Work that outlives the turn that started it.
CREATE TABLE jobs (
    seq            BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- order of commit
    id             BYTEA NOT NULL UNIQUE,
    session        TEXT COLLATE "C" NOT NULL, -- its own
    state          TEXT COLLATE "C" NOT NULL
                   CHECK (state = 'pending' OR state = 'in_progress' OR state = 'completed' OR state = 'submitted'
                          OR state = 'accepted' OR state = 'failed' OR state = 'stuck' OR state = 'cancelled'),
    plan           BIGINT NOT NULL CHECK (plan = 0 OR plan = 1),
    runs_in        TEXT COLLATE "C" NOT NULL, -- JSON
    budget         TEXT COLLATE "C" NOT NULL, -- JSON
    grants         TEXT COLLATE "C", -- the calls that need no approval: JSON
    channel        TEXT COLLATE "C" NOT NULL,
    principal      TEXT COLLATE "C" NOT NULL,
    authority      TEXT COLLATE "C" NOT NULL CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    relayed        BIGINT NOT NULL CHECK (relayed = 0 OR relayed = 1),
    creator        TEXT COLLATE "C" NOT NULL CHECK (creator = belay_json_array(channel, principal)), -- its cap counts this job
    requested_in   TEXT COLLATE "C" NOT NULL,
    reply_to       TEXT COLLATE "C", -- JSON
    parent_run_id  BYTEA,
    routine_run_id BYTEA,
    attempt        BIGINT NOT NULL,
    crashes        BIGINT NOT NULL,
    parked         BIGINT NOT NULL DEFAULT 0 CHECK (parked = 0 OR parked = 1),
    owner          BYTEA, -- the boot that works on it; none: it waits, or was released
    run_id         BYTEA,
    created_at     BIGINT NOT NULL,
    started_at     BIGINT,
    changed_at     BIGINT NOT NULL,
    ended_at       BIGINT,
    detail         TEXT COLLATE "C" NOT NULL,
    title          TEXT COLLATE "C" NOT NULL,
    task           TEXT COLLATE "C" NOT NULL, -- long values are last: SQLite reads a row from its start
    result         TEXT COLLATE "C",
    CHECK ((ended_at IS NULL) = (state = 'pending' OR state = 'in_progress' OR state = 'stuck'))
);
-- Each index covers the columns of its condition, so that counting reads no row.
CREATE INDEX jobs_open ON jobs (creator, ended_at) WHERE ended_at IS NULL;
CREATE INDEX jobs_pending ON jobs (creator, seq, state) WHERE state = 'pending';
CREATE INDEX jobs_at_work ON jobs (creator, state) WHERE state IN ('in_progress', 'stuck');
CREATE INDEX jobs_by_requester ON jobs (requested_in, seq);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE INDEX jobs_over ON jobs (ended_at) WHERE ended_at IS NOT NULL;

-- A new routine with the name of a deleted one has another id.
CREATE TABLE routines (
    name            TEXT COLLATE "C" NOT NULL UNIQUE, -- its small index serves COUNT(*)
    id              BYTEA NOT NULL UNIQUE,
    spec            TEXT COLLATE "C" NOT NULL, -- JSON
    path            TEXT COLLATE "C", -- path of its webhook
    channel         TEXT COLLATE "C" NOT NULL,
    principal       TEXT COLLATE "C" NOT NULL,
    authority       TEXT COLLATE "C" NOT NULL
                    CHECK (authority = 'conversation' OR authority = 'token' OR authority = 'operator'),
    relayed         BIGINT NOT NULL CHECK (relayed = 0 OR relayed = 1),
    created_in      TEXT COLLATE "C" NOT NULL,
    reply_to        TEXT COLLATE "C", -- JSON
    origin          TEXT COLLATE "C" NOT NULL, -- JSON
    enabled         BIGINT NOT NULL CHECK (enabled = 0 OR enabled = 1),
    disabled_detail TEXT COLLATE "C" NOT NULL,
    revision        BIGINT NOT NULL,
    next_at         BIGINT,
    not_before      BIGINT, -- deferred until then
    due_at          BIGINT GENERATED ALWAYS AS
                    (CASE WHEN next_at IS NOT NULL THEN greatest(next_at, COALESCE(not_before, next_at)) END) STORED,
    claimed_to      BIGINT,
    last_run_at     BIGINT,
    triggered_at    BIGINT, -- as last_run_at, without manual runs
    run_count       BIGINT NOT NULL,
    failures        BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    changed_at      BIGINT NOT NULL,
    CHECK (enabled = 1 OR next_at IS NULL)
);
CREATE UNIQUE INDEX routines_by_path ON routines (path) WHERE path IS NOT NULL;
CREATE INDEX routines_due ON routines (due_at, name) WHERE due_at IS NOT NULL;
CREATE INDEX routines_of_owner ON routines (channel, principal, origin);

-- Incremented by each change of a trigger.
CREATE TABLE routine_changes (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    changes BIGINT NOT NULL
);
INSERT INTO routine_changes (id, changes) VALUES (1, 1);

-- One row for each execution of a routine, and for each missed scheduled time. The unique pair (routine_id, key) lets one daemon
-- claim a routine run.
CREATE TABLE routine_runs (
    seq             BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, -- order of commit
    id              BYTEA NOT NULL UNIQUE,
    session         TEXT COLLATE "C" NOT NULL, -- its own
    routine_id      BYTEA NOT NULL,
    routine         TEXT COLLATE "C" NOT NULL, -- its name at that time
    key             TEXT COLLATE "C" NOT NULL,
    revision        BIGINT NOT NULL,
    triggered_by    TEXT COLLATE "C" NOT NULL,
    scheduled_at    BIGINT,
    content         TEXT COLLATE "C", -- digest of the payload, for deduplication
    status          TEXT COLLATE "C" NOT NULL
                    CHECK (status = 'running' OR status = 'ok' OR status = 'attention' OR status = 'failed'
                           OR status = 'missed' OR status = 'skipped'),
    run_id          BYTEA,
    job_id          BYTEA,
    input_tokens    BIGINT NOT NULL DEFAULT 0,
    output_tokens   BIGINT NOT NULL DEFAULT 0,
    model_calls     BIGINT NOT NULL DEFAULT 0,
    tool_calls      BIGINT NOT NULL DEFAULT 0,
    estimated_calls BIGINT NOT NULL DEFAULT 0,
    cost_micro_usd  BIGINT NOT NULL DEFAULT 0,
    boot            BYTEA, -- the boot that claimed it or took it over; none: a missed time
    claimed_at      BIGINT NOT NULL,
    ended_at        BIGINT,
    detail          TEXT COLLATE "C" NOT NULL,
    summary         TEXT COLLATE "C",
    payload         TEXT COLLATE "C",
    UNIQUE (routine_id, key),
    CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE INDEX routine_runs_running ON routine_runs (routine_id, status) WHERE status = 'running';
CREATE INDEX routine_runs_by_name ON routine_runs (routine, seq);
CREATE INDEX routine_runs_by_content ON routine_runs (routine_id, content, claimed_at) WHERE content IS NOT NULL;
CREATE INDEX routine_runs_ended ON routine_runs (ended_at) WHERE ended_at IS NOT NULL;

-- The circuit breakers of tools and MCP servers. A row is replaced, never deleted: the higher revision is the newer write.
CREATE TABLE tool_breakers (
    name     TEXT COLLATE "C" PRIMARY KEY, -- a tool, or mcp: and an MCP server
    revision BIGINT NOT NULL,
    since    BIGINT,          -- when it was disabled; none: it is enabled, and the columns below are none too
    until    BIGINT,          -- none: until a person enables it
    for_s    BIGINT,
    actor    TEXT COLLATE "C",             -- rule, or the person who disabled it
    detail   TEXT COLLATE "C",
    failures BIGINT,
    runs     BIGINT
);

-- Freezes by operators: each stops a part of the work until its thaw. Rows are kept as a record.
CREATE TABLE freezes (
    id        BYTEA PRIMARY KEY NOT NULL,
    at        BIGINT NOT NULL,
    thawed_at BIGINT, -- none: it is in force
    scope     TEXT COLLATE "C" NOT NULL, -- what is frozen: JSON
    detail    TEXT COLLATE "C", -- the reason
    actor     TEXT COLLATE "C" NOT NULL, -- the operator
    source    TEXT COLLATE "C" NOT NULL, -- the channel of the operator
    receipt   TEXT COLLATE "C" -- what it has stopped: JSON; none: not known yet
);
CREATE UNIQUE INDEX freezes_in_force ON freezes (scope) WHERE thawed_at IS NULL;

-- The readiness check writes here.
CREATE TABLE pings (
    id    BIGINT PRIMARY KEY CHECK (id = 1),
    count BIGINT NOT NULL
);
INSERT INTO pings VALUES (1, 0);

-- The daemons of a cluster. A daemon that uses its database alone has no row, and neither has any daemon of SQLite. A node lives from its
-- registration until ended_at is set, once: by its own drain, or by another node after the end of its lease. Ownership (sessions.owner,
-- jobs.owner, routine_runs.boot, work_leases.owner) depends on ended_at alone, never on lease_until: a renewal may be on its way.
CREATE TABLE nodes (
    boot        BYTEA PRIMARY KEY NOT NULL,
    name        TEXT COLLATE "C" NOT NULL, -- unique among the living
    version     TEXT COLLATE "C" NOT NULL,
    schema_min  BIGINT NOT NULL, -- the oldest schema that its program migrates
    schema_max  BIGINT NOT NULL, -- the schema of its program
    settings    TEXT COLLATE "C" NOT NULL, -- the digest of the settings that all nodes must share
    started_at  BIGINT NOT NULL, -- by the clock of the database, as all dates here
    lease_until BIGINT NOT NULL,
    draining    BIGINT NOT NULL DEFAULT 0 CHECK (draining = 0 OR draining = 1),
    ended_at    BIGINT,
    ended_by    TEXT COLLATE "C" CHECK (ended_by = 'drain' OR ended_by = 'lease'),
    CHECK ((ended_at IS NULL) = (ended_by IS NULL))
);
CREATE UNIQUE INDEX nodes_alive ON nodes (name) WHERE ended_at IS NULL;

-- Work that one node of a cluster does at a time: the polling and sending of a channel, and tasks such as pruning. A lease is free without
-- an owner, and when its owner has ended. Each claim raises the epoch.
CREATE TABLE work_leases (
    kind  TEXT COLLATE "C" NOT NULL CHECK (kind = 'channel' OR kind = 'task'),
    name  TEXT COLLATE "C" NOT NULL,
    owner BYTEA,
    epoch BIGINT NOT NULL CHECK (epoch >= 1),
    PRIMARY KEY (kind, name)
);

-- Stops that a node was asked for, for all nodes: written before the stop is answered. Deleted after an hour.
CREATE TABLE stop_orders (
    seq     BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    id      BYTEA NOT NULL UNIQUE,
    at      BIGINT NOT NULL,
    run_id  BYTEA,
    session TEXT COLLATE "C", -- without a run and a session: all runs
    cause   TEXT COLLATE "C" NOT NULL, -- JSON
    source  BYTEA NOT NULL -- the node that was asked
);
CREATE TABLE stop_acks (
    order_id BYTEA NOT NULL,
    boot     BYTEA NOT NULL,
    report   TEXT COLLATE "C" NOT NULL, -- what the node has stopped: JSON
    PRIMARY KEY (order_id, boot)
);

-- Messages, commands and answers for a lane that another node owns. The owner handles them in this order, and writes the answer.
CREATE TABLE node_mail (
    seq         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    id          BYTEA NOT NULL UNIQUE,
    session     TEXT COLLATE "C" NOT NULL,
    source      BYTEA NOT NULL, -- the node that received it
    run_id      BYTEA, -- the run of a message
    at          BIGINT NOT NULL,
    body        TEXT COLLATE "C", -- JSON; none once it is answered
    taken_by    BYTEA, -- the node that began to handle it
    taken_epoch BIGINT, -- the epoch of its lane then
    promised    BIGINT NOT NULL DEFAULT 0 CHECK (promised = 0 OR promised = 1), -- 1: its sender has acknowledged the message
    ack         TEXT COLLATE "C", -- the answer: JSON; none: it is open
    reason      TEXT COLLATE "C", -- why the run of an answered message that was not accepted has ended
    evidence    TEXT COLLATE "C", -- JSON
    ended_at    BIGINT,
    CHECK ((body IS NULL) = (ack IS NOT NULL)),
    CHECK (reason IS NULL OR (run_id IS NOT NULL AND ack IS NOT NULL)),
    CHECK ((reason IS NULL) = (evidence IS NULL) AND (reason IS NULL) = (ended_at IS NULL)),
    CHECK ((taken_by IS NULL) = (taken_epoch IS NULL))
);
CREATE INDEX node_mail_open ON node_mail (session, seq) WHERE ack IS NULL;
CREATE INDEX node_mail_by_run ON node_mail (run_id) WHERE run_id IS NOT NULL;

-- The money of a day that was handed out to the nodes of a cluster, spent or not. Its sum never exceeds the limit.
CREATE TABLE budgets (
    utc_day BIGINT NOT NULL,
    budget  TEXT COLLATE "C" NOT NULL, -- a purpose; '': all purposes
    granted BIGINT NOT NULL CHECK (granted >= 0), -- in millionths of a US dollar
    PRIMARY KEY (utc_day, budget)
);
CREATE TABLE budget_slices (
    utc_day    BIGINT NOT NULL,
    budget     TEXT COLLATE "C" NOT NULL,
    boot       BYTEA NOT NULL,
    granted    BIGINT NOT NULL CHECK (granted >= 0),
    reconciled BIGINT NOT NULL DEFAULT 0 CHECK (reconciled = 0 OR reconciled = 1), -- 1: its node has ended, and the rest was returned
    PRIMARY KEY (utc_day, budget, boot)
);

-- Files of the blob store of a cluster, in parts of 256 KiB. A daemon that uses its database alone keeps files in a directory.
CREATE TABLE blobs (
    digest TEXT COLLATE "C" NOT NULL,
    part   BIGINT NOT NULL CHECK (part >= 0),
    at     BIGINT NOT NULL,
    bytes  BYTEA NOT NULL,
    PRIMARY KEY (digest, part)
);
ALTER TABLE blobs ALTER COLUMN bytes SET STORAGE EXTERNAL; -- most files are compressed already

-- Outputs of tools that are too long for a model, in parts of 256 KiB, of a cluster. A daemon that uses its database alone keeps them
-- in a directory. An output has a size from its end on: without one it is still being written, and nobody reads it.
CREATE TABLE kept_outputs (
    run_id BYTEA NOT NULL,
    number BIGINT NOT NULL CHECK (number >= 1), -- within the run
    part   BIGINT NOT NULL CHECK (part >= 0),
    call   TEXT COLLATE "C" NOT NULL, -- digest of the id of the call
    at     BIGINT NOT NULL, -- when the part was written; of part 0: when the last one was
    size   BIGINT, -- of the whole output, in part 0
    bytes  BYTEA NOT NULL,
    PRIMARY KEY (run_id, number, part),
    CHECK (part = 0 OR size IS NULL)
);
CREATE INDEX kept_outputs_sizes ON kept_outputs (run_id, number, size) WHERE part = 0;

-- The approved descriptions of MCP tools, of a cluster. One row. A daemon that uses its database alone keeps them in a file.
CREATE TABLE mcp_pins (
    id   BIGINT PRIMARY KEY CHECK (id = 1),
    pins TEXT COLLATE "C" NOT NULL -- JSON, see belay_tools
);

-- How far channels have read their sources.
CREATE TABLE cursors (
    channel TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL, -- the source within the channel
    value   TEXT COLLATE "C" NOT NULL, -- in the form of the platform
    PRIMARY KEY (channel, name)
);

-- One-time links to the console.
CREATE TABLE sign_in_links (
    digest     TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    expires_at BIGINT NOT NULL
);
