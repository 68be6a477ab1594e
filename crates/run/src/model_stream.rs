//! The model's answer while it streams, from the provider's fragments to the text that readers of the run see.
//!
//! [`sink`] takes the fragments. [`speech`] keeps reasoning ([`thoughts`]) and the silent token
//! ([`crate::reply::silence`]) out of the text; every reader gets the same. [`meter`] estimates what a call used that was
//! dropped before the provider reported it.

pub(crate) mod meter;
pub(crate) mod sink;
pub(crate) mod speech;
pub(crate) mod thoughts;
