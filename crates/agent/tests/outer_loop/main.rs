//! The outer loop with a scripted model, channels driven by the test, and the in-memory store. Time is paused: whatever
//! takes time here takes none.

mod approvals;
mod chat;
mod compaction;
mod context;
mod endings;
mod gate;
mod heartbeat;
mod hooks;
mod jobs;
mod keys;
mod money;
mod multiplying;
mod night;
mod outputs;
mod plan;
mod queue;
mod recovery;
mod restarts;
mod rights;
mod room;
mod routine_pains;
mod routines;
mod routines_held;
mod sessions;
mod stand_in;
mod stop;
mod streaming;
mod subagents;
mod support;
mod threads;
mod tool_health;
mod trouble;
mod walk_through;
mod webhook_secrets;
mod workers;
