-- Conversations of sessions that were created for one request: not listed by default, and deleted soon. A conversation that is
-- left without its session still has the mark.

ALTER TABLE threads ADD COLUMN ephemeral INTEGER NOT NULL DEFAULT 0 CHECK (ephemeral = 0 OR ephemeral = 1);

CREATE INDEX threads_ephemeral ON threads (last_active_at) WHERE ephemeral = 1;
