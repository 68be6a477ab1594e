//! What the store promises: one conformance suite over a store in a file and one in memory, random sequences compared between
//! them, and what only a store on disk can show: crashes, full disks, locks.

#![allow(clippy::unwrap_used)]

mod cluster;
mod conformance;
mod crash;
mod damaged;
mod disk;
mod files;
mod indexing;
mod inspect;
mod kit;
mod paused_crash;
mod postgres_faults;
mod properties;
mod round_trips;
mod schema;
mod secret_files;
mod spending;
mod transfer;
mod two_daemons;
mod two_writers;
mod work_properties;
