-- What tells a second delivery of a command or an answer from something else under its key. None for a secret, of which no
-- digest is kept, and for what an older version has noted.
ALTER TABLE acted_on ADD COLUMN digest TEXT;
-- Whether it was refused for good.
ALTER TABLE acted_on ADD COLUMN refused INTEGER NOT NULL DEFAULT 0 CHECK (refused = 0 OR refused = 1);
-- Whether the digest of a message is of its text alone, whatever came beside it: so for all that an older version has
-- accepted, which the default says without writing each row anew.
ALTER TABLE runs ADD COLUMN digest_of_text INTEGER NOT NULL DEFAULT 1 CHECK (digest_of_text = 0 OR digest_of_text = 1);
