//! Persistence: SQLite and in memory, behind the same ports.
