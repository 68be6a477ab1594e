//! How programs end.

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited by itself with this code, 0 to 255.
    Code(i32),
    /// This signal ended it. The signal was not sent by this crate.
    Signal(i32),
    /// This crate ended it on request.
    Ended,
}
