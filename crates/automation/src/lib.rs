//! Background work, which no person waits for: jobs outlive the turn that started them; routines start work by time or
//! event.
//!
//! **For**: the outer loop starts the [`JobScheduler`](jobs::JobScheduler) and the [`Engine`](routines::Engine) of
//! routines, and forwards the requests of messages and programs to them. Each attempt of a job and each routine run is
//! an ordinary message to the agent, sent through the [`Submitter`](submitter::Submitter).
//!
//! **Does not know**: how the agent makes, resumes or stops a run, or what the loop of a run does.
//!
//! Reading order: [`jobs`] → [`routines`], which includes the heartbeat.

mod grants;
pub mod jobs;
mod routine_grants;
pub mod routines;
pub mod submitter;
mod wakes;

pub use jobs::JobsConfig;
pub use routine_grants::RoutineWork;
pub use routines::HeartbeatConfig;
pub use routines::RoutinesConfig;
