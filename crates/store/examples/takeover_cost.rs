//! What nodes of a cluster cost the database: the takeover of the lanes of a node that has ended, and writers that share the database.
//!
//! `cargo run --locked -p belay-store --example takeover_cost postgres://... lanes N`: a node with N lanes ends, each lane with
//! a run that has not ended, and another node claims all of them, 64 at once.
//! `... writers N`: N nodes write messages for 2000 lanes of their own, 64 at once each.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use belay_protocol::store::ClusterStore;
use belay_protocol::{
    Asker, BootId, DispatcherStore, FinishedRun, LaneClaim, LaneStore, Lease, Message, NewInput, RunEnd, RunId,
    RunStore, SessionKey, SessionLifetime, StopReason, StoreError, ThreadState, UnixMillis, Work,
};
use belay_store::{
    ClusterOptions, PostgresLimits, PostgresUrl, SqlStore, StoreOptions, StoreStats, StoreUrl, parse_url,
};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};

const TEXT: &str = "What is the weather in Tokyo, and should I take an umbrella with me when I go there tomorrow?";
/// The longest time of a statement and of a wait for a lock.
const LIMIT: Duration = Duration::from_secs(120);
/// The number of lanes that a node works on at once.
const AT_ONCE: usize = 64;
/// The messages of each writer.
const MESSAGES: u32 = 2_000;
/// A lease that outlives the measurement, in milliseconds.
const LEASE_MS: u32 = 3_600_000;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, what, number] = &arguments[..] else { return Err("use: ADDRESS lanes|writers N".into()) };
    let StoreUrl::Postgres(url) = parse_url(address)? else { return Err("not an address of PostgreSQL".into()) };
    match &**what {
        "lanes" => take_over(&url, number.parse()?).await,
        "writers" => write(&url, number.parse()?).await,
        _ => Err("the second argument is lanes or writers".into()),
    }
}

/// A node of the cluster without the threads of its lease, which would count too.
async fn node(url: &PostgresUrl, name: &str, lease_ms: u32) -> Outcome<(SqlStore, BootId)> {
    let (url, boot) = (url.clone(), BootId::new());
    let limits = PostgresLimits { connections: 1, statement: LIMIT, lock: LIMIT };
    let connect = move || SqlStore::connect_cluster(&url, limits, StoreOptions::default(), ClusterOptions { boot });
    let store = tokio::task::spawn_blocking(connect).await??;
    store.put_node(boot, &format!("{name} {boot}"), lease_ms).await?;
    Ok((store, boot))
}

async fn take_over(url: &PostgresUrl, lanes: u32) -> Outcome {
    let (dead, owner) = node(url, "dead", 0).await?;
    let sessions: Vec<SessionKey> = (0..lanes).map(|n| SessionKey::new(format!("{owner}-{n}"))).collect();
    let opened = claim_all(&dead, owner, &sessions).await?;
    stream::iter(opened.iter().map(|lease| dead.accept(lease, input(RunId::new(), 0))))
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await?;
    let (heir, boot) = node(url, "heir", LEASE_MS).await?;
    let (before, began) = (heir.stats(), Instant::now());
    let ended = heir.end_expired().await?;
    let noticed = began.elapsed();
    let found = heir.unfinished_runs().await?.len();
    let read = began.elapsed();
    let claimed = claim_all(&heir, boot, &sessions).await?.len();
    let took = began.elapsed();
    println!("takeover of {claimed} lanes, each with an unfinished run:");
    println!("  {:9.1} ms until {} node has ended", ms(noticed), ended.len());
    println!("  {:9.1} ms to read {found} unfinished runs", ms(read.saturating_sub(noticed)));
    println!("  {:9.1} ms to claim all", ms(took.saturating_sub(read)));
    println!(
        "  {:9.1} round trips for each lane",
        (heir.stats().round_trips - before.round_trips) as f64 / claimed as f64
    );
    let began = Instant::now();
    heir.release(boot).await?;
    println!("  {:9.1} ms to release all, as a drain does", ms(began.elapsed()));
    dead.close().await;
    heir.close().await;
    Ok(())
}

async fn claim_all(store: &SqlStore, owner: BootId, sessions: &[SessionKey]) -> Outcome<Vec<Lease>> {
    let claim = |session: &SessionKey| {
        let (store, session) = (store.clone(), session.clone());
        async move {
            let claim = LaneClaim::free(owner);
            let lane = store.open_lane(&session, SessionLifetime::Lasting, claim, UnixMillis(0)).await?;
            lane.opened().map(|lane| lane.lease).ok_or(StoreError::LeaseLost(session))
        }
    };
    let claims: Vec<_> = sessions.iter().map(claim).collect();
    Ok(stream::iter(claims).buffer_unordered(AT_ONCE).try_collect().await?)
}

async fn write(url: &PostgresUrl, writers: usize) -> Outcome {
    let mut nodes = Vec::with_capacity(writers);
    for n in 0..writers {
        let (store, boot) = node(url, &format!("writer {n}"), LEASE_MS).await?;
        let sessions: Vec<SessionKey> = (0..AT_ONCE).map(|at| SessionKey::new(format!("{boot}-{at}"))).collect();
        let lanes = claim_all(&store, boot, &sessions).await?;
        nodes.push((store, boot, lanes));
    }
    let before: Vec<StoreStats> = nodes.iter().map(|(store, ..)| store.stats()).collect();
    let began = Instant::now();
    let talks = nodes.iter().flat_map(|(store, _, lanes)| lanes.iter().map(|lane| converse(store, lane)));
    try_join_all(talks).await?;
    let took = began.elapsed();
    let commits: u64 =
        nodes.iter().zip(&before).map(|((store, ..), before)| store.stats().commits - before.commits).sum();
    let messages = f64::from(MESSAGES / AT_ONCE as u32 * AT_ONCE as u32) * writers as f64;
    let seconds = took.as_secs_f64();
    println!(
        "{writers} writers: {:.0} messages/s, {:.0} commits/s of all, {:.1} messages for each commit",
        messages / seconds,
        commits as f64 / seconds,
        messages / commits as f64
    );
    for (store, boot, _) in nodes {
        store.release(boot).await?;
        store.close().await;
    }
    Ok(())
}

async fn converse(store: &SqlStore, lease: &Lease) -> Result<(), StoreError> {
    for n in 0..MESSAGES / AT_ONCE as u32 {
        let run = RunId::new();
        store.accept(lease, input(run, n)).await?;
        let finished = FinishedRun {
            run,
            messages: vec![Arc::new(Message::assistant(TEXT))],
            end: RunEnd::of(StopReason::FinalText),
            reply: Some(TEXT.into()),
            usage: belay_protocol::run::RunUsage::default(),
            cost_micro_usd: 10,
            model: None,
            at: UnixMillis(i64::from(n)),
            said: Vec::new(),
            outbound: None,
            callback: None,
            events: Vec::new(),
            thread_state: Some(ThreadState::Idle),
        };
        store.finish_runs(lease, vec![finished]).await?;
    }
    Ok(())
}

fn input(run_id: RunId, n: u32) -> NewInput {
    NewInput {
        run_id,
        key: None,
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
        place: None,
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
