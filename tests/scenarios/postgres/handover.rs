//! A node that ends hands its long turns to another node.

use anyhow::Result;
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
