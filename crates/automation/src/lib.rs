//! Work that nobody waits for: jobs outlive the turn that started them, routines start work by time or event.
//!
//! **For**: the outer loop starts the [`JobScheduler`](jobs::JobScheduler) of jobs and the [`Engine`](routines::Engine) of routines, and hands them
//! what messages and programs ask for. Each attempt of a job and each run of a routine is an ordinary message to the agent, sent
//! through the inlet.
//!
//! **Does not know**: how a run is made, resumed or stopped, or what its loop does.
//!
//! Reading order: [`jobs`] → [`routines`], with the heartbeat in it.

pub mod jobs;
pub mod routines;
pub mod submitter;

pub use jobs::JobsConfig;
pub use routines::HeartbeatConfig;
pub use routines::RoutinesConfig;
