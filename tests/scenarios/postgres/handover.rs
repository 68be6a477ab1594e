//! A node that ends hands its long turns to another node. A daemon whose database hangs ends all the same.

use anyhow::{Result, ensure};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_testkit::proxy::TcpProxy;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

use super::nodes::Cluster;

#[tokio::test]
async fn a_long_turn_of_a_node_that_ends_is_completed_by_the_other_one() -> Result<()> {
    let Some(cluster) = Cluster::new()? else { return Ok(()) };
    let model = ModelServer::start(vec![Answer::Stall, Answer::Silence], Answer::text("from the other one")).await;
    let home = |name| -> Result<_> {
        let home = cluster.home(&cluster.node(name))?;
        Ok(home.openai(&model.base_url).set("agent.drain_s", 0))
    };
    let (a, b) = (home("a")?, home("b")?);
    let (first, second) = (a.start().await?, b.start().await?);
    let (talks, thinks) = (first.send("alice", "talk").await?, first.send("bob", "think").await?);
    model.seen(2).await;
    let output = first.shut_down().await?;
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(!output.stderr.contains("\"level\":\"ERROR\"") && !output.stderr.contains(" ERROR "), "{}", output.stderr);
    for run in [talks, thinks] {
        let completed = second.until(&run, "completed").await?;
        assert_eq!((&completed["reply"], &completed["attempt"]), (&json!("from the other one"), &json!(2)));
        let events = second.events(&run).await?;
        let ends = events.iter().filter(|event| event["type"] == "run_ended").count();
        assert_eq!(ends, 1, "{events:#?}");
    }
    // Alone, the second one records what it cannot end.
    model.then(Answer::Stall);
    let seen = u32::try_from(model.requests().len())?;
    let last = second.send("carol", "talk").await?;
    model.seen(seen + 1).await;
    second.shut_down().await?;
    let sql =
        format!("SELECT status || ' ' || reason FROM belay.runs WHERE encode(id, 'hex') = '{}'", last.replace('-', ""));
    assert_eq!(cluster.database.sql(&sql)?.trim(), "stopped shutdown");
    Ok(())
}

#[tokio::test]
async fn a_drain_over_a_database_that_hangs_ends_at_its_limit() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let server = PostgresServer::shared(&programs)?;
    let database = TestDatabase::new(server)?;
    let proxy = TcpProxy::start(server.port())?;
    let url = database.url().replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
    ensure!(url != database.url(), "the proxy is in {url}");
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url).store(&format!("{url}?sslmode=disable"));
    let home = home.set("agent.drain_s", 0).set("gateway.drain_s", 0);
    let daemon = home.start().await?;
    daemon.send("alice", "talk").await?;
    model.seen(1).await;
    proxy.hold(); // the network drops everything
    let output = daemon.shut_down().await?;
    assert_eq!(output.status.code(), Some(70), "{}", output.stderr);
    assert!(output.stderr.contains("the drain did not end in time"), "{}", output.stderr);
    Ok(())
}
