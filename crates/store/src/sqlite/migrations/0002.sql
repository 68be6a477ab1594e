-- Whether loops are looked for in the runs of a session; a person may switch it off.
ALTER TABLE sessions ADD COLUMN loop_detection INTEGER NOT NULL DEFAULT 1 CHECK (loop_detection IN (0, 1));
