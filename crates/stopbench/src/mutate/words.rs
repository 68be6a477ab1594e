//! The words that mutations insert.

use serde_json::Value;

use super::Random;

/// Beginnings of a paraphrased text. They are short, so that they are not a repetition themselves.
const FIRST: &[&str] = &[
    "Okay.",
    "Right.",
    "Good.",
    "So.",
    "Well then.",
    "Let me see.",
    "On we go.",
    "Now then.",
    "Hm.",
    "I see.",
    "Fine.",
    "Understood.",
    "Next.",
    "Noted.",
    "All right.",
];
const SECOND: &[&str] = &[
    "Going on with this.",
    "One step further.",
    "Here is what I do now.",
    "This comes next.",
    "Continuing.",
    "Let us look at it.",
    "Back to the task.",
    "That leaves this.",
    "With that in mind:",
    "Moving along.",
    "Still on it.",
    "Let me do that.",
    "I go on from here.",
];

/// Thoughts without effect.
const THOUGHTS: &[&str] = &[
    "what is known so far, and what is missing",
    "whether the plan still fits",
    "which part is the riskiest",
    "what the person would want to see",
    "how the result can be checked",
    "the order of what is left",
];

/// A beginning that fits before any text, including a list or a heading.
pub(super) fn opening(random: &mut Random) -> String {
    format!("{} {}\n\n", random.pick(FIRST), random.pick(SECOND))
}

/// An argument that differs in each call.
pub(super) fn nonce(style: u64, random: &mut Random) -> (String, Value) {
    match style {
        0 => ("request_id".into(), uuid(random).into()),
        1 => ("nonce".into(), format!("{:016x}", random.number()).into()),
        2 => ("timestamp".into(), date(random).into()),
        _ => ("trace_id".into(), format!("{:016x}{:016x}", random.number(), random.number()).into()),
    }
}

/// The end of a result that differs in each call.
pub(super) fn trailer(style: u64, random: &mut Random) -> String {
    match style {
        0 => format!("\n[request {} took {} ms]", uuid(random), 3 + random.below(900)),
        1 => format!("\n# {} pid={}", date(random), 1000 + random.below(60_000)),
        2 => format!("\n(served at {})", date(random)),
        _ => format!("\ntrace_id: {:016x}{:016x}", random.number(), random.number()),
    }
}

/// A call without effect: tool, arguments, result.
pub(super) fn harmless(random: &mut Random) -> (&'static str, String, String) {
    if random.below(2) == 0 {
        ("clock", "{}".into(), date(random))
    } else {
        let thought = format!("{} ({})", random.pick(THOUGHTS), random.below(1000));
        ("think", Value::from_iter([("thought", thought)]).to_string(), "Your thought has been logged.".into())
    }
}

/// Whether the argument with this name is a command or a query, whose meaning does not depend on white space.
pub(super) fn is_command(key: &str) -> bool {
    matches!(key, "command" | "cmd" | "query" | "q" | "pattern" | "search_term")
}

/// The same words with other white space around and between them. In a text with quotes or line breaks, white space may
/// be significant, so only the ends change.
pub(super) fn respaced(text: &str, random: &mut Random) -> String {
    let single = text.contains(['"', '\'', '\n', '\\']);
    let inner = if single || random.below(2) == 0 { text.to_owned() } else { text.replacen(' ', "  ", 1) };
    format!("{}{inner}{}", random.pick(&["", " "]), random.pick(&["", " ", "\n"]))
}

fn uuid(random: &mut Random) -> String {
    let (a, b) = (random.number(), random.number());
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0xfff,
        b & 0xffff_ffff_ffff
    )
}

fn date(random: &mut Random) -> String {
    let (hour, minute, second) = (random.below(24), random.below(60), random.below(60));
    format!("2026-11-{:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", 1 + random.below(28), random.below(1000))
}
