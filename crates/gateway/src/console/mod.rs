//! The console: its files, and what the requests of its pages may do.
//!
//! The pages are clients of the API. A browser shows that it is signed in by a cookie. Reading order: [`admission`] →
//! [`files`].

pub(crate) mod admission;
#[cfg_attr(not(feature = "console"), path = "no_files.rs")]
pub(crate) mod files;
