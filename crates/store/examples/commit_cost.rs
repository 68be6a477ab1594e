//! What a message costs: accepted with its start, and finished, as for one HTTP request.
//!
//! `cargo run --release -p belay-store --example commit_cost [messages]`

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_protocol::run::RunUsage;
use belay_protocol::{
    Asker, BootId, FinishedRun, IdempotencyKey, LaneStore, Lease, Message, NewInput, RunEnd, RunId, RunStore,
    SessionKey, SessionLifetime, StopReason, StoreError, ThreadState, UnixMillis, Work,
};
use belay_store::{SqliteStore, StoreOptions, StoreStats};
use tokio::task::JoinSet;

const TEXT: &str = "What is the weather in Tokyo, and should I take an umbrella with me when I go there tomorrow?";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages: u32 = std::env::args().nth(1).map(|text| text.parse()).transpose()?.unwrap_or(2_000);
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(&directory.path().join("belay.db"), StoreOptions::default())?;

    println!("{messages} messages each:");
    for tasks in [1, 64] {
        let before = store.stats();
        let began = Instant::now();
        let mut working = JoinSet::new();
        for task in 0..tasks {
            working.spawn(converse(store.clone(), format!("{tasks}-{task}"), messages / tasks));
        }
        while let Some(outcome) = working.join_next().await {
            outcome??;
        }
        report(tasks, messages / tasks * tasks, began.elapsed(), before, store.stats());
    }
    store.close().await;
    Ok(())
}

async fn converse(store: SqliteStore, session: String, messages: u32) -> Result<(), StoreError> {
    let lane =
        store.open_lane(&SessionKey::new(&session), SessionLifetime::Lasting, BootId::new(), UnixMillis(0)).await?;
    for n in 0..messages {
        message(&store, &lane.lease, n).await?;
    }
    Ok(())
}

async fn message(store: &SqliteStore, lease: &Lease, n: u32) -> Result<(), StoreError> {
    let run = RunId::new();
    let account: Arc<str> = lease.session.as_str().into();
    let input = NewInput {
        run_id: run,
        key: Some(IdempotencyKey { channel: "http".into(), account, message_id: n.to_string().into() }),
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
        "{tasks:3} at once: {:7.1} us a message, {:.2} commits, {:.1} statements (begin and commit not counted)",
        took.as_secs_f64() * 1e6 / each,
        (after.commits - before.commits) as f64 / each,
        (after.statements - before.statements) as f64 / each,
    );
}
