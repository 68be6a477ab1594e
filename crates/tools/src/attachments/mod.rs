//! Files that come with messages: the port [`AttachmentIntake`].
//!
//! A file is stored as it arrives, charged, and then read once: a picture is decoded, scaled down and stored again, a text is decoded
//! and cut, a PDF is read in a confined process, and a recording is transcribed. A file that cannot be read becomes an attachment with a name and the
//! reason. All content is untrusted.
//!
//! Reading order: [`config`] → `kind` (the type of a file) → `audio` (recordings) → here → [`pdf`].

mod audio;
pub mod config;
mod kind;
#[cfg_attr(not(feature = "pdf"), path = "no_pdf.rs")]
pub mod pdf;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_exec::Processes;
use belay_protocol::{
    Attachment, AttachmentContent, AttachmentError, AttachmentIntake, AudioFormat, BlobDigest, BlobStore, ByteStream,
    Clock, Recording, StoreError, Transcriber, UPLOADS_KEPT_MS, UnixMillis, Upload, UploadId, UploadStore, Uploader,
};
use belay_text::removed;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

pub use self::config::AttachmentsConfig;
use self::config::READ_MAX_BYTES;
use self::kind::Kind;
use self::pdf::PdfReader;
use crate::picture::{PictureError, Pictures};
use crate::web::readable::readable;

/// Longest name, in characters.
const NAME_MAX_CHARS: usize = 128;

/// Longest time for converting HTML to text, as for pages of the web.
const HTML_LIMIT: Duration = Duration::from_secs(2);

/// Files that are read at the same time. 2: each is held in memory, up to 64 MiB.
const READING_SLOTS: usize = 2;

/// The detail of a file whose reading has not ended, for example because its client has disconnected.
const UNREAD: &str = "it was not read: its upload was interrupted; send it again";

/// The detail of a PDF whose turn did not come within [`pdf::TURN_LIMIT`].
const BUSY: &str = "it was not read, because other PDF files are being read; send it again later";

/// Recordings that are transcribed at the same time. 2: each is held in memory, up to `transcription.max_bytes`.
const TRANSCRIBING_SLOTS: usize = 2;

/// Longest wait for the turn of a recording, as for a PDF.
const TRANSCRIBING_TURN_LIMIT: Duration = pdf::TURN_LIMIT;

/// The detail of a recording when no transcription is configured.
const NO_TRANSCRIPTION: &str = "no transcription is configured for audio";

/// The beginning of the detail of a recording whose transcription has failed. It may succeed later.
const NOT_TRANSCRIBED: &str = "it was not transcribed; send it again later";

/// Takes files: stores them and reads them for the model.
pub struct Attachments {
    config: AttachmentsConfig,
    blobs: Arc<dyn BlobStore>,
    uploads: Arc<dyn UploadStore>,
    clock: Arc<dyn Clock>,
    pictures: Pictures,
    pdf: PdfReader,
    reading: Arc<Semaphore>,
    transcriber: Option<Arc<dyn Transcriber>>,
    transcribing: Semaphore,
}

/// The services that [`Attachments`] uses.
pub struct AttachmentsParts {
    /// Stores the files.
    pub blobs: Arc<dyn BlobStore>,
    /// Stores the rows of uploads.
    pub uploads: Arc<dyn UploadStore>,
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// Starts the reader of PDF files.
    pub processes: Arc<Processes>,
    /// The program whose command [`pdf::COMMAND`] reads a PDF: Belay itself.
    pub program: PathBuf,
    /// Transcribes recordings; `None`: they are only named.
    pub transcriber: Option<Arc<dyn Transcriber>>,
}

impl Attachments {
    /// Takes files by these settings.
    pub fn new(config: AttachmentsConfig, parts: AttachmentsParts) -> Self {
        let AttachmentsParts { blobs, uploads, clock, processes, program, transcriber } = parts;
        let (pictures, pdf) = (Pictures::new(), PdfReader::new(program, processes));
        let reading = Arc::new(Semaphore::new(READING_SLOTS));
        let transcribing = Semaphore::new(TRANSCRIBING_SLOTS);
        Self { config, blobs, uploads, clock, pictures, pdf, reading, transcriber, transcribing }
    }

    /// The begin of the period of the daily limit.
    fn since(&self) -> UnixMillis {
        UnixMillis(self.clock.now().0.saturating_sub(UPLOADS_KEPT_MS))
    }

