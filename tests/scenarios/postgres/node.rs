//! The start of a node of a cluster: what it waits for, and what ends it.

use anyhow::{Result, ensure};
use belay_testkit::postgres::{PostgresOptions, PostgresServer, Programs, TestDatabase};
use belay_testkit::proxy::TcpProxy;
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use rustix::process::Signal;
use tokio::time::{Duration, Instant, sleep};

/// How often a row is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// An empty database on the shared server. `None`: there is no PostgreSQL here.
fn database() -> Result<Option<TestDatabase<'static>>> {
    let Some(programs) = Programs::for_test()? else { return Ok(None) };
    Ok(Some(TestDatabase::new(PostgresServer::shared(&programs)?)?))
}

/// A home of the node `a`.
fn node(url: &str) -> Home {
    Home::new().store(&format!("{url}?sslmode=disable")).set("cluster.enabled", true).set("cluster.name", "a")
}

/// The living nodes, and those that a drain has ended.
fn nodes(database: &TestDatabase<'_>) -> Result<(String, String)> {
    let count = |which: &str| database.sql(&format!("SELECT COUNT(*) FROM belay.nodes WHERE {which}"));
    Ok((count("ended_at IS NULL")?, count("ended_by = 'drain'")?))
}

/// Waits until a query has this result.
async fn until(database: &TestDatabase<'_>, sql: &str, wanted: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = database.sql(sql)?;
        if found == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{sql} is {found}, not {wanted}");
        sleep(LOOK).await;
    }
}

