//! Tools that act on the run that calls them. Each is declared once, and bound to every run with the parts of the run
//! that it needs.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{CallPreview, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value};

/// The declaration of such a tool. A call of an unbound tool fails.
pub struct DeclaredTool {
    spec: ToolSpec,
    unbound: &'static str,
}

impl DeclaredTool {
    /// The tool as models see it. `unbound`: the result of a call without a run.
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

/// The implementation of such a tool for one run.
#[async_trait]
pub trait RunTool: Send + Sync {
    /// Same as [`Tool::preview`].
    ///
    /// # Errors
    /// The problem of the call, for the model.
    async fn preview(&self, _arguments: &Map<String, Value>) -> Result<CallPreview, ToolFailure> {
        Ok(CallPreview::default())
    }

    /// Same as [`Tool::call`].
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput;
}

/// A tool that is bound to one run.
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
