//! Routines, made in a conversation: they fire at their time, outlive a kill, and what they say comes once.

use anyhow::Result;
use belay_tests::bot_api::{BotApi, TOKEN, private_message};
use belay_tests::daemon::{Daemon, Home, client};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::json;

const SECRET: &str = "s3cret-of-the-webhook";

fn home(api: &BotApi) -> Home {
    Home::new()
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env("TELEGRAM_WEBHOOK_SECRET", SECRET)
        .set("channels.telegram.enabled", true)
        .set("channels.telegram.mode", "webhook")
        .set("channels.telegram.api_base", api.url.as_str())
        .set("channels.telegram.allow", json!([42]))
        .set("channels.telegram.stream", "off")
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
async fn killed_in_the_middle_a_firing_goes_on_and_what_it_says_comes_once() -> Result<()> {
    let model = ModelServer::start(vec![Answer::Stall], Answer::text("All is well.")).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    say(&daemon, 1, "/routine create watch in 1s | How is the house?").await?;
    let made = texts(&api, 1).await;
    assert!(made[0].contains("watch") && made[0].contains("UTC"), "{made:?}");
    model.seen(1).await;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("Routine watch: All is well."), "{told:?}");
    say(&daemon, 2, "/routine show watch").await?;
    let shown = texts(&api, 3).await;
    assert!(shown[2].contains("fired 1 times") && shown[2].contains("attention"), "{shown:?}");
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    say(&daemon, 3, "/ping").await?;
    assert!(texts(&api, 4).await[3].contains("pong"), "and nothing was said in between");
    daemon.shut_down().await?;
    assert_eq!((api.sent().len(), model.requests().len()), (4, 2));
    Ok(())
}
