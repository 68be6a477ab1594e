//! Processing of a streamed answer, from the provider's fragments to the text that readers of the run see.
//!
//! [`sink`] receives the fragments. [`speech`] removes reasoning ([`thoughts`]) and the silent token
//! ([`crate::reply::silence`]) from the text; every reader gets the same text. [`meter`] estimates the usage of a call
//! that was dropped before the provider reported it.

pub(crate) mod meter;
pub(crate) mod sink;
pub(crate) mod speech;
pub(crate) mod thoughts;
