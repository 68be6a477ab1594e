//! What the record of a run says of its end: what the judge saw, what took the tools away, and what became of the closing turn.

use std::sync::Arc;

use belay_protocol::{RunRecord, RunStatus, StopReason};
use belay_run::AgentConfig;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, end_of, rules};

const SENTENCE: &str = "The rope holds as long as someone holds the rope, and so it goes on. ";

async fn run(setup: &Setup, text: &str) -> (Running, Arc<RunRecord>) {
    let agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", text).await).await;
    (agent, record)
}

/// Two opinions that the work goes in circles: the second one ends the run, and its words are the reason.
#[tokio::test(start_paused = true)]
async fn what_the_judge_saw_is_part_of_the_evidence() {
    let opinion = |seen: &str| {
        let answer = json!({"unproductive_state_analysis": seen, "unproductive_state_confidence": 0.95});
        Scripted::text(answer.to_string())
    };
    let work = |n: u32| Scripted::call("echo", json!({ "text": n.to_string() }));
    let long = format!("It counts\n\u{202e}again. {}", "x".repeat(600));
    let script = [work(1), opinion("It counts."), work(2), opinion(&long), Scripted::text("it went in circles")];
    let toml = "[judge]\nfirst_step = 2\nmin_interval = 1\nmax_interval = 1";
    let setup = Setup { rules: rules(toml), ..Setup::new(ScriptedModel::new(script)) };
    let (agent, record) = run(&setup, "count").await;
    assert_eq!(record.reason, Some(StopReason::JudgedLoop), "{record:?}");
    let analysis = record.evidence["analysis"].as_str().expect("text");
    assert!(analysis.starts_with("It counts again. xxx"), "{analysis}");
    assert_eq!(analysis.chars().count(), 500, "cut, with a mark");
    agent.shut_down().await;
}

/// An answer that was forced says by what, and in which step.
#[tokio::test(start_paused = true)]
async fn a_forced_answer_says_what_took_the_tools_away() {
    let echo = |n: u32| Scripted::call("echo", json!({ "text": n.to_string() }));
    let fail = || Scripted::call("fail", json!({}));
    let cut = || Scripted::call("echo", json!({"text": "x"})).truncated();
    let answer = || Scripted::text("the best I have");
    for (by, step, script) in [
        (Some("max_tool_iterations"), 3, vec![echo(1), echo(2), answer()]),
        (Some("duplicate_failures"), 4, vec![fail(), fail(), fail(), fail(), answer()]),
        (Some("truncated_calls"), 3, vec![cut(), cut(), cut(), answer()]),
        (None, 0, vec![echo(1), answer()]),
    ] {
        let max_tool_iterations = if by == Some("max_tool_iterations") { 3 } else { 10 };
        let config = AgentConfig { max_tool_iterations, ..AgentConfig::default() };
        let setup = Setup { config, rules: rules("closing_turn_s = 0"), ..Setup::new(ScriptedModel::new(script)) };
        let (agent, record) = run(&setup, "go").await;
        assert_eq!((record.status, record.reason), (RunStatus::Completed, Some(StopReason::FinalText)), "{by:?}");
        let expected = match by {
            Some(by) => json!({"forced_text_by": by, "step": step}),
            None => json!({}),
        };
        assert_eq!(serde_json::Value::from(record.evidence.clone()), expected);
        agent.shut_down().await;
    }
}

/// The closing turn is watched like any other text, whether it is streamed or comes whole, and has a bound.
#[tokio::test(start_paused = true)]
async fn a_closing_turn_is_cut_before_it_repeats_itself_and_at_its_bound() {
    let chant = format!("I found three rooms. {}", SENTENCE.repeat(20_000));
    let endless: String = (0..400_000).map(|n| format!("{n} ")).collect();
    let pieces = |text: &str| {
        text.as_bytes().chunks(4096).map(|piece| String::from_utf8_lossy(piece).into_owned()).collect::<Vec<_>>()
    };
    for (name, closing, begins, most) in [
        ("chanting, streamed", Scripted::streamed(pieces(&chant)), "I found three rooms.", 200),
        ("chanting, whole", Scripted::text(&chant), "I found three rooms.", 200),
        ("without end, streamed", Scripted::streamed(pieces(&endless)), "0 1 2 3", 17_000),
        ("without end, whole", Scripted::text(&endless), "0 1 2 3", 17_000),
    ] {
        let script = [Scripted::call("echo", json!({"text": "x"})), closing];
        let setup = Setup { rules: rules("[limits]\nmodel_calls = 1"), ..Setup::new(ScriptedModel::new(script)) };
        let (mut agent, record) = run(&setup, "go").await;
        assert_eq!(record.reason, Some(StopReason::ModelCalls), "{name}: {record:?}");
        assert_eq!(record.evidence["closing"], "cut", "{name}");
        let reply = agent.one.next().await;
        assert!(reply.starts_with(begins), "{name}: {reply}");
        assert!(reply.ends_with(StopReason::ModelCalls.user_line()), "{name}");
        assert!(reply.len() < most, "{name}: {} bytes", reply.len());
        agent.shut_down().await;
    }
}