    /// Stores the bytes as they arrive. `used`: the bytes of the person within 24 hours. Returns the digest and the size.
    async fn store(&self, used: u64, mut bytes: ByteStream) -> Result<(BlobDigest, u64), AttachmentError> {
        let limit = self.config.max_bytes_per_day;
        let left = limit.saturating_sub(used);
        let mut writer = self.blobs.begin().await?;
        let mut size = 0u64;
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|error| AttachmentError::Broken(error.to_string()))?;
            size = size.saturating_add(piece.len() as u64);
            if size > self.config.max_bytes {
                return Err(AttachmentError::TooLarge(self.config.max_bytes));
            }
            if size > left {
                return Err(AttachmentError::Quota { used, limit });
            }
            writer.write(&piece).await?;
        }
        if size == 0 {
            return Err(AttachmentError::Empty);
        }
        Ok((writer.finish().await?, size))
    }

    /// The upload of the same bytes under the same name within 24 hours. A file that was not read then is read now.
    async fn renewed(
        &self,
        from: &Uploader,
        digest: &BlobDigest,
        name: &str,
    ) -> Result<Option<Upload>, AttachmentError> {
        let renewed = self.uploads.renew_upload(from, digest, name, self.since(), self.clock.now()).await?;
        Ok(match renewed {
            Some(upload) if is_unread(&upload.attachment) => Some(self.with_content(upload).await?),
            other => other,
        })
    }

    /// Reads the file of a recorded upload.
    async fn with_content(&self, mut upload: Upload) -> Result<Upload, AttachmentError> {
        let file = &mut upload.attachment;
        (file.media_type, file.content) = self.read(&file.name, &file.digest, file.bytes).await?;
        self.uploads.update_upload(&upload).await?;
        Ok(upload)
    }

    /// The bytes of a stored file.
    async fn bytes(&self, digest: &BlobDigest) -> Result<Bytes, StoreError> {
        let bytes = self.blobs.read(digest).await?;
        bytes.ok_or_else(|| StoreError::Unavailable("a stored file is missing".to_owned()))
    }

    /// Reads a stored file for the model.
    async fn read(
        &self,
        name: &str,
        digest: &BlobDigest,
        size: u64,
    ) -> Result<(String, AttachmentContent), StoreError> {
        let named = |media_type: &str, detail: String| (media_type.to_owned(), AttachmentContent::Named { detail });
        if size > READ_MAX_BYTES {
            let detail = format!("it is larger than {READ_MAX_BYTES} bytes, which are read at most");
            return Ok(named("application/octet-stream", detail));
        }
        let slot = self.reading.clone().acquire_owned().await;
        let slot = slot.map_err(|_closed| StoreError::Unavailable("the intake of files is closed".to_owned()))?;
        let bytes = self.bytes(digest).await?;
        let (found, name) = (bytes.clone(), name.to_owned());
        // The slot goes with the work, which continues if the request is dropped.
        let Ok(((media_type, kind), slot)) = spawn_blocking(move || (kind::of(&found, &name), slot)).await else {
            return Ok(named("application/octet-stream", "it is broken".to_owned()));
        };
        let content = match kind {
            Kind::Named(why) => AttachmentContent::Named { detail: why.to_owned() },
            Kind::Picture => self.picture(bytes, slot).await?,
            Kind::Pdf => {
                // Neither the slot nor the bytes are held while the file waits for its turn.
                drop((slot, bytes));
                self.pdf(digest).await?
            }
            Kind::Audio(format) => {
                drop((slot, bytes)); // as for a PDF
                self.recording(digest, size, format).await?
            }
            Kind::Html | Kind::Text => {
                let most = self.config.max_text_bytes;
                let text = spawn_blocking(move || (text_of(&bytes, kind == Kind::Html, most), slot)).await;
                text.map_or_else(|_panic| AttachmentContent::Named { detail: "it is broken".to_owned() }, |done| done.0)
            }
        };
        Ok((media_type.to_owned(), content))
    }

    /// Decodes a picture, scales it down, and stores it as it is shown.
    async fn picture(&self, bytes: Bytes, slot: OwnedSemaphorePermit) -> Result<AttachmentContent, StoreError> {
        let load = move || {
            let _slot = slot; // until the decoding begins, which has a turn of its own
            Ok(bytes.to_vec())
        };
        let cleaned = match self.pictures.clean(load, &CancellationToken::new()).await {
            Ok(cleaned) => cleaned,
            Err(PictureError::Unreadable(why)) => {
                return Ok(AttachmentContent::Named { detail: format!("the picture cannot be shown: {why}") });
            }
            Err(PictureError::Cancelled) => return Err(StoreError::Unavailable("it was cancelled".to_owned())),
        };
        let mut writer = self.blobs.begin().await?;
        writer.write(&Bytes::copy_from_slice(cleaned.picture.base64.as_bytes())).await?;
        let (digest, detail) = (writer.finish().await?, cleaned.to_string());
        Ok(AttachmentContent::Picture { digest, media_type: cleaned.picture.media_type, detail })
    }

    async fn pdf(&self, digest: &BlobDigest) -> Result<AttachmentContent, StoreError> {
        let Some(turn) = self.pdf.turn().await else {
            return Ok(AttachmentContent::Named { detail: BUSY.to_owned() });
        };
        let bytes = self.bytes(digest).await?;
        let (pages, most) = (config::MAX_PDF_PAGES, self.config.max_text_bytes);
        Ok(match self.pdf.read(turn, &bytes, pages, most).await {
            Ok((_, text)) if text.trim().is_empty() => {
                let detail = "no text was found in the PDF: its pages are scanned, broken or too large".to_owned();
                AttachmentContent::Named { detail }
            }
            Ok((head, text)) => {
                let mut detail = format!("text of a PDF, {} of {} pages", head.read, head.pages);
                if head.broken > 0 {
                    detail.push_str(&format!(", {} of them not readable", head.broken));
                }
                if head.fields > 0 {
                    let plural = if head.fields == 1 { "" } else { "s" };
                    detail.push_str(&format!(", {} filled form field{plural}", head.fields));
                }
                if head.is_cut {
                    detail.push_str(&format!(", cut after {} bytes", text.len()));
                }
                shown(&text, detail)
            }
            Err(why) => AttachmentContent::Named { detail: format!("the PDF cannot be read: {why}") },
        })
    }
}

