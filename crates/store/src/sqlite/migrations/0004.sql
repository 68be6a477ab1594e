-- What a message asks of its run, and a session of all its runs: JSON, none where nothing is asked.
ALTER TABLE runs ADD COLUMN options TEXT;
ALTER TABLE sessions ADD COLUMN options TEXT;

-- The message on the platform that this one takes the place of, where the answer was shown while it came.
ALTER TABLE outbox ADD COLUMN preview TEXT;
