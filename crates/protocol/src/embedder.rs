//! The port that turns texts into vectors, so that texts of a similar meaning are near each other.

use async_trait::async_trait;

/// The reason why there are no vectors, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EmbeddingError(pub String);

/// Turns texts into vectors.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// The name of the model with the number of dimensions. Vectors of different names cannot be compared.
    fn model(&self) -> &str;

    /// One vector for each text, in the same order, all of the same length. Ends within the deadline of the
    /// implementation.
    ///
    /// # Errors
    /// The reason. A later attempt may succeed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. It may have been charged.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbeddingError>;
}
