//! How programs end.

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code: 0 to 255.
    Code(i32),
    /// By this signal, which was not ours.
    Signal(i32),
    /// Because its end was wanted.
    Ended,
}
