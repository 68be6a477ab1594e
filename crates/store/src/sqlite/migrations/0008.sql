-- What tells a second delivery of a command or an answer from something else under its key. None for a secret, of which no
-- digest is kept, and for what an older version has noted.
ALTER TABLE acted_on ADD COLUMN digest TEXT;
