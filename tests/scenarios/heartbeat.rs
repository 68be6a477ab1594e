//! The heartbeat, through the program: what it would do, what it does by hand, and that what it says comes once.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::bot_api::{BotApi, TOKEN, private_message};
use belay_tests::daemon::{Daemon, Home, client};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

const SECRET: &str = "s3cret-of-the-webhook";
/// Longest wait for something to come about.
const PATIENCE: Duration = Duration::from_secs(300);

fn home(api: &BotApi, model: &ModelServer, deliver_to: &str) -> Result<Home> {
    let home = Home::new()
        .openai(&model.base_url)
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env("TELEGRAM_WEBHOOK_SECRET", SECRET)
        .set("channels.telegram.enabled", true)
        .set("channels.telegram.mode", "webhook")
        .set("channels.telegram.api_base", api.url.as_str())
        .set("channels.telegram.allow", json!([42]))
        .set("channels.telegram.stream", "off");
    let file = home.path().join("config/belay/belay.toml");
    fs::create_dir_all(file.parent().context("a folder")?)?;
    let settings = format!(
        "[heartbeat]\nenabled = true\nevery = \"1h\"\nquiet_hours = \"\"\n\
         deliver_to = {{ channel = \"telegram\", conversation = \"{deliver_to}\" }}\n"
    );
    fs::write(file, settings)?;
    Ok(home)
}

async fn belay(home: &Home, args: &[&str]) -> Result<Value> {
    let said = home.run(args, "").await?;
    assert!(said.status.success(), "{said:?}");
    serde_json::from_str(&said.stdout).with_context(|| format!("{said:?}"))
}

/// The report of the heartbeat once its next beat is scheduled, which happens soon after the start.
async fn scheduled(home: &Home) -> Result<Value> {
    let scheduled = async {
        loop {
            let report = belay(home, &["heartbeat", "--json"]).await?;
            if report["next_at"].is_string() {
                return anyhow::Ok(report);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, scheduled).await.context("no beat was scheduled")?
}

/// Has it beat, and waits until that beat has ended.
async fn beat(home: &Home) -> Result<Value> {
    let begun = belay(home, &["heartbeat", "now", "--json"]).await?;
    let ended = async {
        loop {
            let report = belay(home, &["heartbeat", "--json"]).await?;
            let beats = report["last"].as_array().cloned().unwrap_or_default();
            let own = beats.into_iter().find(|beat| beat["routine_run_id"] == begun["routine_run_id"]);
            if let Some(own) = own.filter(|beat| beat["status"] != "running") {
                return anyhow::Ok(own);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.context("the beat did not end")?
}

/// Somebody says something on Telegram.
async fn say(daemon: &Daemon, update: u32, text: &str) -> Result<()> {
    let hook = client().post(format!("{}/telegram/webhook", daemon.url)).json(&private_message(update, 42, text));
    let answer = hook.header("X-Telegram-Bot-Api-Secret-Token", SECRET).send().await?;
    assert_eq!(answer.status().as_u16(), 200);
    Ok(())
}

/// The first so many texts that were sent.
async fn texts(api: &BotApi, n: u32) -> Vec<String> {
    let sent = api.messages(n).await;
    sent.iter().map(|message| message["text"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn without_anything_to_do_or_anybody_there_no_model_is_asked() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("hello")], Answer::text("HEARTBEAT_OK")).await;
    let api = BotApi::start().await;
    let home = home(&api, &model, "42")?;
    let daemon = home.start().await?;
    let report = scheduled(&home).await?;
    assert_eq!((&report["enabled"], &report["would_skip"]), (&json!(true), &json!("nothing_to_do")), "{report}");
    assert_eq!(report["last"], json!([]), "{report}");
    let skipped = beat(&home).await?;
    assert_eq!((&skipped["status"], &skipped["summary"]), (&json!("skipped"), &json!("nothing_to_do")), "{skipped}");

    fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/HEARTBEAT.md"),
        home.workspace().join("HEARTBEAT.md"),
    )?;
    let report = belay(&home, &["heartbeat", "--json"]).await?;
    assert_eq!(report["would_skip"], "idle", "nobody has spoken: {report}");
    assert_eq!(model.requests().len(), 0);
    say(&daemon, 1, "hello").await?;
    assert_eq!(texts(&api, 1).await, ["hello"]);
    let report = belay(&home, &["heartbeat", "--json"]).await?;
    assert_eq!((&report["would_skip"], &report["would"]), (&Value::Null, &json!("Ask the model about HEARTBEAT.md.")));
    let beat = beat(&home).await?;
    assert_eq!((&beat["status"], &beat["summary"]), (&json!("ok"), &Value::Null), "{beat}");
    assert!(model.requests()[1].to_string().contains("notes/todo.md"), "the list is shown");

    let table = home.run(&["heartbeat"], "").await?;
    for part in ["every 1h", "telegram 42", "nothing_to_do", "skipped"] {
        assert!(table.stdout.contains(part), "{part}: {table:?}");
    }
    let (_, metrics) = daemon.request("GET", "/metrics", None).await?;
    assert!(
        metrics.to_string().contains("belay_heartbeats_skipped_total{reason=\\\"nothing_to_do\\\"} 1"),
        "{metrics}"
    );
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 1, "what is in order is told to nobody");
    Ok(())
}

#[tokio::test]
async fn killed_in_the_middle_of_a_beat_what_needs_attention_is_told_once() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("The backup has failed.")).await;
    let api = BotApi::start().await;
    let home = home(&api, &model, "42")?;
    fs::write(home.workspace().join("HEARTBEAT.md"), "- was there a backup?\n")?;
    let daemon = home.start().await?;
    belay(&home, &["heartbeat", "now", "--json"]).await?;
    model.seen(1).await;
    daemon.kill().await?;

    let daemon = home.start().await?;
    assert_eq!(texts(&api, 1).await, ["Heartbeat: The backup has failed."]);
    let again = beat(&home).await?;
    assert_eq!(again["status"], "ok", "{again}");
    assert!(again["summary"].as_str().unwrap_or_default().starts_with("same as "), "{again}");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 1, "the same is not told again");
    Ok(())
}

#[tokio::test]
async fn a_place_that_nobody_can_be_told_at_is_refused() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("HEARTBEAT_OK")).await;
    let api = BotApi::start().await;
    let home = home(&api, &model, "@alice")?;
    let refused = home.run(&["check"], "").await?;
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    assert!(format!("{refused:?}").contains("heartbeat.deliver_to"), "{refused:?}");
    Ok(())
}
