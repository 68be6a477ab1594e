//! Databases and settings that are wrong for a node: what is refused, with which exit code and words, and what goes on.

use anyhow::{Context, Result, ensure};
use belay_testkit::postgres::{DeafPooler, PoolMode};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use tokio::time::{Instant, sleep};

use super::nodes::{Cluster, LOOK, Node, ask, check, run};

#[tokio::test]
async fn a_second_cluster_on_the_same_database_by_mistake_is_refused_and_the_first_one_goes_on() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let (_home, first) = cluster.start("a").await?;
    ask(&first, "s", "one").await?;
    let other = tempfile::tempdir()?;
    let stranger = cluster.home(&Node { key: 2, ..cluster.node("b") })?;
    check(&run(&stranger).await?, 78, "the key for secrets is not the one of the other nodes");
    let elsewhere = cluster.home(&Node { workspace: Some(other.path()), ..cluster.node("c") })?;
    check(&run(&elsewhere).await?, 78, "is not the one of the other nodes (a)");
    check(&run(&Home::new().store(&cluster.url(cluster.server.port()))).await?, 75, "in use by another belay");

    let second = cluster.home(&cluster.node("b"))?;
    check(&second.run(&["check"], "").await?, 0, "other nodes use it");
    check(&second.run(&["upgrade", "check"], "").await?, 0, "this version can run beside them");
    let second = second.start().await?;
    ask(&second, "s", "two").await?;
    check(&second.shut_down().await?, 0, "registered as a node");
    ask(&first, "s", "three").await?;
    first.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_name_of_a_living_node_is_refused_after_the_time_of_a_lease() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let (_home, first) = cluster.start("a").await?;
    let refused = run(&cluster.home(&cluster.node("a"))?).await?;
    check(&refused, 75, "a node with the name a is a member of the cluster already");
    check(&refused, 75, "set cluster.name to another name");
    ask(&first, "s", "one").await?;
    check(&first.shut_down().await?, 0, "the work of this node is released");
    Ok(())
}

#[tokio::test]
async fn a_damaged_schema_and_one_from_the_future_are_refused_by_nodes_and_by_a_daemon_that_is_alone() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let node = cluster.home(&cluster.node("a"))?;
    let alone = Home::new().store(&cluster.url(cluster.server.port()));
    node.start().await?.shut_down().await?;
    for (damage, words, repair) in [
        (
            "update belay.belay_schema set version = 9, oldest_program = 7",
            "has schema 9, which needs a belay with schema 7 or newer, and this belay has schema 1",
            "update belay.belay_schema set version = 1, oldest_program = 1",
        ),
        ("alter table belay.outbox set unlogged", "SET LOGGED for each", "alter table belay.outbox set logged"),
        ("truncate belay.pings", "restore the database from its backup", "insert into belay.pings values (1, 0)"),
        ("truncate belay.belay_schema", "restore the database from its backup", ""),
    ] {
        cluster.database.sql(damage)?;
        for home in [&node, &alone] {
            check(&run(home).await?, 78, words);
            for command in [&["check"][..], &["upgrade", "check"]] {
                check(&home.run(command, "").await?, 78, words);
            }
        }
        cluster.database.sql(repair)?;
    }
    Ok(())
}

#[tokio::test]
async fn an_older_program_works_after_a_migration_that_only_adds() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let home = cluster.home(&cluster.node("a"))?;
    home.start().await?.shut_down().await?;
    cluster.database.sql("create table belay.extras (id bigint); update belay.belay_schema set version = 9")?;
    check(&home.run(&["upgrade", "check"], "").await?, 0, "schema 9 of a newer version");
    let daemon = home.start().await?;
    ask(&daemon, "s", "one").await?;
    check(&daemon.shut_down().await?, 0, "registered as a node");
    Ok(())
}

#[tokio::test]
async fn nodes_whose_rows_are_truncated_end_and_their_next_starts_continue_the_conversation() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let (first_home, first) = cluster.start("a").await?;
    let (second_home, second) = cluster.start("b").await?;
    ask(&first, "s", "one").await?;
    cluster.database.sql("truncate belay.nodes")?;
    for daemon in [first, second] {
        let ended = daemon.ended().await?;
        check(&ended, 75, "this node has lost its lease");
        assert!(ended.stderr.lines().count() < 500, "it writes the same line again and again: {ended:?}");
    }
    let (first, second) = (first_home.start().await?, second_home.start().await?);
    ask(&second, "s", "two").await?;
    ask(&first, "s", "three").await?;
    let (_, history) = first.request("GET", "/api/v1/sessions/s/messages?limit=100", None).await?;
    let asked = history["messages"].as_array().into_iter().flatten().filter(|message| message["role"] == "user");
    assert_eq!(asked.map(|message| &message["text"]).collect::<Vec<_>>(), ["one", "two", "three"], "{history}");
    for daemon in [first, second] {
        check(&daemon.shut_down().await?, 0, "registered as a node");
    }
    Ok(())
}