impl Attachments {
    /// Transcribes a recording.
    async fn recording(
        &self,
        digest: &BlobDigest,
        size: u64,
        format: AudioFormat,
    ) -> Result<AttachmentContent, StoreError> {
        let named = |detail: String| Ok(AttachmentContent::Named { detail });
        let Some(transcriber) = &self.transcriber else { return named(NO_TRANSCRIPTION.to_owned()) };
        let limits = transcriber.limits();
        if size > limits.max_bytes {
            return named(format!("it is larger than {} bytes (transcription.max_bytes)", limits.max_bytes));
        }
        let Ok(Ok(_turn)) = timeout(TRANSCRIBING_TURN_LIMIT, self.transcribing.acquire()).await else {
            return named(format!("{NOT_TRANSCRIBED}: other recordings are being transcribed"));
        };
        let bytes = self.bytes(digest).await?;
        let whole = bytes.clone();
        let seconds = spawn_blocking(move || audio::seconds_of(format, &whole)).await.unwrap_or_default();
        if seconds.is_some_and(|seconds| seconds > limits.max_seconds) {
            return named(format!("it is longer than {} s (transcription.max_seconds)", limits.max_seconds));
        }
        let text = match transcriber.transcribe(Recording { bytes, format, seconds }).await {
            Ok(text) if text.trim().is_empty() => return named("no words were found in it".to_owned()),
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(detail = %error, "a recording was not transcribed");
                return named(format!("{NOT_TRANSCRIBED}: {error}"));
            }
        };
        Ok(transcript(text.trim(), format, seconds, self.config.max_text_bytes))
    }
}

/// A transcript for the model, cut to `most` bytes.
fn transcript(text: &str, format: AudioFormat, seconds: Option<u64>, most: usize) -> AttachmentContent {
    let what = if format == AudioFormat::OggOpus { "a voice message" } else { "a recording" };
    let mut detail = format!("transcript of {what}");
    if let Some(seconds) = seconds {
        detail.push_str(&format!(", {seconds} s"));
    }
    let cut = text.floor_char_boundary(most);
    if cut < text.len() {
        detail.push_str(&format!(", cut: the first {cut} of {} bytes", text.len()));
    }
    shown(&text[..cut], detail)
}

/// Whether the file may be readable if it is sent again.
fn is_unread(attachment: &Attachment) -> bool {
    let AttachmentContent::Named { detail } = &attachment.content else { return false };
    [UNREAD, BUSY, NO_TRANSCRIPTION].contains(&detail.as_str()) || detail.starts_with(NOT_TRANSCRIBED)
}

