//! One row for each kind of loop: its sentence for people, and the beginning of the advice for the model.

use belay_protocol::{Finding, StopReason};
use serde_json::json;

use super::super::{Evidence, LoopKind};
use super::{Played, found, played, repeated};

/// Evidence, its kind, its sentence, and the beginning of the advice.
type Row = (Evidence, LoopKind, &'static str, &'static str);

fn forever(one: fn(usize) -> Played) -> impl Iterator<Item = Played> {
    (0..60).map(one)
}

/// Fourteen lines in which only numbers differ.
fn report(n: usize) -> String {
    (0..14).map(|line| format!("case {line} fails at {}\n", (n * 7919 + line * 31) % 97)).collect()
}

fn letter(n: usize) -> char {
    char::from(b'a' + (n % 26) as u8)
}

const WORDS: [&str; 8] = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath"];

fn one_call() -> Vec<Row> {
    vec![
        (
            played(forever(|_| ("read_file", json!({"path": "build.log"}), "Linking.\nerror: no space\n".into()))),
            LoopKind::SameCall,
            "The last 4 calls of read_file (“build.log”) (steps 1 to 4) returned the same 2 lines, beginning with “Linking.”.",
            "Use the result that you have",
        ),
        (
            played(forever(|_| ("bash", json!({"command": "cargo test -q"}), String::new()))),
            LoopKind::SameCall,
            "The last 4 runs of “cargo test -q” (steps 1 to 4) printed nothing.",
            "Use the result that you have",
        ),
        (
            repeated(
                (0..6).map(|n| ("bash", json!({"command": "./probe.sh"}), format!("listening on port {}", 4000 + n))),
            ),
            LoopKind::SameCall,
            "The last 6 runs of probe.sh (steps 1 to 6) printed the same line except for numbers: “listening on port 4005”.",
            "Use the result that you have",
        ),
        (
            played(forever(|_| ("get_job", json!({"id": 7}), "pending".into()))),
            LoopKind::Polling,
            "The last 23 calls of get_job (“7”) (steps 1 to 23) returned the same line: “pending”.",
            "Do other work before you ask again",
        ),
    ]
}

fn varied() -> Vec<Row> {
    vec![
        (
            played(forever(|n| ("list_tables", json!({"filter": format!("users {}", letter(n))}), "no tables".into()))),
            LoopKind::VariedArguments,
            "The last 8 calls of list_tables (steps 1 to 8), with different arguments, returned the same line: “no tables”.",
            "These arguments make no difference",
        ),
        (
            played(forever(|n| ("submit", json!({"word": WORDS[n % 8]}), "Wrong word. Words follow a rule.".into()))),
            LoopKind::Guessing,
            "The last 5 calls of submit (steps 1 to 5) were different guesses and got one refusal: “Wrong word. Words follow a rule.”.",
            "Read what the refusal says and find out the rule",
        ),
        (
            played(forever(|n| ("unlock", json!({"code": format!("{}", 1234 + 37 * n)}), "!Access denied.".into()))),
            LoopKind::Guessing,
            "The last 5 calls of unlock (steps 1 to 5) were different guesses and got one refusal: “Access denied.”.",
            "Read what the refusal says and find out the rule",
        ),
        (
            repeated((1..6).map(|n| ("list_dir", json!({"path": "../".repeat(n)}), "(empty)".into()))),
            LoopKind::GrowingArguments,
            "The last 5 calls of list_dir (steps 1 to 5), each with a longer argument, now “../../../../../”, returned the same line: “(empty)”.",
            "A longer argument gives the same result",
        ),
    ]
}

fn several() -> Vec<Row> {
    let edit = |n: usize| {
        let (old, new) = (format!("x = {n}"), format!("x = {}", n + 2));
        ("edit_file", json!({"path": "lib/solve.py", "old": old, "new": new}), "ok".to_owned())
    };
    let run = |n: usize| ("bash", json!({"command": "cd /work && python3 solve.py | tail"}), report(n));
    vec![
        (
            repeated((0..12).map(move |n| if n % 2 == 0 { edit(n) } else { run(n) })),
            LoopKind::EditRun,
            "The last 6 runs of solve.py (steps 2 to 12), with 5 edits in between, printed the same 14 lines except for numbers, beginning with “case 0 fails at 3”.",
            "Check that the edit reaches the file that runs",
        ),
        (
            played(forever(|n| match n % 3 {
                0 => ("read_file", json!({"path": "a.py"}), "import b".into()),
                1 => ("search", json!({"query": "def b"}), "b.py:1: def b()".into()),
                _ => ("list_dir", json!({"path": "."}), "a.py b.py".into()),
            })),
            LoopKind::Cycle,
            "The same 3 calls were made 3 times in turn (steps 1 to 9) with the same results: read_file (“a.py”), search (“def b”), list_dir (“.”).",
            "Decide which of these calls has to be different",
        ),
        (
            played(forever(|n| match n % 2 {
                0 => (
                    "bash",
                    json!({"command": "gdb -batch -ex run ./a.out"}),
                    "Program received signal SIGSEGV\n#0 main ()".into(),
                ),
                _ => ("bash", json!({"command": "gdb -batch -ex bt ./a.out"}), "#0 main ()".into()),
            })),
            LoopKind::Debugger,
            "The last 7 calls around the debugger (steps 1 to 7) brought nothing new.",
            "Read the code at the place in question",
        ),
        (
            played(forever(|n| {
                ("write_file", json!({"path": "a.toml", "content": format!("a = {}", n % 2)}), "ok".into())
            })),
            LoopKind::OscillatingWrites,
            "“a.toml” was changed back to an earlier state 4 times (steps 1 to 6).",
            "Choose one of the two states",
        ),
        (
            played(forever(|n| {
                ("read_file", json!({"path": format!("{}", n % 4), "offset": 1 + n % 7}), "one line".into())
            })),
            LoopKind::NoNews,
            "The last 20 calls (steps 5 to 24) brought nothing new, the newest of read_file (“3”).",
            "Write down which fact is missing",
        ),
    ]
}

