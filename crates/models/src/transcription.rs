//! Transcription: `POST /audio/transcriptions` of a server with the API of OpenAI.
//!
//! Source: OpenAI API reference, "Create transcription". whisper.cpp, faster-whisper and others have the same route.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Recording, RecordingLimits, Transcriber, TranscriptionError};
use bytes::{BufMut, Bytes, BytesMut};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::ModelsError;
use crate::service::{Service, ServiceSettings, unusable};

/// Longest answer. 1 MiB: a transcript of two hours has about 100 KiB.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// The section `[transcription]` of the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TranscriptionConfig {
    /// Address of the server without the path of the call, for instance `https://api.openai.com/v1`. Absent: audio is
    /// not transcribed.
    pub base_url: Option<String>,
    /// Name of the model.
    pub model: String,
    /// Name of the environment variable with the key. The daemon reads it.
    pub api_key_env: Option<String>,
    /// File with the key. The daemon reads it.
    pub api_key_file: Option<PathBuf>,
    /// The spoken language as a code of ISO 639-1, such as `de`. Absent: the server finds it.
    pub language: Option<String>,
    /// Longest time for one recording in seconds, a second attempt included, 1 to 600.
    #[serde(skip)]
    pub timeout_s: u64,
    /// Longest recording in seconds, 1 to 14,400. A file that does not say its length is limited by its size alone.
    pub max_seconds: u64,
    /// Largest recording in bytes.
    #[serde(skip)]
    pub max_bytes: u64,
}

impl Default for TranscriptionConfig {
    fn default() -> Self {
        Self {
            base_url: None,
            model: "whisper-1".into(),
            api_key_env: None,
            api_key_file: None,
            language: None,
            timeout_s: 60,
            max_seconds: 600,
            max_bytes: 25 * 1000 * 1000,
        }
    }
}

impl TranscriptionConfig {
    /// Every problem of the section, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = ServiceSettings {
            section: "transcription",
            base_url: self.base_url.as_deref(),
            model: &self.model,
            api_key_env: self.api_key_env.as_deref(),
            api_key_file: self.api_key_file.as_ref(),
        }
        .problems();
        let is_code = |code: &String| (2..=3).contains(&code.len()) && code.chars().all(|c| c.is_ascii_lowercase());
        if !self.language.as_ref().is_none_or(is_code) {
            problems.push("transcription.language: must be a code of a language such as \"en\"".to_owned());
        }
        if !(1..=14_400).contains(&self.max_seconds) {
            problems.push("transcription.max_seconds: must be 1 to 14400".to_owned());
        }
        problems
    }
}

/// A server that transcribes.
pub struct OpenAiTranscriber {
    service: Service,
    config: TranscriptionConfig,
}

/// The answer with `response_format=json`.
#[derive(Deserialize)]
struct Answer {
    text: String,
}

impl OpenAiTranscriber {
    /// The transcriber that the settings name; `None`: there is none. Nothing is sent.
    ///
    /// # Errors
    /// The address or the key is unusable, or TLS cannot be set up.
    pub fn new(config: &TranscriptionConfig, key: Option<&SecretString>) -> Result<Option<Self>, ModelsError> {
        let Some(base) = &config.base_url else { return Ok(None) };
        let service = Service::new(base, "/audio/transcriptions", key, Duration::from_secs(config.timeout_s))?;
        Ok(Some(Self { service, config: config.clone() }))
    }

    /// The parts of the form besides the file.
    fn fields(&self) -> Vec<(&'static str, &str)> {
        let mut fields = vec![("model", self.config.model.as_str()), ("response_format", "json")];
        fields.extend(self.config.language.as_deref().map(|code| ("language", code)));
        fields
    }
}

#[async_trait]
impl Transcriber for OpenAiTranscriber {
    fn limits(&self) -> RecordingLimits {
        RecordingLimits { max_bytes: self.config.max_bytes, max_seconds: self.config.max_seconds }
    }

    async fn transcribe(&self, recording: Recording) -> Result<String, TranscriptionError> {
        let Recording { bytes, format, .. } = recording;
        // The server finds the format by the ending.
        let name = format!("recording.{}", format.ending());
        let boundary = format!("belay-{}", Uuid::now_v7().simple());
        let body = form(&boundary, &self.fields(), &name, &bytes);
        drop(bytes);
        let kind = format!("multipart/form-data; boundary={boundary}");
        let answer = self.service.post(&kind, body, ANSWER_MAX_BYTES).await.map_err(TranscriptionError)?;
        match serde_json::from_slice::<Answer>(&answer) {
            Ok(Answer { text }) => Ok(text),
            Err(_) => Err(TranscriptionError(unusable(&answer))),
        }
    }
}

