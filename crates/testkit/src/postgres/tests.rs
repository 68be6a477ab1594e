//! The server, the real one. Without PostgreSQL these tests are skipped; in continuous integration they fail.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use super::{PostgresOptions, PostgresServer, Programs, Shutdown, TestDatabase, Transport};

/// The message of an error, for a comparison.
fn refusal(result: Result<String>) -> String {
    result.map_or_else(|error| format!("{error:#}"), |rows| panic!("not refused: {rows}"))
}

#[test]
fn each_test_has_a_database_of_its_own_on_the_shared_server() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let server = PostgresServer::shared(&programs)?;
    let (one, other) = (TestDatabase::new(server)?, TestDatabase::new(server)?);
    assert!(std::ptr::eq(server, PostgresServer::shared(&programs)?), "one server for the process");
    one.sql("create table notes (id int, text text); insert into notes values (1, 'ä'), (2, null)")?;
    assert_eq!(one.sql("select * from notes order by id")?, "1|ä\n2|");
    assert!(refusal(other.sql("select * from notes")).contains("relation \"notes\" does not exist"));
    assert_eq!(server.psql(&one.url(), "select current_user, current_database()")?, format!("belay|{}", one.name()));
    let stranger = one.url().replace("belay:", "belay:wrong");
    assert!(refusal(server.psql(&stranger, "select 1")).contains("password authentication failed"));
    let name = one.name().to_owned();
    drop(one);
    assert!(refusal(server.sql(&name, "select 1")).contains("does not exist"), "the database goes with its value");
    Ok(())
}

#[test]
fn a_commit_survives_kill_and_each_way_to_stop_on_the_same_port() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let mut server = PostgresServer::start(&programs, &PostgresOptions::default())?;
    assert_eq!(server.sql("postgres", "show fsync")?, "on");
    server.create_database("kept \"data\"")?;
    let rows = "select count(*) from kept";
    server.sql("kept \"data\"", "create table kept (id int); insert into kept values (1)")?;
    let url = server.url("postgres");

    // A client that holds a transaction open while the server is killed.
    let mut client = Command::new(&programs.psql)
        .args(["--no-psqlrc", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = client.stdin.take().context("an input")?;
    writeln!(input, "begin; create table lost (id int);\n\\echo begun")?;
    let mut output = BufReader::new(client.stdout.take().context("an output")?);
    let mut line = String::new();
    while line.trim() != "begun" {
        line.clear();
        assert_ne!(output.read_line(&mut line)?, 0, "psql has ended");
    }
    server.kill()?;
    assert!(refusal(server.psql(&url, "select 1")).contains("Connection refused"));
    drop(input);
    client.wait()?;

    server.restart()?;
    assert!(server.log().contains("database system was not properly shut down"), "{}", server.log());
    assert_eq!(server.sql("kept \"data\"", rows)?, "1");
    assert_eq!(server.psql(&url, "select count(*) from pg_class where relname = 'lost'")?, "0");
    assert!(server.restart().is_err(), "it runs");
    for (how, logged) in [
        (Shutdown::Smart, "received smart shutdown request"),
        (Shutdown::Fast, "received fast shutdown request"),
        (Shutdown::Immediate, "received immediate shutdown request"),
    ] {
        server.stop(how)?;
        assert!(server.log().contains(logged), "{}", server.log());
        assert!(server.stop(how).is_err(), "it does not run");
        server.restart()?;
        assert_eq!(server.sql("kept \"data\"", rows)?, "1");
    }
    Ok(())
}

#[test]
fn tls_is_required_and_a_wrong_root_is_refused() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let options = PostgresOptions { transport: Transport::Tls, ..PostgresOptions::default() };
    let server = PostgresServer::start(&programs, &options)?;
    let url = server.url("postgres");
    assert_eq!(server.psql(&url, "select ssl from pg_stat_ssl where pid = pg_backend_pid()")?, "t");
    let root = server.root_certificate().context("a root")?.display().to_string();
    let wrong = url.replace(&root, &server.wrong_root_certificate()?.display().to_string());
    assert!(refusal(server.psql(&wrong, "select 1")).contains("certificate verify failed"));
    let plain = url.replace("verify-full", "disable");
    assert!(refusal(server.psql(&plain, "select 1")).contains("no encryption"));
    let other_name = format!("{url}&hostaddr=127.0.0.1").replace("@127.0.0.1", "@elsewhere");
    assert!(refusal(server.psql(&other_name, "select 1")).contains("does not match host name"));
    Ok(())
}

#[test]
fn a_promoted_standby_has_every_answered_commit_and_takes_writes() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let mut primary = PostgresServer::start(&programs, &PostgresOptions::default())?;
    primary.sql("postgres", "create table kept (id int); insert into kept values (1)")?;
    let standby = primary.standby()?;
    primary.sql("postgres", "insert into kept values (2)")?;
    standby.catch_up_with(&primary)?;
    assert_eq!(standby.sql("postgres", "select count(*) from kept")?, "2");
    let write = "insert into kept values (4)";
    assert!(refusal(standby.sql("postgres", write)).contains("read-only transaction"));

    primary.synchronous_to(&standby)?;
    assert_eq!(primary.sql("postgres", "select sync_state from pg_stat_replication")?, "sync");
    primary.sql("postgres", "insert into kept values (3)")?;
    primary.kill()?;
    standby.promote()?;
    standby.psql(&standby.url("postgres"), write)?;
    assert_eq!(standby.sql("postgres", "select count(*) from kept")?, "4");
    assert!(standby.promote().is_err(), "it is a primary");
    Ok(())
}

#[test]
fn settings_reach_the_server_and_a_wrong_one_is_reported() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let with = |name: &str, value: &str| {
        let settings = vec![(name.to_owned(), value.to_owned())];
        PostgresServer::start(&programs, &PostgresOptions { settings, ..PostgresOptions::default() })
    };
    assert_eq!(with("search_path", "\"it's\"")?.sql("postgres", "show search_path")?, "\"it's\"");
    let error = with("max_connections", "many").expect_err("the server does not start");
    assert!(format!("{error:#}").contains("invalid value for parameter \"max_connections\""), "{error:#}");
    Ok(())
}

/// Set for the process that [`the_server_ends_with_a_test_process_that_was_killed`] starts.
const CHILD: &str = "BELAY_TESTKIT_POSTGRES_CHILD";

#[test]
fn the_server_ends_with_a_test_process_that_was_killed() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    if std::env::var_os(CHILD).is_some() {
        let server = PostgresServer::shared(&programs)?;
        let process = server
            .sql("postgres", "select pg_backend_pid()")
            .and_then(|_| fs::read_to_string(server.data().join("postmaster.pid")).context("its id"))?;
        println!("server {} {}", process.lines().next().unwrap_or_default(), server.socket_folder().display());
        std::io::stdin().read_line(&mut String::new())?;
        return Ok(());
    }
    let name = "postgres::tests::the_server_ends_with_a_test_process_that_was_killed";
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().context("an output")?);
    let lines = output.lines().map_while(Result::ok);
    let line = lines.filter_map(|line| Some(line.split_once("server ")?.1.to_owned())).next().context("no server")?;
    let (process, folder) = line.split_once(' ').context("an id and a folder")?;
    assert!(fs::exists(format!("/proc/{process}"))?, "the server {process} runs");
    child.kill()?;
    child.wait()?;
    while fs::exists(format!("/proc/{process}"))? || fs::exists(folder)? {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
