//! What is said to Telegram before updates come: who are we, and how do we want them.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use frankenstein::methods::{DeleteWebhookParams, SetWebhookParams};
use frankenstein::types::AllowedUpdate;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::api::ApiError;
use super::router::UpdateRouter;

/// Deadline of these calls.
const DEADLINE: Duration = Duration::from_secs(10);

/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The updates we ask for.
pub(super) const ALLOWED: [AllowedUpdate; 3] =
    [AllowedUpdate::Message, AllowedUpdate::EditedMessage, AllowedUpdate::CallbackQuery];

#[derive(Deserialize)]
struct Me {
    username: Option<String>,
}

/// Pauses that grow from 1 s to a minute, with jitter, for ever.
pub(super) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(super) fn new() -> Self {
        let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_secs(1)).with_max_delay(PAUSE_MAX);
        Self(pauses.with_jitter().without_max_times().build())
    }

    /// The pause after this error: at least what a 429 demands.
    pub(super) fn after(&mut self, error: &ApiError) -> Duration {
        match error {
            ApiError::Flood(wait) => *wait,
            _ => self.0.next().unwrap_or(PAUSE_MAX),
        }
    }
}

/// Learns the bot's user name, and whether the token is right.
pub(super) async fn introduce(router: &UpdateRouter, deadline: Duration) -> Result<(), ApiError> {
    let me: Me = router.api.call("getMe", &json!({}), deadline).await?;
    let name = me.username.unwrap_or_default();
    let known = router.rules.username.get_or_init(|| name.clone());
    if !known.eq_ignore_ascii_case(&name) {
        warn!(configured = %known, telegram = %name, "channels.telegram.bot_username is not the bot's name");
    }
    info!(bot = %known, "telegram knows the bot");
    Ok(())
}

/// Does [`introduce`] until it works, then registers the webhook until that works.
pub(super) async fn until_reachable(
    router: &UpdateRouter,
    is_introduced: bool,
    webhook: Option<(&str, &SecretString)>,
) {
    if !is_introduced {
        again_and_again("getMe", || introduce(router, DEADLINE)).await;
    }
    if let Some((url, secret)) = webhook {
        again_and_again("setWebhook", || set_webhook(router, url, secret)).await;
        info!(url, "telegram webhook registered");
    }
}

async fn set_webhook(router: &UpdateRouter, url: &str, secret: &SecretString) -> Result<(), ApiError> {
    let parameters = SetWebhookParams::builder()
        .url(url)
        .secret_token(secret.expose_secret())
        .allowed_updates(ALLOWED.to_vec())
        .build();
    router.api.call::<_, bool>("setWebhook", &parameters, DEADLINE).await.map(|_| ())
}

/// Takes back a webhook, which would keep polling from getting anything.
pub(super) async fn delete_webhook(router: &UpdateRouter) -> Result<(), ApiError> {
    router.api.call::<_, bool>("deleteWebhook", &DeleteWebhookParams::builder().build(), DEADLINE).await.map(|_| ())
}

/// Repeats a call until it works. Runs inside the channel's stream and ends with it.
pub(super) async fn again_and_again<F>(what: &str, call: impl Fn() -> F)
where
    F: Future<Output = Result<(), ApiError>>,
{
    let mut pauses = Pauses::new();
    while let Err(error) = call().await {
        let pause = pauses.after(&error);
        let pause_ms = pause.as_millis() as u64;
        if error.is_auth() {
            error!(call = what, %error, pause_ms, "telegram refuses the bot's token");
        } else {
            warn!(call = what, %error, pause_ms, "telegram is out of reach");
        }
        sleep(pause).await;
    }
}
