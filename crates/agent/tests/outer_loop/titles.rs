//! Titles of conversations: once for each conversation, behind an idle lane, within a budget.

use std::time::Duration;

use belay_agent::{SessionsConfig, TitlesConfig};
use belay_protocol::{Control, FreezeRequest, FreezeScope, ModelErrorKind, Price, Purpose, StopTarget};
use belay_run::LimitsConfig;
use belay_testkit::assert_golden;
use belay_testkit::golden::render;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};

use crate::support::{Running, Setup};

/// Longer than a lane stays without work, with the intervals of the checks.
const IDLE: Duration = Duration::from_secs(100);

fn priced(script: Vec<Scripted>) -> ScriptedModel {
    let price = Price { input: 1_000_000, cached_input: None, output: 1_000_000 };
    ScriptedModel::new(script).with_info(|info| info.price = Some(price))
}

/// An agent with a dollar a day.
fn setup(script: Vec<Scripted>) -> Setup {
    Setup { limits: LimitsConfig { usd_per_day: Some(1.0), ..LimitsConfig::default() }, ..Setup::new(priced(script)) }
}

/// The titles in the list of the conversations, newest first.
async fn titles(setup: &Setup, session: &str) -> Vec<String> {
    let found = setup.store.conversations.conversations(&session.into(), None, 10).await.expect("readable");
    found.into_iter().map(|conversation| conversation.title.unwrap_or_default()).collect()
}

async fn talked(setup: &Setup) -> Running {
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "Where is my parcel?").await, "It is in Bonn.");
    agent
}

fn parcel() -> Scripted {
    Scripted::text("It is in Bonn.").with_usage(10, 10)
}

#[tokio::test(start_paused = true)]
async fn an_idle_conversation_gets_a_title_once_and_its_purpose_pays() {
    let script = vec![parcel(), Scripted::text("\"The **lost** parcel.\"\n").with_usage(100, 20), parcel(), parcel()];
    let setup = setup(script);
    let mut agent = talked(&setup).await;
    assert_eq!(titles(&setup, "alice").await, ["Where is my parcel?"]);
    tokio::time::sleep(IDLE).await;
    assert_eq!(titles(&setup, "alice").await, ["The lost parcel"]);
    let session = setup.store.sessions.session(&"alice".into()).await.expect("readable").expect("a session");
    assert_eq!(session.title.as_deref(), Some("The lost parcel"));
    let day = setup.store.spend.spent(1_795_000_000_000 / 86_400_000).await.expect("readable");
    assert_eq!((day.of(Purpose::Title), day.of(Purpose::Chat)), (120, 20));
    assert!(agent.one.command("alice", "/sessions").await.contains("`The lost parcel`"));

    let seen = agent.model.seen();
    let mut request = render(&seen[1..2], &seen[1].messages, "a title");
    let id = request.split("id=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a marker").to_owned();
    request = request.replace(&id, "ID");
    assert_golden!("title", request);

    agent.one.ask("alice", "And now?").await;
    tokio::time::sleep(IDLE).await;
    assert_eq!(agent.model.seen().len(), 3, "no second title");
    assert_eq!(titles(&setup, "alice").await, ["The lost parcel"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_earlier_conversation_gets_its_title_with_the_next_one() {
    let script = vec![parcel(), parcel(), Scripted::text("Second"), Scripted::text("First")];
    let setup = setup(script);
    let mut agent = talked(&setup).await;
    agent.one.command("alice", "/new").await;
    agent.one.ask("alice", "Where is it now?").await;
    tokio::time::sleep(IDLE).await;
    assert_eq!(titles(&setup, "alice").await, ["Second", "First"]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_titled_without_a_budget_by_the_rehearsal_or_where_it_is_off() {
    let without_budget = Setup { limits: LimitsConfig::default(), ..setup(vec![parcel()]) };
    let used_up = Setup {
        limits: LimitsConfig { usd_per_day_for: [(Purpose::Title, 0.0)].into(), ..LimitsConfig::default() },
        ..setup(vec![parcel()])
    };
    let rehearsal = Setup {
        model: ScriptedModel::new([parcel()]).with_info(|info| info.rehearsal = true).into(),
        ..setup(Vec::new())
    };
    let titles_off = TitlesConfig { after_s: 0, ..TitlesConfig::default() };
    let off =
        Setup { sessions: SessionsConfig { titles: titles_off, ..SessionsConfig::default() }, ..setup(vec![parcel()]) };
    for (name, setup) in [("no budget", without_budget), ("used up", used_up), ("rehearsal", rehearsal), ("off", off)] {
        let agent = talked(&setup).await;
        tokio::time::sleep(IDLE).await;
        assert_eq!(agent.model.seen().len(), 1, "{name}");
        assert_eq!(titles(&setup, "alice").await, ["Where is my parcel?"], "{name}");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_writes_no_title_is_asked_twice() {
    let script =
        vec![parcel(), Scripted::error(ModelErrorKind::BadRequest), parcel(), Scripted::text("\"\""), parcel()];
    let setup = setup(script);
    let mut agent = talked(&setup).await;
    for asked in [2, 4] {
        tokio::time::sleep(IDLE).await;
        assert_eq!(agent.model.seen().len(), asked);
        agent.one.ask("alice", "Where is my parcel?").await;
    }
    tokio::time::sleep(IDLE).await;
    assert_eq!(agent.model.seen().len(), 5, "it is not asked a third time");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_a_freeze_and_the_drain_end_the_call_without_trace() {
    for how in ["stop", "freeze", "drain"] {
        let setup = setup(vec![parcel(), Scripted::hang(), parcel(), Scripted::text("The lost parcel")]);
        let agent = talked(&setup).await;
        agent.asked(2).await;
        let agent = match how {
            "stop" => {
                agent.one.control(Control::Stop(StopTarget::All)).await;
                agent
            }
            "freeze" => {
                let everything = FreezeRequest::Freeze { scope: FreezeScope::All, detail: None };
                agent.one.control(Control::Freeze(everything)).await;
                agent.dropped(1).await;
                agent.one.control(Control::Freeze(FreezeRequest::Thaw(FreezeScope::All))).await;
                agent
            }
            _ => {
                agent.shut_down().await;
                assert_eq!(setup.model.dropped_count(), 1, "the drain waits for no title");
                let next = setup.next_boot(priced(vec![parcel(), Scripted::text("The lost parcel")]));
                next.start().await
            }
        };
        let mut agent = agent;
        if how != "drain" {
            tokio::time::sleep(Duration::from_secs(1)).await; // much less than the time limit of a title
            assert_eq!(setup.model.dropped_count(), 1, "{how}");
        }
        assert_eq!(titles(&setup, "alice").await, ["Where is my parcel?"], "{how}");
        agent.one.ask("alice", "Where is my parcel?").await;
        tokio::time::sleep(IDLE).await;
        assert_eq!(titles(&setup, "alice").await, ["The lost parcel"], "{how}: it does not count as a failure");
        agent.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_refused_at_the_start() {
    let titles = TitlesConfig { model: Some("none".into()), ..TitlesConfig::default() };
    let setup = Setup { sessions: SessionsConfig { titles, ..SessionsConfig::default() }, ..setup(Vec::new()) };
    assert!(setup.refused().await.starts_with("llm.small_model: There is no model none."));
}
