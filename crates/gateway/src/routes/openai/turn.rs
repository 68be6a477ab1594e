//! The turn that a request asks for, whatever the form of its answer: the session and its new messages, the results of the
//! client's tools, the retry that joins the run of its first attempt, and the message to the agent.

use std::time::Duration;

use axum::http::HeaderMap;
use belay_protocol::{Accepted, Ack, ApprovalId, ClientNote, CommandReply, Inbound, Partial, Principal, RunWatch};

use serde_json::{Map, Value};

use super::answer::Head;
use super::client_results::{self, Brought, ResumedRun};
use super::conversation::taken;
use super::error::OpenAiError;
use super::readers::{self, Reader, Reading};
use super::request::ChatRequest;
use super::retries::Attempt;
use super::sessions::Named;
use super::used::used_before_newest;
use super::{OUR_NAME, TEXT_NAME, check_model};
use crate::app::{App, Shared};
use crate::files::take_all;

/// A request.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) request: &'a ChatRequest,
    pub(super) headers: &'a HeaderMap,
    /// The body as it was sent, which recognises a retry.
    pub(super) bytes: &'a [u8],
    pub(super) reading: Reading,
    /// What the client wants to read again beside the answer.
    pub(super) note: Option<&'a Map<String, Value>>,
}

/// What a request has come to.
pub(super) enum Turn {
    /// The answer of a run.
    Run(Head, RunTurn),
    /// The reply to a command, without a run.
    Command { head: Head, reply: String },
}

/// A run, and the client that waits for it.
pub(super) struct RunTurn {
    pub(super) reader: Reader,
    pub(super) watch: Option<RunWatch>,
    pub(super) begins: Begins,
    /// Whether the run may have said some of the answer before the watch began.
    pub(super) is_joined: bool,
}

/// The place in the run at which the answer begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// The beginning of the run.
    New,
    /// The results of the client's calls.
    Results(ApprovalId),
    /// The answer to a question.
    Answer,
}

/// Takes the turn of a request.
///
/// # Errors
/// The request cannot be used, or the agent refuses it. Nothing has begun then.
///
/// # Cancel safety
/// A run that has begun ends as that of a gone client, unless its client reads the answer later.
pub(super) async fn take(app: &Shared, principal: &Principal, asked: Asked<'_>) -> Result<Turn, OpenAiError> {
    let Asked { request, headers, bytes, reading, note } = asked;
    let model = request.model.clone().unwrap_or_else(|| OUR_NAME.into());
    check_model(app, &model)?;
    request.refuse_unsupported()?;
    let named = Named::of(request, headers)?.map(|named| named.session);
    let (streams, is_named) = (reading.streams(), named.is_some());
    let brought = Brought { request, named: named.as_ref(), note, reading };
    if let Some(resumed) = client_results::resume(app, principal, brought).await? {
        let head = Head::new(model, resumed.session.clone(), is_named, app.clock.now()).in_form(request.form()?);
        return resumed_turn(app, head, resumed, streams).await;
    }
    let attempt = Attempt::of(app, principal, headers, bytes, streams)?;
    let mut conversation = match attempt.as_ref().and_then(|attempt| attempt.again(request)) {
        Some(again) => again?,
        None => taken(app, principal, request, headers, model == TEXT_NAME).await?,
    };
    if let Some(attempt) = &attempt {
        attempt.remember(app, &conversation);
    }
    conversation.name_older_files(app.attachments.max_count());
    conversation.check_sampling(&app.models.chat)?;
    let (session, is_named) = (conversation.session.clone(), conversation.is_named);
    let form = conversation.form.clone();
    let provenance = take_all(app, principal, &conversation.files).await?;
    let mut inbound = conversation.inbound(app, principal.clone(), reading);
    let note = note.filter(|fields| !fields.is_empty());
    inbound.options.notes.extend(note.map(|fields| ClientNote { after: None, fields: fields.clone() }));
    let inbound = Inbound { provenance, key: attempt.as_ref().map(|attempt| attempt.key(app)), ..inbound };
    let ack = ask(app, inbound, reading).await?;
    let now = app.clock.now();
    let head = Head::new(model, session, is_named, now).in_form(form);
    let (head, run, watch, begins, is_joined) = match ack {
        Ack::Accepted(Accepted { run_id, session, accepted_at, watch, duplicate, .. }) => {
            (head.of_run(run_id, accepted_at).in_session(session), run_id, watch, Begins::New, duplicate)
        }
        // The message answered an approval request: the client waits for the run that continues.
        Ack::Command(CommandReply { resumes: Some(run), .. }) => {
            (head.of_continued_run(run, now, now.0), run, None, Begins::Answer, true)
        }
        Ack::Command(CommandReply { reply, .. }) => return Ok(Turn::Command { head, reply }),
        other => return Err(crate::error::ApiError::unexpected(&other).into()),
    };
    let reader = Reader::new(app.clone(), principal.clone(), run, streams).of_attempt(attempt).of_reading(reading);
    let head = match begins {
        Begins::Answer => head.after_use_of(used_before_newest(app, run).await),
        Begins::New | Begins::Results(_) => head,
    };
    Ok(Turn::Run(head, RunTurn { reader, watch, begins, is_joined }.watched(streams).await))
}

impl RunTurn {
    /// The same with a watch from now on, if it has none. Without one, the store has the answer.
    async fn watched(mut self, streams: bool) -> Self {
        if self.is_joined && self.watch.is_none() {
            let Reader { app, principal, run, .. } = &self.reader;
            let watch = app.watch(principal.clone(), *run, streams).await.unwrap_or_default();
            // The client has read what the run has said before its question or its calls.
            self.watch = watch.map(|watch| RunWatch { so_far: Partial::default(), ..watch });
        }
        self
    }
}

/// Sends a message to the agent. Its run ends with its client, if that reads the answer now.
async fn ask(app: &App, inbound: Inbound, reading: Reading) -> Result<Ack, OpenAiError> {
    let grace = match reading {
        Reading::Streamed => Some(Duration::ZERO),
        Reading::Whole => readers::grace(app),
        Reading::Later { .. } => None,
    };
    Ok(match grace {
        Some(grace) => app.ask_while_there(inbound, grace).await?,
        None => app.ask(inbound).await?,
    })
}

/// The turn of a request whose results a run has got, now or before.
async fn resumed_turn(app: &Shared, head: Head, resumed: ResumedRun, streams: bool) -> Result<Turn, OpenAiError> {
    let ResumedRun { reader, watch, request, used, .. } = resumed;
    let head = head.of_continued_run(reader.run, app.clock.now(), request).after_use_of(used);
    let (begins, is_joined) = (Begins::Results(request), watch.is_none());
    Ok(Turn::Run(head, RunTurn { reader, watch, begins, is_joined }.watched(streams).await))
}
