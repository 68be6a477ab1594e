//! The daemon with its store in PostgreSQL: chosen scenarios of this suite, outages of the server, and starts that are refused.
//!
//! `BELAY_TEST_ENGINE=postgres cargo test -p belay-tests --test scenarios` runs every scenario over PostgreSQL. Those that open
//! the database file fail there.

mod engine;
mod handover;
mod killed;
mod misuse;
mod node;
mod nodes;
mod outage;
mod promotion;
mod shared;
mod starting;
