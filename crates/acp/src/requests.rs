//! The handlers of the editor's requests.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    AgentCapabilities, AvailableCommand, AvailableCommandsUpdate, Implementation, InitializeResponse,
    PromptCapabilities, SessionCapabilities, SessionCloseCapabilities, SessionDeleteCapabilities,
    SessionListCapabilities, SessionResumeCapabilities, SessionUpdate,
};
use agent_client_protocol::{Client as Editor, Error, ErrorCode, schema::ProtocolVersion, v1};
use belay_cli::client::text;
use serde_json::Value as Json;

use crate::daemon::Trouble;
use crate::endpoint::{Endpoint, json_of, lock, read_panic};
use crate::link::EditorLink;
use crate::pipes::Gate;
use crate::prompt::Prompt;
use crate::setting::Setting;

/// Most requests in progress. One more is answered with an error at once, so that a cancellation is still read.
const REQUESTS_MAX: usize = 64;

/// A request of the editor, as the protocol's crate hands it over.
type Responder = v1::Responder<Json>;

/// An answer, and the session that the request has opened.
pub(crate) type Opened = (Json, Option<String>);

impl Endpoint {
    /// Takes a request. It is answered by a task, so that a handler never waits.
    pub(crate) fn request(
        self: &Arc<Self>,
        (method, params): (String, Json),
        responder: Responder,
        connection: &v1::ConnectionTo<Editor>,
        gate: &Gate,
    ) {
        let link = EditorLink { connection: connection.clone(), gate: gate.clone() };
        let mut tasks = lock(&self.tasks);
        while let Some(ended) = tasks.try_join_next() {
            read_panic(ended);
        }
        if tasks.len() >= REQUESTS_MAX {
            let words = "too many requests are under way; wait for one to be answered";
            return respond(responder, Err(Error::new(ErrorCode::INTERNAL_ERROR, words)));
        }
        if method == "session/prompt" {
            match Prompt::open(self, &params) {
                Ok(prompt) => {
                    tasks.spawn(async move {
                        let answer = prompt.work(&link, &responder.cancellation()).await;
                        respond(responder, answer);
                    });
                }
                Err(error) => respond(responder, Err(error)),
            }
            return;
        }
        let endpoint = self.clone();
        tasks.spawn(async move {
            match endpoint.answer(&method, &params, &link).await {
                // An editor knows a session only when it has this answer.
                Ok((answer, Some(session))) => {
                    respond(responder, Ok(answer));
                    link.update(&session, endpoint.commands()).await;
                }
                Ok((answer, None)) => respond(responder, Ok(answer)),
                Err(error) => respond(responder, Err(error)),
            }
        });
    }

    /// Takes a notification.
    pub(crate) fn notified(&self, method: &str, params: &Json) {
        if method == "session/cancel" {
            self.cancel_session(text(params, "/sessionId"));
        }
    }

    /// The answer to a request, and the session that it has opened.
    async fn answer(&self, method: &str, params: &Json, link: &EditorLink) -> Result<Opened, Error> {
        let plain = |answer: Result<Json, Error>| answer.map(|answer| (answer, None));
        match method {
            "initialize" => plain(self.initialize(params).await),
            "session/new" => self.new_session(params),
            "session/load" => self.load_session(params, link).await,
            "session/resume" => self.resume_session(params).await,
            "session/list" => plain(self.list_sessions(params).await),
            "session/close" => plain(self.close_session(params).await),
            "session/delete" => plain(self.delete_session(params).await),
            _ => Err(Error::method_not_found()),
        }
    }

    async fn initialize(&self, params: &Json) -> Result<Json, Error> {
        let daemon = self.daemon().map_err(|trouble| trouble.error())?;
        let setting = Setting::read(&daemon, &params["clientCapabilities"]).await.map_err(|trouble| match trouble {
            Trouble::Refused { status: 403, message } => Trouble::Refused { status: 401, message }.error(),
            trouble => trouble.error(),
        })?;
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .delete(setting.operator.then(SessionDeleteCapabilities::new));
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .session_capabilities(sessions);
        self.set(setting);
        json_of(
            &InitializeResponse::new(ProtocolVersion::V1)
                .agent_capabilities(capabilities)
                .agent_info(Implementation::new("belay", env!("CARGO_PKG_VERSION")).title("Belay".to_owned())),
        )
    }

    /// The chat commands. They are sent as the text of a prompt.
    fn commands(&self) -> SessionUpdate {
        let is_operator = self.setting().operator;
        let known = self.commands.iter().filter(|command| is_operator || !command.operators_only);
        let commands = known.map(|command| AvailableCommand::new(command.name, command.description)).collect();
        SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands))
    }
}

fn respond(responder: Responder, answer: Result<Json, Error>) {
    let _ = responder.respond_with_result(answer); // fails when the connection has ended: nobody reads
}
