//! Embeddings: `POST /embeddings` of a server with the API of OpenAI.
//!
//! Source: OpenAI API reference, "Create embeddings".

use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Embedder, EmbeddingError};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;

use crate::error::ModelsError;
use crate::service::{Service, unusable};

/// Most dimensions of a vector. 8192: the largest models have 4096.
pub const DIMENSIONS_MAX: u32 = 8192;

/// Longest answer. 16 MiB: 64 vectors of 8192 dimensions take 11.
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// A server that makes embeddings.
pub struct OpenAiEmbedder {
    service: Service,
    /// The name of the model, as requests have it.
    requested: String,
    dimensions: Option<u32>,
    /// The model with its dimensions.
    model: String,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    index: usize,
    embedding: Vec<f32>,
}

impl OpenAiEmbedder {
    /// A server at this base address. `dimensions`: of each vector; `None`: as many as the model has. Nothing is sent.
    ///
    /// # Errors
    /// The address or the key is unusable, or TLS cannot be set up.
    pub fn new(
        base_url: &str,
        model: &str,
        dimensions: Option<u32>,
        deadline: Duration,
        key: Option<&SecretString>,
    ) -> Result<Self, ModelsError> {
        let service = Service::new(base_url, "/embeddings", key, deadline)?;
        let requested = model.to_owned();
        let model = dimensions.map_or_else(|| requested.clone(), |dimensions| format!("{requested}/{dimensions}"));
        Ok(Self { service, requested, dimensions, model })
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        let mut body = json!({"model": self.requested, "input": texts, "encoding_format": "float"});
        if let Some(dimensions) = self.dimensions {
            body["dimensions"] = dimensions.into();
        }
        let answer = self.service.post("application/json", body.to_string().into(), ANSWER_MAX_BYTES).await;
        let answer = answer.map_err(EmbeddingError)?;
        let Ok(Answer { mut data }) = serde_json::from_slice::<Answer>(&answer) else {
            return Err(EmbeddingError(unusable(&answer)));
        };
        data.sort_by_key(|item| item.index);
        let length = data.first().map_or(0, |item| item.embedding.len());
        let is_usable = |item: &Item| item.embedding.len() == length && item.embedding.iter().all(|x| x.is_finite());
        if data.len() != texts.len() || !(1..=DIMENSIONS_MAX as usize).contains(&length) || !data.iter().all(is_usable)
        {
            return Err(EmbeddingError(format!("the server gave no usable vector for each of {} texts", texts.len())));
        }
        Ok(data.into_iter().map(|item| item.embedding).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::service::double::serve;
    use crate::testing::client;

    #[tokio::test]
    async fn each_text_gets_its_vector_whatever_their_order_in_the_answer() {
        client(); // installs the provider of TLS
        let vectors = r#"{"data": [{"index": 1, "embedding": [0.5, 1]}, {"index": 0, "embedding": [1, 0]}]}"#;
        let few = r#"{"data": [{"index": 0, "embedding": [1, 0]}]}"#;
        let uneven = r#"{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 0]}]}"#;
        let useless = Err(EmbeddingError("the server gave no usable vector for each of 2 texts".into()));
        for (answer, expected) in [
            (vectors, Ok(vec![vec![1.0, 0.0], vec![0.5, 1.0]])),
            (few, useless.clone()),
            (uneven, useless.clone()),
            (r#"{"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}"#, useless),
            (r#"{"error": {"message": "no such model"}}"#, Err(EmbeddingError("no such model".into()))),
        ] {
            let server = serve(vec![(200, answer)]).await;
            let deadline = Duration::from_secs(5);
            let embedder = OpenAiEmbedder::new(&server.base_url, "small", Some(2), deadline, None).unwrap();
            assert_eq!(embedder.embed(vec!["a".into(), "b".into()]).await, expected, "{answer}");
            let request = server.requests().pop().unwrap();
            assert!(request.contains(r#""dimensions":2"#) && request.contains(r#""input":["a","b"]"#), "{request}");
            assert!(request.starts_with("POST /v1/embeddings") && embedder.model() == "small/2");
        }
    }
}
