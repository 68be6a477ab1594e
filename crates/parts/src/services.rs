//! Opens the servers for transcription and embeddings, and counts their work.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_models::{OpenAiEmbedder, OpenAiTranscriber};
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_protocol::{
    Embedder, EmbeddingError, NoteVectors, Recording, RecordingLimits, Transcriber, TranscriptionError,
};
use belay_settings::Settings;
use belay_tools::Meaning;
use metrics::{counter, describe_counter};
use secrecy::SecretString;

/// Recordings that were sent to the server, by outcome: `ok` or `failed`.
const TRANSCRIPTIONS: &str = "belay_transcriptions_total";
/// Seconds of transcribed recordings whose file says its length. Their cost is part of no budget.
const TRANSCRIBED_SECONDS: &str = "belay_transcribed_seconds_total";

/// Texts that were sent to be compared by meaning, by outcome: `ok` or `failed`. Their cost is part of no budget.
const EMBEDDED_TEXTS: &str = "belay_embedded_texts_total";

/// The search for notes by meaning; `None`: by words alone. Nothing is sent.
///
/// # Errors
/// The address or the key is unusable, or TLS cannot be set up.
pub fn meaning(
    settings: &Settings,
    key: Option<&SecretString>,
    vectors: Arc<dyn NoteVectors>,
) -> Result<Option<Meaning>, Failure> {
    let config = &settings.memory.embeddings;
    let Some(base) = &config.base_url else { return Ok(None) };
    let deadline = Duration::from_secs(config.timeout_s);
    let opened = OpenAiEmbedder::new(base, &config.model, config.dimensions, deadline, key);
    let server =
        opened.map_err(|error| Failure::new(Exit::Refused, format!("memory.embeddings: {}", words(&error))))?;
    let min_similarity = config.min_similarity_percent as f32 / 100.0;
    Ok(Some(Meaning { embedder: Arc::new(Counted(server)), vectors, min_similarity }))
}

/// The transcriber that the settings name; `None`: recordings are only named. Nothing is sent.
///
/// # Errors
/// The address or the key is unusable, or TLS cannot be set up.
pub fn transcriber(settings: &Settings, key: Option<&SecretString>) -> Result<Option<Arc<dyn Transcriber>>, Failure> {
    let opened = OpenAiTranscriber::new(&settings.transcription, key);
    let opened = opened.map_err(|error| Failure::new(Exit::Refused, format!("transcription: {}", words(&error))))?;
    Ok(opened.map(|server| Arc::new(Counted(server)) as Arc<dyn Transcriber>))
}

/// Describes the metrics of both.
pub fn describe_services() {
    describe_counter!(TRANSCRIPTIONS, "Recordings that were sent to be transcribed, by outcome");
    describe_counter!(EMBEDDED_TEXTS, "Texts that were sent to be compared by meaning, by outcome");
    describe_counter!(TRANSCRIBED_SECONDS, "Seconds of transcribed recordings whose file says its length");
}

/// Counts the work of a server.
struct Counted<T>(T);

#[async_trait]
impl<T: Embedder> Embedder for Counted<T> {
    fn model(&self) -> &str {
        self.0.model()
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        let count = texts.len() as u64;
        let result = self.0.embed(texts).await;
        let outcome = if result.is_ok() { "ok" } else { "failed" };
        counter!(EMBEDDED_TEXTS, "outcome" => outcome).increment(count);
        result
    }
}

#[async_trait]
impl<T: Transcriber> Transcriber for Counted<T> {
    fn limits(&self) -> RecordingLimits {
        self.0.limits()
    }

    async fn transcribe(&self, recording: Recording) -> Result<String, TranscriptionError> {
        let seconds = recording.seconds;
        let result = self.0.transcribe(recording).await;
        let outcome = if result.is_ok() { "ok" } else { "failed" };
        counter!(TRANSCRIPTIONS, "outcome" => outcome).increment(1);
        counter!(TRANSCRIBED_SECONDS).increment(seconds.filter(|_| result.is_ok()).unwrap_or_default());
        result
    }
}
