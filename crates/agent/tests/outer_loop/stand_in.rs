//! Models that stand in for others, and how hard they think: what the agent makes of it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    CallCharge, EventKind, EventQuery, ModelErrorKind, NewReservation, Price, SessionKey, SpendLedger, Spent,
    StopReason, StoreError, Thinking,
};
use belay_run::AgentConfig;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, end_of};

/// A dollar for a million tokens, times so much.
fn price(times: u64) -> Price {
    Price { input: times * 1_000_000, cached_input: None, output: times * 1_000_000 }
}

fn echo() -> Scripted {
    Scripted::call("echo", json!({"text": "x"})).with_usage(100, 0)
}

/// A ledger that remembers the requested model of each reservation, and the model and the cost of each settlement.
struct Books {
    ledger: Arc<dyn SpendLedger>,
    entries: Mutex<Vec<String>>,
}

#[async_trait]
impl SpendLedger for Books {
    async fn spent(&self, utc_day: i64) -> Result<Spent, StoreError> {
        self.ledger.spent(utc_day).await
    }

    async fn session_spent(&self, session: &SessionKey) -> Result<u64, StoreError> {
        self.ledger.session_spent(session).await
    }

    async fn reserve(&self, reservation: NewReservation) -> Result<u64, StoreError> {
        self.entries.lock().expect("no panic").push(format!("reserve {}", reservation.model));
        self.ledger.reserve(reservation).await
    }

    async fn settle(&self, reservation: u64, charge: CallCharge) -> Result<(), StoreError> {
        let model = charge.model.as_deref().unwrap_or("-");
        self.entries.lock().expect("no panic").push(format!("settle {model} {}", charge.micro_usd));
        self.ledger.settle(reservation, charge).await
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_that_answered_is_charged() {
    let model = ScriptedModel::new([echo(), Scripted::text("done").with_usage(100, 0).standing_in("other", price(3))]);
    let mut setup = Setup::new(model.with_info(|info| info.price = Some(price(1))));
    let books = Arc::new(Books { ledger: setup.store.spend.clone(), entries: Mutex::default() });
    setup.store.spend = books.clone();
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "done");
    agent.shut_down().await;
    let expected = ["reserve scripted", "settle - 100", "reserve scripted", "settle other 300"];
    assert_eq!(*books.entries.lock().expect("no panic"), expected);
}

#[tokio::test(start_paused = true)]
async fn whoever_stands_in_is_an_event_once_and_is_paid_its_own_price() {
    let model = ScriptedModel::new([
        echo(),
        echo().standing_in("other", price(3)),
        echo().standing_in("other", price(3)),
        echo(),
        Scripted::text("done").with_usage(100, 0).standing_in("other", price(3)),
    ]);
    let setup = Setup::new(model.with_info(|info| info.price = Some(price(1))));
    let mut agent = setup.start().await;
    let record = end_of(agent.one.accepted("alice", "go").await).await;
    assert_eq!((record.reply.as_deref(), record.cost_micro_usd), (Some("done"), 100 + 300 + 300 + 100 + 300));
    assert_eq!(agent.one.next().await, "done");
    let query = EventQuery { run: Some(record.run_id), ..EventQuery::default() };
    let events = setup.store.events.read(query).await.expect("readable");
    let fallbacks = events.iter().filter(|event| matches!(event.kind, EventKind::ModelFallback { .. }));
    let expected =
        EventKind::ModelFallback { from: "scripted".into(), to: "other".into(), reason: "rate_limited".into() };
    assert!(events.iter().any(|event| event.kind == expected), "{events:?}");
    assert_eq!(fallbacks.count(), 2, "one for each time that it begins to stand in");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_configured_level_of_thinking_is_asked_of_every_step() {
    let setup = Setup {
        config: AgentConfig { thinking: Some(Thinking::High), ..AgentConfig::default() },
        ..Setup::new(ScriptedModel::new([echo(), Scripted::text("done")]))
    };
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "go").await, "done");
    let levels: Vec<_> = agent.model.seen().iter().map(|request| request.thinking).collect();
    assert_eq!(levels, [Some(Thinking::High); 2]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_says_when_to_try_again_where_that_is_known() {
    let after = |seconds| Some(std::time::Duration::from_secs(seconds));
    for (kind, reason, told) in [
        (ModelErrorKind::RateLimited { retry_after: after(40) }, StopReason::RateLimited, Some(json!(40))),
        (ModelErrorKind::Overloaded { retry_after: after(0) }, StopReason::Overloaded, Some(json!(1))),
        (ModelErrorKind::RateLimited { retry_after: None }, StopReason::RateLimited, None),
    ] {
        let setup = Setup::new(ScriptedModel::new([Scripted::error(kind)]));
        let mut agent = setup.start().await;
        let record = end_of(agent.one.accepted("alice", "hello").await).await;
        assert_eq!((record.reason, record.evidence.get("retry_after_s").cloned()), (Some(reason), told));
        agent.one.next().await;
        agent.shut_down().await;
    }
}
