//! Files that come with messages: the port [`AttachmentIntake`].
//!
//! A file is stored as it arrives and read once: a picture is decoded, scaled down and stored again, a text is decoded
//! and cut, a PDF is read in a confined process. A file that cannot be read becomes an attachment with a name and the
//! reason. All content is untrusted.
//!
//! Reading order: [`config`] → `kind` (the type of a file) → here → [`pdf`].

pub mod config;
mod kind;
pub mod pdf;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_exec::Processes;
use belay_protocol::{
    Attachment, AttachmentContent, AttachmentError, AttachmentIntake, BlobDigest, BlobStore, ByteStream, Clock,
    StoreError, UPLOADS_KEPT_MS, UnixMillis, Upload, UploadId, UploadStore, Uploader,
};
use belay_text::removed;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
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

/// Takes files: stores them and reads them for the model.
pub struct Attachments {
    config: AttachmentsConfig,
    blobs: Arc<dyn BlobStore>,
    uploads: Arc<dyn UploadStore>,
    clock: Arc<dyn Clock>,
    pictures: Pictures,
    pdf: PdfReader,
    reading: Semaphore,
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
}

impl Attachments {
    /// Takes files by these settings.
    pub fn new(config: AttachmentsConfig, parts: AttachmentsParts) -> Self {
        let AttachmentsParts { blobs, uploads, clock, processes, program } = parts;
        let (pictures, pdf) = (Pictures::new(), PdfReader::new(program, processes));
        Self { config, blobs, uploads, clock, pictures, pdf, reading: Semaphore::new(READING_SLOTS) }
    }

    /// The begin of the period of the daily limit.
    fn since(&self) -> UnixMillis {
        UnixMillis(self.clock.now().0.saturating_sub(UPLOADS_KEPT_MS))
    }

    /// Stores the bytes as they arrive. Returns the digest and the size.
    async fn store(&self, mut bytes: ByteStream) -> Result<(BlobDigest, u64), AttachmentError> {
        let mut writer = self.blobs.begin().await?;
        let mut size = 0u64;
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|error| AttachmentError::Broken(error.to_string()))?;
            size = size.saturating_add(piece.len() as u64);
            if size > self.config.max_bytes {
                return Err(AttachmentError::TooLarge(self.config.max_bytes));
            }
            writer.write(&piece).await?;
        }
        if size == 0 {
            return Err(AttachmentError::Empty);
        }
        Ok((writer.finish().await?, size))
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
        let _slot = self.reading.acquire().await; // never closed
        let bytes = self.blobs.read(digest).await?;
        let bytes = bytes.ok_or_else(|| StoreError::Unavailable("a stored file is missing".to_owned()))?;
        let (found, name) = (bytes.clone(), name.to_owned());
        let Ok((media_type, kind)) = spawn_blocking(move || kind::of(&found, &name)).await else {
            return Ok(named("application/octet-stream", "it is broken".to_owned()));
        };
        let content = match kind {
            Kind::Named(why) => AttachmentContent::Named { detail: why.to_owned() },
            Kind::Picture => self.picture(bytes).await?,
            Kind::Pdf => self.pdf(&bytes).await,
            Kind::Html | Kind::Text => {
                let most = self.config.max_text_bytes;
                let text = spawn_blocking(move || text_of(&bytes, kind == Kind::Html, most)).await;
                text.unwrap_or_else(|_panic| AttachmentContent::Named { detail: "it is broken".to_owned() })
            }
        };
        Ok((media_type.to_owned(), content))
    }

    /// Decodes a picture, scales it down, and stores it as it is shown.
    async fn picture(&self, bytes: Bytes) -> Result<AttachmentContent, StoreError> {
        let cleaned = match self.pictures.clean(move || Ok(bytes.to_vec()), &CancellationToken::new()).await {
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

    async fn pdf(&self, bytes: &Bytes) -> AttachmentContent {
        let (pages, most) = (self.config.max_pdf_pages, self.config.max_text_bytes);
        match self.pdf.read(bytes, pages, most).await {
            Ok((_, text)) if text.trim().is_empty() => {
                let detail = "no text was found in the PDF: its pages are scanned, broken or too large".to_owned();
                AttachmentContent::Named { detail }
            }
            Ok((head, text)) => {
                let mut detail = format!("text of a PDF, {} of {} pages", head.read, head.pages);
                if head.broken > 0 {
                    detail.push_str(&format!(", {} of them not readable", head.broken));
                }
                if text.len() + 4 > most {
                    detail.push_str(&format!(", cut after {} bytes", text.len()));
                }
                shown(&text, detail)
            }
            Err(why) => AttachmentContent::Named { detail: format!("the PDF cannot be read: {why}") },
        }
    }
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
        let page = readable(&whole, &base, HTML_LIMIT);
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

/// The name on one line, without control and hidden characters and without a path.
fn cleaned(name: &str) -> String {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = removed(base).chars().filter(|c| !c.is_control()).take(NAME_MAX_CHARS).collect();
    if visible.trim().is_empty() { "unnamed".to_owned() } else { visible.trim().to_owned() }
}

#[async_trait]
impl AttachmentIntake for Attachments {
    fn max_count(&self) -> usize {
        if self.config.enabled { self.config.max_count } else { 0 }
    }

    fn max_bytes(&self) -> u64 {
        self.config.max_bytes
    }

    async fn take(&self, from: &Uploader, name: &str, bytes: ByteStream) -> Result<Upload, AttachmentError> {
        if !self.config.enabled {
            return Err(AttachmentError::Disabled);
        }
        let (since, limit) = (self.since(), self.config.max_bytes_per_day);
        // Before the bytes are stored. The exact check is made with the commit.
        let used = self.uploads.uploaded_since(from, since).await?;
        if used >= limit {
            return Err(AttachmentError::Quota { used, limit });
        }
        let (digest, size) = self.store(bytes).await?;
        let name = cleaned(name);
        let (media_type, content) = self.read(&name, &digest, size).await?;
        let attachment = Attachment { name, media_type, bytes: size, digest, content };
        let upload = Upload { id: UploadId::new(), attachment };
        if !self.uploads.record_upload(from, &upload, self.clock.now(), since, limit).await? {
            return Err(AttachmentError::Quota { used, limit });
        }
        Ok(upload)
    }

    async fn find(&self, from: &Uploader, id: &str) -> Result<Attachment, AttachmentError> {
        let unknown = || AttachmentError::Unknown(id.chars().take(64).collect());
        let known = id.parse().map_err(|_not_an_id| unknown())?;
        self.uploads.upload(from, known, self.since()).await?.ok_or_else(unknown)
    }
}
