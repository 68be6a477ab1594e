//! Jobs, asked for in a conversation: they outlive its turn, a kill, and a start, and their result comes once.

use anyhow::Result;
use belay_tests::bot_api::BotApi;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{home, say, texts};
use serde_json::json;

#[tokio::test]
async fn killed_in_the_middle_a_job_goes_on_and_its_result_comes_once() -> Result<()> {
    // What writes is on disk before the next step.
    let works = Answer::call("remember", json!({"key": "product", "text": "six times seven"}));
    let done = Answer::call("terminate", json!({"status": "success", "summary": "forty-two"}));
    let model = ModelServer::start(vec![works, Answer::Stall], done).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job multiply").await?;
    assert!(texts(&api, 1).await[0].contains("is made"));
    model.seen(2).await;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("is done") && told[1].contains("forty-two"), "{told:?}");
    // Delivered again, the command is recognised.
    say(&daemon, 1, "/job multiply").await?;
    say(&daemon, 2, "/jobs").await?;
    let told = texts(&api, 3).await;
    assert!(told[2].contains("done: multiply") && told[2].lines().count() == 1, "{told:?}");
    let messages = model.requests().pop().unwrap_or_default()["messages"].to_string();
    assert!(messages.contains("six times seven"), "it went on from its last step: {messages}");
    assert!(!messages.contains("outcome unknown"), "{messages}");
    assert_eq!(model.requests().len(), 3);
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    say(&daemon, 3, "/ping").await?;
    assert!(texts(&api, 4).await[3].contains("pong"), "and nothing was said in between");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_at_work_at_the_end_of_the_daemon_is_laid_aside_without_a_word() -> Result<()> {
    let done = Answer::call("terminate", json!({"status": "success", "summary": "at last"}));
    let model = ModelServer::start(vec![Answer::Stall], done).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("agent.drain_s", 0);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job wait for it").await?;
    texts(&api, 1).await;
    model.seen(1).await;
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("is done") && told[1].contains("at last"), "{told:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_stand_in_does_jobs_too_and_one_that_waits_can_be_taken_back() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api).set("jobs.max_parallel", 1).set("agent.drain_s", 0);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job calculate 17*23").await?;
    let told = texts(&api, 2).await;
    assert!(told.iter().any(|told| told.contains("is done") && told.contains("391")), "{told:?}");
    say(&daemon, 2, "/job rehearse stall").await?;
    say(&daemon, 3, "/job calculate 1+1").await?;
    let told = texts(&api, 4).await;
    let id = told[3].split(['<', '>']).nth(2).unwrap_or_default().to_owned();
    say(&daemon, 4, &format!("/cancel {id}")).await?;
    assert!(texts(&api, 5).await[4].contains("is cancelled"), "{told:?}");
    daemon.shut_down().await?;
    Ok(())
}
