//! Reads the answer of a heartbeat: whether it reports nothing, what it reports, and whether it repeats an alert.
//! Pure.

use belay_protocol::HEARTBEAT_OK;

/// Longest answer, in characters, that means "nothing" when it contains the word for it: 300, which similar systems
/// use. A longer answer is an alert in any case.
const QUIET_MAX_CHARS: usize = 300;

/// Returns whether an answer says that nothing needs attention.
pub(super) fn is_quiet(answer: &str) -> bool {
    answer.contains(HEARTBEAT_OK) && (answer.chars().count() <= QUIET_MAX_CHARS || words(answer).is_empty())
}

/// The alert in an answer: the text without the word for "nothing".
pub(super) fn words(answer: &str) -> String {
    answer.replace(HEARTBEAT_OK, "").trim().to_owned()
}

/// Normalises an alert, so that a slightly different wording counts as the same alert. Removes case, punctuation,
/// white space, dates and times of day. Keeps other numbers: three letters are not five.
pub(super) fn signature(text: &str) -> String {
    let word = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let words = text.split_whitespace().map(word).filter(|word| !word.is_empty() && !is_time(word));
    words.collect::<Vec<_>>().join(" ")
}

/// A time of day (`10:30`), a date (`2026-11-22`), or both (`2026-11-22t10:30z`).
fn is_time(word: &str) -> bool {
    let written = word.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '-' | '.' | '+' | 't' | 'z'));
    let digits = |text: &str, count| text.len() == count && text.chars().all(|c| c.is_ascii_digit());
    let clock = word.split(':').nth(1).is_some_and(|minutes| digits(minutes, 2));
    let mut parts = word.split('-');
    let date = parts.next().is_some_and(|year| digits(year, 4)) && parts.next().is_some_and(|month| digits(month, 2));
    written && (clock || date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_means_nothing_in_a_short_answer_and_is_left_out_of_a_long_one() {
        let long = format!("The disk is full. {}{HEARTBEAT_OK}", "really ".repeat(60));
        for (answer, quiet) in [
            ("HEARTBEAT_OK", true),
            ("All is well: **HEARTBEAT_OK**.", true),
            ("The disk is full.", false),
            ("heartbeat ok", false),
            (long.as_str(), false),
        ] {
            assert_eq!(is_quiet(answer), quiet, "{answer}");
        }
        let most = format!("{HEARTBEAT_OK}{}", "ä".repeat(300 - HEARTBEAT_OK.len()));
        assert!(is_quiet(&most) && !is_quiet(&format!("{most}ä")));
        assert!(words(&long).starts_with("The disk is full.") && !words(&long).contains(HEARTBEAT_OK));
    }

    #[test]
    fn the_same_alert_is_recognised_although_it_is_written_differently() {
        let told = "The disk is 93 % full (as of 2026-11-22, 10:30).";
        for (again, same) in [
            ("the disk is 93 % full (as of 2026-11-22, 11:00).", true),
            ("**The disk** is  93 % full\n(as of 2026-11-23T08:15:00Z)", true),
            ("The disk is 94 % full (as of 2026-11-22, 10:30).", false),
            ("The disk is full.", false),
        ] {
            assert_eq!(signature(told) == signature(again), same, "{again}");
        }
        let kept = "room 7-8 5-3-2 wins v1.2.3 https://x.y:80 3:2";
        assert_eq!(signature("Room 7-8: 5-3-2 wins (v1.2.3), 08:15 https://x.y:80 3:2!"), kept);
    }
}