const OF_ANOTHER: &str = "INSERT INTO belay.nodes
    (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
    SELECT decode(repeat('ab', 16), 'hex'), 'NAME', version, schema_min, schema_max, settings, started_at, 9000000000000
    FROM belay.nodes LIMIT 1";

/// Makes the tables, and has another node live.
async fn beside(database: &TestDatabase<'_>, home: &Home, name: &str) -> Result<()> {
    home.start().await?.shut_down().await?;
    database.sql(&OF_ANOTHER.replace("NAME", name))?;
    Ok(())
}

/// The session of the test that holds a lock.
const HOLDER: &str = "pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND datname = current_database()";

/// Ends a start by SIGTERM, and checks that it ends as a stop does.
async fn stopped(daemon: Daemon) -> Result<String> {
    daemon.signal(Signal::TERM)?;
    let ended = daemon.ended().await?;
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped before it was ready"), "{}", ended.stderr);
    Ok(ended.stderr)
}

#[tokio::test]
async fn a_start_that_waits_for_its_former_lease_ends_with_the_first_signal() -> Result<()> {
    let Some(database) = database()? else { return Ok(()) };
    let home = node(&database.url());
    beside(&database, &home, "a").await?;
    let mut daemon = home.begin()?;
    daemon.logged("waiting for the end of its lease").await?;
    stopped(daemon).await?;
    assert_eq!(nodes(&database)?, ("1".into(), "1".into()), "the other one, and the first start");
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_stopped_while_it_looks_for_the_workspace_is_released() -> Result<()> {
    let Some(database) = database()? else { return Ok(()) };
    let home = node(&database.url());
    beside(&database, &home, "other").await?;
    let elsewhere = home.path().join("elsewhere").display().to_string();
    let home = home.set("tools.workspace", elsewhere);
    let mut daemon = home.begin()?;
    daemon.logged("registered as a node").await?;
    let log = stopped(daemon).await?;
    assert!(log.contains("the work of this node is released"), "{log}");
    assert_eq!(nodes(&database)?, ("1".into(), "2".into()), "the other one; the first start and this one");
    Ok(())
}

#[tokio::test]
async fn a_start_without_an_answer_of_the_database_ends_with_the_first_signal() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let mut server = PostgresServer::start(&programs, &PostgresOptions::default())?;
    server.create_database("belay")?;
    let proxy = TcpProxy::start(server.port())?;
    let url = server.url("belay");
    let behind = url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
    ensure!(behind != url, "the proxy is in {url}");
    for url in [&behind, &url] {
        let alone = Home::new().store(&format!("{url}?sslmode=disable"));
        for home in [alone, node(url)] {
            if *url == behind {
                proxy.hold(); // the network drops everything
                let before = proxy.accepted();
                let daemon = home.begin()?;
                while proxy.accepted() == before {
                    sleep(LOOK).await;
                }
                stopped(daemon).await?;
            } else {
                server.kill()?;
                let mut daemon = home.begin()?;
                daemon.logged("the start waits for the database").await?;
                stopped(daemon).await?;
                server.restart()?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_node_starts_when_its_database_is_back() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let mut server = PostgresServer::start(&programs, &PostgresOptions::default())?;
    server.create_database("belay")?;
    let home = node(&server.url("belay"));
    server.kill()?;
    let mut daemon = home.begin()?;
    let line = daemon.logged("the start waits for the database").await?;
    assert!(line.contains("check that it runs"), "{line}");
    server.restart()?;
    daemon.ready().await?;
    assert_eq!(daemon.ask("alice", "calculate 2*3").await?["status"], "completed");
    assert!(daemon.shut_down().await?.stderr.contains("the database answers; the start continues"));
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_ended_while_it_looks_for_the_workspace_has_lost_its_lease() -> Result<()> {
    let Some(database) = database()? else { return Ok(()) };
    let home = node(&database.url());
    beside(&database, &home, "other").await?;
    let elsewhere = home.path().join("elsewhere").display().to_string();
    let home = home.set("tools.workspace", elsewhere);
    let mut daemon = home.begin()?;
    daemon.logged("registered as a node").await?;
    database.sql("UPDATE belay.nodes SET ended_at = 1, ended_by = 'lease' WHERE ended_at IS NULL AND name = 'a'")?;
    let ended = daemon.ended().await?;
    assert_eq!(ended.status.code(), Some(75), "{}", ended.stderr);
    assert!(ended.stderr.contains("this node has lost its lease"), "{}", ended.stderr);
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_ended_or_stopped_while_it_reads_its_work_begins_none_of_it() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let database = TestDatabase::new(PostgresServer::shared(&programs)?)?;
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("after all")).await;
    let home = node(&database.url()).openai(&model.base_url).set("store.statement_timeout_s", 90);
    let daemon = home.start().await?;
    let run = daemon.send("alice", "hello").await?;
    model.seen(1).await;
    daemon.kill().await?;
    for lost in [true, false] {
        database.sql("UPDATE belay.nodes SET ended_at = 1, ended_by = 'lease' WHERE ended_at IS NULL")?;
        // The start reads this table after the registration.
        let lock = "BEGIN; LOCK TABLE belay.freezes IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)";
        let (server, name) = (PostgresServer::shared(&programs)?, database.name().to_owned());
        let holder = std::thread::spawn(move || server.sql(&name, lock));
        until(&database, &format!("SELECT COUNT(*) FROM {HOLDER}"), "1").await?;
        let mut daemon = home.begin()?;
        daemon.logged("registered as a node").await?;
        let waits = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'belay.freezes'::regclass";
        until(&database, waits, "1").await?;
        let (code, words) = if lost {
            database.sql("UPDATE belay.nodes SET ended_at = 1, ended_by = 'lease' WHERE ended_at IS NULL")?;
            (75, "other nodes continue its work")
        } else {
            daemon.signal(Signal::TERM)?;
            (0, "stopped before it was ready")
        };
        let ended = daemon.ended().await?;
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
        assert_eq!(nodes(&database)?.0, "0", "{}", ended.stderr);
        assert_eq!(model.requests().len(), 1, "no model call begins");
        database.sql(&format!("SELECT pg_terminate_backend(pid) FROM {HOLDER}"))?;
        let _ended = holder.join();
    }
    let daemon = home.start().await?;
    assert_eq!(daemon.finished(&run).await?["reply"], "after all");
    daemon.shut_down().await?;
    Ok(())
}
