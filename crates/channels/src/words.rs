//! The few words that a channel itself must know.

/// Whether a text is the command that ends the daemon.
pub(crate) fn ends_the_daemon(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    matches!(word.split('@').next(), Some("/quit" | "/exit" | "/shutdown"))
}