fn failures() -> Vec<Row> {
    let counted = |reason, count| found(Finding::new(reason, reason.word(), count, count).with("tool", "frobnicate"));
    vec![
        (
            played(forever(|n| {
                ("bash", json!({"command": format!("ls {n}")}), "!Error: no such container: 4f1d".into())
            })),
            LoopKind::DeadEnvironment,
            "The last 5 calls (steps 1 to 5) failed because the environment does not answer: “Error: no such container: 4f1d”.",
            "Further calls in this environment will fail too",
        ),
        (
            played(forever(|n| match n % 2 {
                0 => ("fetch", json!({"url": format!("https://a.example/{n}")}), "!HTTP 500 on that host".into()),
                _ => ("query", json!({"sql": format!("select {n}")}), "!syntax error near select".into()),
            })),
            LoopKind::Errors,
            "Every call of the last 5 steps failed; the newest error: “syntax error near select”.",
            "Read the newest error and remove its cause",
        ),
        (
            counted(StopReason::UnknownTools, 5),
            LoopKind::UnknownTools,
            "The last 5 calls named tools that do not exist, the newest “frobnicate”.",
            "Call only tools that this conversation offers",
        ),
        (
            counted(StopReason::InvalidArguments, 5),
            LoopKind::InvalidArguments,
            "The last 5 calls had invalid arguments, the newest of frobnicate.",
            "Read the error and the tool's schema",
        ),
        (
            counted(StopReason::ApprovalReasks, 3),
            LoopKind::Denied,
            "The call of frobnicate was denied 3 times.",
            "Do not ask for this call again",
        ),
    ]
}

fn texts() -> Vec<Row> {
    let text = |reason, count, quote: &str| Finding::new(reason, "rule", count, count).quoting(quote);
    vec![
        (
            found(text(StopReason::Chanting, 10, "and so it goes on, ")),
            LoopKind::Chanting,
            "The answer repeated one text 10 times: “and so it goes on,”.",
            "Do not continue that text",
        ),
        (
            found(text(StopReason::Chanting, 16, "check the next server").with("lines", 2)),
            LoopKind::RepeatedLines,
            "The answer repeated the same 2 lines 16 times: “check the next server”.",
            "End the list at its last new entry",
        ),
        (
            found(text(StopReason::RepeatedReplies, 2, "I will look now.")),
            LoopKind::RepeatedAnswers,
            "The newest answer repeats 2 earlier ones: “I will look now.”.",
            "Do not write that answer again",
        ),
        (
            found(Finding::new(StopReason::EmptyReplies, "empty_replies", 3, 3)),
            LoopKind::EmptyReplies,
            "The last 3 replies had neither text nor a tool call.",
            "Write your answer as text",
        ),
        (
            found(Finding::new(StopReason::CompactionLoop, "compactions_without_gain", 3, 3)),
            LoopKind::Compactions,
            "Shortening the conversation 3 times in a row saved less than a tenth.",
            "Use smaller results",
        ),
        (
            found(Finding::new(StopReason::JudgedLoop, "LLM_DETECTED_LOOP", 97, 90)),
            LoopKind::Judged,
            "Another model found that the run repeats itself (97 % sure).",
            "Name the goal and one approach that you have not tried",
        ),
        (
            found(Finding::new(StopReason::OperatorRule, "reads", 20, 20)),
            LoopKind::OwnRule,
            "The rule “reads” applies, at 20.",
            "Review what you have achieved",
        ),
    ]
}

#[test]
fn each_kind_of_loop_has_its_sentence_and_its_advice() {
    let mut wrong = Vec::new();
    for (evidence, kind, sentence, advice) in [one_call(), varied(), several(), failures(), texts()].concat() {
        let message = evidence.for_model();
        let opening = format!("Notice: this run seems to be in a loop. {sentence} {advice}");
        let right = evidence.kind == kind && evidence.sentence() == sentence && message.starts_with(&opening);
        if !right || message.len() > 600 {
            wrong.push(format!("{kind:?}: {sentence}\n{:?}: {message}", evidence.kind));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
