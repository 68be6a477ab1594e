-- Set where the thread's summary stands for a message of a turn that was at work: no later load of the thread has it.
ALTER TABLE messages ADD COLUMN summarised INTEGER NOT NULL DEFAULT 0;
