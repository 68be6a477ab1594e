//! A tool that the host declares and previews, and the worker executes.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{CallPreview, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use serde_json::{Map, Value};

use super::orders::Orders;

/// One of the worker's own tools, as the gate sees it.
pub(super) struct Remote {
    /// The host's tool of that name, which supplies the declaration and the preview of a call.
    pub(super) declaration: Arc<dyn Tool>,
    pub(super) orders: Arc<Orders>,
}

#[async_trait]
impl Tool for Remote {
    fn spec(&self) -> &ToolSpec {
        self.declaration.spec()
    }

    async fn preview(&self, arguments: &Map<String, Value>, session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        self.declaration.preview(arguments, session).await
    }

    /// Hands the call to the worker and waits for its result.
    ///
    /// # Cancel safety
    /// When the token is cancelled or the future is dropped, the call is given up and the worker gets a cancellation.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let name = self.declaration.spec().name.clone();
        let mut placed = self.orders.place(context.call_id.clone(), name, arguments.clone(), context.approved.clone());
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => Err(ToolFailure::Cancelled),
            output = placed.output() => output.map_or_else(
                || Err(ToolFailure::failed("the worker reported no result of this call")),
                ToolOutput::from,
            ),
        }
    }
}
