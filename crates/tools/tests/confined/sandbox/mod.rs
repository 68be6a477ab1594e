//! The sandbox, with the real bubblewrap, the real last stage, and a program that tries to get out.
//!
//! Needs bubblewrap (apt install bubblewrap) and a C compiler; without them the tests fail and say so. Run by root,
//! everything is tried as root and as a user without any rights.

mod escapes;
mod limits;
mod modes;
mod refusals;
mod support;
mod works;
