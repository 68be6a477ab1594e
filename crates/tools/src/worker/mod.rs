//! Workers: the hosts that start them, and the tools that run inside of them.
//!
//! **For**: [`SandboxHost`] starts `belay worker`, the daemon's own program, in the sandbox of commands.
//! [`ContainerHost`] starts it in a container of Docker or Podman. [`own_tools`] builds the tools of a worker: the file
//! tools and commands of the workspace. These commands get no sandbox of their own, because the worker is already in
//! one.
//!
//! **Does not know**: the task of a worker, the connection between the worker and its host, and how the work is judged.

mod container;
mod docker;
mod host;
mod own;

pub use container::{ContainerHost, ContainerSettings};
pub use host::SandboxHost;
pub use own::{WorkerEnvironment, own_tools, seal};
