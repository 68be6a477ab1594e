//! One thing to do differently, for each kind of loop. The model reads it.

use super::kind::LoopKind;

/// The advice for a kind of loop: one sentence.
pub(super) fn advice(kind: LoopKind) -> &'static str {
    match kind {
        LoopKind::SameCall => "Use the result that you have, or make a call that asks something else.",
        LoopKind::VariedArguments => {
            "These arguments make no difference: find out what the result depends on, or use another tool."
        }
        LoopKind::Cycle => "Decide which of these calls has to be different, and change that one first.",
        LoopKind::Guessing => "Read what the refusal says and find out the rule before another guess, or ask the user.",
        LoopKind::EditRun => {
            "Check that the edit reaches the file that runs: its path, its saved content, and whether it must be built again."
        }
        LoopKind::Debugger => {
            "Read the code at the place in question and write down the value that you expect there before you use the debugger again."
        }
        LoopKind::DeadEnvironment => {
            "Further calls in this environment will fail too: start it again if a tool can do that, or report it to the user."
        }
        LoopKind::Errors => "Read the newest error and remove its cause before the next call.",
        LoopKind::GrowingArguments => {
            "A longer argument gives the same result: list what exists, and use a value from that list."
        }
        LoopKind::Polling => {
            "Do other work before you ask again, or report that it is still pending; asking does not make it faster."
        }
        LoopKind::OscillatingWrites => {
            "Choose one of the two states, and find out what needs the other one before you write again."
        }
        LoopKind::NoNews => {
            "Write down which fact is missing, and make only a call whose result can contain that fact."
        }
        LoopKind::Chanting => "Do not continue that text: write the next point in new words, or end the answer.",
        LoopKind::RepeatedLines => "End the list at its last new entry, and continue with the text after it.",
        LoopKind::RepeatedAnswers => {
            "Do not write that answer again: call a tool that brings something new, or ask the user for what is missing."
        }
        LoopKind::EmptyReplies => "Write your answer as text, or call a tool.",
        LoopKind::UnknownTools => "Call only tools that this conversation offers, by their exact names.",
        LoopKind::InvalidArguments => {
            "Read the error and the tool's schema, and send exactly the parameters that the schema names."
        }
        LoopKind::Denied => {
            "Do not ask for this call again: use a way that needs no approval, or ask the user what is allowed."
        }
        LoopKind::Compactions => "Use smaller results: read parts of files, and limit the output of commands.",
        LoopKind::Judged => "Name the goal and one approach that you have not tried, and try that approach.",
        LoopKind::OwnRule => "Review what you have achieved and what blocks you, and take a different approach.",
    }
}
