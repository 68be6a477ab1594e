//! A title of a conversation, by a model, through the real binary.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

/// Waits for the daemon's check of idle conversations, which runs every 15 seconds.
#[tokio::test]
async fn an_idle_conversation_gets_a_title_that_lists_show_and_a_restart_keeps() -> Result<()> {
    let title = Answer::text("**The lost parcel.**");
    let model = ModelServer::start(vec![Answer::text("It is in Bonn."), title], Answer::text("never")).await;
    let home = Home::new()
        .openai(&model.base_url)
        .set("sessions.titles.after_s", 1)
        .settings("[llm]\nprice_usd = { input = 1, output = 1 }\n[limits]\nusd_per_day_for = { title = 1.0 }\n");
    let daemon = home.start().await?;
    daemon.ask("alice", "Where is my parcel?").await?;
    model.seen(2).await;
    let request = &model.requests()[1];
    assert!(request["messages"][0]["content"].as_str().unwrap_or_default().starts_with("You write the title"));
    assert!(request["messages"].to_string().contains("Where is my parcel?"), "{request}");
    let mut shown = String::new();
    for _ in 0..600 {
        let (_, list) = daemon.request("GET", "/api/v1/sessions", None).await?;
        shown = list["sessions"][0]["title"].as_str().unwrap_or_default().to_owned();
        if shown == "The lost parcel" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(shown, "The lost parcel");
    daemon.kill().await?;

    let daemon = home.start().await?;
    let listed = home.run(&["sessions"], "").await?;
    assert!(listed.stdout.contains("The lost parcel"), "{listed:?}");
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    assert!(status["spent_today_for"]["title"].as_u64().is_some_and(|spent| spent > 0), "{status}");
    let (_, answer) = daemon.post(json!({"session": "alice", "text": "/sessions"})).await?;
    assert!(answer["reply"].as_str().unwrap_or_default().contains("`The lost parcel`"), "{answer}");
    daemon.shut_down().await?;
    Ok(())
}
