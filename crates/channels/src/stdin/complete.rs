//! Completes words at the prompt.

/// Knows the words that can be typed.
pub trait Completions: Send + Sync {
    /// The words that may take the place of the last word of this line, which may be unfinished or empty. Called on the
    /// prompt's thread, which waits for it.
    fn complete(&self, line: &str) -> Vec<String>;
}
