//! What a message costs: accepted with its start, and finished, as for one HTTP request.
//!
//! `cargo run --release -p belay-store --example commit_cost [messages] [postgres://...]`: over SQLite, and also over this
//! PostgreSQL database.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_protocol::run::RunUsage;
use belay_protocol::{
    Asker, BootId, FinishedRun, IdempotencyKey, LaneClaim, LaneStore, Lease, Message, NewInput, RunEnd, RunId,
    RunStore, SessionKey, SessionLifetime, StopReason, StoreError, ThreadState, UnixMillis, Work,
};
use belay_store::{PostgresLimits, SqlStore, StoreOptions, StoreStats, StoreUrl, parse_url};
use tokio::task::JoinSet;

const TEXT: &str = "What is the weather in Tokyo, and should I take an umbrella with me when I go there tomorrow?";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages: u32 = std::env::args().nth(1).map(|text| text.parse()).transpose()?.unwrap_or(2_000);
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("belay.db");
    let store = tokio::task::spawn_blocking(move || SqlStore::open(&file, StoreOptions::default())).await??;
    measure("SQLite", store, messages).await?;
    if let Some(address) = std::env::args().nth(2) {
        let StoreUrl::Postgres(url) = parse_url(&address)? else { return Err("not an address of PostgreSQL".into()) };
        let limits = PostgresLimits { connections: 1, statement: LIMIT, lock: LIMIT };
        let connect = move || SqlStore::connect(&url, limits, StoreOptions::default());
        measure("PostgreSQL", tokio::task::spawn_blocking(connect).await??, messages).await?;
    }
    Ok(())
}

/// The longest time of a statement and of a wait for a lock.
const LIMIT: Duration = Duration::from_secs(30);

async fn measure(name: &str, store: SqlStore, messages: u32) -> Result<(), Box<dyn std::error::Error>> {
    println!("{name}, {messages} messages each:");
    for tasks in [1, 64] {
        let before = store.stats();
        let began = Instant::now();
        let mut working = JoinSet::new();
        for task in 0..tasks {
            working.spawn(converse(store.clone(), format!("{name}-{tasks}-{task}"), messages / tasks));
        }
        while let Some(outcome) = working.join_next().await {
            outcome??;
        }
        report(tasks, messages / tasks * tasks, began.elapsed(), before, store.stats());
    }
    store.close().await;
    Ok(())
}

async fn converse(store: SqlStore, session: String, messages: u32) -> Result<(), StoreError> {
    let lane = store
        .open_lane(&SessionKey::new(&session), SessionLifetime::Lasting, LaneClaim::free(BootId::new()), UnixMillis(0))
        .await?;
    let lane = lane.opened().ok_or_else(|| StoreError::LeaseLost(SessionKey::new(&session)))?;
    for n in 0..messages {
        message(&store, &lane.lease, n).await?;
    }
    Ok(())
}

async fn message(store: &SqlStore, lease: &Lease, n: u32) -> Result<(), StoreError> {
    let run = RunId::new();
    let account: Arc<str> = lease.session.as_str().into();
    let input = NewInput {
        run_id: run,
        key: Some(IdempotencyKey { channel: "http".into(), account, message_id: format!("{run}-{n}").into() }),
        channel: "http".into(),
        work: Work::Chat,
        asker: Asker { principal: "client".into(), ..Asker::default() },
        digest: None,
        text: TEXT.into(),
        provenance: None,
        reply_to: None,
        options: belay_protocol::RunOptions::default(),
        events: Vec::new(),
        history: Vec::new(),
        state: None,
        at: UnixMillis(i64::from(n)),
        replaces_turn: false,
        start: true,
        place: None,
        spoken: true,
    };
    store.accept(lease, input).await?;
    let finished = FinishedRun {
        run,
        messages: vec![Arc::new(Message::assistant(TEXT))],
        end: RunEnd::of(StopReason::FinalText),
        reply: Some(TEXT.into()),
        usage: RunUsage { input: 100, output: 20, model_calls: 1, tool_calls: 0, estimated_calls: 1 },
        cost_micro_usd: 10,
        model: None,
        at: UnixMillis(i64::from(n)),
        said: Vec::new(),
        outbound: None,
        callback: None,
        events: Vec::new(),
        thread_state: Some(ThreadState::Idle),
    };
    store.finish_runs(lease, vec![finished]).await
}

fn report(tasks: u32, messages: u32, took: Duration, before: StoreStats, after: StoreStats) {
    let each = f64::from(messages);
    println!(
        "{tasks:3} at once: {:7.1} us a message, {:.2} commits, {:.1} statements (begin and commit not counted), {:.1} round trips",
        took.as_secs_f64() * 1e6 / each,
        (after.commits - before.commits) as f64 / each,
        (after.statements - before.statements) as f64 / each,
        (after.round_trips - before.round_trips) as f64 / each,
    );
}
