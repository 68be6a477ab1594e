//! The ends of runs in the words of the protocol, which has five. Pure.

use agent_client_protocol::v1::schema::StopReason as AcpReason;
use belay_protocol::{StopLayer, StopReason};

/// The reason in the protocol's words. Where it has none, the run's own line is an agent message, and the turn just ends.
///
/// `refusal` is not used: by the protocol the refused prompt is no part of the conversation any more, and editors remove it from
/// view, while Belay keeps it.
pub(crate) fn stop_reason(reason: StopReason) -> AcpReason {
    use StopReason as Reason;
    match reason {
        _ if reason.layer() == StopLayer::Operator => AcpReason::Cancelled,
        Reason::LengthLimit | Reason::Tokens | Reason::OutputBytes | Reason::ContextTooLong => AcpReason::MaxTokens,
        Reason::MaxIterations | Reason::ModelCalls | Reason::ToolCalls | Reason::PlanLimit => {
            AcpReason::MaxTurnRequests
        }
        // The work has ended by itself, or its line says what has ended it.
        _ => AcpReason::EndTurn,
    }
}

/// The reason with this wire name. A newer daemon may have one that this build does not know.
pub(crate) fn from_word(word: &str) -> Option<StopReason> {
    StopReason::ALL.iter().copied().find(|reason| reason.word() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_word_of_the_protocol() {
        for (word, expected) in [
            ("final_text", AcpReason::EndTurn),
            ("user_stop", AcpReason::Cancelled),
            ("client_gone", AcpReason::Cancelled),
            ("length_limit", AcpReason::MaxTokens),
            ("max_iterations", AcpReason::MaxTurnRequests),
            ("tool_loop", AcpReason::EndTurn),
            ("run_cost", AcpReason::EndTurn),
            ("content_filter", AcpReason::EndTurn),
        ] {
            assert_eq!(from_word(word).map(stop_reason), Some(expected), "{word}");
        }
        assert_eq!(from_word("a_reason_of_tomorrow"), None);
        assert!(!StopReason::ALL.iter().any(|reason| stop_reason(*reason) == AcpReason::Refusal));
    }
}
