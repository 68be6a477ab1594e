//! Two stores that write into one PostgreSQL database: what only locks and conditions of the database settle between them.
//!
//! A test that depends on an order makes a third session hold a lock until both stores have come to it.

mod answers;
mod blobs;
mod delivery_and_money;
mod holder;
mod index;
mod job_owners;
mod jobs;
mod kept_outputs;
mod lanes;
mod leased_delivery;
mod money;
mod newest;
mod nodes;
mod notes;
mod notices;
mod prune;
mod readiness;
mod routine_runs;
mod routines;
mod skills;
mod slices;
mod takeover;
mod two;
mod uploads;