/// The text of a text file, cut to `most` bytes. CPU-bound.
fn text_of(bytes: &[u8], is_html: bool, most: usize) -> AttachmentContent {
    let Some(text) = kind::decoded(bytes) else {
        return AttachmentContent::Named { detail: "it is no text".to_owned() };
    };
    let mut detail = "text".to_owned();
    let mut whole = text.into_owned();
    if is_html {
        detail = "text of an HTML page".to_owned();
        // The base of relative links, which are left out.
        let Ok(base) = Url::parse("http://attachment.invalid/") else {
            return AttachmentContent::Named { detail: "it is no text".to_owned() };
        };
        let page = match readable(&whole, &base, HTML_LIMIT) {
            Ok(page) => page,
            Err(why) => return AttachmentContent::Named { detail: format!("the page cannot be read: {why}") },
        };
        whole = match page.title.as_str() {
            "" => page.text,
            title => format!("{title}\n\n{}", page.text),
        };
    }
    if whole.len() > most {
        let cut = whole.floor_char_boundary(most);
        detail.push_str(&format!(", cut: the first {cut} of {} bytes", whole.len()));
        whole.truncate(cut);
    }
    if whole.trim().is_empty() {
        return AttachmentContent::Named { detail: "it has no text".to_owned() };
    }
    shown(&whole, detail)
}

/// A text for the model, with an id of its markers that the author of the file cannot know.
fn shown(text: &str, detail: String) -> AttachmentContent {
    let random = Uuid::new_v4().simple().to_string();
    let mark = random[..belay_text::untrusted::ID_DIGITS].to_owned();
    AttachmentContent::Text { text: removed(text).into_owned(), mark, detail }
}

/// The media type of a file with this beginning. The beginning may end within a character.
pub(crate) fn media_type(head: &[u8], name: &str) -> &'static str {
    let whole = match std::str::from_utf8(head) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => head.len(),
    };
    kind::of(&head[..whole], name).0
}

/// The name on one line, without control and hidden characters and without a path.
pub(crate) fn cleaned(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = removed(base).chars().filter(|c| !c.is_control()).take(NAME_MAX_CHARS).collect();
    if visible.trim().is_empty() { "unnamed".to_owned() } else { visible.trim().to_owned() }
}

#[async_trait]
impl AttachmentIntake for Attachments {
    fn max_count(&self) -> usize {
        self.config.max_count
    }

    fn max_bytes(&self) -> u64 {
        self.config.max_bytes
    }

    async fn take(&self, from: &Uploader, name: &str, bytes: ByteStream) -> Result<Upload, AttachmentError> {
        if !self.config.enabled() {
            return Err(AttachmentError::Disabled);
        }
        let (since, limit) = (self.since(), self.config.max_bytes_per_day);
        // Before the bytes are stored. The exact check is made with the commit, because other uploads may run.
        let used = self.uploads.uploaded_since(from, since).await?;
        if used >= limit {
            return Err(AttachmentError::Quota { used, limit });
        }
        let (digest, size) = self.store(used, bytes).await?;
        let name = cleaned(name);
        if let Some(known) = self.renewed(from, &digest, &name).await? {
            return Ok(known);
        }
        let content = AttachmentContent::Named { detail: UNREAD.to_owned() };
        let media_type = "application/octet-stream".to_owned();
        let attachment = Attachment { name, media_type, bytes: size, digest, content };
        let upload = Upload { id: UploadId::new(), attachment };
        // Before the file is read: a client that disconnects while it is read is charged.
        if !self.uploads.record_upload(from, &upload, self.clock.now(), since, limit).await? {
            return Err(AttachmentError::Quota { used, limit });
        }
        self.with_content(upload).await
    }

    async fn take_whole(&self, from: &Uploader, name: &str, bytes: Bytes) -> Result<Upload, AttachmentError> {
        if !self.config.enabled() {
            return Err(AttachmentError::Disabled);
        }
        let (blobs, whole) = (self.blobs.clone(), bytes.clone());
        let digest = spawn_blocking(move || blobs.digest(&whole)).await;
        let digest = digest.map_err(|error| AttachmentError::Broken(error.to_string()))??;
        match self.renewed(from, &digest, &cleaned(name)).await? {
            Some(known) => Ok(known),
            None => self.take(from, name, Box::pin(stream::iter([Ok(bytes)]))).await,
        }
    }

    async fn find(&self, from: &Uploader, id: &str) -> Result<Attachment, AttachmentError> {
        let unknown = || AttachmentError::Unknown(id.chars().take(64).collect());
        let known = id.parse().map_err(|_not_an_id| unknown())?;
        self.uploads.upload(from, known, self.since()).await?.ok_or_else(unknown)
    }
}
