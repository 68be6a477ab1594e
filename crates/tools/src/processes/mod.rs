//! Background processes: programs that `run_command` starts and that go on while the model works.
//!
//! **For**: a handle (`p1`, `p2`, …) for each process, and the tool `process`, which lists them, reads what they print,
//! waits for it, writes to them and ends them. A process belongs to its run and ends with it, or, after a person's
//! approval, to its conversation. It never outlives a stop, its time limit, or the daemon.
//!
//! **Does not know**: whether a command may run (the effect gate and `commands` decide that before), or how processes are
//! ended ([`belay_exec`]: a process that nobody holds any more is ended there).
//!
//! ```text
//!   run_command ──▶ registry: a slot ──▶ exec: the tree ──▶ a task for each process: output, limits, end
//!   process     ──▶ registry: the handle of this run or conversation ──▶ output file, pipe, request to end
//! ```
//!
//! Reading order: `limits` → `output` (the file of what a process prints) → `end` → `handle` (a process and its state) →
//! `shown` → `parts`, `registry` → `kept` (who keeps a process) → `record` → `slot` → `attend` (the task) → `call`, `tool` →
//! `look` (read) → `wait` → `act` (write and kill).

mod act;
mod attend;
mod call;
mod end;
mod handle;
mod home;
mod kept;
mod limits;
mod look;
mod output;
mod parts;
mod record;
mod registry;
mod shown;
mod slot;
#[cfg(test)]
mod tests;
mod tool;
mod wait;

pub(crate) use self::attend::Begun;
pub(crate) use self::handle::Keeper;
pub(crate) use self::home::TemporaryHome;
pub use self::limits::Limits;
pub use self::parts::BackgroundParts;
pub use self::registry::BackgroundProcesses;
pub(crate) use self::slot::Wanted;
pub(crate) use self::tool::ProcessTool;
