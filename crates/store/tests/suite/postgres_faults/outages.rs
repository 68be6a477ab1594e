//! A server that is away, killed or silent.

use std::sync::Arc;

use belay_protocol::{Acceptance, EventLog, EventQuery, LaneStore, NewInput, RunReader, RunStore, StoreHealth};
use belay_testkit::postgres::{Durability, PostgresOptions, Shutdown};
use tokio::task::JoinSet;

use super::*;
use crate::kit::*;

fn own_server() -> Option<PostgresServer> {
    let options = PostgresOptions { durability: Durability::NoFsync, ..PostgresOptions::default() };
    Some(PostgresServer::start(&Programs::for_test().unwrap()?, &options).unwrap())
}

/// Messages with keys, each accepted and ended, repeated after errors as a platform does.
async fn load(store: Arc<SqlStore>, session: String, messages: u32, progress: tokio::sync::mpsc::Sender<()>) {
    let lease = loop {
        match store
            .open_lane(
                &session.as_str().into(),
                belay_protocol::SessionLifetime::Lasting,
                belay_protocol::LaneClaim::free(belay_protocol::BootId::new()),
                at(500),
            )
            .await
        {
            Ok(opened) => break opened.opened().expect("no other node owns it").lease,
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
    };
    for n in 0..messages {
        let run = loop {
            let message = NewInput { key: Some(key(&format!("{session} {n}"))), ..input("hi") };
            let run = message.run_id;
            match store.accept(&lease, message).await {
                Ok(Acceptance::New) => break run,
                Ok(Acceptance::Known(known)) => break known.run_id,
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
            }
        };
        loop {
            match store.finish_runs(&lease, vec![finished(run, "re")]).await {
                Ok(_) => break,
                Err(StoreError::Unavailable(_)) => {
                    // The end may have been committed.
                    if let Ok(Some(record)) = store.run(run).await
                        && record.status == belay_protocol::RunStatus::Completed
                    {
                        break;
                    }
                }
                // The end was committed, and its answer was an error.
                Err(StoreError::NotFound(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let _ = progress.try_send(()); // the reader may have enough
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_loses_nothing_that_was_answered() {
    let Some(mut server) = own_server() else { return };
    server.create_database("d").unwrap();
    let store = Arc::new(connect(&address(&server, "d", server.port()), LONG).await.unwrap());
    let (progress, mut made) = tokio::sync::mpsc::channel(1_000);
    let mut tasks = JoinSet::new();
    for n in 0..4 {
        tasks.spawn(load(store.clone(), format!("s{n}"), 60, progress.clone()));
    }
    for _ in 0..3 {
        for _ in 0..20 {
            made.recv().await.unwrap();
        }
        server.kill().unwrap();
        server.restart().unwrap();
    }
    tasks.join_all().await;
    let counts = "select count(*), count(distinct id), count(*) filter (where status = 'completed') from belay.runs;
                  select count(*) from belay.messages where role = 'assistant';
                  select count(*) from (select 1 from belay.events group by run_id, kind having count(*) > 1) as doubled";
    assert_eq!(server.sql("d", counts).unwrap(), "240|240|240\n240\n0");
    let numbers: Vec<u64> = {
        let all = EventQuery { limit: 10_000, ..EventQuery::default() };
        store.read(all).await.unwrap().iter().map(|event| event.seq.0).collect()
    };
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(Some(store.tip().borrow().0), numbers.last().copied());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_costs_errors_at_once_and_comes_back_by_itself() {
    let Some(mut server) = own_server() else { return };
    server.create_database("d").unwrap();
    let store = connect(&address(&server, "d", server.port()), LONG).await.unwrap();
    let lease = open(&store, "s").await.lease;
    server.stop(Shutdown::Fast).unwrap();
    let mut jobs = JoinSet::new();
    for n in 0..500 {
        let (store, lease) = (store.clone(), lease.clone());
        jobs.spawn(async move {
            let written = store.accept(&lease, queued(&n.to_string())).await;
            (is_unavailable(&written), is_unavailable(&store.run(belay_protocol::RunId::new()).await))
        });
    }
    assert!(jobs.join_all().await.into_iter().all(|(write, read)| write && read));
    // The first failures may be those of a server that is shutting down.
    loop {
        let words = store.ping().await.unwrap_err().to_string();
        assert!(!words.contains(&*password(&server)), "{words}");
        if words.contains("check that it runs") {
            break;
        }
    }
    server.restart().unwrap();
    while is_unavailable(&store.ping().await) {}
    accept(&store, &lease, queued("after")).await;
    assert_eq!(server.sql("d", "select count(*) from belay.runs").unwrap(), "1");
    while store.run(belay_protocol::RunId::new()).await.is_err() {}
    store.close().await;
}

fn password(server: &PostgresServer) -> String {
    let url = server.url("d");
    url.split(['@', ':']).nth(2).unwrap().to_owned()
}

/// Each new connection waits for its timeout. The jobs that wait meanwhile share one attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_jobs_do_not_wait_for_a_connection_each_and_closing_ends_while_the_server_is_silent() {
    let Some(Proxied { store, proxy, database: _database }) = proxied(SHORT).await else { return };
    let lease = open(&store, "s").await.lease;
    proxy.hold();
    let before = proxy.accepted();
    let mut jobs = JoinSet::new();
    for n in 0..500 {
        let (store, lease) = (store.clone(), lease.clone());
        jobs.spawn(async move {
            let written = store.accept(&lease, queued(&n.to_string())).await;
            (is_unavailable(&written), is_unavailable(&store.run(belay_protocol::RunId::new()).await))
        });
    }
    assert!(jobs.join_all().await.into_iter().all(|(write, read)| write && read));
    let attempts = proxy.accepted() - before;
    assert!(attempts < 50, "{attempts} attempts to connect");
    proxy.release();
    while is_unavailable(&store.ping().await) {}
    // A commit under way, and a read: closing waits for their limits, and no longer.
    proxy.arm(at_commit(Direction::ToServer, Action::Hold));
    let (writing, reading) = (store.clone(), store.clone());
    let mut last = JoinSet::new();
    last.spawn(async move { is_unavailable(&writing.accept(&lease, queued("last")).await) });
    proxy.until_happened(1).await;
    last.spawn(async move { is_unavailable(&reading.run(belay_protocol::RunId::new()).await) });
    store.close().await;
    assert!(last.join_all().await.into_iter().all(|failed| failed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_between_two_calls_are_not_noticed() {
    let Some(Proxied { store, proxy, database }) = proxied(LONG).await else { return };
    let lease = open(&store, "s").await.lease;
    let run = accept(&store, &lease, input("hi")).await;
    for n in 0..6 {
        if n % 2 == 0 {
            proxy.cut_all();
        } else {
            let ended = database.sql(
                "select count(pg_terminate_backend(pid, 60000)) from pg_stat_activity
                 where datname = current_database() and application_name like 'belay %'",
            );
            assert_eq!(ended.unwrap(), "2");
        }
        assert_eq!(store.run(run).await.unwrap().map(|run| run.run_id), Some(run), "{n}");
        store.ping().await.unwrap();
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_only_costs_time() {
    let Some(Proxied { store, proxy, database: _database }) = proxied(LONG).await else { return };
    proxy.delay(Duration::from_millis(20));
    let lease = open(&store, "s").await.lease;
    turn(&store, &lease, "hi").await;
    store.close().await;
}
