//! What stopping costs: chanting for each megabyte of text, and all policies for each thing that happens.
//!
//! One line for each figure: text in MB/s and as a ratio to two plain scans of the same text, and the median of an
//! observation, with the whole analysis and without the comparison of lines.

#![allow(clippy::print_stdout, missing_docs)] // figures are what it is for

use std::hint::black_box;
use std::time::{Duration, Instant};

use belay_agent_loop::policies::chanting::Chanting;
use belay_agent_loop::policies::tool_loops::Part;
use belay_agent_loop::policies::{CallOutcome, Observation, StopRules, StopState};
use belay_protocol::Arguments;

/// Bytes of each text.
const SIZE: usize = 1 << 20;

/// Characters of a streamed piece; a token has about four.
const PIECE: usize = 4;

/// Texts of about a megabyte in which nothing chants.
fn texts() -> Vec<(&'static str, String)> {
    let prose = repeated(include_str!("../tests/corpus/chanting/healthy/a_story_of_20_kb.txt"));
    let chinese = repeated(&include_str!("../tests/corpus/chanting/healthy/chinese_prose.txt").replace('\n', ""));
    let code = format!("```rust\n{}```\n", lines("    let value_# = read(&mut input)?.checked_add(#);\n"));
    let list = lines("- The description of entry # says what is new in number #.\n");
    let log = lines("2026-03-14T09:26:53.# INFO dispatcher: message accepted session=# lane=open waited_ms=0\n");
    vec![("prose", prose), ("prose in Chinese", chinese), ("code", code), ("a list", list), ("a log", log)]
}

/// A generator without pattern, the same each time.
fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// A text that is too long to be seen to come again.
fn repeated(text: &str) -> String {
    text.repeat(SIZE.div_ceil(text.len()))
}

fn lines(each: &str) -> String {
    let (mut seed, mut text) = (1, String::new());
    while text.len() < SIZE {
        text.push_str(&each.replace('#', &random(&mut seed).to_string()));
    }
    text
}

/// Scans a text in pieces, as they come from a stream.
fn chanting(pieces: &[&str]) -> bool {
    let mut chanting = Chanting::default();
    pieces.iter().any(|piece| chanting.text(piece))
}

fn pieces(text: &str, length: usize) -> Vec<&str> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(length).chain([text.len()]).collect();
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// The least work that looks at each character: what is no blank is counted.
fn scan_chars(text: &str) -> usize {
    text.chars().filter(|c| !c.is_whitespace()).count()
}

fn scan_bytes(text: &str) -> usize {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace()).count()
}

/// The median duration of some runs.
fn median<T>(runs: usize, mut work: impl FnMut() -> T) -> Duration {
    let mut took: Vec<Duration> = (0..runs)
        .map(|_| {
            let began = Instant::now();
            black_box(work());
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[runs / 2]
}

fn text_figures() {
    for (name, text) in texts() {
        assert!(!chanting(&[&text]), "{name} chants, so that its end is not reached");
        let streamed = pieces(&text, PIECE);
        let whole = median(31, || chanting(black_box(&[&text])));
        let in_pieces = median(31, || chanting(black_box(&streamed)));
        let (chars, bytes) = (median(31, || scan_chars(black_box(&text))), median(31, || scan_bytes(black_box(&text))));
        let speed = |took: Duration| text.len() as f64 / took.as_secs_f64() / 1e6;
        let ratio = |other: Duration| whole.as_secs_f64() / other.as_secs_f64();
        println!(
            "FIGURE chanting, {name}: {:.0} MB/s whole, {:.0} MB/s in pieces of {PIECE} characters; {:.1} times a scan by \
             characters ({:.0} MB/s), {:.1} times one by bytes ({:.0} MB/s)",
            speed(whole),
            speed(in_pieces),
            ratio(chars),
            speed(chars),
            ratio(bytes),
            speed(bytes),
        );
    }
}

/// A run as it is usually recorded: steps with a thought, a streamed sentence, a call, its result, and the time. The
/// rules are judged in turn with those without the comparison of lines.
fn run_figures(what: &str, results: &[String]) {
    let arguments: Vec<Arguments> =
        (0..40).map(|at| Arguments::parse(&format!(r#"{{"path": "src/file_{at}.rs", "limit": 200}}"#))).collect();
    let said: Vec<String> =
        (0..40).map(|at| format!("Now I read file {at}, because the one before names it. ")).collect();
    let mut seen = Vec::new();
    for (at, arguments) in arguments.iter().enumerate() {
        seen.extend([Observation::Clock(at as u64 * 900), Observation::Step, Observation::Other]);
        seen.extend(pieces(&said[at], PIECE).into_iter().map(Observation::Text));
        seen.push(Observation::Assistant { text: &said[at], nudged: false });
        seen.push(Observation::ToolCall { name: "read_file", arguments, spec: None });
        seen.push(Observation::ToolResult { name: "read_file", outcome: CallOutcome::Success, text: &results[at] });
        seen.push(Observation::Usage { input: 900, output: 40 });
    }
    let rules = [StopRules::progress(), StopRules::progress().without(Part::Gain)];
    let observe = |rules: &StopRules| {
        let mut state = StopState::default();
        let began = Instant::now();
        let verdicts = seen.iter().filter(|seen| state.observe(rules, **seen).is_some()).count();
        assert_eq!(verdicts, 0, "a healthy run");
        began.elapsed()
    };
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..501 {
        took.iter_mut().zip(&rules).for_each(|(took, rules)| took.push(observe(black_box(rules))));
    }
    let [all, without] = took.map(|mut took| {
        took.sort_unstable();
        took[took.len() / 2].as_nanos() as f64 / seen.len() as f64
    });
    println!(
        "FIGURE policies, {what}: {all:.0} ns for an observation, {} in a run; {:.2} times as many as without gain",
        seen.len(),
        all / without
    );
}

fn main() {
    text_figures();
    let short: Vec<String> =
        (0..40).map(|at| format!("Now I read file {at}, because the one before names it. ")).collect();
    let line = |at: usize, n: usize| format!("    let value_{at} = read_{n}(&mut input)?.checked_add({n});\n");
    let files: Vec<String> = (0..40).map(|at| (0..75).map(|n| line(at, n)).collect()).collect();
    run_figures("short results", &short);
    run_figures("results of 4 KB", &files);
}
