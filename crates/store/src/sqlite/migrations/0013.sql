-- Requests whose tokens and cost are estimated, since the provider did not report them: part of what a run used.
ALTER TABLE runs ADD COLUMN estimated_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE firings ADD COLUMN estimated_calls INTEGER NOT NULL DEFAULT 0;