#[tokio::test]
async fn truncated_sessions_cost_the_conversations_and_nothing_else() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let (_first, first) = cluster.start("a").await?;
    let (_second, second) = cluster.start("b").await?;
    ask(&first, "s", "one").await?;
    cluster.database.sql("truncate belay.sessions")?;
    ask(&first, "s", "two").await?;
    ask(&second, "s", "three").await?;
    ask(&second, "t", "four").await?;
    for daemon in [first, second] {
        let ended = daemon.shut_down().await?;
        check(&ended, 0, "registered as a node");
        assert!(ended.stderr.lines().count() < 500, "it writes the same line again and again: {ended:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_pooler_that_drops_notifications_costs_time_and_one_that_shares_sessions_is_refused() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    if let Some(pooler) = cluster.server.pooler(PoolMode::Transaction)? {
        let home = cluster.home(&Node { port: pooler.port(), ..cluster.node("a") })?;
        check(&run(&home).await?, 69, "pool_mode = session");
    }
    let deaf = DeafPooler::start(cluster.server.port())?;
    let homes = ["a", "b"].map(|name| cluster.home(&Node { port: deaf.port(), ..cluster.node(name) }));
    let [first, second] = homes;
    let (first, second) = (first?, second?);
    let (mut first, mut second) = (first.start().await?, second.start().await?);
    for n in 0..3 {
        ask(&first, "s", &format!("first {n}")).await?;
        ask(&second, "s", &format!("second {n}")).await?;
    }
    // The lane is where the last message went. The other node sees the end of its run by polling.
    let run = second.send("s", "last").await?;
    first.until(&run, "completed").await?;
    for daemon in [&mut first, &mut second] {
        daemon.has_logged("the database sends no notifications through this address").await?;
    }
    for daemon in [first, second] {
        check(&daemon.shut_down().await?, 0, "registered as a node");
    }
    Ok(())
}

#[tokio::test]
async fn a_node_ends_when_its_pooler_begins_to_share_sessions() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let Some(pooler) = cluster.server.pooler(PoolMode::Session)? else { return Ok(()) };
    let port = pooler.port();
    let home = cluster.home(&Node { port, ..cluster.node("a") })?;
    let daemon = home.start().await?;
    ask(&daemon, "s", "one").await?;
    drop(pooler);
    let _pooler = cluster.server.pooler_at(port, PoolMode::Transaction)?;
    check(&daemon.ended().await?, 75, "pool_mode = session");
    // Nothing of it is left behind: a node with the right address goes on.
    let (_home, daemon) = cluster.start("a").await?;
    ask(&daemon, "s", "two").await?;
    check(&daemon.shut_down().await?, 0, "registered as a node");
    Ok(())
}

/// What changes the clock of one process, from the Debian package libfaketime.
fn faketime() -> Option<std::path::PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    folders.map(|folder| folder.path().join("faketime/libfaketime.so.1")).find(|library| library.exists())
}

/// Sends a message, and returns by how much the clock of the database is ahead of the time that the node wrote, in seconds.
async fn behind(daemon: &Daemon, cluster: &Cluster) -> Result<i64> {
    ask(daemon, "s", &format!("at {:?}", Instant::now())).await?;
    let behind = "select (extract(epoch from clock_timestamp()) - max(at) / 1000)::bigint from belay.messages where role = 'user'
                  and position = (select max(position) from belay.messages where role = 'user')";
    Ok(cluster.database.sql(behind)?.parse()?)
}

#[tokio::test]
async fn a_node_whose_clock_jumps_keeps_its_lease_and_writes_the_time_of_the_database() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let Some(library) = faketime() else {
        eprintln!("skipped: libfaketime is not installed");
        return Ok(());
    };
    let home = cluster.home(&cluster.node("a"))?;
    let clock = home.path().join("clock");
    std::fs::write(&clock, "+0s\n")?;
    let home = home
        .env("LD_PRELOAD", &library.display().to_string())
        .env("FAKETIME_TIMESTAMP_FILE", &clock.display().to_string())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let daemon = home.start().await?;
    for jump in ["+1h", "-2h"] {
        std::fs::write(&clock, format!("{jump}\n"))?;
        // Each renewal measures the difference of the clocks.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let behind = behind(&daemon, &cluster).await?;
            if behind.abs() < 60 {
                break;
            }
            ensure!(Instant::now() < deadline, "{jump}: the node writes a time {behind} s before that of the database");
            sleep(LOOK * 10).await; // polling a real process: there is no clock to pause
        }
    }
    assert_eq!(cluster.database.sql("select count(*) from belay.nodes where ended_at is null")?, "1");
    let ended = daemon.shut_down().await?;
    check(&ended, 0, "the work of this node is released");
    // The log has the time of the machine, which shows that the clock did jump.
    let line = ended.stderr.lines().rfind(|line| line.contains("timestamp")).context("a line of the log")?;
    let line: serde_json::Value = serde_json::from_str(line)?;
    let at = line["timestamp"].as_str().context("its time")?;
    let behind = cluster.database.sql(&format!("select extract(epoch from now() - '{at}'::timestamptz)::bigint"))?;
    assert!((7_000..7_400).contains(&behind.parse::<i64>()?), "the clock is {behind} s behind");
    Ok(())
}
