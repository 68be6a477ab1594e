//! `belay console`, which is a part.

pub(crate) use belay_cli::client::console as address;
