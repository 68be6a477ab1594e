//! Fetches the file of a message: `getFile`, then the download, which the intake of attachments stores and reads.
//!
//! The bytes go to the intake as they arrive. The announced size and type prove nothing: the intake counts the bytes,
//! and finds the type by the content. A temporary failure is retried within a bound. A file that cannot be fetched is no
//! error of the message: the model and the person read the reason.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Attachment, AttachmentError, AttachmentIntake, ByteStream, Uploader};
use futures_util::stream;
use reqwest::Response;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info};

use super::api::{ApiError, BotApi, words};
use super::attached::RemoteFile;
use super::wire::GetFile;

/// Downloads at the same time, in all conversations. 4: a picture takes a second, and each holds one piece in memory.
const DOWNLOADS_MAX: usize = 4;

/// Longest wait for a download to begin. A minute: a host that does not answer must not hold up all later messages.
const SLOT_LIMIT: Duration = Duration::from_secs(60);

/// Deadline of `getFile`. Telegram copies the file from another of its servers first.
const GET_FILE_DEADLINE: Duration = Duration::from_secs(15);

/// Longest wait for the head of a download, and for each piece of it.
const PIECE_LIMIT: Duration = Duration::from_secs(20);

/// Longest time of a download. 2 minutes: 20 MB at 170 kB/s.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(120);

/// The pauses before the second and the third attempt.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Longest delay of a 429 that is waited for. A longer one fails.
const FLOOD_MAX: Duration = Duration::from_secs(30);

/// Fetches files, a bounded number at the same time.
pub(super) struct Fetcher {
    intake: Arc<dyn AttachmentIntake>,
    /// A slot is held for one attempt, until the last byte. Reading the file needs none, and may take a minute.
    slots: Arc<Semaphore>,
}

/// Why one attempt has failed.
#[derive(Debug)]
enum Failed {
    /// Another attempt may succeed, after this delay if there is one.
    Temporarily(String, Option<Duration>),
    /// It fails again.
    ForGood(String),
}

/// Bot API: File.
#[derive(Deserialize)]
struct RemotePath {
    file_path: Option<String>,
}

impl Fetcher {
    pub(super) fn new(intake: Arc<dyn AttachmentIntake>) -> Self {
        Self { intake, slots: Arc::new(Semaphore::new(DOWNLOADS_MAX)) }
    }

    /// The maximum number of files of one message; 0: no files are fetched.
    pub(super) fn max_count(&self) -> usize {
        self.intake.max_count()
    }

    /// Fetches a file and gives it to the intake.
    ///
    /// # Errors
    /// The reason for the model and the person, without the token.
    ///
    /// # Cancel safety
    /// If the future is dropped, the file is not taken, or it is an upload that no message names.
    pub(super) async fn fetch(&self, api: &BotApi, from: &Uploader, file: &RemoteFile) -> Result<Attachment, String> {
        let limit = self.intake.max_bytes();
        if file.bytes.is_some_and(|bytes| bytes > limit) {
            return Err(AttachmentError::TooLarge(limit).to_string());
        }
        let mut pauses = PAUSES.into_iter();
        loop {
            let failed = match self.attempt(api, from, file).await {
                Ok(attachment) => return Ok(attachment),
                Err(failed) => failed,
            };
            match (failed, pauses.next()) {
                (Failed::Temporarily(reason, wait), Some(pause)) => {
                    debug!(
                        detail = reason,
                        kind = file.kind,
                        "the file of a message was not fetched, and is tried again"
                    );
                    sleep(wait.unwrap_or(pause)).await;
                }
                (Failed::Temporarily(reason, _) | Failed::ForGood(reason), _) => {
                    info!(detail = reason, kind = file.kind, "the file of a message was not fetched");
                    return Err(reason);
                }
            }
        }
    }

