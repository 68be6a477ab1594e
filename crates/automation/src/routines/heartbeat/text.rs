//! Texts of a beat for its model and for people. Pure.

use belay_protocol::{HEARTBEAT_OK, SkipReason};

/// The task.
pub(super) fn task(file: &str) -> String {
    format!("Check what {file} lists, and nothing else. Does anything need attention now?")
}

/// Added to the system prompt. `told`: whether the answer is sent to somebody.
pub(super) fn instructions(file: &str, told: bool) -> String {
    let told = if told { " Your answer is sent unchanged: write it for its reader, without a greeting." } else { "" };
    format!(
        "You work autonomously: this is the heartbeat, a periodic check of what {file} lists. Nobody reads along, and \
         nobody can be asked: do what can be done without a question. Use the list as it is shown now, and resume \
         nothing from earlier. You cannot create routines or jobs.{told}\nIf nothing needs attention, answer with \
         {HEARTBEAT_OK} and nothing else. If something does, report only that, without {HEARTBEAT_OK}."
    )
}

/// Added after a list that was cut.
pub(super) fn cut(file: &str, max_bytes: u64) -> String {
    format!(
        "You are shown only the first {max_bytes} bytes of {file}; the rest is omitted. Mention this if it matters."
    )
}

/// Why a beat is skipped, as a sentence for people.
pub(super) fn why(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::QuietHours => "These are the quiet hours (heartbeat.quiet_hours).",
        SkipReason::BackOff => "Recent beats failed, and the back-off is not over.",
        SkipReason::NoRoute => "There is no recipient (heartbeat.deliver_to), and there are no tools.",
        SkipReason::NothingToDo => "There is nothing to do: its file is missing or empty.",
        SkipReason::Idle => "No message has arrived for heartbeat.idle_after_s.",
        SkipReason::AtWork => "The conversation that it writes to is busy.",
        SkipReason::NoBudget => "The day's budget is used up (limits.usd_per_day or limits.usd_per_day_for.heartbeat).",
    }
}
