-- Which tools, and MCP servers, are switched off, and why. A row is written over, never deleted: its revision says which of
-- two writes is the newer one.

CREATE TABLE tool_switches (
    name     TEXT PRIMARY KEY, -- of a tool, or mcp: and that of a server
    revision INTEGER NOT NULL,
    off      TEXT              -- JSON: since when, until when, by whom, why; NULL: it is on
) STRICT, WITHOUT ROWID;
