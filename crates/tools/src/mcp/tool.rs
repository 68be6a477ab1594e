//! Offers one tool of a server as a tool of Belay.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    CallPreview, Effect, SessionKey, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolReply, ToolSpec,
};
use serde_json::{Map, Value};
use tracing::warn;

use crate::mcp::answer::reply;
use crate::mcp::connection::LIST_LIMIT;
use crate::mcp::elicitor::Elicitor;
use crate::mcp::offer::Offer;
use crate::mcp::revision::needs_older;
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;
use crate::mcp::sessions::McpSessions;
use crate::picture::Pictures;

/// Digits of a digest in a preview.
const SHOWN_DIGITS: usize = 12;

/// A tool of a server that models can call.
pub(super) struct McpTool {
    spec: ToolSpec,
    server: Arc<Server>,
    offer: Offer,
    sessions: Arc<McpSessions>,
    pictures: Pictures,
}

impl McpTool {
    /// Creates the tool with this name. The server's description does not change its effect or its approval.
    pub(super) fn new(
        name: &str,
        server: Arc<Server>,
        offer: Offer,
        sessions: Arc<McpSessions>,
        pictures: Pictures,
    ) -> Self {
        let config = server.config();
        let described = match offer.description.as_str() {
            "" => format!("No description; the server calls it {}.", offer.tool),
            text => text.to_owned(),
        };
        let description = format!("[from MCP server {}] {described}", server.name());
        let spec = ToolSpec {
            effect: Effect::External,
            idempotent: offer.repeatable,
            kind: offer.repeatable.then_some(ToolKind::Read),
            // A call may start the server and list its tools first.
            timeout: server.start_limit() + LIST_LIMIT + server.timeout(),
            max_output_bytes: config.max_output_bytes,
            approval: config.approval,
            untrusted: true,
            foreign: true,
            server: Some(server.name().to_owned()),
            ..ToolSpec::new(name, description, offer.schema.clone())
        };
        Self { spec, server, offer, sessions, pictures }
    }

    /// Calls the tool. A server that does not know the session any more has not run the call, so it is made once more, in
    /// a new session, whose tools are compared with the pins first.
    async fn ask(&self, arguments: &Map<String, Value>, context: &ToolContext) -> Result<ToolOutput, ServerError> {
        match self.once(arguments, context).await {
            Err(ServerError::SessionGone) => self.once(arguments, context).await,
            answer => answer,
        }
    }

    async fn once(&self, arguments: &Map<String, Value>, context: &ToolContext) -> Result<ToolOutput, ServerError> {
        let lease = self.sessions.lease(&self.server, context.run_id, &context.generation).await?;
        if !lease.is_as_approved(&self.offer.tool, &self.offer.digests.whole).await? {
            let (server, tool) = (self.server.name(), &self.offer.tool);
            warn!(server, tool, run = %context.run_id, "tool of an mcp server is not what was approved, not called");
            return Ok(Err(ToolFailure::Denied(format!(
                "The MCP server {server} has changed the description of its tool {tool} since it was approved, so it \
                 was not called. It stays disabled until the operator reviews it with `belay mcp list` and approves it \
                 with `belay mcp approve {server} {tool}`. Continue without it."
            ))));
        }
        let (person, cancel) = (context.person.clone(), context.cancel.clone());
        let elicitor = Arc::new(Elicitor::new(self.server.name(), &self.offer.tool, person, cancel));
        let questions = elicitor.until_dropped();
        let called = lease.connection().call(&self.offer.tool, arguments.clone(), &elicitor);
        let called = tokio::select! {
            biased;
            answer = Box::pin(called) => Some(answer),
            () = elicitor.passed(self.server.timeout()) => None,
        };
        // The server has answered, or nobody waits for it: what it still asks has no use.
        drop(questions);
        let unasked = elicitor.unasked();
        match called {
            Some(answer) => {
                if let Err(ServerError::Error(message)) = &answer
                    && !lease.connection().has_initialize()
                    && needs_older(message)
                {
                    self.server.spoken().need_older();
                    lease.connection().leave();
                    return Err(ServerError::AsksInOlder(message.clone()));
                }
                let answer = answer.map_err(|trouble| match (trouble, &unasked) {
                    (ServerError::Error(message), Some(why)) => ServerError::Unasked { why: why.clone(), message },
                    (trouble, _) => trouble,
                })?;
                let refused = answer.refused.clone();
                let output = reply(answer, &self.pictures, &context.cancel).await;
                let output = output.map(|reply| self.told(reply, unasked.as_deref()));
                Ok(output.map_err(|failure| match (failure, refused) {
                    (ToolFailure::Failed(text), _) if unasked.is_some() => ToolFailure::Failed(format!(
                        "The MCP server {} wanted to ask a person something, and nobody was asked: {}. The tool then failed: {text}",
                        self.server.name(),
                        unasked.unwrap_or_default()
                    )),
                    (ToolFailure::Failed(text), Some(asked)) => ToolFailure::Failed(format!(
                        "The MCP server {} asked for {asked}, which Belay refuses to servers. The tool then failed: {text}",
                        self.server.name()
                    )),
                    (failure, _) => failure,
                }))
            }
            None => Ok(Err(ToolFailure::failed(format!(
                "{} of the MCP server {} gave no answer within {} s and was stopped. Its effect is unknown: check it \
                 before you try again, or request less at once.",
                self.offer.tool,
                self.server.name(),
                self.server.timeout().as_secs()
            )))),
        }
    }
}

impl McpTool {
    /// The reply with a line about a question of the server that nobody was asked.
    fn told(&self, reply: ToolReply, unasked: Option<&str>) -> ToolReply {
        let Some(why) = unasked else { return reply };
        let server = self.server.name();
        let text = format!(
            "[The MCP server {server} wanted to ask a person something, and nobody was asked: {why}.]\n{}",
            reply.text
        );
        ToolReply { text, ..reply }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn revision(&self) -> Option<String> {
        self.server.spoken().get().map(|revision| revision.to_string())
    }

    async fn preview(&self, _: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let (server, tool) = (self.server.name(), &self.offer.tool);
        let hint = if self.offer.destructive { " (it says that it may destroy something)" } else { "" };
        let digest = &self.offer.digests.whole[..SHOWN_DIGITS];
        Ok(CallPreview {
            summary: format!("{tool} of the MCP server {server}{hint}"),
            shows: &[], // the question shows all arguments
            bound: vec![
                ("mcp server".into(), server.into()),
                ("mcp tool".into(), tool.clone()),
                ("described as".into(), digest.into()),
            ],
            // The approval covers this server and this description. With another description it is another tool.
            covers: Some(format!("{tool} of the MCP server {server}, as described now ({digest})")),
            ..CallPreview::default()
        })
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let answer = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Err(ToolFailure::Cancelled),
            answer = Box::pin(self.ask(arguments, context)) => answer,
        };
        match answer {
            Ok(output) => output,
            Err(ServerError::Stopped) => Err(ToolFailure::Cancelled),
            Err(_) if context.cancel.is_cancelled() => Err(ToolFailure::Cancelled),
            Err(trouble) => {
                warn!(server = self.server.name(), tool = self.offer.tool, run = %context.run_id, %trouble, "mcp call failed");
                Err(ToolFailure::failed(format!("The MCP server {} {trouble}.", self.server.name())))
            }
        }
    }
}
