//! What becomes of a conversation that outgrows its model.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use belay_protocol::{
    Ack, BootId, Control, EventKind, EventQuery, LaneClaim, ModelErrorKind, Price, Refusal, RunRecord, RunStatus,
    SessionLifetime, StopReason, StopTarget, UnixMillis,
};
use belay_run::CompactionConfig;
use belay_testkit::assert_golden;
use belay_testkit::golden::render_messages;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Running, Setup, TestTool, by_rule, end_of, saw};

/// An account as it should be.
pub(crate) fn account(asked: &str) -> String {
    format!(
        "## Decisions\n- none\n## Open tasks\n- none\n## Constraints\n- none\n## User requests\n- {asked}\n## Exact \
         identifiers\n- none"
    )
}

/// A message of some 230 tokens that begins with these words.
pub(crate) fn long(words: &str) -> String {
    format!("{words} {}", "and so on ".repeat(90).trim_end())
}

/// A model whose context holds three of those besides prompt and tools: it is shortened from 1400 tokens on.
fn small(script: impl IntoIterator<Item = Scripted>) -> ScriptedModel {
    ScriptedModel::new(script).with_info(|info| info.context_tokens = 2_800)
}

pub(crate) fn too_long() -> Scripted {
    Scripted::error(ModelErrorKind::ContextTooLong)
}

/// Says three long messages, which fit.
pub(crate) async fn three_turns(agent: &mut Running) {
    for n in 1..=3 {
        agent.model.push(Scripted::text(format!("answer {n}")));
        agent.one.ask("alice", &long(&format!("question {n}"))).await;
    }
}

pub(crate) async fn facts(setup: &Setup, record: &RunRecord) -> Vec<EventKind> {
    let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    events.into_iter().map(|event| event.kind).filter(is_about_compaction).collect()
}

