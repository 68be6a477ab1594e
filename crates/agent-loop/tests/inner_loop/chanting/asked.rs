//! A repetition that a person asked for is no chant, and more than that is one.

use std::sync::Arc;

use belay_agent_loop::policies::chanting::Chanting;
use belay_agent_loop::policies::{CallOutcome, Observation};
use belay_agent_loop::{AgenticLoopConfig, LoopContext, LoopOutcome};
use belay_protocol::Message;
use belay_testkit::scripted_model::Scripted;

use crate::support::Play;

const ROW: &str = "2026-03-14T09:26:53Z INFO gateway heartbeat ok seq=0 lane=open\n";

/// Characters after which an answer chants, if it does.
fn chants(before: &[Observation<'_>], answer: &str) -> Option<u64> {
    let mut chanting = Chanting::default();
    before.iter().for_each(|seen| chanting.observe(seen));
    chanting.text(answer);
    chanting.found().map(|_| chanting.position())
}

/// A request, a unit, how often it is asked for, and after how many of them an endless repetition must be stopped.
type Row<'a> = (&'a str, &'a str, usize, usize);

#[test]
fn a_count_in_the_request_allows_as_much_and_not_much_more() {
    let rows: &[Row<'_>] = &[
        ("Print a 30 x 40 matrix of zeros.", "0, ", 1200, 2200),
        ("Gib mir eine Matrix aus Nullen mit 30 Zeilen und 40 Spalten.", "0 ", 1200, 2600),
        ("打印一个 40×30 的零矩阵", "0.0, ", 1200, 2200),
        ("I need a poly-A tail of 2,000 bases.", "A", 2000, 4200),
        ("Écris une séquence de 3000 bases, toujours GATTACA.", "GATTACA", 430, 5000),
        ("Write a sample log with 200 equal lines.", ROW, 200, 330),
        ("Escribe doscientas líneas... 200 líneas de log iguales", ROW, 200, 330),
        ("Write a five hundred record sample.", "{\"state\": \"idle\", \"load\": null},\n", 500, 800),
        ("Write the sentence \"I must not talk in class.\" 300 times.", "I must not talk in class. ", 300, 500),
        ("Schreib 400-mal Ich soll nicht schwätzen", "Ich soll nicht schwätzen\n", 400, 650),
        ("把「我爱你们大家」写 300 遍", "我爱你们大家", 300, 640),
        ("Send 1000 of 😀", "😀", 1000, 1600),
        ("Write 'ha' 500 times", "ha ", 500, 900),
    ];
    for (request, unit, wanted, most) in rows {
        let user = [Observation::User(request)];
        assert_eq!(chants(&user, &unit.repeat(*wanted)), None, "{request}");
        let end = chants(&user, &unit.repeat(20_000)).unwrap_or_else(|| panic!("{request}: never ends"));
        let units = end as usize / unit.chars().count();
        assert!(units <= *most, "{request}: {units}");
    }
}

#[test]
fn a_count_allows_no_sentences_and_no_markup() {
    for (request, unit) in [
        ("Summarise the 40 files in 500 words.", "I will look at the configuration once more. "),
        ("Fix the 300 failing tests.", "Let me look at the next one\n"),
        ("Explain these 200 lines.", "<li><a href=\"x\">y</a></li>"),
        ("Translate the 2,000 words of the chapter.", "and "),
        ("Give me 20 zeros.", "0, "),
        ("Who was it, in 1918?", "哈"),
    ] {
        let text = unit.repeat(2000);
        assert_eq!(chants(&[Observation::User(request)], &text), chants(&[], &text), "{request}");
        assert!(chants(&[], &text).is_some(), "{unit}");
    }
}

#[test]
fn a_text_that_repeats_itself_may_be_printed_as_often_as_it_was_read() {
    let file = ROW.repeat(100);
    let numbered: String = (1..=100).map(|line| format!("{line:6}\t{ROW}")).collect();
    let request = Observation::User("Print the log, I cannot open it.");
    for text in [&file, &numbered] {
        let read = Observation::ToolResult { name: "read_file", outcome: CallOutcome::Success, text };
        assert_eq!(chants(&[request, read], &file), None, "{}", &text[..40]);
        let end = chants(&[request, read], &file.repeat(20)).expect("an end");
        assert!(end < 2 * text.len() as u64, "{end}");
    }
    let once = Observation::ToolResult { name: "read_file", outcome: CallOutcome::Success, text: ROW };
    assert_eq!(chants(&[request, once], &file), chants(&[], &file), "it was read once");
    let pasted = format!("Sort these lines, and print them:\n{file}");
    assert_eq!(chants(&[Observation::User(&pasted)], &file), None, "the person pasted it");
}

#[test]
fn what_was_asked_for_outlives_a_call_and_not_a_new_request() {
    let zeros = "0, ".repeat(1200);
    let request = Observation::User("Print a 30 x 40 matrix of zeros.");
    let arguments = belay_protocol::Arguments::parse("{}");
    let call = Observation::ToolCall { name: "clock", arguments: &arguments, spec: None };
    assert_eq!(chants(&[request, call], &zeros), None);
    assert!(chants(&[request, Observation::Reset], &zeros).is_some());
}

#[test]
fn the_verdict_does_not_depend_on_how_the_text_was_cut() {
    let text = format!("Here it is:\n{}", "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],\n".repeat(400));
    let request = Observation::User("A matrix of 16 x 50 zeros, please.");
    let whole = chants(&[request], &text);
    assert!(whole.is_some());
    for length in [1, 3, 7, 100, 999] {
        let mut chanting = Chanting::default();
        chanting.observe(&request);
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(length).for_each(|piece| {
            chanting.text(&piece.iter().collect::<String>());
        });
        assert_eq!(chanting.found().map(|_| chanting.position()), whole, "{length}");
    }
}

#[test]
fn the_content_of_a_file_in_a_call_is_data() {
    use belay_agent_loop::policies::{StopRules, StopState};
    let content = "0, 0, 0, 0, 0, 0, 0, 0\n".repeat(4000);
    let arguments =
        belay_protocol::Arguments::parse(&serde_json::json!({ "path": "zeros.csv", "content": content }).to_string());
    let (rules, mut state) = (StopRules::progress(), StopState::default());
    let call = Observation::ToolCall { name: "write_file", arguments: &arguments, spec: None };
    assert_eq!(state.observe(&rules, call), None);
}

#[test]
fn a_block_may_repeat_its_lines_but_not_without_end() {
    let block = |lines: usize| format!("```\n{}", "[0, 0, 0, 0],\n".repeat(lines));
    assert_eq!(chants(&[], &block(1000)), None);
    assert!(chants(&[], &block(1100)).is_some());
    assert_eq!(chants(&[Observation::User("3000 rows of four zeros")], &block(3000)), None);
    assert!(chants(&[Observation::User("3000 rows of four zeros")], &block(40_000)).is_some());
    for unlike in ["| a # | b |\n", "    x = #\n"] {
        let rows: String = (10_000..14_000).map(|at| unlike.replace('#', &at.to_string())).collect();
        assert_eq!(chants(&[], &format!("\n{rows}")), None, "{unlike}");
    }
    assert!(chants(&[], &format!("\n{}", "| a | b |\n".repeat(1100))).is_some());
    assert!(chants(&[], &format!("```\n{}", "}\n{\n".repeat(900))).is_some());
}

/// What a live run answers when a model writes 1,200 zeros.
async fn live(request: &str) -> LoopOutcome {
    let zeros = || Scripted::text("0, ".repeat(1200));
    let mut play = Play::new([zeros(), zeros(), zeros()]);
    let mut context = LoopContext::new(vec![Arc::new(Message::user(request))]);
    play.run(&mut context, &AgenticLoopConfig::default()).await.expect("an end")
}

#[tokio::test]
async fn a_live_run_knows_its_request() {
    let asked = live("Print a 30 x 40 matrix of zeros.").await;
    assert_eq!(asked, LoopOutcome::Response("0, ".repeat(1200)));
    let unasked = live("What is the time?").await;
    assert!(matches!(unasked, LoopOutcome::Stopped(_)), "{unasked:?}");
}
