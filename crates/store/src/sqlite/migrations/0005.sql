-- Finding what was said, and deleting what is old. From here on whole conversations are deleted, never a part of one that
-- goes on, so that positions only grow; and the newest event stays, so that numbers only grow.

-- The words of what people and model said; the texts stand in messages.
CREATE VIRTUAL TABLE message_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
-- Its row for a message, where the message has words.
ALTER TABLE messages ADD COLUMN doc INTEGER;
CREATE UNIQUE INDEX messages_by_doc ON messages (doc) WHERE doc IS NOT NULL;

-- How far the messages of earlier versions have come in it. No row: all are in it.
CREATE TABLE words_upto (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    thread   TEXT NOT NULL,
    position INTEGER NOT NULL
) STRICT;
INSERT INTO words_upto SELECT 1, '', 0 WHERE EXISTS (SELECT 1 FROM messages);

-- When a lane was last opened: what is being used is not too old.
ALTER TABLE sessions ADD COLUMN opened_at INTEGER;

-- Whether a person said it.
ALTER TABLE runs ADD COLUMN spoken INTEGER NOT NULL DEFAULT 1 CHECK (spoken = 0 OR spoken = 1);

CREATE INDEX threads_of_session ON threads (session);
CREATE INDEX threads_by_age ON threads (last_active_at);
CREATE INDEX runs_without_thread ON runs (ended_at) WHERE thread IS NULL AND ended_at IS NOT NULL;
CREATE INDEX events_of_session ON events (session) WHERE run_id IS NULL AND session IS NOT NULL;
CREATE INDEX outbox_of_run ON outbox (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX outbox_of_nobody ON outbox (id) WHERE run_id IS NULL;