fn is_about_compaction(kind: &EventKind) -> bool {
    use EventKind::{Compacted, CompactionAbandoned, CompactionStarted};
    matches!(kind, CompactionStarted { .. } | Compacted { .. } | CompactionAbandoned { .. })
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_shortened_before_it_outgrows_the_model_and_the_model_writes_the_account() {
    let setup = Setup::new(small([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::text(account("question 1 and question 2")));
    agent.model.push(Scripted::text("answer 4"));
    let record = end_of(agent.one.accepted("alice", &long("question 4")).await).await;
    assert_eq!(agent.one.next().await, "answer 4");

    let mut transcript = String::new();
    for (n, request) in agent.model.seen().iter().enumerate().skip(3) {
        let tools = request.tools.as_ref().map_or("none".to_owned(), |tools| tools.join(" "));
        let mut messages = render_messages(&request.messages);
        while messages.contains("and so on and so on") {
            messages = messages.replace("and so on and so on", "and so on");
        }
        writeln!(transcript, "--- request {}, tools: {tools}\n{messages}", n + 1).expect("to memory");
    }
    assert_golden!("compaction", transcript);
    let facts = facts(&setup, &record).await;
    let [
        EventKind::CompactionStarted { tokens, reason: why },
        EventKind::Compacted { messages: 4, before, after, source: by, will_retry },
    ] = &facts[..]
    else {
        panic!("{facts:#?}")
    };
    assert_eq!((why.as_str(), by.as_str(), *will_retry), ("threshold", "model", false));
    assert!(tokens == before && *before > 900 && *after < 600, "{before} {after}");
    agent.shut_down().await;

    let next = setup.next_boot(small([Scripted::text("answer 5")]));
    let mut agent = next.start().await;
    agent.one.ask("alice", "question 5").await;
    let seen = saw(&agent.model, 1);
    assert!(seen[0].contains("## Decisions") && seen[1].starts_with("question 3"), "{seen:#?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn switched_off_only_the_providers_word_counts() {
    let mut setup = Setup::new(by_rule(small([])));
    setup.compaction.enabled = false;
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(too_long());
    agent.model.push(Scripted::text("done"));
    assert_eq!(agent.one.ask("alice", &long("question 4")).await, "done");
    assert_eq!(agent.model.seen()[3].messages.len(), 7, "nothing was shortened before");
    assert!(agent.model.seen()[4].messages.len() < 7);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_account_of_no_use_is_asked_for_once_more_and_then_made_by_rule() {
    let good = account("question 2");
    for (name, answers, by) in [
        ("useless, then good", vec![Scripted::text("Sure!"), Scripted::text(&good)], "model"),
        ("cut off, then good", vec![Scripted::text(&good).truncated(), Scripted::text(&good)], "model"),
        ("useless twice", vec![Scripted::text("Sure!"), Scripted::text("")], "extract"),
        ("the provider is away", vec![Scripted::error(ModelErrorKind::BadRequest)], "extract"),
        ("it takes too long", vec![Scripted::hang()], "extract"),
    ] {
        let setup = Setup::new(small([]));
        let mut agent = setup.start().await;
        three_turns(&mut agent).await;
        answers.into_iter().for_each(|answer| agent.model.push(answer));
        agent.model.push(Scripted::text("done"));
        let record = end_of(agent.one.accepted("alice", &long("question 4")).await).await;
        assert_eq!(agent.one.next().await, "done", "{name}");
        assert_eq!(agent.model.left(), 0, "{name}");
        let facts = facts(&setup, &record).await;
        assert!(matches!(&facts[1], EventKind::Compacted { source: who, .. } if who == by), "{name}: {facts:?}");
        let seen = agent.model.seen();
        let account = seen.last().expect("asked").messages[0].text().to_owned();
        assert_eq!(account.contains("## Decisions"), by == "model", "{name}: {account}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn identifiers_that_the_model_does_not_copy_are_added() {
    let setup = Setup::new(small([]));
    let mut agent = setup.start().await;
    agent.model.push(Scripted::text("ok"));
    agent.one.ask("alice", "restart db.internal:5432, see /srv/app/run.log and ticket ABC-123").await;
    three_turns(&mut agent).await;
    let account = account("question 2, db.internal:5433");
    agent.model.push(Scripted::text(&account));
    agent.model.push(Scripted::text(&account));
    agent.model.push(Scripted::text("done"));
    agent.one.ask("alice", &long("which database?")).await;
    let seen = agent.model.seen();
    let told = seen[seen.len() - 2].messages[0].text();
    assert!(told.contains("missing or changed: db.internal:5432 /srv/app/run.log ABC-123"), "{told}");
    let account = seen[seen.len() - 1].messages[0].text();
    assert!(account.ends_with("\n- db.internal:5432\n- /srv/app/run.log\n- ABC-123"), "{account}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_account_that_costs_too_much_is_made_by_rule_and_the_work_goes_on() {
    let price = Price { input: 1_000_000, cached_input: None, output: 0 };
    let model = ScriptedModel::new([]).with_info(|info| info.price = Some(price)).with_usage(0, 0);
    let mut setup = Setup::new(model);
    setup.compaction.keep_recent_tokens = 300;
    // The call that does not fit is charged as estimated. What is left then is enough for the shortened one, and not for
    // an account, which reads all that leaves.
    setup.limits.usd_per_day = Some(0.006);
    let mut agent = setup.start().await;
    for n in 0..9 {
        agent.model.push(Scripted::text("ok"));
        agent.one.ask("alice", &long(&format!("question {n}"))).await;
    }
    agent.model.push(too_long().after_pieces(["The "]));
    agent.model.push(Scripted::text("done"));
    let record = end_of(agent.one.accepted("alice", "and now?").await).await;
    assert_eq!((record.status, agent.one.next().await.as_str()), (RunStatus::Completed, "done"), "{record:?}");
    let facts = facts(&setup, &record).await;
    assert!(matches!(&facts[1], EventKind::Compacted { source: by, .. } if by == "extract"), "{facts:?}");
    assert_eq!(agent.model.seen().len(), 11, "no account was asked for");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_writing_of_an_account_and_nothing_has_changed() {
    let setup = Setup::new(small([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::hang());
    let accepted = agent.one.accepted("alice", &long("question 4")).await;
    agent.asked(4).await;
    assert_eq!(agent.one.command("alice", "/stop").await, "Interrupted.");
    let record = end_of(accepted).await;
    assert_eq!(record.reason, Some(StopReason::UserStop));
    let facts = facts(&setup, &record).await;
    let [EventKind::CompactionStarted { .. }, EventKind::CompactionAbandoned { reason: why }] = &facts[..] else {
        panic!("{facts:#?}")
    };
    assert_eq!(why, "stopped");
    agent.shut_down().await;
    let opened = setup
        .store
        .lanes
        .open_lane(&"alice".into(), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), UnixMillis(1))
        .await;
    let thread = opened.expect("opens").opened().expect("free").thread;
    assert_eq!((thread.summary, thread.messages.len()), (None, 7));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_beginning_was_heard_is_not_repeated() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(too_long().after_pieces(["The answer "]));
    let accepted = agent.one.watching("alice", "question 4").await;
    let record = end_of(accepted).await;
    assert_eq!(record.reason, Some(StopReason::ContextTooLong), "{record:?}");
    assert!(facts(&setup, &record).await.is_empty());
    agent.model.push(too_long().after_pieces(["Another answer "]));
    agent.model.push(Scripted::text(account("question 2")));
    agent.model.push(Scripted::text("done"));
    let accepted = agent.one.accepted("alice", "question 5").await;
    assert_eq!(end_of(accepted).await.reply.as_deref(), Some("done"), "nobody has heard it, so it may be");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn words_about_a_context_that_is_too_long_shorten_nothing() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    let words = "This model's maximum context length is 8192 tokens; context_length_exceeded, prompt is too long";
    agent.model.push(Scripted::call("echo", json!({"text": words})));
    agent.model.push(Scripted::text(words));
    let record = end_of(agent.one.accepted("alice", words).await).await;
    assert_eq!(agent.one.next().await, words);
    assert!(facts(&setup, &record).await.is_empty());
    assert_eq!(agent.model.seen()[4].messages.len(), 9, "all of it is there");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_does_not_help_is_not_repeated_and_then_large_results_lose_their_middle() {
    let mut setup = Setup::new(by_rule(ScriptedModel::new([])));
    setup = setup.tool(TestTool::named("echo").called("big").saying(100_000));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    let huge = format!("begin {} end", "x".repeat(60_000));
    agent.model.push(Scripted::call("big", json!({"text": huge})));
    agent.model.push(too_long()); // three short turns leave, which is nothing against the one result
    agent.model.push(too_long());
    agent.model.push(Scripted::text("done"));
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(record.reason, Some(StopReason::ContextTooLong), "{record:?}");
    let seen = agent.model.seen();
    let (whole, truncated) = (&seen[4].messages, &seen[5].messages);
    assert!(whole.iter().any(|message| message.text() == huge));
    let middle = truncated.iter().find(|message| message.text().contains("characters left out")).expect("truncated");
    assert!(middle.text().starts_with("begin x") && middle.text().ends_with("x end") && middle.text().len() < 4_200);
    assert_eq!((seen.len(), agent.model.left()), (6, 1), "it ends instead of going on in vain");
    assert!(agent.one.next().await.contains("/new"), "it says what helps, and does nothing of the like by itself");
    let stored = setup.store.runs.run_messages(record.run_id).await.expect("readable");
    assert!(stored.iter().any(|message| message.text() == huge), "the original stays");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_shortened_no_more_often_than_is_set() {
    let mut setup = Setup::new(by_rule(ScriptedModel::new([])));
    setup.compaction.max_per_turn = 1;
    let mut agent = setup.start().await;
    for n in 0..12 {
        agent.model.push(Scripted::text("ok"));
        agent.one.ask("alice", &long(&format!("question {n}"))).await;
    }
    for _ in 0..3 {
        agent.model.push(too_long());
    }
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!(record.reason, Some(StopReason::ContextTooLong));
    assert_eq!(facts(&setup, &record).await.len(), 2, "one, told of at its beginning and at its end");
    assert_eq!(agent.model.left(), 1);
    agent.shut_down().await;
}

/// A tool `remember` that says so, and is counted.
fn remember() -> TestTool {
    TestTool::named("echo").called("remember")
}

#[tokio::test(start_paused = true)]
async fn notes_are_made_before_turns_leave_and_nothing_of_that_is_said_in_the_conversation() {
    let tool = remember();
    let calls = tool.calls.clone();
    let setup = Setup::new(small([])).tool(tool);
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::call("remember", json!({"text": "they ask questions"})).with_text("Noted."));
    agent.model.push(Scripted::text(account("question 2")));
    agent.model.push(Scripted::text("done"));
    assert_eq!(agent.one.ask("alice", &long("question 4")).await, "done");
    assert_eq!((calls.load(Ordering::SeqCst), agent.model.left()), (1, 0));
    let seen = agent.model.seen();
    assert_eq!(seen[3].tools.as_deref(), Some(&["remember".to_owned()][..]), "nothing else is offered");
    assert!(seen[3].messages[0].text().starts_with("user: question 1"));
    assert!(seen[5].messages.iter().all(|message| !message.text().contains("Noted")));
    agent.shut_down().await;
    let history = setup.store.sessions.history(&"alice".into(), 0, 100).await.expect("readable");
    assert!(history.iter().all(|entry| !entry.text.contains("Noted") && !entry.text.contains("they ask")));
}

#[tokio::test(start_paused = true)]
async fn notes_are_left_out_where_they_are_switched_off_or_little_leaves_and_trouble_with_them_stops_nothing() {
    for (name, memory_flush, turns, notes, requests) in [
        ("switched off", false, 3, vec![], 1),
        ("less than two turns leave", true, 1, vec![], 1),
        ("nothing to note", true, 3, vec![Scripted::text("NOTHING")], 2),
        ("the provider is away", true, 3, vec![Scripted::error(ModelErrorKind::BadRequest)], 2),
        ("it takes too long", true, 3, vec![Scripted::hang()], 2),
        (
            "another tool, again and again",
            true,
            3,
            vec![Scripted::call("echo", json!({})), Scripted::call("echo", json!({}))],
            3,
        ),
    ] {
        let tool = remember();
        let calls = tool.calls.clone();
        let mut setup = Setup::new(ScriptedModel::new([])).tool(tool);
        setup.compaction.memory_flush = memory_flush;
        let mut agent = setup.start().await;
        for n in 1..=turns {
            agent.model.push(Scripted::text("ok"));
            agent.one.ask("alice", &long(&format!("question {n}"))).await;
        }
        let before = agent.model.seen().len();
        agent.model.push(too_long());
        notes.into_iter().for_each(|note| agent.model.push(note));
        agent.model.push(Scripted::text(account("question 1, question 2")));
        agent.model.push(Scripted::text("done"));
        assert_eq!(agent.one.ask("alice", &long("last")).await, "done", "{name}");
        assert_eq!((agent.model.seen().len() - before, agent.model.left()), (2 + requests, 0), "{name}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "{name}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_left_a_running_turn_stays_out_after_a_crash_and_after_its_end() {
    let steps = |from: usize, to: usize| {
        (from..to).map(|n| Scripted::call("echo", json!({"text": long(&format!("step {n}"))})))
    };
    let script = steps(0, 5).chain([too_long()]).chain(steps(5, 6)).chain([Scripted::hang()]);
    let setup = Setup::new(by_rule(ScriptedModel::new(script)));
    let agent = setup.start().await;
    agent.one.accepted("alice", "go").await;
    agent.asked(8).await;
    let before = saw(&agent.model, 8);
    assert!(before[0].contains("step 0") && !before[1..].iter().any(|text| text.starts_with("step 0")), "{before:#?}");
    agent.crash().await;

    let next = setup.next_boot(by_rule(ScriptedModel::new([Scripted::text("done"), Scripted::text("ok")])));
    let mut agent = next.start().await;
    assert_eq!(agent.one.next().await, "done");
    assert_eq!(saw(&agent.model, 1), before, "taken up again, it is as short as it was");
    agent.shut_down().await;

    let last = setup.next_boot(by_rule(ScriptedModel::new([Scripted::text("ok")])));
    let mut agent = last.start().await;
    agent.one.ask("alice", "and now?").await;
    let seen = saw(&agent.model, 1);
    assert_eq!(seen[..before.len()], before, "and so after its end");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn compact_on_request_keeps_in_mind_what_is_said_and_tells_what_it_did() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::text(account("question 2")));
    let reply = agent.one.command("alice", "/compact keep the names of rivers").await;
    assert!(
        reply.starts_with("Replaced 4 older messages by a summary: about ") && reply.contains(" tokens before, "),
        "{reply}"
    );
    let asked = saw(&agent.model, 4);
    assert!(asked[0].ends_with("wants to be kept:\nkeep the names of rivers"), "{asked:?}");
    agent.model.push(Scripted::text("ok"));
    agent.one.ask("alice", "and now").await;
    let seen = saw(&agent.model, 5);
    assert!(seen.len() == 4 && seen[0].contains("## Decisions") && seen[1].starts_with("question 3"), "{seen:#?}");
    let runs = setup.store.runs.runs(Default::default()).await.expect("readable");
    assert_eq!(runs.len(), 4, "a command is no run");
    let facts = setup.store.events.read(EventQuery::default()).await.expect("readable");
    let facts: Vec<_> = facts.into_iter().map(|event| event.kind).filter(is_about_compaction).collect();
    assert!(matches!(&facts[0], EventKind::CompactionStarted { reason: why, .. } if why == "command"), "{facts:?}");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn while_a_conversation_is_shortened_messages_are_taken_and_a_stop_ends_it() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::hang());
    let (one, two) = (agent.one.writer(), agent.one.writer());
    let compacting = tokio::spawn(async move { one.text("alice", "/compact").await });
    agent.asked(4).await;
    let waiting = agent.one.accepted("alice", "and now").await;
    match two.text("alice", "/undo").await {
        Ack::Command(reply) => assert!(reply.reply.contains("is being compacted"), "{}", reply.reply),
        other => panic!("{other:?}"),
    }
    agent.model.push(Scripted::text("ok"));
    let elsewhere = Control::Stop(StopTarget::Session("elsewhere".into()));
    let Ack::Stopped(report) = agent.one.control(elsewhere).await else { panic!("a report") };
    assert!(report.stopped.is_empty());
    match two.text("alice", "/interrupt").await {
        Ack::Command(reply) => assert_eq!(reply.reply, "Interrupted."),
        other => panic!("{other:?}"),
    }
    match compacting.await.expect("no panic") {
        Ack::Command(reply) => assert_eq!(reply.reply, "Stopped: the conversation is unchanged."),
        other => panic!("{other:?}"),
    }
    let record = end_of(waiting).await;
    assert_eq!(record.status, RunStatus::Completed, "the message that waited has its turn");
    assert_eq!(saw(&agent.model, 5).len(), 7, "nothing has left");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_an_account() {
    let setup = Setup::new(ScriptedModel::new([]));
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::hang());
    let one = agent.one.writer();
    let compacting = tokio::spawn(async move { one.text("alice", "/compact").await });
    agent.asked(4).await;
    agent.shut_down().await;
    let ack = compacting.await.expect("no panic");
    assert!(matches!(ack, Ack::Refused(Refusal::ShuttingDown)), "{ack:?}");
}

#[tokio::test(start_paused = true)]
async fn the_estimate_learns_from_what_the_provider_counts() {
    // Counted three times as high as estimated, the same conversation is too long a turn earlier.
    for (counted, shortened) in [(None, false), (Some(20_000), true)] {
        let setup = Setup::new(by_rule(ScriptedModel::new([])).with_info(|info| info.context_tokens = 6_000));
        let mut agent = setup.start().await;
        three_turns(&mut agent).await;
        let answer = Scripted::text("ok");
        agent.model.push(match counted {
            Some(counted) => answer.with_usage(counted, 10),
            None => answer,
        });
        agent.one.ask("alice", "measure").await;
        agent.model.push(Scripted::text("done"));
        let record = end_of(agent.one.accepted("alice", "go").await).await;
        assert_eq!(!facts(&setup, &record).await.is_empty(), shortened, "{counted:?}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_is_written_by_the_model_that_is_set_for_it() {
    let mut setup = Setup::new(small([]));
    setup.compaction = CompactionConfig { model: Some("a-small-model".into()), ..CompactionConfig::default() };
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    agent.model.push(Scripted::text(account("question 2")));
    agent.model.push(Scripted::text("done"));
    agent.one.ask("alice", &long("question 4")).await;
    let seen = agent.model.seen();
    let models: Vec<_> = seen[3..].iter().map(|request| request.model.as_deref()).collect();
    assert_eq!(models, [Some("a-small-model"), None]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_shortening_that_waits_for_its_place_is_not_stuck() {
    let mut setup = Setup::new(ScriptedModel::new([]));
    (setup.config.max_concurrent_turns, setup.queue.stuck_warn_s, setup.queue.stuck_after_s) = (1, 10, 20);
    let mut agent = setup.start().await;
    three_turns(&mut agent).await;
    let late = std::time::Duration::from_secs(15);
    agent.model.push(Scripted::call("echo", serde_json::json!({})).after(late));
    agent.model.push(Scripted::text("at last").after(late));
    agent.model.push(Scripted::text(account("question 2")));
    agent.two.accepted("bob", "take your time").await;
    agent.asked(4).await;
    let reply = agent.one.command("alice", "/compact").await;
    assert!(reply.starts_with("Replaced "), "{reply}");
    agent.shut_down().await;
}
