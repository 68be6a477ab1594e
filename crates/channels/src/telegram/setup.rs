//! Calls before updates arrive: learn the bot's identity, and set up webhook or polling.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::api::ApiError;
use super::router::UpdateRouter;
use super::wire::SetWebhook;

/// Deadline of these calls.
const DEADLINE: Duration = Duration::from_secs(10);

/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The kinds of update that the bot requests.
pub(super) const ALLOWED: &[&str] = &[
    "message",
    "edited_message",
    "callback_query",
    "my_chat_member", // the bot is added to a group
];

#[derive(Deserialize)]
struct Me {
    username: Option<String>,
}

/// Endless back-off with jitter, from 1 s to 60 s.
pub(super) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(super) fn new() -> Self {
        let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_secs(1)).with_max_delay(PAUSE_MAX);
        Self(pauses.with_jitter().without_max_times().build())
    }

    /// The pause after this error. For a 429, exactly the requested delay.
    pub(super) fn after(&mut self, error: &ApiError) -> Duration {
        match error {
            ApiError::Flood(wait) => *wait,
            _ => self.0.next().unwrap_or(PAUSE_MAX),
        }
    }
}

/// Asks for the bot's user name, and so checks the token.
pub(super) async fn introduce(router: &UpdateRouter, deadline: Duration) -> Result<(), ApiError> {
    let me: Me = router.api.call("getMe", &json!({}), deadline).await?;
    let name = me.username.unwrap_or_default();
    let known = router.rules.username.get_or_init(|| name);
    info!(bot = %known, "telegram knows the bot");
    Ok(())
}

/// Repeats [`introduce`] until it succeeds, then the registration of the webhook until that succeeds.
pub(super) async fn until_reachable(
    router: &UpdateRouter,
    is_introduced: bool,
    webhook: Option<(&str, &SecretString)>,
) {
    if !is_introduced {
        again_and_again(router, "getMe", || introduce(router, DEADLINE)).await;
    }
    if let Some((url, secret)) = webhook {
        again_and_again(router, "setWebhook", || set_webhook(router, url, secret)).await;
        info!(url, "telegram webhook registered");
    }
}

async fn set_webhook(router: &UpdateRouter, url: &str, secret: &SecretString) -> Result<(), ApiError> {
    let parameters = SetWebhook { url, secret_token: secret.expose_secret(), allowed_updates: ALLOWED };
    router.api.call::<_, bool>("setWebhook", &parameters, DEADLINE).await.map(|_| ())
}

/// Removes a webhook. While one is registered, polling receives no updates.
pub(super) async fn delete_webhook(router: &UpdateRouter) -> Result<(), ApiError> {
    router.api.call::<_, bool>("deleteWebhook", &json!({}), DEADLINE).await.map(|_| ())
}

/// Repeats a call until it succeeds. Runs inside the channel's stream and ends with it.
pub(super) async fn again_and_again<F>(router: &UpdateRouter, what: &str, call: impl Fn() -> F)
where
    F: Future<Output = Result<(), ApiError>>,
{
    let mut pauses = Pauses::new();
    while let Err(error) = call().await {
        router.set_trouble(Some(&error));
        let pause = pauses.after(&error);
        let pause_ms = pause.as_millis() as u64;
        if error.is_auth() {
            error!(call = what, detail = %error, pause_ms, "telegram refuses the bot's token");
        } else {
            warn!(call = what, detail = %error, pause_ms, "telegram is out of reach");
        }
        sleep(pause).await;
    }
    router.set_trouble(None);
}