    async fn attempt(&self, api: &BotApi, from: &Uploader, file: &RemoteFile) -> Result<Attachment, Failed> {
        let Ok(slot) = timeout(SLOT_LIMIT, Arc::clone(&self.slots).acquire_owned()).await else {
            return Err(Failed::ForGood("other files are being fetched; send it again later".to_owned()));
        };
        let slot = slot.map_err(|_closed| Failed::ForGood("Belay is shutting down".to_owned()))?;
        let parameters = GetFile { file_id: &file.id };
        let found: RemotePath = api.call("getFile", &parameters, GET_FILE_DEADLINE).await?;
        let path = found.file_path.ok_or_else(|| Failed::ForGood("Telegram offers no download of it".to_owned()))?;
        let end = Instant::now() + DOWNLOAD_LIMIT;
        let response = match timeout_at(end.min(Instant::now() + PIECE_LIMIT), api.download(&path)).await {
            Ok(response) => response?,
            Err(_elapsed) => return Err(Failed::Temporarily(silence(), None)),
        };
        let taken = self.intake.take(from, &file.name(), pieces(response, end, slot)).await;
        Ok(taken.map_err(refused)?.attachment)
    }
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        let reason = format!("Telegram did not give it ({error})");
        match error {
            ApiError::Flood(wait) if wait <= FLOOD_MAX => Self::Temporarily(reason, Some(wait)),
            // Bot API, getFile: "bots can download files of up to 20MB in size".
            ApiError::Refused { description, .. } if description.to_ascii_lowercase().contains("file is too big") => {
                Self::ForGood("Telegram gives bots no files of more than 20 MB".to_owned())
            }
            // The address of a file is valid for an hour: 404 may mean that it has changed.
            ApiError::Refused { code: 404, .. }
            | ApiError::NotSent(_)
            | ApiError::NoAnswer(_)
            | ApiError::Server { .. } => Self::Temporarily(reason, None),
            ApiError::Flood(_) | ApiError::Refused { .. } => Self::ForGood(reason),
        }
    }
}

/// Why the intake has not taken a file.
fn refused(error: AttachmentError) -> Failed {
    match error {
        AttachmentError::Broken(_) | AttachmentError::Store(_) => Failed::Temporarily(error.to_string(), None),
        AttachmentError::Quota { used, limit } => Failed::ForGood(format!(
            "its sender has sent {used} of {limit} bytes within 24 hours (attachments.max_bytes_per_day)"
        )),
        AttachmentError::Empty
        | AttachmentError::TooLarge(_)
        | AttachmentError::Unknown(_)
        | AttachmentError::Disabled => Failed::ForGood(error.to_string()),
    }
}

fn silence() -> String {
    format!("nothing arrived for {} s", PIECE_LIMIT.as_secs())
}

/// The pieces of a download. One that stalls or takes too long ends with an error. Frees the slot after the last piece.
fn pieces(response: Response, end: Instant, slot: OwnedSemaphorePermit) -> ByteStream {
    Box::pin(stream::unfold(Some((response, slot)), move |download| async move {
        let (mut response, slot) = download?;
        let failed = |what: String| Some((Err(std::io::Error::other(what)), None));
        match timeout_at(end.min(Instant::now() + PIECE_LIMIT), response.chunk()).await {
            Ok(Ok(Some(piece))) => Some((Ok(piece), Some((response, slot)))),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => failed(words(error)),
            Err(_elapsed) if Instant::now() >= end => {
                failed(format!("it took longer than {} s", DOWNLOAD_LIMIT.as_secs()))
            }
            Err(_elapsed) => failed(silence()),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_sorted_by_whether_another_attempt_may_succeed() {
        let refused =
            |code, description: &str| ApiError::Refused { code, description: description.into(), migrate_to: None };
        for (error, expected) in [
            (ApiError::NotSent("x".into()), "again"),
            (ApiError::NoAnswer("x".into()), "again"),
            (ApiError::Server { code: 502, description: "x".into() }, "again"),
            (refused(404, "Not Found"), "again"),
            (ApiError::Flood(Duration::from_secs(30)), "again after 30 s"),
            (
                ApiError::Flood(Duration::from_secs(31)),
                "never: Telegram did not give it (too many requests, wait 31 s)",
            ),
            (refused(400, "Bad Request: file is too big"), "never: Telegram gives bots no files of more than 20 MB"),
            (
                refused(400, "Bad Request: wrong file_id"),
                "never: Telegram did not give it (refused with 400: Bad Request: wrong file_id)",
            ),
        ] {
            let words = match Failed::from(error) {
                Failed::Temporarily(_, None) => "again".to_owned(),
                Failed::Temporarily(_, Some(wait)) => format!("again after {} s", wait.as_secs()),
                Failed::ForGood(reason) => format!("never: {reason}"),
            };
            assert_eq!(words, expected);
        }
    }
}
