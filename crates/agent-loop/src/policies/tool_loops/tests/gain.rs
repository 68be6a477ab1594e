//! The loops that the measure of gain finds, and the healthy twin of each.

use super::super::*;
use super::notation::{play, read};

/// Where a script is found to be in a loop: the number of the call; 0: nowhere.
fn found(script: &str) -> usize {
    play(&ToolLoopConfig::default(), &read(script)).map_or(0, |(at, _)| at)
}

/// The same without the measure.
fn without(script: &str) -> usize {
    let config = ToolLoopConfig { without: Some(Part::Gain), ..ToolLoopConfig::default() };
    play(&config, &read(script)).map_or(0, |(at, _)| at)
}

#[test]
fn loops_that_only_the_gain_shows_are_found_and_their_twins_are_not() {
    let mut wrong = Vec::new();
    for (kind, script, at) in [
        ("a solver whose nonce differs", "30x bash(\"nc host 23\") -> Find me a word for nonce {i}7{i}3 and 9{i}", 0),
        (
            "a solver whose port differs",
            "bash(\"./go\") -> port 80, key 7\nbash(\"./go\") -> port 12, key 9\nbash(\"./go\") -> port 55, key 3\n\
             bash(\"./go\") -> port 31, key 8\nbash(\"./go\") -> port 77, key 1\nbash(\"./go\") -> port 20, key 6\n\
             bash(\"./go\") -> port 60, key 2\nbash(\"./go\") -> port 11, key 5\nbash(\"./go\") -> port 90, key 4\n\
             bash(\"./go\") -> port 13, key 7\nbash(\"./go\") -> port 66, key 2\nbash(\"./go\") -> port 44, key 9",
            10,
        ),
        ("a count that falls", "30x bash(\"make check\") -> !{i} of 900 left\n", 0),
        ("guesses against one refusal", "30x check_answer(flag=a {w}) -> {\"correct\": false}", 5),
        (
            "guesses that are told apart",
            "9x check_answer(flag=a {w}) -> too high | check_answer(flag=b {w}) -> too low",
            0,
        ),
        ("guesses over numbered items", "30x is_prime(n={i}) -> no", 0),
        (
            "an edit that the editor refuses, and its window",
            "30x bash(\"edit 4:18 x = [{w}\") -> Refused: syntax error {long}",
            5,
        ),
        (
            "a debugger that shows the same frame",
            "9x bash(\"gdb start\") -> pid {r} | bash(\"gdb break main\") -> Breakpoint 1 | bash(\"gdb run\") -> stopped",
            9,
        ),
        (
            "a debugger that progresses",
            "9x bash(\"gdb start\") -> ready at 0x{i}f | bash(\"gdb break f{w}\") -> Breakpoint {i} | bash(\"gdb run\") -> in {w}",
            0,
        ),
        (
            "two reads in turn, with a word changed once",
            "4x bash(\"cat a.py\") -> {long} | bash(\"cat b.py\") -> {long 2}",
            7,
        ),
        (
            "one step that fails seven times",
            "batch\n1x toliko(d=1) -> !unexpected end | toliko(d=2) -> !unexpected end | \
             toliko(d=3) -> !unexpected end | toliko(d=4) -> !unexpected end | toliko(d=5) -> !unexpected end",
            5,
        ),
        ("a batch over numbered items", "30x convert(item={i}) -> done", 0),
        ("appending without output", "30x bash(\"echo {w} >> notes.txt\") -> ", 0),
        (
            "writing, running, nothing printed",
            "30x write_file(path=a.py, content={w}{i}) -> written | bash(\"python a.py\") -> ",
            0,
        ),
        (
            "edits after which a run prints a better number",
            "30x write_file(path=a.py, content={w}{i}) -> written | bash(\"cargo bench\") -> {i}70 rows a second",
            0,
        ),
        (
            "commands that print nothing, in a form",
            "bash(\"cd repo\") -> code 0 and that was it\n7x bash(\"tmux send {w}\") -> code 0 and that was it",
            0,
        ),
        (
            "refused guesses that come again after a look",
            "check_answer(flag=a) -> no | check_answer(flag=b) -> no | cat(path=n) -> {long} | check_answer(flag=b) -> no \
             | check_answer(flag=a) -> no | check_answer(flag=b) -> no | check_answer(flag=a) -> no",
            7,
        ),
        (
            "other guesses after each look",
            "9x cat(path=n{i}) -> {w} stands here | check_answer(flag=a {w}) -> no | check_answer(flag=b {w}) -> no",
            0,
        ),
        (
            "a test that fails alike after each look",
            "20x run_tests() -> !1 failed in a | cat(path=a{i}) -> {w} stands here",
            0,
        ),
        (
            "a test that fails alike after an edit and a look",
            "20x run_tests() -> !1 failed in a | edit(path=a, old_string=x{i}, new_string=y) -> ok | cat(path=a) -> {w} stands here",
            0,
        ),
        (
            "a text that is written again before each run",
            "9x write_file(path=a.py, content=alpha\\nbeta\\ngamma\\ndelta\\nzeta) -> written | bash(\"python a.py\") -> !boom",
            7,
        ),
        (
            "a text that is written again because a program changes it",
            "9x write_file(path=a.py, content=alpha\\nbeta\\ngamma\\ndelta\\nzeta) -> written | bash(\"./gen {w}\") -> wrote {w} {i}x{w}",
            0,
        ),
        (
            "one text for many files",
            "30x write_file(path=p{w}{i}.md, content=alpha\\nbeta\\ngamma\\ndelta\\nzeta) -> written",
            0,
        ),
        (
            "a file that is written back and forth",
            "9x write(path=a, content=x) -> ok | write(path=a, content=y) -> ok",
            6,
        ),
        (
            "an edit that is taken back after each run",
            "9x edit(path=a, old_string=x, new_string=y) -> ok | run_tests() -> !1 failed \
             | edit(path=a, old_string=y, new_string=x) -> ok | run_tests() -> !2 failed",
            7,
        ),
        ("a label", "9x add_label(issue=1, label=a) -> ok | remove_label(issue=1, label=a) -> ok", 6),
        ("a note", "9x memory(action=add, content=x) -> ok | memory(action=remove, content=x) -> ok", 6),
        ("a program with another count", "30x bash(\"pnpm dev\") -> served 5{i} pages", 0),
        ("re-reading eight files once", "8x read(path=a{i}) -> text {i}\n8x read(path=a{i}) -> text {i}", 0),
    ] {
        let seen = found(script);
        if seen != at {
            wrong.push(format!("{kind}: {seen}, expected {at} ({} without gain)", without(script)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_finding_of_repeated_answers_shows_the_calls_of_the_stretch() {
    let of = |script| play(&ToolLoopConfig::default(), &read(script)).expect("a loop").1;
    let guesses = of("cat(path=b) -> text\n9x check_answer(flag=a {w}) -> wrong");
    assert_eq!((guesses.count, guesses.threshold, guesses.rule.as_str()), (4, 4, REPEATED_CALLS_WITHOUT_PROGRESS));
    assert_eq!((&guesses.facts["repeated_answers"], &guesses.facts["period"]), (&true.into(), &5.into()));
    assert_eq!(guesses.facts["tools"], serde_json::json!(["check_answer"]));
    let cycle = of("9x cat(path=a) -> {long} | grep(pattern=b) -> {long 2}");
    assert_eq!((&cycle.facts["period"], cycle.fingerprints.len()), (&2.into(), 2));
}

/// The calls that edit the files of this row in turn, so that each letter becomes the other.
fn turned(files: &[&str], from: &str, to: &str) -> String {
    let edits = files.iter().map(|file| format!("edit(path={file}, old_string={from}, new_string={to}) -> ok"));
    edits.collect::<Vec<_>>().join(" | ")
}

#[test]
fn experiments_that_are_undone_are_work_and_the_same_one_for_the_third_time_is_a_loop() {
    let files = ["a", "b", "c", "d"];
    let (there, back) = (turned(&files, "x", "y"), turned(&files, "y", "x"));
    let fails = "run_tests() -> !1 failed";
    let states = |order: &str| {
        let writes = order.chars().map(|state| format!("write(path=a, content={state}) -> ok"));
        writes.collect::<Vec<_>>().join(" | ")
    };
    let edit = |from: &str, to: &str| format!("edit(path=a, old_string={from}, new_string={to}) -> ok");
    let chain = [edit("k", "l"), edit("m", "n"), edit("o", "p"), edit("q", "r")].join(" | ");
    let unchain = [edit("r", "q"), edit("p", "o"), edit("n", "m"), edit("l", "k")].join(" | ");
    let other = turned(&files, "x", "z") + " | " + &turned(&files, "z", "x");
    let mut wrong = Vec::new();
    for (kind, script, at) in [
        ("in four files", format!("{there} | {fails} | {back}"), 0),
        ("in one file", format!("{chain} | {fails} | {unchain}"), 0),
        ("twice, with other contents", format!("{there} | {fails} | {back} | {other}"), 0),
        ("and made again", format!("{there} | {fails} | {back} | {fails} | {there} | {fails}"), 0),
        ("in one file, and made again", format!("{chain} | {fails} | {unchain} | {fails} | {chain} | {fails}"), 0),
        ("twice", format!("{there} | {fails} | {back} | {there} | {back}"), 0),
        ("for the third time", format!("{there} | {fails} | {back} | {there} | {back} | {there}"), 18),
        (
            "in one file, for the third time",
            format!("{chain} | {fails} | {unchain} | {chain} | {unchain} | {chain}"),
            18,
        ),
        ("with the whole text", states("123454321"), 0),
        ("with the whole text, up and down", states("1234543212345432123454321"), 15),
        ("with the whole text, a state of three", states("123123123"), 7),
        ("with the whole text, by a message", states("1212"), 0),
        (
            "after two runs that fail alike",
            format!(
                "{} | {fails} | {fails} | {fails} | {}",
                turned(&files[..2], "x", "y"),
                turned(&files[..2], "y", "x")
            ),
            0,
        ),
        ("without end", format!("9x {} | {}", edit("x", "y"), edit("y", "x")), 5),
        (
            "without end, in other words",
            "9x edit(path=a, old_string=x, new_string=y, explanation={w} {w}) -> ok at {w} | edit(path=a, old_string=y, new_string=x, explanation={w}) -> ok at {w}"
                .to_owned(),
            5,
        ),
        (
            "without end, between things that are new",
            format!("9x {} | read(path=n{{i}}) -> {{w}} stands here | {}", edit("x", "y"), edit("y", "x")),
            7,
        ),
    ] {
        let seen = found(&script);
        if seen != at {
            wrong.push(format!("{kind}: {seen}, expected {at}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_message_of_a_person_begins_the_count_of_returns_anew() {
    let config = ToolLoopConfig::default();
    let events = read("9x write(path=a, content=x) -> ok | write(path=a, content=y) -> ok");
    let mut loops = ToolLoops::default();
    let (before, behind) = events.split_at(10);
    before.iter().for_each(|event| loops.observe(&config, &event.seen()));
    loops.observe(&config, &Observation::User("Try x and y again."));
    behind[..6].iter().for_each(|event| loops.observe(&config, &event.seen()));
    assert_eq!(loops.found(), None);
    behind[6..8].iter().for_each(|event| loops.observe(&config, &event.seen()));
    assert!(loops.found().is_some());
}

/// The step at which edits that each show the window with their own lines are found to be a loop.
fn edits(text: impl Fn(usize) -> String) -> usize {
    let config = ToolLoopConfig::default();
    let mut loops = ToolLoops::default();
    let at = (1..20).find(|at| {
        let text = text(*at);
        let arguments = Arguments::parse(&serde_json::json!({ "command": format!("edit 1:9\n{text}") }).to_string());
        loops.observe(&config, &Observation::ToolCall { name: "shell", arguments: &arguments, spec: None });
        let window = format!("[File: a.py ({} lines)]\n{text}", 60 + at);
        loops
            .observe(&config, &Observation::ToolResult { name: "shell", outcome: CallOutcome::Success, text: &window });
        loops.found().is_some()
    });
    at.unwrap_or(0)
}

#[test]
fn edits_that_write_only_known_lines_are_a_loop_and_others_are_work() {
    let lines = [
        "import socket as channel, struct, random, hashlib",
        "greeting = channel.create_connection(destination)",
        "password = hashlib.sha256(secret).hexdigest()",
        "message = struct.pack(layout, version, sequence)",
        "greeting.sendall(message + password + checksum)",
        "answers = greeting.recv(maximum).decode(encoding)",
    ];
    let rotated = |at: usize| [&lines[at % 6..], &lines[..at % 6]].concat().join("\n");
    assert!((1..=10).contains(&edits(rotated)), "{}", edits(rotated));
    let words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let grown = |at: usize| format!("{}\nprint({}, {})", lines.join("\n"), words[at % 10], words[at / 10]);
    assert_eq!(edits(grown), 0);
}

#[test]
fn a_message_that_was_there_before_halves_the_count() {
    let config = ToolLoopConfig { without: Some(Part::Varied), ..ToolLoopConfig::default() };
    let mut loops = ToolLoops::default();
    let events = read("40x check_answer(flag=a {w}) -> {\"correct\": false}");
    let mut calls = 0;
    for pair in events.chunks(2) {
        if calls % 3 == 0 {
            loops.observe(&config, &Observation::User("Go on."));
        }
        calls += 1;
        pair.iter().for_each(|event| loops.observe(&config, &event.seen()));
        if loops.found().is_some() {
            break;
        }
    }
    assert!(loops.found().is_some_and(|found| found.facts.contains_key("repeated_answers")), "found by its gain");
    assert!((6..=12).contains(&calls), "{calls}");
}

#[test]
fn a_message_of_a_person_begins_a_new_stretch() {
    let config = ToolLoopConfig::default();
    let events = read("4x bash(\"cat a.py\") -> {long} | bash(\"cat b.py\") -> {long 2}");
    let mut loops = ToolLoops::default();
    let (before, behind) = events.split_at(10);
    before.iter().for_each(|event| loops.observe(&config, &event.seen()));
    loops.observe(&config, &Observation::User("Look again."));
    behind.iter().for_each(|event| loops.observe(&config, &event.seen()));
    assert_eq!(loops.found(), None);
}
