//! What every command of the program needs from the process and the machine.
//!
//! **For**: [`exit`] (exit codes and failures), [`output`] (results on stdout, notes on stderr), [`input`] and [`typed`] (messages and
//! lines that a person enters), [`environment`] and [`paths`] (where settings, data and the control socket are), [`clock`], [`disk`],
//! [`net`] (clients for addresses of this machine), [`signals`], [`systemd`] and [`drop_ins`] (the service manager, and the places of a unit's
//! drop-ins) and [`causes`]
//! (an error with what has caused it).
//!
//! **Does not know**: which commands exist, what a setting means, or how a daemon works. A module that only one command needs does
//! not belong here.

pub mod causes;
pub mod clock;
pub mod disk;
pub mod drop_ins;
pub mod environment;
pub mod exit;
pub mod input;
pub mod net;
pub mod output;
pub mod paths;
pub mod signals;
pub mod systemd;
pub mod typed;

/// The version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
