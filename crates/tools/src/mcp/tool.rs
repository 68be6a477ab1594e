//! Offers one tool of a server as a tool of Belay.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    CallPreview, Effect, SchemaForm, SessionKey, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolReply,
    ToolSpec,
};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::warn;

use crate::mcp::answer::{Answer, reply};
use crate::mcp::connection::{Called, LIST_LIMIT};
use crate::mcp::elicitor::Elicitor;
use crate::mcp::offer::Offer;
use crate::mcp::revision::needs_older;
use crate::mcp::rounds::{Begun, Round, Rounds};
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;
use crate::mcp::sessions::{Lease, McpSessions};
use crate::mcp::tasks::{Follow, Handle, TASK_LIMIT, TaskState, abandon};
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
            // A call may start the server and list its tools first, and wait for its turn. `within` holds each call to the
            // limit of its server, or of its task.
            timeout: server.start_limit() + LIST_LIMIT + TASK_LIMIT + server.timeout() + TASK_LIMIT,
            max_output_bytes: config.max_output_bytes,
            approval: config.approval,
            untrusted: true,
            foreign: true,
            schema_form: SchemaForm::Whole,
            server: Some(server.name().to_owned()),
            ..ToolSpec::new(name, description, offer.schema.clone())
        };
        Self { spec, server, offer, sessions, pictures }
    }

    /// Calls the tool. A server that does not know the session any more has not run the call, so it is made once more, in
    /// a new session, whose tools are compared with the pins first.
    async fn ask(&self, arguments: &Map<String, Value>, context: &ToolContext) -> Result<ToolOutput, ServerError> {
        let begun = match context.handle.earlier() {
            None => None,
            Some(kept) => match Round::found(self.server.name(), &self.offer.tool, kept).map(Round::begun) {
                None => return self.continued(kept, context).await,
                Some(None) if !self.offer.repeatable => {
                    return Ok(Err(ToolFailure::Unknown(format!(
                        "Belay was interrupted after the answers of a person had been given to the MCP server {} for {}. The \
                         outcome of the call is unknown: check it before you repeat it.",
                        self.server.name(),
                        self.offer.tool
                    ))));
                }
                Some(begun) => begun,
            },
        };
        match self.once(arguments, context, begun.clone()).await {
            Err(ServerError::SessionGone) => self.once(arguments, context, begun).await,
            answer => answer,
        }
    }

    /// Makes the call. `begun`: the round of an earlier attempt, with which it goes on.
    async fn once(
        &self,
        arguments: &Map<String, Value>,
        context: &ToolContext,
        begun: Option<Begun>,
    ) -> Result<ToolOutput, ServerError> {
        let lease = self.sessions.lease(&self.server, context.run_id, &context.generation).await?;
        // Before the look at the description, which may change while a person is asked about the call before.
        let Ok(_turn) = timeout(TASK_LIMIT, lease.connection().turn(&self.server)).await else {
            return Ok(Err(ToolFailure::failed(format!(
                "{} of the MCP server {} was not called: other calls of the server, which run one at a time, took too \
                 long. Repeat it alone.",
                self.offer.tool,
                self.server.name()
            ))));
        };
        if !lease.is_as_approved(&self.offer.tool, &self.offer.digests.whole).await? {
            let (server, tool) = (self.server.name(), &self.offer.tool);
            warn!(server, tool, run = %context.run_id, "tool of an mcp server is not what was approved, not called");
            return Ok(Err(ToolFailure::Denied(format!(
                "The MCP server {server} has changed the description of its tool {tool} since it was approved, so it \
                 was not called. It stays disabled until the operator reviews it with `belay mcp list` and approves it \
                 with `belay mcp approve {server} {tool}`. Continue without it."
            ))));
        }
        if begun.is_some() && lease.connection().has_initialize() {
            return Ok(Err(ToolFailure::failed(format!(
                "{} of the MCP server {} was asking a person when Belay was interrupted, and the server speaks an older revision \
                 of MCP now, in which the call cannot go on. It got no answer, so repeat the call if it is still needed.",
                self.offer.tool,
                self.server.name()
            ))));
        }
        let elicitor = self.elicitor(context, begun.as_ref().map_or(0, |begun| begun.asked));
        let questions = elicitor.until_dropped();
        let rounds = Rounds::new(self.server.name(), &self.offer.tool, &context.handle);
        let what = (self.offer.tool.as_str(), arguments.clone());
        let call = lease.connection().call(what, &elicitor, &rounds, begun);
        let Some(called) = within(self.server.timeout(), &elicitor, call).await else {
            return Ok(Err(ToolFailure::failed(format!(
                "{} of the MCP server {} gave no answer within {} s and was stopped. Its effect is unknown: check it \
                 before you try again, or request less at once.",
                self.offer.tool,
                self.server.name(),
                self.server.timeout().as_secs()
            ))));
        };
        let answer = match called {
            Ok(Called::Answer(answer)) => Ok(answer),
            Ok(Called::Task(task)) => {
                let handle = Handle::of(&self.server, &self.offer.tool, &task, lease.connection())?;
                return self.follow(handle, Some((lease, task)), &elicitor, context).await;
            }
            Err(ServerError::Error(message) | ServerError::Refused { message, .. })
                if !lease.connection().has_initialize() && needs_older(&message) =>
            {
                self.server.spoken().need_older();
                lease.connection().leave();
                return Err(ServerError::AsksInOlder(message));
            }
            Err(trouble) => Err(trouble),
        };
        // The server has answered: what it still asks has no use.
        drop(questions);
        self.end(answer, &elicitor, context).await
    }

    /// Continues a call that an earlier attempt has begun as a task. Nothing is called.
    async fn continued(&self, kept: &Value, context: &ToolContext) -> Result<ToolOutput, ServerError> {
        let handle = Handle::found(&self.server, &self.offer.tool, kept)?;
        self.follow(handle, None, &self.elicitor(context, 0), context).await
    }

    /// Follows the task of the call to its end.
    async fn follow(
        &self,
        handle: Handle,
        begun: Option<(Lease, TaskState)>,
        elicitor: &Arc<Elicitor>,
        context: &ToolContext,
    ) -> Result<ToolOutput, ServerError> {
        let limit = handle.limit();
        let is_kept = context.handle.earlier().is_some().into();
        let follow = Follow { server: &self.server, sessions: &self.sessions, context, elicitor, handle, is_kept };
        let questions = elicitor.until_dropped();
        let ended = within(limit, elicitor, follow.answer(begun)).await;
        drop(questions);
        match ended {
            Some(answer) => self.end(answer, elicitor, context).await,
            None => Ok(Err(ToolFailure::Unknown(format!(
                "{} of the MCP server {}, which runs as a task, did not end within {} s and was cancelled. Its effect is \
                 unknown: check it before you try again, or request less at once.",
                self.offer.tool,
                self.server.name(),
                limit.as_secs()
            )))),
        }
    }

    /// The result of a call that has ended.
    async fn end(
        &self,
        answer: Result<Answer, ServerError>,
        elicitor: &Elicitor,
        context: &ToolContext,
    ) -> Result<ToolOutput, ServerError> {
        let unasked = elicitor.unasked();
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

    /// The person of a call, who was asked so many questions before.
    fn elicitor(&self, context: &ToolContext, asked: u32) -> Arc<Elicitor> {
        let (person, cancel) = (context.person.clone(), context.cancel.clone());
        Arc::new(Elicitor::new(self.server.name(), &self.offer.tool, person, cancel).having_asked(asked))
    }
}

/// Waits until this time is over, in which waits for the person do not count. `None`: it was.
async fn within<T>(limit: Duration, elicitor: &Elicitor, ends: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        ended = Box::pin(ends) => Some(ended),
        () = elicitor.passed(limit) => None,
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

    fn waits_for_person(&self, handle: &Value) -> bool {
        let round = Round::found(self.server.name(), &self.offer.tool, handle);
        round.is_some_and(|round| round.begun().is_some())
    }

    async fn abandon(&self, handle: &Value) -> bool {
        if Round::found(self.server.name(), &self.offer.tool, handle).is_some() {
            // While the person is asked, no request is open. After the answers the server may work on the last one, and
            // the next connection has no request of it to cancel.
            return true;
        }
        let Ok(handle) = Handle::found(&self.server, &self.offer.tool, handle) else { return false };
        abandon(&self.server, &self.sessions, &handle).await;
        true
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
                let text = format!("The MCP server {} {trouble}.", self.server.name());
                Err(match trouble {
                    ServerError::LostTask(_) => ToolFailure::Unknown(text),
                    _ => ToolFailure::Failed(text),
                })
            }
        }
    }
}
