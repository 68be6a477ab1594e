//! The forms of a request for vectors, and of the answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request for vectors.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EmbeddingsRequest {
    /// `belay`, or the name of the configured model for embeddings.
    pub(super) model: Option<String>,
    /// A text, or a list of texts.
    #[cfg_attr(test, schemars(with = "Texts"))]
    pub(super) input: Option<Value>,
    /// `float` or `base64`.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) encoding_format: Option<Value>,
    /// As many as the vectors have.
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    pub(super) dimensions: Option<Value>,
}

/// The forms of `input`.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "EmbeddingsInput", untagged)]
#[allow(dead_code, reason = "only its schema matters")]
enum Texts {
    One(String),
    Some(Vec<String>),
}

/// The vectors.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Embeddings {
    #[cfg_attr(test, schemars(extend("enum" = ["list"])))]
    pub(super) object: &'static str,
    pub(super) data: Vec<Embedding>,
    pub(super) model: String,
    pub(super) usage: EmbeddingsUsage,
}

/// The vector of a text.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Embedding {
    #[cfg_attr(test, schemars(extend("enum" = ["embedding"])))]
    pub(super) object: &'static str,
    pub(super) index: usize,
    pub(super) embedding: Vector,
}

/// A list of numbers, or their bytes (IEEE 754, 4 bytes each, little-endian) in base64.
#[derive(Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

/// An estimate: a quarter of the bytes of the texts.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct EmbeddingsUsage {
    pub(super) prompt_tokens: u64,
    pub(super) total_tokens: u64,
}
