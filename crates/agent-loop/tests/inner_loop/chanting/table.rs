//! The rules one by one: for each a text that chants, with the place where that is seen, and one that just does not.

use belay_agent_loop::policies::chanting::Chanting;
use belay_agent_loop::policies::{Action, Observation, StopRules, StopState};
use belay_protocol::Arguments;
use serde_json::{Value, json};

use super::target::fed;

/// Fifty characters, the blank at the end included.
const SAY: &str = "I am going to look at the configuration once more ";

/// Thirty characters: a line.
const LINE: &str = "Look at the configuration file";

/// Where a text chants, in characters, and on which layer.
fn judged(text: &str) -> Option<(u64, &'static str)> {
    let chanting = fed([text]);
    chanting.found().map(|found| {
        let layer = if found.facts["layer"] == "lines" { "lines" } else { "window" };
        (chanting.position(), layer)
    })
}

/// What it is, the text, and the verdict.
type Row<'a> = (&'a str, String, Option<(u64, &'static str)>);

#[track_caller]
fn check(rows: &[Row<'_>]) {
    for (what, text, expected) in rows {
        assert_eq!(judged(text), *expected, "{what}");
    }
}

/// `times` copies of `each`, with the number in place of `#`.
fn numbered(times: usize, each: &str) -> String {
    (1..=times).map(|at| each.replace('#', &at.to_string())).collect()
}

const WINDOW: &str = "window";
const LINES: &str = "lines";

#[test]
fn ten_windows_chant_and_nine_do_not() {
    assert_eq!((SAY.chars().count(), LINE.chars().count()), (50, 30));
    check(&[
        ("ten times", SAY.repeat(10), Some((500, WINDOW))),
        ("nine times, and all but the last character", SAY.repeat(10)[..499].to_owned(), None),
        ("upper case is other text", format!("{}{}", SAY.repeat(9), SAY.to_uppercase().repeat(9)), None),
        ("blanks in any number", SAY.replace(' ', " \t ").repeat(10), Some((500 + 2 * 98 + 2, WINDOW))),
        ("250 characters in between", format!("{SAY}{}", letters(200)).repeat(10), Some((2300, WINDOW))),
        ("251 characters in between", format!("{SAY}{}", letters(201)).repeat(20), None),
        ("one letter", "a".repeat(500), Some((500, WINDOW))),
        ("one letter, one less", "a".repeat(499), None),
        ("a short word", "no ".repeat(200), Some((509, WINDOW))),
        ("laughter", "哈".repeat(100), None),
        ("laughter without end", "哈".repeat(501), Some((500, WINDOW))),
        ("an emoji", "😀".repeat(501), Some((500, WINDOW))),
        ("sixty blanks", " ".repeat(60), None),
        ("blanks without end", " ".repeat(6000), None),
    ]);
}

/// So many letters of which no sixteen come twice.
fn letters(count: u32) -> String {
    (0..count).filter_map(|at| char::from_u32(0x4E00 + at)).collect()
}

/// A sentence of more than fifty characters with one of so many rests, which begin and end unlike each other.
fn rests(different: usize, times: usize) -> String {
    const RESTS: [&str; 6] = ["alpha one", "beta two", "gamma", "delta by", "even so", "for all is red"];
    (0..times)
        .map(|at| format!("The next thing that I am going to look at is the file. {}. ", RESTS[at % different]))
        .collect()
}

#[test]
fn five_periods_chant_and_six_do_not() {
    check(&[
        ("five rests in turn", rests(5, 20), Some((9 * 55 + 85 + 50, WINDOW))),
        ("six rests in turn", rests(6, 20), None),
        (
            "a list with a common beginning",
            numbered(30, "Item #: the file was changed because it did not match any of them. "),
            None,
        ),
        (
            "the same with nothing else",
            "Item: the file was changed because it did not match any of them. ".repeat(10),
            Some((635, WINDOW)),
        ),
    ]);
}

#[test]
fn what_is_not_prose_is_not_looked_at() {
    let chant = SAY.repeat(20);
    let text = chant.trim_end();
    let lines = format!("{}\n", SAY.trim_end()).repeat(15);
    check(&[
        ("a fence", format!("```\n{text}\n```\n"), None),
        ("behind it", format!("```\nx\n```\n{text}\n"), Some((10 + 500, WINDOW))),
        ("a fence with an info string", format!("```rust title=\"a\"\n{text}\n```\n"), None),
        ("an indented fence", format!("   ```\n{text}\n   ```\n"), None),
        ("backticks that are no fence", format!("```a``` b\n{text}\n"), Some((10 + 499, WINDOW))),
        ("two backticks", format!("``\n{text}\n"), Some((3 + 500, WINDOW))),
        ("a fence of tildes", format!("~~~\n{text}\n~~~\n"), None),
        ("a fence of tildes is not closed by backticks", format!("~~~ text\n```\n{text}\n"), None),
        ("nor by fewer", format!("`````\n```\n{text}\n"), None),
        ("nor by one with a word behind it", format!("```\n``` x\n{text}\n"), None),
        ("but by more", format!("```\n````  \n{text}\n"), Some((11 + 500, WINDOW))),
        ("many tildes alone are a rule", format!("~~~~~~\n{text}\n"), Some((7 + 500, WINDOW))),
        ("indented code", format!("So:\n\n    {text}\n"), None),
        ("indented text of a paragraph", format!("So:\n    {text}\n"), Some((8 + 499, WINDOW))),
        ("a fence in a list", format!("1. So:\n      ```\n{text}\n      ```\n"), None),
        ("inline code is prose", format!("`{}`", SAY.repeat(20)), Some((501, WINDOW))),
        ("a table", format!("| {text} |\n"), None),
        ("a table of plus signs", format!("+---+\n| {text} |\n+---+\n"), None),
        ("a table without outer pipes", format!("a | b\n--- | ---\n{lines}"), None),
        ("a table ends with an empty line", format!("a | b\n--- | ---\n\n{text}\n"), Some((17 + 499, WINDOW))),
        ("box drawing", format!("│ {text} │\n"), None),
        ("a dash", format!("- {text}\n"), None),
        ("an asterisk", format!("* {text}\n"), None),
        ("a plus", format!("+ {text}\n"), None),
        ("a dot", format!("• {text}\n"), None),
        ("a number with a point", format!("12. {text}\n"), None),
        ("a number with a parenthesis", format!("12) {text}\n"), None),
        ("an indented entry", format!("So:\n      - {text}\n"), None),
        ("a number without a blank", format!("12.{text}\n"), Some((503, WINDOW))),
        ("a dash without a blank", format!("-{text}\n"), Some((501, WINDOW))),
        ("bold text", format!("**{text}\n"), Some((502, WINDOW))),
        ("a heading", format!("###### {text}\n"), None),
        ("seven marks are no heading", format!("####### {text}\n"), Some((8 + 499, WINDOW))),
        ("a heading needs a blank", format!("#{text}\n"), Some((501, WINDOW))),
        ("a quote", format!("> {text}\n"), None),
        (
            "JSON is prose",
            "{\"name\": \"value of the reading\", \"status\": \"active\"}, ".repeat(12),
            Some((536, WINDOW)),
        ),
    ]);
}

#[test]
fn rules_and_padding_are_skipped_up_to_a_width_that_nobody_has() {
    for mark in ["=", "-", "*", "_", "~", "=-", "- ", "* ", ".", "─", "═", "·", "–"] {
        let rule = mark.repeat(200 / mark.chars().count());
        check(&[
            ("a rule", format!("{rule}\n").repeat(30), None),
            ("the rest is prose", format!("{rule}\n{}", SAY.repeat(10)), Some((701, WINDOW))),
        ]);
    }
    check(&[
        ("a rule without end", "=".repeat(2000), Some((16 + 256 + 500, WINDOW))),
        ("a row without end", format!("|{}", "-".repeat(6000)), Some((1 + 4096 + 500, WINDOW))),
        ("an entry without end", format!("- {}", SAY.repeat(120)), Some((2 + 4096 + 500, WINDOW))),
        ("an entry that is only long", format!("- {}", SAY.repeat(80)), None),
    ]);
}

#[test]
fn a_heading_an_entry_or_a_quote_separates_what_code_tables_and_rules_do_not() {
    for separator in ["# Next", "- next", "1. next", "> next"] {
        let text = format!("{}\n{separator}\n{}", SAY.repeat(9), SAY.repeat(9));
        check(&[("separated", text, None)]);
    }
    for skipped in ["```\nx\n```", "| x |", "===", "\n    x\n"] {
        let text = format!("{}\n{skipped}\n{}", SAY.repeat(9), SAY.repeat(9));
        assert_eq!(judged(&text).map(|found| found.1), Some(WINDOW), "{skipped}");
    }
}

#[test]
fn sixteen_equal_lines_chant_and_fifteen_do_not() {
    let at = |line: usize, times: usize| Some(((line * times) as u64, LINES));
    check(&[
        ("bullets", format!("- {LINE}\n").repeat(16), at(33, 16)),
        ("fifteen", format!("- {LINE}\n").repeat(15), None),
        ("the last line has to end", format!("- {LINE}\n").repeat(16).trim_end().to_owned(), None),
        ("numbers that count on", numbered(16, &format!("#. {LINE}\n")), Some((9 * 34 + 7 * 35, LINES))),
        ("the number alone", numbered(40, &format!("#. {LINE} #\n")), None),
        ("quotes", format!("> {LINE}\n").repeat(90), None),
        ("headings", format!("## {LINE}\n").repeat(90), None),
        ("two in turn", format!("- {LINE}\n- {LINE}, again\n").repeat(16), at(33 + 40, 16)),
        ("two in turn, fifteen times", format!("- {LINE}\n- {LINE}, again\n").repeat(15), None),
        ("four in turn", format!("- {LINE}\n- {LINE} 2\n- {LINE} 3\n- {LINE} 4\n").repeat(16), at(33 + 3 * 35, 16)),
        ("five in turn", format!("- {LINE}\n- {LINE} 2\n- {LINE} 3\n- {LINE} 4\n- {LINE} 5\n").repeat(30), None),
        ("headings and short texts", format!("## {LINE}\n\nAgain.\n\n").repeat(90), None),
        ("short texts that differ", numbered(40, &format!("## {LINE}\n\n#\n\n")), None),
        ("eleven characters", "- hello world\n".repeat(90), None),
        ("twelve characters", "- hello worlds\n".repeat(90), at(15, 16)),
        (
            "one line that differs",
            format!("{}- Another line\n{}", format!("- {LINE}\n").repeat(15), format!("- {LINE}\n").repeat(15)),
            None,
        ),
        ("rows of a table", format!("| {LINE} |\n").repeat(90), None),
        ("a fence", format!("```\n{}```\n", format!("{LINE}\n").repeat(59)), None),
        ("a fence that never ends", format!("```\n{}", format!("{LINE}\n").repeat(60)), None),
        ("two in turn in a fence", format!("```\n{}", format!("{LINE}\n{LINE} 2\n").repeat(90)), None),
        ("lines of prose", format!("{LINE}\n").repeat(16), at(31, 16)),
    ]);
}

#[test]
fn a_finding_tells_what_was_seen() {
    let found = |text: &str| fed([text]).found().map(belay_protocol::Finding::evidence).map(Value::Object);
    let window = json!({
        "rule": "CHANTING_IDENTICAL_SENTENCES", "count": 10, "threshold": 10, "quote": SAY,
        "layer": "window", "spacing": 50, "periods": 1,
    });
    assert_eq!(found(&SAY.repeat(11)), Some(window));
    let lines = json!({
        "rule": "CHANTING_IDENTICAL_SENTENCES", "count": 16, "threshold": 16, "quote": format!("{LINE} 2"),
        "layer": "lines", "spacing": 62, "periods": 1, "lines": 2,
    });
    assert_eq!(found(&format!("- {LINE}\n- {LINE} 2\n").repeat(16)), Some(lines));
}

/// A state after these observations.
fn seen(observations: &[Observation<'_>]) -> Chanting {
    let mut chanting = Chanting::default();
    observations.iter().for_each(|seen| chanting.observe(seen));
    chanting
}

#[test]
fn a_text_is_everything_since_the_last_call() {
    use Observation::{Assistant, Other, Reset, Step, Text, ToolCall, User};
    let half = SAY.repeat(5);
    let half = half.as_str();
    let whole = Assistant { text: half, nudged: false };
    let nudged = Assistant { text: half, nudged: true };
    let arguments = Arguments::parse("{}");
    let call = ToolCall { name: "clock", arguments: &arguments, spec: None };
    let rows: &[(&str, &[Observation<'_>], bool)] = &[
        ("two pieces", &[Text(half), Text(half)], true),
        ("two steps", &[Step, Text(half), Step, Text(half)], true),
        ("thoughts and messages between", &[Text(half), Other, User("go on"), Text(half)], true),
        ("a call between", &[Text(half), call, Text(half)], false),
        ("a call after", &[Text(half), Text(half), call], false),
        ("a new request", &[Text(half), Reset, Text(half)], false),
        ("a whole answer repeats its pieces", &[Step, Text(half), whole], false),
        ("whole answers alone", &[Step, whole, Step, nudged], true),
        ("whole answers without steps", &[whole, whole], true),
        ("pieces, the whole, and pieces", &[Text(half), whole, Text(half), whole], true),
        ("a call before the whole", &[Text(half), call, whole, Text(half)], false),
        ("a fence that an answer left open", &[Text("```\nlet x"), Step, Text(half), Text(half)], true),
        ("a fence that a piece left open", &[Text("```\nlet x"), Text("\n"), Text(half), Text(half)], false),
        ("an unfinished line ends with its answer", &[Text("- An entry"), Step, Text(half), Text(half)], true),
    ];
    for (what, observations, chants) in rows {
        assert_eq!(seen(observations).found().is_some(), *chants, "{what}");
    }
}

#[test]
fn after_a_recovery_only_new_repetition_is_a_second_strike() {
    let rules = StopRules::progress();
    let mut state = StopState::default();
    let text = SAY.repeat(20);
    let mut pieces =
        text.as_bytes().chunks(25).map(|piece| Observation::Text(std::str::from_utf8(piece).expect("ASCII")));
    let verdict = pieces.by_ref().find_map(|piece| state.observe(&rules, piece)).expect("a first strike");
    assert_eq!((verdict.action, verdict.strike), (Action::Recover, 1));
    state.observe(&rules, Observation::Recover);
    // The answer that was cut off is heard of once more, as a whole.
    let cut_off = Observation::Assistant { text: &text, nudged: false };
    assert_eq!(state.observe(&rules, cut_off), None);
    let fresh = format!("Fresh words. {}", SAY.repeat(9));
    assert_eq!(state.observe(&rules, Observation::Step), None);
    assert_eq!(state.observe(&rules, Observation::Text(&fresh)), None, "nine more are no strike");
    let verdict = state.observe(&rules, Observation::Text(SAY)).expect("a second strike");
    assert_eq!((verdict.action, verdict.strike), (Action::Stop, 2));
}

#[test]
fn a_verdict_stands_until_it_is_cleared() {
    let mut chanting = fed([SAY.repeat(10).as_str()]);
    let stands = chanting.clone();
    assert!(chanting.text("Something else entirely."));
    assert_eq!(chanting, stands);
    chanting.clear();
    assert_eq!((chanting.found(), chanting.position()), (None, 0));
    assert!(!chanting.text(&SAY.repeat(9)));
}
