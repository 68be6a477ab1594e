//! What a beat tells its model, and people. Pure.

use belay_protocol::{HEARTBEAT_OK, SkipReason};

/// What it is to do.
pub(super) fn task(file: &str) -> String {
    format!("Look at what {file} wants watched, and at nothing else. Does anything need attention now?")
}

/// What is added to the prompt. `told`: whether what it answers reaches somebody. `cut`: whether the list is longer than what
/// it is shown.
pub(super) fn instructions(file: &str, told: bool) -> String {
    let told = match told {
        true => " What you answer is sent as it stands: write it for the one who reads it, without a greeting.",
        false => "",
    };
    format!(
        "You work by yourself now: this is the heartbeat, a look that is taken from time to time at what {file} lists. Nobody \
         reads along, and nobody can be asked: do what can be done without a question. Go by the list as it is shown now, and take \
         up nothing from earlier. You cannot make routines or jobs.{told}\nIf nothing needs attention, answer with {HEARTBEAT_OK} \
         and nothing else. If something does, answer with that alone, and without {HEARTBEAT_OK}."
    )
}

/// What stands behind a list that was cut.
pub(super) fn cut(file: &str, max_bytes: u64) -> String {
    format!(
        "There is more in {file} than its first {max_bytes} bytes, which is all that you are shown. Say so if it matters."
    )
}

/// Why a beat is skipped, as a sentence for people.
pub(super) fn why(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::QuietHours => "It is quiet: heartbeat.quiet_hours.",
        SkipReason::BackOff => "Beats failed lately, and the pause after that is not over.",
        SkipReason::NoRoute => {
            "Nobody could be told (heartbeat.deliver_to), and there are no tools to do anything with."
        }
        SkipReason::NothingToDo => "There is nothing to do: heartbeat.file is missing, or has no words in it.",
        SkipReason::Idle => "Nobody has spoken for heartbeat.idle_after_s.",
        SkipReason::AtWork => "A message is being answered in the conversation that it writes to.",
        SkipReason::NoBudget => "The day's money is used up: limits.usd_per_day, or limits.usd_per_day_for.heartbeat.",
    }
}
