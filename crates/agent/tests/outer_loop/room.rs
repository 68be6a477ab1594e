//! Room for long work, wherever it is done: runs that a run starts have their contexts shortened like a conversation, every
//! shortening that begins has one end, and what is stored of a cut is what the model has left.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belay_protocol::{
    BootId, EventKind, HookAnswer, HookPoint, LaneClaim, ModelErrorKind, RunStatus, SessionLifetime, UnixMillis,
};
use belay_store::SqlStore;
use belay_testkit::faulty::{Fault, Faulty, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;
use tokio::time::sleep;

use crate::compaction::{account, facts, long, three_turns, too_long};
use crate::hooks::spy;
use crate::support::{Setup, TestTool, by_rule, end_of, ports, saw};
use crate::workers::{employ_here, hand_over};

/// What a child run is to do.
const TASK: &str = "count the boats";

/// How work is handed to a run of its own.
struct Child {
    name: &'static str,
    /// The calls of the parent before it begins.
    begins: Vec<Scripted>,
    /// The tool that it works with.
    tool: &'static str,
    /// Its last call, or its text.
    ends: Scripted,
}

fn children() -> [Child; 3] {
    let spawn = Scripted::call("spawn_subagent", json!({"task": TASK}));
    let plan = Scripted::call("planning", json!({"command": "create", "title": "The work", "steps": [TASK]}));
    let success = Scripted::call("terminate", json!({"status": "success", "summary": "eight boats"}));
    [
        Child { name: "a subagent", begins: vec![spawn], tool: "echo", ends: Scripted::text("eight boats") },
        Child { name: "a step of a plan", begins: vec![plan], tool: "echo", ends: success },
        Child {
            name: "a worker",
            begins: vec![hand_over(json!({"task": TASK}))],
            tool: "read_file",
            ends: Scripted::text("eight boats"),
        },
    ]
}

/// Steps of long work, from one number to the one before another.
fn steps(tool: &str, from: usize, to: usize) -> Vec<Scripted> {
    (from..to).map(|n| Scripted::call(tool, json!({"text": long(&format!("boat {n}"))}))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_child_run_whose_context_is_too_long_goes_on_with_what_is_left_of_it() {
    for by in ["model", "extract"] {
        for Child { name, begins, tool, ends } in children() {
            let before = begins.len();
            let written = if by == "model" { vec![Scripted::text(account("boat 0"))] } else { vec![] };
            let asked_aside = written.len();
            let script = begins
                .into_iter()
                .chain(steps(tool, 0, 5))
                .chain([too_long()])
                .chain(written)
                .chain(steps(tool, 5, 7))
                .chain([ends, Scripted::text("all done")]);
            let model = ScriptedModel::new(script);
            let mut setup = Setup::new(if by == "model" { model } else { by_rule(model) });
            setup = setup.tool(TestTool::named("echo").called("read_file"));
            employ_here(&mut setup, |name| TestTool::named("echo").called(name));
            let mut agent = setup.start().await;
            let words = if name.contains("plan") { "/plan -- go" } else { "go" };
            let record = end_of(agent.one.accepted("alice", words).await).await;
            assert_eq!((record.status, agent.one.next().await.as_str()), (RunStatus::Completed, "all done"), "{name}");
            assert_eq!(agent.model.left(), 0, "{name}");

            let retried = before + 6 + asked_aside + 1;
            for n in [retried, retried + 1] {
                let seen = saw(&agent.model, n);
                assert!(seen[0].starts_with("Earlier in this work"), "{name}: {seen:#?}");
                assert!(seen[1].contains(TASK), "its task stays: {name}: {seen:#?}");
                assert!(!seen[1..].iter().any(|text| text.starts_with("boat 0")), "{name}: {seen:#?}");
                assert!(seen[1..].iter().any(|text| text.starts_with("boat 4")), "{name}: {seen:#?}");
            }
            let facts = facts(&setup, &record).await;
            let [
                EventKind::CompactionStarted { reason: why, .. },
                EventKind::Compacted { source: who, will_retry: true, .. },
            ] = &facts[..]
            else {
                panic!("{name}: {facts:#?}")
            };
            assert_eq!((why.as_str(), who.as_str()), ("overflow", by), "{name}");
            let calls = before + 5 + 1 + asked_aside + 2 + 1 + 1;
            assert_eq!(record.usage.model_calls as usize, calls, "all of it is charged to the one run: {name}");
            agent.shut_down().await;
            let opened = setup
                .store
                .lanes
                .open_lane(&"alice".into(), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), UnixMillis(1))
                .await;
            let thread = opened.expect("opens").opened().expect("free").thread;
            assert_eq!(thread.summary, None, "the conversation is as long as it was: {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_run_is_shortened_before_it_outgrows_its_model() {
    let spawn = Scripted::call("spawn_subagent", json!({"task": TASK}));
    let script =
        [spawn].into_iter().chain(steps("echo", 0, 12)).chain([Scripted::text("twelve"), Scripted::text("done")]);
    // The tools of a subagent take some 600 tokens of it; the call that hands over its task stays short.
    let setup = Setup::new(by_rule(ScriptedModel::new(script)).with_info(|info| info.context_tokens = 5_000));
    let mut agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(agent.one.next().await, "done");
    let facts = facts(&setup, &record).await;
    assert!(
        !facts.is_empty() && facts.len() <= 6 && facts.len() % 2 == 0,
        "at most three, each with its end: {facts:#?}"
    );
    for pair in facts.chunks(2) {
        let [EventKind::CompactionStarted { reason: why, .. }, EventKind::Compacted { will_retry: false, .. }] = pair
        else {
            panic!("{facts:#?}")
        };
        assert_eq!(why, "threshold");
    }
    agent.shut_down().await;
}

/// What happens to a shortening.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    WinsNothing,
    ModelFails,
    ModelHangs,
    Stopped,
    StoreFails,
    HookHangs,
}

#[tokio::test(start_paused = true)]
async fn a_shortening_that_has_begun_has_one_end_whatever_happens_to_it() {
    for (fate, end) in [
        (Fate::WinsNothing, Some("nothing_won")),
        (Fate::ModelFails, None),
        (Fate::ModelHangs, None),
        (Fate::Stopped, Some("stopped")),
        (Fate::StoreFails, Some("failed")),
        (Fate::HookHangs, None),
    ] {
        for inside in [false, true] {
            if inside && fate == Fate::StoreFails {
                continue; // nothing of it is stored
            }
            let (facts, told) = fated(fate, inside).await;
            let [EventKind::CompactionStarted { .. }, ended] = &facts[..] else {
                panic!("{fate:?}, inside: {inside}: {facts:#?}")
            };
            match (end, ended) {
                (Some(expected), EventKind::CompactionAbandoned { reason: why }) => {
                    assert_eq!(why, expected, "{fate:?} {inside}")
                }
                (None, EventKind::Compacted { .. }) => {}
                other => panic!("{fate:?}, inside: {inside}: {other:?}"),
            }
            assert_eq!(told, (1, 1), "hooks hear of both: {fate:?}, inside: {inside}");
        }
    }
}

/// A shortening of that fate, in a conversation or inside a subagent: its facts, and how often hooks were told of its
/// beginning and of its end.
async fn fated(fate: Fate, inside: bool) -> (Vec<EventKind>, (usize, usize)) {
    let store = Faulty::new(Arc::new(SqlStore::in_memory().expect("a store in memory opens")));
    let model = match fate {
        Fate::WinsNothing | Fate::StoreFails | Fate::HookHangs => by_rule(ScriptedModel::new([])),
        Fate::ModelFails | Fate::ModelHangs | Fate::Stopped => ScriptedModel::new([]),
    };
    let mut setup = Setup { store: ports(Arc::new(store.clone())), ..Setup::new(model) };
    setup.compaction.memory_flush = false;
    let answer = move |_: &_| (fate != Fate::HookHangs).then(|| HookAnswer::Refuse("I look on".into()));
    let (hooks, book) = spy(&[HookPoint::BeforeCompaction, HookPoint::AfterCompaction], answer);
    setup.hooks = hooks;
    let mut agent = setup.start().await;
    let text = |words: String| if fate == Fate::WinsNothing { "a".to_owned() } else { words };
    if inside {
        agent.model.push(Scripted::call("spawn_subagent", json!({"task": TASK})));
        for n in 0..3 {
            agent.model.push(Scripted::call("echo", json!({"text": text(long(&format!("boat {n}")))})));
        }
    } else {
        for n in 0..3 {
            agent.model.push(Scripted::text("b"));
            agent.one.ask("alice", &text(long(&format!("question {n}")))).await;
        }
    }
    agent.model.push(too_long());
    match fate {
        Fate::ModelFails => agent.model.push(Scripted::error(ModelErrorKind::BadRequest)),
        Fate::ModelHangs | Fate::Stopped => agent.model.push(Scripted::hang()),
        Fate::StoreFails => {
            store.plan().every(StoreOp::Compact, Fault::Fail);
            store.plan().every(StoreOp::CompactTurn, Fault::Fail);
        }
        Fate::WinsNothing | Fate::HookHangs => {}
    }
    (0..3).for_each(|_| agent.model.push(Scripted::text("done")));
    let accepted = agent.one.accepted("alice", "go").await;
    if fate == Fate::Stopped {
        agent.asked(if inside { 6 } else { 5 }).await;
        agent.one.command("alice", "/stop").await;
    }
    if fate == Fate::StoreFails {
        sleep(Duration::from_secs(1)).await; // it waits for the store until it is stopped
        agent.one.command("alice", "/stop").await;
    }
    let record = end_of(accepted).await;
    sleep(Duration::from_secs(60)).await; // whoever looks on is told beside everything else
    let counts = book.counts();
    let told = |point: HookPoint| counts.get(point.word()).copied().unwrap_or_default();
    let told = (told(HookPoint::BeforeCompaction), told(HookPoint::AfterCompaction));
    let facts = facts(&setup, &record).await;
    agent.shut_down().await;
    (facts, told)
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_that_has_swallowed_a_result_what_is_stored_of_a_cut_is_what_the_model_has_left() {
    const ATTEMPTS: usize = 5;
    let tool = TestTool::named("deaf");
    let calls = tool.calls.clone();
    let mut setup = Setup::new(by_rule(ScriptedModel::new([]))).tool(tool);
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::call("deaf", json!({})));
    agent.one.accepted("alice", "go").await;
    for attempt in 1..=ATTEMPTS {
        while calls.load(Ordering::SeqCst) < attempt {
            sleep(Duration::from_millis(100)).await;
        }
        agent.crash().await;
        setup = setup.next_boot(by_rule(ScriptedModel::new([])));
        agent = setup.start().await;
    }
    // It is given up, and the call in it has no result.
    assert!(agent.one.next().await.contains("restart"), "it says why");
    agent.model.push(Scripted::text("answer 5"));
    agent.one.ask("alice", &long("question 5")).await;
    let seen = saw(&agent.model, 1);
    assert!(seen.iter().any(|text| text.starts_with("outcome unknown")), "{seen:#?}");
    let reply = agent.one.command("alice", "/compact").await;
    assert!(reply.starts_with("Replaced "), "{reply}");
    agent.model.push(Scripted::text("answer 6"));
    agent.one.ask("alice", "question 6").await;
    let before = saw(&agent.model, 2);
    assert!(before.iter().any(|text| text.starts_with("outcome unknown")), "it stays: {before:#?}");
    assert!(before[0].contains("question 1") && before.len() < seen.len(), "{before:#?}");
    agent.shut_down().await;

    let next = setup.next_boot(by_rule(ScriptedModel::new([Scripted::text("answer 7")])));
    let mut agent = next.start().await;
    agent.one.ask("alice", "question 7").await;
    let after = saw(&agent.model, 1);
    assert_eq!(after[..before.len()], before, "nothing is missing, and nothing has come back");
    agent.shut_down().await;
}
