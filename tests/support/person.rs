//! A person who writes to the bot on Telegram, over its webhook, and reads what it sends.

use anyhow::Result;
use serde_json::{Value, json};

use crate::bot_api::{BotApi, TOKEN, private_message};
use crate::daemon::{Daemon, Home, client};

const SECRET: &str = "s3cret-of-the-webhook";

/// A daemon whose bot takes messages of the person with the id 42, and sends whole messages, which can be counted however slow
/// the machine is.
pub fn home(api: &BotApi) -> Home {
    Home::new()
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env("TELEGRAM_WEBHOOK_SECRET", SECRET)
        .set("channels.telegram.enabled", true)
        .set("channels.telegram.mode", "webhook")
        .set("channels.telegram.api_base", api.url.as_str())
        .set("channels.telegram.allow", json!([42]))
        .set("channels.telegram.stream", "off")
}

/// Says something. The same update again is the same message, delivered twice.
///
/// # Errors
/// The daemon cannot be reached.
pub async fn say(daemon: &Daemon, update: u32, text: &str) -> Result<()> {
    deliver(daemon, &private_message(update, 42, text)).await
}

/// Delivers an update as the platform does.
///
/// # Errors
/// The daemon cannot be reached.
pub async fn deliver(daemon: &Daemon, update: &Value) -> Result<()> {
    let hook = client().post(format!("{}/telegram/webhook", daemon.url)).json(update);
    let answer = hook.header("X-Telegram-Bot-Api-Secret-Token", SECRET).send().await?;
    assert_eq!(answer.status().as_u16(), 200);
    Ok(())
}

/// Every text that was sent, once there are so many.
pub async fn texts(api: &BotApi, n: u32) -> Vec<String> {
    let sent = api.messages(n).await;
    sent.iter().map(|message| message["text"].as_str().unwrap_or_default().to_owned()).collect()
}
