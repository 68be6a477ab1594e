//! The built-in stand-in for a model. Placeholder: its module is written elsewhere.

use async_trait::async_trait;
use belay_protocol::{DeltaSink, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest};

/// Answers without a model.
pub struct Rehearsal(ModelInfo);

impl Default for Rehearsal {
    fn default() -> Self {
        Self::new()
    }
}

impl Rehearsal {
    /// A new one.
    pub fn new() -> Self {
        Self(ModelInfo {
            provider: "rehearsal".into(),
            model: "rehearsal".into(),
            context_tokens: 128_000,
            price: None,
            rehearsal: true,
        })
    }
}

#[async_trait]
impl ModelProvider for Rehearsal {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    async fn call(&self, _: ModelRequest<'_>, _: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        Ok(ModelReply { attempts: 1, ..ModelReply::default() })
    }
}