/// A form with these fields and one file. Source: RFC 7578.
fn form(boundary: &str, fields: &[(&str, &str)], name: &str, file: &[u8]) -> Bytes {
    let mut form = BytesMut::with_capacity(file.len() + 1024);
    for (field, value) in fields {
        let part = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n{value}\r\n");
        form.put_slice(part.as_bytes());
    }
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    form.put_slice(head.as_bytes());
    form.put_slice(file);
    form.put_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    form.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use belay_protocol::AudioFormat;
    use serde_json::json;

    use super::*;
    use crate::testing::client;

    fn transcriber(base: &str) -> OpenAiTranscriber {
        client(); // installs the provider of TLS
        let config: TranscriptionConfig = serde_json::from_value(json!({"base_url": base, "language": "de"})).unwrap();
        let config = TranscriptionConfig { timeout_s: 5, ..config };
        OpenAiTranscriber::new(&config, Some(&"sesame".into())).unwrap().unwrap()
    }

    fn recording() -> Recording {
        Recording { bytes: Bytes::from_static(b"OggS"), format: AudioFormat::OggOpus, seconds: Some(12) }
    }

    #[test]
    fn every_problem_starts_with_its_key() {
        assert!(TranscriptionConfig::default().validate().is_empty());
        let bad: TranscriptionConfig = serde_json::from_value(json!({
            "base_url": "ftp://x", "model": " ", "api_key_env": "A", "api_key_file": "/b", "language": "German",
            "max_seconds": 0
        }))
        .unwrap();
        let keys: Vec<String> =
            bad.validate().iter().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect();
        let names = ["base_url", "model", "api_key_file", "language", "max_seconds"];
        assert_eq!(keys, names.map(|name| format!("transcription.{name}")));
    }

    #[test]
    fn the_form_has_the_fields_and_then_the_file() {
        let form = form("B", &[("model", "whisper-1")], "recording.ogg", b"\x00\xff");
        let expected = b"--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--B\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"recording.ogg\"\r\n\
            Content-Type: application/octet-stream\r\n\r\n\x00\xff\r\n--B--\r\n";
        assert_eq!(form.as_ref(), expected);
    }

    #[tokio::test]
    async fn a_recording_is_sent_with_its_ending_and_the_key() {
        let server = crate::service::double::serve(vec![(200, r#"{"text": "good morning"}"#)]).await;
        let text = transcriber(&server.base_url).transcribe(recording()).await.unwrap();
        assert_eq!(text, "good morning");
        let requests = server.requests();
        let request = requests[0].to_lowercase();
        for part in [
            "post /v1/audio/transcriptions",
            "authorization: bearer sesame",
            "name=\"model\"\r\n\r\nwhisper-1",
            "name=\"language\"\r\n\r\nde",
            "filename=\"recording.ogg\"",
        ] {
            assert!(request.contains(part), "{part}: {request}");
        }
    }

    #[tokio::test]
    async fn a_temporary_failure_is_tried_once_more_and_a_refusal_is_not() {
        let fine = (200, r#"{"text": "yes"}"#);
        let busy = (503, r#"{"error": {"message": "busy, sesame"}}"#);
        let refused = (401, r#"{"error": {"message": "wrong key sesame"}}"#);
        for (answers, expected, requests) in [
            (vec![busy, fine], Ok("yes".to_owned()), 2),
            (vec![busy, busy, fine], Err("HTTP 503: busy, [key]".to_owned()), 2),
            (vec![refused, fine], Err("HTTP 401: wrong key [key]".to_owned()), 1),
            (vec![(200, r#"{"error": "no model"}"#), fine], Err("no model".to_owned()), 1),
            (vec![(200, "<html>"), fine], Err("the answer is not one of the API of OpenAI".to_owned()), 1),
        ] {
            let server = crate::service::double::serve(answers).await;
            let result = transcriber(&server.base_url).transcribe(recording()).await;
            assert_eq!(result.map_err(|error| error.0), expected);
            assert_eq!(server.requests().len(), requests);
        }
    }
}
