//! Workers: where they are started, and the tools that they carry out themselves.
//!
//! **For**: [`SandboxHost`] starts `belay worker`, the daemon's own program, behind the walls of commands,
//! [`ContainerHost`] in a container of Docker or Podman. [`own_tools`] are the tools inside: the file tools and commands of
//! the workspace, without walls of their own, since the room is one.
//!
//! **Does not know**: what a worker does, the link, or how its work is judged.

mod container;
mod docker;
mod host;
mod own;

pub use container::{ContainerHost, ContainerSettings};
pub use host::SandboxHost;
pub use own::{WorkerEnvironment, own_tools, seal};
