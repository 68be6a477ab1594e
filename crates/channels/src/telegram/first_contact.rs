//! The first contact with a bot, for the set-up: checks a token, and finds the id of the person who sends a code.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::api::{ApiError, BotApi};
use super::bot_id;
use super::wire::{GetUpdates, json};

/// Deadline of `getMe`, and of a request that does not wait for a message.
const DEADLINE: Duration = Duration::from_secs(10);

/// How long Telegram holds the request before it returns an empty answer. 10 s: the person may end the wait at any time.
const HOLD: Duration = Duration::from_secs(10);

/// Deadline of the request: the hold time and the network time.
const HOLD_DEADLINE: Duration = Duration::from_secs(20);

/// Pause between requests while other messages wait for the bot, or after an error.
const PACE: Duration = Duration::from_secs(1);

/// Most updates of one answer. Telegram: getUpdates, `limit`.
const BATCH_MAX: usize = 100;

/// Errors in a row after which Telegram counts as unreachable.
const ERRORS_MAX: u32 = 5;

/// A bot with a token that Telegram accepts.
pub struct FirstContact {
    api: BotApi,
    username: String,
}

/// The sender of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The numeric user id.
    pub id: u64,
    /// The name that the person has chosen on Telegram. Untrusted text.
    pub name: String,
}

/// Why there is no first contact.
#[derive(Debug, thiserror::Error)]
pub enum FirstContactError {
    /// The text is no token.
    #[error("{0}")]
    NoToken(&'static str),
    /// Telegram refuses the token, or the server is no Bot API.
    #[error("the Bot API refuses the token ({0})")]
    TokenRefused(String),
    /// The Bot API cannot be reached, or it fails.
    #[error("the Bot API cannot be used: {0}")]
    Unreachable(String),
    /// A webhook or another program receives the messages of the bot.
    #[error("another program or a webhook receives the messages of this bot ({0})")]
    Taken(String),
    /// More messages wait for the bot than one answer holds, so the code would not arrive.
    #[error("{BATCH_MAX} or more messages wait for this bot, so the code would not arrive")]
    Crowded,
    /// Nobody has sent the code in time.
    #[error("nobody sent the code within {} minutes", .0.as_secs() / 60)]
    TimedOut(Duration),
}

impl From<ApiError> for FirstContactError {
    fn from(error: ApiError) -> Self {
        match &error {
            _ if error.is_auth() => Self::TokenRefused(error.to_string()),
            _ if error.is_conflict() => Self::Taken(error.to_string()),
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

#[derive(Deserialize)]
struct Me {
    username: Option<String>,
}

impl FirstContact {
    /// Checks the form of a token, and asks the Bot API at `api_base` for the bot. `http` needs a connect timeout.
    ///
    /// # Errors
    /// See [`FirstContactError`]. None of them contains the token.
    pub async fn open(http: reqwest::Client, api_base: &str, token: SecretString) -> Result<Self, FirstContactError> {
        bot_id(token.expose_secret()).map_err(FirstContactError::NoToken)?;
        let api = BotApi::new(http, api_base, token);
        let me: Me = api.call("getMe", &json!({}), DEADLINE).await?;
        Ok(Self { api, username: me.username.unwrap_or_default() })
    }

    /// The bot's user name, without `@`.
    pub fn username(&self) -> &str {
        &self.username
    }

    /// Waits for a private message that is the code, and returns its sender. The code may follow `/start`, as a link
    /// `https://t.me/BOT?start=CODE` sends it.
    ///
    /// The message with the code is confirmed, so that nobody answers it later. If older messages wait for the bot,
    /// nothing is confirmed: they would be lost.
    ///
    /// # Errors
    /// See [`FirstContactError`].
    ///
    /// # Cancel safety
    /// Safe: a message with the code stays unconfirmed and is found by the next call.
    pub async fn sender_of(&self, code: &str, limit: Duration) -> Result<Sender, FirstContactError> {
        let end = Instant::now() + limit;
        let mut errors = 0;
        while Instant::now() < end {
            let waiting = GetUpdates { timeout: HOLD.as_secs(), ..GetUpdates::default() };
            match self.api.call::<_, Vec<Box<RawValue>>>("getUpdates", &waiting, HOLD_DEADLINE).await {
                Ok(updates) => {
                    let updates: Vec<Value> = updates.iter().map(|update| json::value(update.get())).collect();
                    errors = 0;
                    if let Some((at, sender)) = find(&updates, code) {
                        if at == 0 {
                            self.confirm(&updates[0]).await;
                        }
                        return Ok(sender);
                    }
                    match updates.len() {
                        0 => {}
                        BATCH_MAX.. => return Err(FirstContactError::Crowded),
                        // They are returned again at once.
                        _ => sleep(PACE).await,
                    }
                }
                Err(ApiError::Flood(wait)) => sleep(wait.min(limit)).await,
                Err(error) if error.is_auth() || error.is_conflict() => return Err(error.into()),
                Err(error) => {
                    errors += 1;
                    if errors == ERRORS_MAX {
                        return Err(error.into());
                    }
                    sleep(PACE).await;
                }
            }
        }
        Err(FirstContactError::TimedOut(limit))
    }

    /// Confirms the first waiting update. On failure the daemon receives it, which harms nobody.
    async fn confirm(&self, update: &Value) {
        let Some(next) = update["update_id"].as_i64().map(|id| id + 1) else { return };
        let confirm = GetUpdates { offset: Some(next), limit: Some(1), ..GetUpdates::default() };
        let _ = self.api.call::<_, IgnoredAny>("getUpdates", &confirm, DEADLINE).await;
    }
}

/// The first private message with the code: its position and its sender.
fn find(updates: &[Value], code: &str) -> Option<(usize, Sender)> {
    updates.iter().enumerate().find_map(|(at, update)| {
        let message = &update["message"];
        let text = message["text"].as_str()?.trim();
        let text = text.strip_prefix("/start").map_or(text, str::trim_start);
        let from = &message["from"];
        let private = message["chat"]["type"] == "private" && from["is_bot"] == false;
        if !private || text != code {
            return None;
        }
        let name = from["username"].as_str().map(|name| format!("@{name}"));
        let name = name.or_else(|| from["first_name"].as_str().map(str::to_owned)).unwrap_or_default();
        Some((at, Sender { id: from["id"].as_u64()?, name }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_private_message_of_a_person_that_is_the_code_counts() {
        let message = |text: &str, kind: &str, bot: bool| {
            json!({"update_id": 1, "message": {"text": text, "chat": {"id": 42, "type": kind},
                   "from": {"id": 42, "is_bot": bot, "first_name": "Ann"}}})
        };
        for (update, found) in [
            (message("12345678", "private", false), true),
            (message(" /start 12345678\n", "private", false), true),
            (message("12345678", "group", false), false),
            (message("12345678", "private", true), false),
            (message("1234567", "private", false), false),
            (message("the code is 12345678", "private", false), false),
            (json!({"update_id": 1, "edited_message": {"text": "12345678"}}), false),
        ] {
            let sender = Sender { id: 42, name: "Ann".to_owned() };
            assert_eq!(find(&[Value::Null, update.clone()], "12345678"), found.then_some((1, sender)), "{update}");
        }
    }
}
