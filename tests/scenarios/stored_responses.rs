//! Responses of the Responses API that are read again: by reference, in the background, after a restart, and deleted.

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, client};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

use crate::responses::{PATH, create, items, show, text, user};

#[tokio::test]
async fn a_reference_to_an_item_is_that_item() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("It is MARMOT.")], Answer::text("ok")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let first = create(&daemon, json!({"input": "say it"})).await?;
    let reference = json!({"type": "item_reference", "id": items(&first, "message")[0]["id"]});
    let unknown = json!({"type": "item_reference", "id": "rs_1"});
    create(&daemon, json!({"input": [user("say it"), reference, unknown, user("again")]})).await?;
    let seen = model.requests()[1]["messages"].to_string();
    assert!(seen.contains("It is MARMOT."), "{seen}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_response_in_the_background_outlives_its_client_and_a_restart() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("Done in the background.")], Answer::text("?")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let begun = create(&daemon, json!({"input": "work", "background": true})).await?;
    assert!(["queued", "in_progress"].contains(&begun["status"].as_str().context("a status")?), "{begun}");
    let (status, streamed) = show(&daemon, &begun, "?stream=true").await?;
    let streamed = streamed.as_str().context("a stream")?;
    assert!(status == 200 && streamed.contains("response.completed"), "{streamed}");
    daemon.kill().await?;
    let daemon = home.start().await?;
    let (_, shown) = show(&daemon, &begun, "").await?;
    assert_eq!((&shown["status"], text(&shown).as_str()), (&json!("completed"), "Done in the background."));
    let (_, resumed) = show(&daemon, &begun, "?stream=true&starting_after=7").await?;
    let resumed = resumed.as_str().context("a stream")?;
    assert!(resumed.contains("\"delta\":\" in the background.\""), "{resumed}"); // behind "Done"
    let id = begun["id"].as_str().context("an id")?;
    let (status, deleted) = daemon.request("DELETE", &format!("{PATH}/{id}"), None).await?;
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)), "{deleted}");
    assert_eq!(show(&daemon, &begun, "").await?.0, 404);
    // Of a run with a key, the store keeps the key.
    let request = client().post(format!("{}{PATH}", daemon.url)).header("Idempotency-Key", "k-1");
    let keyed: Value = request.json(&json!({"input": "work"})).send().await?.json().await?;
    let id = keyed["id"].as_str().context("an id")?;
    assert_eq!(daemon.request("DELETE", &format!("{PATH}/{id}"), None).await?.0, 200);
    assert_eq!(show(&daemon, &keyed, "").await?.0, 404);
    daemon.shut_down().await?;
    Ok(())
}
