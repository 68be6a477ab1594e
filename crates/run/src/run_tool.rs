//! Tools that act on the run which calls them: declared once, and bound to each run with what they need of it.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{CallPreview, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value};

/// Declares such a tool. Called without a run, it fails.
pub struct DeclaredTool {
    spec: ToolSpec,
    unbound: &'static str,
}

impl DeclaredTool {
    /// The tool as models see it. `unbound`: what a call reads that no run stands behind.
    pub fn new(spec: ToolSpec, unbound: &'static str) -> Self {
        Self { spec, unbound }
    }
}

#[async_trait]
impl Tool for DeclaredTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        Err(ToolFailure::failed(self.unbound))
    }
}

/// What such a tool needs of a run, and what it does with it.
#[async_trait]
pub trait RunTool: Send + Sync {
    /// As [`Tool::preview`].
    ///
    /// # Errors
    /// What is wrong with the call; the model reads it.
    async fn preview(&self, _arguments: &Map<String, Value>) -> Result<CallPreview, ToolFailure> {
        Ok(CallPreview::default())
    }

    /// As [`Tool::call`].
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput;
}

/// The tool in the hands of one run.
struct BoundTool<T> {
    declaration: Arc<dyn Tool>,
    tool: T,
}

/// Binds a declared tool to a run.
pub fn bound(declaration: &Arc<dyn Tool>, tool: impl RunTool + 'static) -> Arc<dyn Tool> {
    Arc::new(BoundTool { declaration: declaration.clone(), tool })
}

#[async_trait]
impl<T: RunTool> Tool for BoundTool<T> {
    fn spec(&self) -> &ToolSpec {
        self.declaration.spec()
    }

    async fn preview(&self, arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        self.tool.preview(arguments).await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        self.tool.call(arguments, context).await
    }
}
