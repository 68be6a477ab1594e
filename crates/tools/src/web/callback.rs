//! Posts callbacks: [`CallbackClient`] by the rules for fetched pages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::callback::{CALLBACK_URL_MAX_BYTES, CallbackAnswer, CallbackClient};
use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use tokio::time::timeout;

use super::config::WebConfig;
use super::page_client::{PageClient, unreachable_because};
use super::resolve::SystemResolver;
use super::url::Rules;

/// Time limit of one post, from the resolution of the name to the head of the answer.
const POST_LIMIT: Duration = Duration::from_secs(10);

/// Longest delay that a receiver may ask for. An hour: the callback is given up after a day.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Posts callbacks.
pub struct CallbackPoster(PageClient);

impl CallbackPoster {
    /// A poster by the rules of these settings, whether or not pages are fetched.
    ///
    /// # Errors
    /// The first problem of the settings.
    pub fn new(config: &WebConfig) -> Result<Self, String> {
        Ok(Self(PageClient { rules: Rules::new(config)?, resolver: Arc::new(SystemResolver) }))
    }
}

#[async_trait]
impl CallbackClient for CallbackPoster {
    fn check(&self, url: &str) -> Result<(), String> {
        if url.len() > CALLBACK_URL_MAX_BYTES {
            return Err(format!("at most {CALLBACK_URL_MAX_BYTES} bytes"));
        }
        self.0.rules.target(url).map(|_| ())
    }

    async fn post(&self, url: &str, signature: &str, body: Bytes) -> Result<CallbackAnswer, String> {
        let target = self.0.rules.target(url)?;
        let posting = async {
            let client = self.0.client_for(&target).await?;
            let request = client.post(target.url.clone()).header(CONTENT_TYPE, "application/json");
            let sent = request.header("x-hub-signature-256", signature).body(body).send().await;
            sent.map_err(|error| unreachable_because(&target, &error))
        };
        let answer = timeout(POST_LIMIT, posting).await;
        let answer = answer.map_err(|_| format!("{} did not answer within 10 s", target.origin()))??;
        Ok(CallbackAnswer { status: answer.status().as_u16(), retry_after: delay(&answer) })
    }
}

/// The delay in seconds that an answer asks for. A date is not read.
fn delay(answer: &Response) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}
