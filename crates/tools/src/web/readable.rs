//! Pages as text, by the crate `belay-readable`.

pub(crate) use belay_readable::readable;
