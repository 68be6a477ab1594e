//! Tasks of servers: calls that go on at the server while nobody waits on a connection. Belay keeps the handle of such a
//! call and asks for its state until it has ended, also after a restart.
//!
//! There are two protocols. In 2025-11-25 the client asks for a task (`task` in the parameters of a call, where the server and
//! the tool allow it), polls `tasks/get`, and fetches the end by `tasks/result`, which also brings the questions of the
//! server. In 2026-07-28 tasks are an extension: a client that has declared it may get a task for any call, `tasks/get` has
//! the end in it, and questions are answered by `tasks/update`. Both cancel by `tasks/cancel`. The revision decides only how
//! a call begins; afterwards Belay takes either form of an answer.
//!
//! Reading order: `support` (whether a call is made as a task) → `state` (what a server says of a task) → `handle` → `claims` →
//! `follow` (one task from its beginning to its end) → `look` → `inputs`, `pace`, `requests` → `abandon`.
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks>,
//! <https://modelcontextprotocol.github.io/ext-tasks/specification/2026-07-28/tasks.html>

mod abandon;
mod claims;
mod follow;
mod handle;
mod inputs;
mod look;
mod pace;
mod requests;
mod state;
mod support;

pub(super) use abandon::abandon;
pub(super) use claims::Claims;
pub(super) use follow::Follow;
pub(super) use handle::{Handle, TASK_LIMIT};
pub(super) use state::{TASK, TaskState};
pub(super) use support::{SERVER_TASKS, TaskSupport, has_server_tasks};
