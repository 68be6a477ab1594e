//! Commands and answers that a channel itself must recognise.

use belay_protocol::{GoalMessage, PlanMessage};

/// Whether a text is a command that shuts the daemon down.
pub(crate) fn ends_the_daemon(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    matches!(word.split('@').next(), Some("/quit" | "/exit" | "/shutdown"))
}

/// Whether a text would answer an approval request, if one is open.
pub(crate) fn answers_a_question(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let command = text.split_whitespace().next().and_then(|word| word.split('@').next());
    matches!(command, Some("/approve" | "/always" | "/deny"))
        || matches!(
            text.trim_end_matches(['.', '!']),
            "yes" | "y" | "approve" | "approved" | "always" | "no" | "n" | "deny" | "denied"
        )
}

/// Whether a text is a command that acts at once: it stops work, answers a question or asks for the status. It waits for
/// no earlier message of its conversation.
pub(crate) fn acts_at_once(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    let command = word.split('@').next();
    ends_the_daemon(text)
        || PlanMessage::of(text).is_some_and(|message| !message.is_request())
        || GoalMessage::of(text).is_some_and(|message| !message.is_request())
        || matches!(
            command,
            Some("/stop" | "/interrupt" | "/freeze" | "/thaw" | "/status" | "/approve" | "/always" | "/deny")
        )
}

/// Whether a text is `/stop`.
pub(crate) fn is_stop_command(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    word.split('@').next() == Some("/stop")
}

/// Whether a text is `/plan TEXT` or `/goal TEXT until CHECK`: it begins like a command but starts a turn, so it waits in
/// order as other messages do.
pub(crate) fn begins_a_turn(text: &str) -> bool {
    PlanMessage::of(text).is_some_and(|message| message.is_request())
        || GoalMessage::of(text).is_some_and(|message| message.is_request())
}
