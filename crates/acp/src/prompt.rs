//! One prompt: one message of the daemon, its run, and one answer.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{Notice, NoticeSeverity, PromptResponse, SessionUpdate, StopReason};
use agent_client_protocol::{Error, ErrorCode, RequestCancellation};
use belay_cli::client::text;
use serde_json::{Value as Json, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::daemon::{Daemon, Sent, Trouble};
use crate::endpoint::{Endpoint, json_of, unknown};
use crate::follow::{Ended, Follow, MAY_GO_ON, Telling};
use crate::intake::Intake;
use crate::link::EditorLink;
use crate::place::Place;

/// A prompt that is not answered yet.
pub(crate) struct Prompt {
    endpoint: Arc<Endpoint>,
    /// Its number among the open prompts.
    number: u64,
    session: String,
    intake: Intake,
    /// Cancelled by the editor, or by its end.
    stop: CancellationToken,
    /// A remark that is said once in this session.
    remark: Option<String>,
    /// Cancelled when the daemon has the message of the prompt before.
    before: CancellationToken,
    /// Lets the next prompt of the session go when it is dropped.
    sent: Option<DropGuard>,
}

impl Drop for Prompt {
    fn drop(&mut self) {
        self.endpoint.close_prompt(self.number);
    }
}

impl Prompt {
    /// Reads a prompt, and registers it, so that a cancellation finds it.
    ///
    /// # Errors
    /// The session is unknown (-32002), or there is nothing in the prompt (-32602).
    pub(crate) fn open(endpoint: &Arc<Endpoint>, params: &Json) -> Result<Self, Error> {
        let session = text(params, "/sessionId").to_owned();
        if !endpoint.is_open(&session) {
            return Err(unknown(&session));
        }
        let Some(intake) = Intake::of(&params["prompt"]) else {
            return Err(Error::new(ErrorCode::INVALID_PARAMS, "prompt: a list of content with a text or a file in it"));
        };
        let sent = CancellationToken::new();
        let before = endpoint.line_up(&session, sent.clone()).ok_or_else(|| unknown(&session))?;
        let sent = Some(sent.drop_guard());
        let ((number, stop), remark) = (endpoint.open_prompt(&session), endpoint.remark(&session));
        Ok(Self { endpoint: endpoint.clone(), number, session, intake, stop, remark, before, sent })
    }

    /// Carries the prompt out, and returns its answer. A cancelled prompt is answered as `cancelled`, whatever became of the stop.
    pub(crate) async fn work(mut self, link: &EditorLink, cancellation: &RequestCancellation) -> Result<Json, Error> {
        let stop = self.stop.clone();
        let done = {
            let mut turn = std::pin::pin!(self.turn(link));
            tokio::select! {
                biased;
                done = &mut turn => done,
                () = cancellation.cancelled() => {
                    stop.cancel();
                    turn.await
                }
            }
        };
        match done {
            _ if stop.is_cancelled() => json_of(&PromptResponse::new(StopReason::Cancelled)),
            Ok(reason) => json_of(&PromptResponse::new(reason)),
            Err(trouble) => Err(trouble.error()),
        }
    }

    async fn turn(&mut self, link: &EditorLink) -> Result<StopReason, Trouble> {
        let daemon = self.endpoint.daemon()?;
        self.say_remark(link).await;
        let message = self.message(&daemon).await?;
        self.before.cancelled().await;
        if self.stop.is_cancelled() {
            return Ok(StopReason::Cancelled); // nothing was sent
        }
        let sent = daemon.send(&message, &self.stop).await;
        self.sent = None;
        let sent = match sent {
            Err(trouble) if self.stop.is_cancelled() && trouble.may_have_arrived() => {
                link.say(&self.session, MAY_GO_ON).await;
                return Ok(StopReason::Cancelled);
            }
            sent => sent?,
        };
        match sent {
            Sent::Run(run, line) => {
                if let Some(line) = line {
                    link.say(&self.session, &format!("{line}\n\n")).await;
                }
                self.follow(&daemon, link, run).await
            }
            Sent::Command(reply, resumes) => {
                link.say(&self.session, &reply).await;
                match resumes {
                    // The prompt whose question was answered is still open in most cases, and tells the rest.
                    Some(run) if !self.endpoint.is_followed(&run) => self.follow(&daemon, link, run).await,
                    _ => Ok(StopReason::EndTurn),
                }
            }
        }
    }

    /// Says the remark about this session: once, as a notice if it knows notices.
    async fn say_remark(&mut self, link: &EditorLink) {
        let Some(remark) = self.remark.take() else { return };
        if self.endpoint.setting().notices {
            let notice = Notice::new(NoticeSeverity::Info, "About this conversation").description(remark);
            link.update(&self.session, SessionUpdate::Notice(notice)).await;
        } else {
            link.say(&self.session, &format!("{remark}\n\n")).await;
        }
    }

    /// The message in the format of the API. Its files are stored first; one that is refused is named in the text.
    async fn message(&mut self, daemon: &Daemon) -> Result<Json, Trouble> {
        let mut attachments = Vec::new();
        for file in std::mem::take(&mut self.intake.files) {
            match daemon.upload(&file.name, &file.bytes, &self.stop).await {
                Ok(id) => attachments.push(json!({ "file": id })),
                Err(Trouble::Refused { message, .. }) => self.intake.leave_out(&file.name, &message),
                Err(away) => return Err(away),
            }
        }
        let mut message = json!({
            "session": self.session, "text": self.intake.text, "idempotency_key": Uuid::now_v7().to_string(),
        });
        if !attachments.is_empty() {
            message["attachments"] = attachments.into();
        }
        Ok(message)
    }

    /// Follows the run to its end, or the run that its message has become part of.
    async fn follow(&self, daemon: &Arc<Daemon>, link: &EditorLink, mut run: String) -> Result<StopReason, Trouble> {
        let setting = self.endpoint.setting();
        let place = Place {
            daemon: daemon.clone(),
            link: link.clone(),
            session: self.session.clone(),
            workspace: setting.workspace.directory(),
        };
        loop {
            let telling = if self.endpoint.follows(self.number, &run) { Telling::All } else { Telling::Nothing };
            let mut follow = Follow::new(place.clone(), run.clone(), telling, setting.context_tokens);
            match follow.follow_to_the_end(&self.stop).await? {
                Ended::For(reason) => return Ok(reason),
                Ended::Joined => {
                    let record = daemon.get(&["api", "v1", "runs", &run], &[]).await?;
                    match text(&record, "/evidence/run") {
                        "" => return Ok(StopReason::EndTurn),
                        other => other.clone_into(&mut run),
                    }
                }
            }
        }
    }
}
