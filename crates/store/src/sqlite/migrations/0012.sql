-- Which tools, and MCP servers, are switched off, and why. A row is written over, never deleted: its revision says which of
-- two writes is the newer one.

CREATE TABLE tool_switches (
    name     TEXT PRIMARY KEY, -- of a tool, or mcp: and that of a server
    revision INTEGER NOT NULL,
    since    INTEGER,          -- since when it is off, in milliseconds; NULL: it is on, and so are all that follow
    until    INTEGER,          -- NULL: until somebody switches it on
    for_s    INTEGER,
    switcher TEXT,             -- who: rule, or a person
    why      TEXT,
    failures INTEGER,
    runs     INTEGER
) STRICT, WITHOUT ROWID;
