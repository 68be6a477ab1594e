-- Who wrote a message and what came with it, and how an edit of it is recognised.

ALTER TABLE runs ADD COLUMN provenance TEXT;  -- JSON; NULL: the text alone
ALTER TABLE runs ADD COLUMN message_ref TEXT; -- the platform's id of the message, unique within the session
ALTER TABLE runs ADD COLUMN edited TEXT;      -- digest of the last edit that was taken; NULL: none was

CREATE INDEX runs_by_message ON runs (session, message_ref) WHERE message_ref IS NOT NULL;
