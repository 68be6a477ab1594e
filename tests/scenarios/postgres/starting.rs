//! Starts and commands over PostgreSQL: what is refused, with which exit code, and in which words.

use anyhow::Result;
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_tests::daemon::{Home, Output};
use belay_tests::model_server::{Answer, ModelServer};

/// An empty database on the shared server. `None`: there is no PostgreSQL here.
fn database() -> Result<Option<TestDatabase<'static>>> {
    let Some(programs) = Programs::for_test()? else { return Ok(None) };
    Ok(Some(TestDatabase::new(PostgresServer::shared(&programs)?)?))
}

/// The address of the database, as an operator writes it.
fn url(database: &TestDatabase<'_>) -> String {
    format!("{}?sslmode=disable", database.url())
}

/// The password in an address.
fn password(url: &str) -> &str {
    url.split(['@']).next().and_then(|user| user.rsplit(':').next()).unwrap_or_default()
}

/// Runs `belay run` to its end.
async fn run(home: &Home) -> Result<Output> {
    let args = home.run_args();
    home.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "").await
}

/// Checks the exit code, a part of the words, and that the password is nowhere.
fn check(output: &Output, code: i32, words: &str, password: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stderr.contains(words) || output.stdout.contains(words), "{words:?} is not in {output:?}");
    assert!(!output.stderr.contains(password) && !output.stdout.contains(password), "{output:?}");
}

#[tokio::test]
async fn a_second_daemon_is_refused_until_the_first_is_killed() -> Result<()> {
    let Some(database) = database()? else { return Ok(()) };
    let url = url(&database);
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("from the second")).await;
    let [first, second] = [Home::new(), Home::new()].map(|home| home.openai(&model.base_url).store(&url));
    let daemon = first.start().await?;
    let asked = daemon.send("alice", "hello").await?;
    model.seen(1).await;
    check(&run(&second).await?, 75, "the store is in use by another belay", password(&url));
    check(&second.run(&["check"], "").await?, 69, "the store is in use by another belay", password(&url));
    check(&second.run(&["upgrade", "check"], "").await?, 0, "a daemon runs on it", password(&url));
    daemon.kill().await?;

    // The server ends the session of a killed process on its own; nothing else releases the lock.
    let daemon = second.start().await?;
    assert_eq!(daemon.finished(&asked).await?["reply"], "from the second");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn checks_and_backups_name_the_server_and_never_its_password() -> Result<()> {
    let Some(database) = database()? else { return Ok(()) };
    let url = url(&database);
    let home = Home::new().store(&url);
    let secret = password(&url);
    assert!(secret.len() > 20, "{url}");
    check(&home.run(&["check"], "").await?, 0, "the tables will be made", secret);
    check(&home.run(&["upgrade", "check"], "").await?, 0, "there is none; the first start makes it", secret);
    assert_eq!(
        database.sql("select count(*) from pg_namespace where nspname = 'belay'")?,
        "0",
        "a check made a schema"
    );

    let daemon = home.start().await?;
    check(&home.run(&["check"], "").await?, 0, "is in use by the Belay that is running", secret);
    check(
        &home.run(&["backup", "create"], "").await?,
        65,
        "back it up and restore it with the tools of the server",
        secret,
    );
    daemon.shut_down().await?;
    check(&home.run(&["check"], "").await?, 0, "answers, with schema", secret);
    check(&home.run(&["upgrade", "check"], "").await?, 0, "no change", secret);
    check(
        &home.run(&["backup", "create"], "").await?,
        2,
        "back it up and restore it with the tools of the server",
        secret,
    );
    check(&home.run(&["backup", "restore", "belay.tar"], "").await?, 2, "the tools of the server", secret);
    check(&home.run(&["config", "show"], "").await?, 0, database.name(), secret);
    let scheduled = home.set("backup.every_hours", 1);
    check(&run(&scheduled).await?, 78, "the tools of the server", secret);
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_be_used_ends_the_start_with_its_reason_and_the_next_step() -> Result<()> {
    let Some(database) = database()? else { return Ok(()) };
    let right = url(&database);
    let secret = password(&right);
    database.sql(&format!("alter database {} set default_transaction_read_only = on", database.name()))?;
    let refused = [
        (right.replace(secret, "wrong-password-of-a-test"), "check the user and the password in store.url", true),
        (right.replace(database.name(), "no_such_database"), "create it (CREATE DATABASE), or correct store.url", true),
        // A start waits for the promotion of a standby.
        (right.clone(), "name the primary server in store.url", false),
    ];
    for (url, words, ends) in &refused {
        let home = Home::new().store(url);
        if *ends {
            check(&run(&home).await?, 69, words, password(url));
        } else {
            let mut daemon = home.begin()?;
            daemon.logged(words).await?;
            check(&daemon.shut_down().await?, 0, "the start waits for the database", password(url));
        }
        check(&home.run(&["check"], "").await?, 69, words, password(url));
        check(&home.run(&["upgrade", "check"], "").await?, 69, words, password(url));
    }
    Ok(())
}
