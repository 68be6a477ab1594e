//! The port that turns recorded speech into text.

use async_trait::async_trait;
use bytes::Bytes;

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The file.
    pub bytes: Bytes,
    /// Its format, found by its content.
    pub format: AudioFormat,
    /// Its length in seconds, as the file says; `None`: the file does not say.
    pub seconds: Option<u64>,
}

/// The format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioFormat {
    /// Ogg with Opus, as voice messages have.
    OggOpus,
    /// Ogg with another codec.
    Ogg,
    /// MP3.
    Mp3,
    /// MPEG-4 with audio alone.
    M4a,
    /// WAV.
    Wav,
    /// FLAC.
    Flac,
    /// WebM with audio alone.
    Webm,
}

impl AudioFormat {
    /// The ending of the names of such files.
    pub fn ending(self) -> &'static str {
        match self {
            Self::OggOpus | Self::Ogg => "ogg",
            Self::Mp3 => "mp3",
            Self::M4a => "m4a",
            Self::Wav => "wav",
            Self::Flac => "flac",
            Self::Webm => "webm",
        }
    }
}

/// The limits of one recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingLimits {
    /// Its maximum size in bytes.
    pub max_bytes: u64,
    /// Its maximum length in seconds, if the file says its length.
    pub max_seconds: u64,
}

/// The reason why a recording was not transcribed, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TranscriptionError(pub String);

/// Turns recorded speech into text.
#[async_trait]
pub trait Transcriber: Send + Sync {
    /// The limits of one recording. The caller checks them.
    fn limits(&self) -> RecordingLimits;

    /// The spoken words. Ends within the deadline of the implementation.
    ///
    /// # Errors
    /// The reason. A later attempt may succeed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. It may have been charged.
    async fn transcribe(&self, recording: Recording) -> Result<String, TranscriptionError>;
}
