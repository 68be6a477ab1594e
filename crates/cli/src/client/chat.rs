//! `belay chat`: the prompt of the daemon, attached to a running daemon over its control socket.

mod figures;
pub(super) mod follow;
mod held;
mod lists;
mod plan;

use std::collections::HashMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belay_channels::{Enabled, StdinChannel, StdinConfig};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_program::signals::{OnHangup, SignalWatch};
use belay_protocol::run::RunUsage;
use belay_protocol::{
    Accepted, Ack, AckSender, ApprovalId, ApprovalKind, Body, Channel, ChannelId, CommandReply, Envelope, LiveNews,
    LiveState, Outbound, Partial, Question, Refusal, ReplyRoute, RunId, RunRecord, RunStatus, RunWatch, SessionKey,
    Streaming, UnixMillis, WaitingFor,
};
use belay_text::question::{about_call, fence, shown_line};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::follow::{Follow, Step};
use self::held::{Held, Next};
use self::lists::DaemonLists;
use super::approvals::{how_to_answer, waits_for};
use super::events::Events;
use super::{Client, text};
use crate::args::{ChatArgs, ClientArgs};
use crate::completion::Completion;

/// Pause before a lost connection is tried again. 500 ms: a daemon starts within it.
const AGAIN: Duration = Duration::from_millis(500);

/// How often a message is sent again whose acceptance is unknown. The daemon recognises it by its key.
const SEND_ATTEMPTS: u32 = 20;

/// Chats until the end of input, `/quit`, Ctrl-D or a signal. Runs that work then continue in the daemon. `commands`:
/// the words that begin a command, for completion.
pub async fn chat(args: &ChatArgs, commands: Vec<&'static str>, env: &Environment) -> Result<Exit, Failure> {
    let client = Arc::new(Client::find(&ClientArgs { url: args.url.clone(), json: false }, env)?);
    let follow = Follow::default();
    // Open before the first message, so that nothing is missed.
    let session = client.session(args.session.as_deref());
    let events = client.session_events(session, None).await?;
    let config = StdinConfig {
        enabled: Enabled::Yes,
        history_file: Some(Paths::find(env)?.history()),
        colour: env.has_colour(),
        dumb: env.has_dumb_terminal(),
        editor: env.editor(),
        ..StdinConfig::default()
    };
    let terminal = StdinChannel::open(&config, Some(Completion::over(DaemonLists(client.clone()), commands)))
        .ok_or_else(|| Failure::new(Exit::Internal, "standard input and output cannot be used"))?;
    let cannot = |error: belay_protocol::ChannelError| Failure::new(Exit::Internal, error);
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;
    terminal.lend_by(signals.lent());
    let (mut watching, ended) = (JoinSet::new(), CancellationToken::new());
    watching.spawn(signals.watch(ended.clone()));
    // Before the prompt appears: a text that is typed at once must not stand above it. The prompt works without it.
    let _ = terminal.say(&format!("session {session} at {}; /quit leaves", client.place())).await;
    let mut inbound = terminal.start(CancellationToken::new()).await.map_err(cannot)?;
    let mut chat =
        Chat { client: &client, session, terminal: &terminal, follow, held: Held::default(), runs: HashMap::new() };
    let mut sent: FuturesUnordered<Sent<'_>> = FuturesUnordered::new();
    let mut figures: FuturesUnordered<Figures<'_>> = FuturesUnordered::new();
    let mut stream = Some(events);
    loop {
        tokio::select! {
            envelope = inbound.next() => match envelope {
                Some(envelope) => sent.extend(chat.send(envelope)),
                None => break,
            },
            Some((ack, answer)) = sent.next() => chat.sent(ack, answer).await,
            Some((run, state)) = figures.next() => figures.extend(chat.figures(run, state).await),
            event = next_event(&mut stream), if !chat.held.is_full() => match event {
                Some(event) => figures.extend(chat.event(&event).await),
                None => stream = None,
            },
            () = ended.cancelled() => break,
            events = chat.reconnect(), if stream.is_none() => stream = Some(events),
        }
    }
    terminal.close().await;
    Ok(if ended.is_cancelled() { Exit::Interrupted } else { Exit::Fine })
}

/// A message on its way: its acknowledgement, and the daemon's answer to it.
type Sent<'a> = Pin<Box<dyn Future<Output = (AckSender, Result<Json, Failure>)> + 'a>>;

/// The figures of a run on their way.
type Figures<'a> = Pin<Box<dyn Future<Output = (RunId, LiveState)> + 'a>>;

/// The next event; `None`: the connection is lost. Pending without a connection.
async fn next_event(stream: &mut Option<Events>) -> Option<Json> {
    match stream {
        Some(events) => events.next().await,
        None => pending().await,
    }
}

struct Chat<'a> {
    client: &'a Client,
    session: &'a str,
    terminal: &'a StdinChannel,
    follow: Follow,
    held: Held,
    /// The runs that the terminal waits for. Dropping a sender tells it that the run has ended.
    runs: HashMap<RunId, watch::Sender<Option<Arc<RunRecord>>>>,
}

impl<'a> Chat<'a> {
    /// Sends a typed text. `None`: it is carried out here.
    fn send(&self, envelope: Envelope) -> Option<Sent<'a>> {
        let Body::Text(typed) = envelope.inbound.body else { return None };
        let word = typed.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
        if matches!(word.as_str(), "/quit" | "/exit" | "/shutdown") {
            // The prompt ends with this answer. The daemon continues.
            envelope.ack.send(command(word, String::new(), None));
            return None;
        }
        let body =
            json!({ "sessionKey": self.session, "message": typed, "idempotencyKey": Uuid::now_v7().to_string() });
        let (client, ack) = (self.client, envelope.ack);
        Some(Box::pin(async move {
            let path = ["api", "v1", "agent"];
            for _ in 1..SEND_ATTEMPTS {
                match client.post(&path, Some(&body), Duration::ZERO).await {
                    Err(failure) if failure.exit == Exit::OutOfReach => sleep(AGAIN).await,
                    answer => return (ack, answer),
                }
            }
            let answer = client.post(&path, Some(&body), Duration::ZERO).await;
            (ack, answer)
        }))
    }

    /// Acknowledges a message, and shows the answer to a command.
    async fn sent(&mut self, ack: AckSender, answer: Result<Json, Failure>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let _ = self.terminal.say(&failure.to_string()).await; // if the terminal is closed, nobody can be told
                return ack.send(Ack::Refused(Refusal::Invalid(failure.what)));
            }
        };
        if let Ok(run_id) = text(&answer, "/runId").parse::<RunId>() {
            if let frozen @ [_, ..] = text(&answer, "/frozen").as_bytes() {
                let _ = self.terminal.say(&String::from_utf8_lossy(frozen)).await; // as above
            }
            // Its end may have come before this answer.
            let watch = (!self.follow.has_ended(run_id)).then(|| {
                let (state, finished) = watch::channel(None);
                self.runs.insert(run_id, state);
                RunWatch { run_id, finished, deltas: None, so_far: Partial::default() }
            });
            return ack.send(Ack::Accepted(Accepted {
                run_id,
                session: SessionKey::new(self.session),
                accepted_at: UnixMillis(0),
                duplicate: false,
                frozen: None,
                watch,
            }));
        }
        let summary = text(&answer, "/summary").to_owned();
        self.deliver(None, &summary, None).await;
        ack.send(command(text(&answer, "/command").to_owned(), summary, text(&answer, "/resumes").parse().ok()));
    }

    /// Shows an event. A run that has answered ends when its figures, which are returned on their way, have come.
    async fn event(&mut self, event: &Json) -> Option<Figures<'a>> {
        let steps = self.follow.event(event);
        self.show(steps).await
    }

    /// Shows the figures of a run, and the steps that have waited for them.
    async fn figures(&mut self, run: RunId, state: LiveState) -> Option<Figures<'a>> {
        if let Streaming::Live(view) = self.terminal.display().streaming {
            view.show(run, LiveNews::State(state));
        }
        let mut steps = self.held.release();
        let later = steps.split_off(steps.len().min(1));
        for end in steps {
            self.step(end).await;
        }
        self.show(later).await
    }

    async fn show(&mut self, steps: Vec<Step>) -> Option<Figures<'a>> {
        let is_live = matches!(self.terminal.display().streaming, Streaming::Live(_));
        let mut answered = None;
        for step in steps {
            let next = if is_live { self.held.take(step) } else { Next::Now(step) };
            match next {
                Next::Now(step) => self.step(step).await,
                Next::Ask(run) => answered = Some(run),
                Next::Later => {}
            }
        }
        let run = answered?;
        let figures = figures::of(self.client, self.session, run, self.follow.state(run));
        Some(Box::pin(async move { (run, figures.await) }))
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Live(run, news) => {
                if let (LiveNews::Began, Some(state)) = (&news, self.runs.get(&run)) {
                    state.send_replace(None); // after a pause
                }
                if let Streaming::Live(view) = self.terminal.display().streaming {
                    view.show(run, news);
                }
            }
            Step::Message(run, message) => self.deliver(run, &message, None).await,
            Step::File { line, caption } => {
                if !caption.is_empty() {
                    self.deliver(None, &caption, None).await;
                }
                let _ = self.terminal.say(&line).await; // as in `deliver`
            }
            Step::Asked(run, approval) => self.asked(run, approval).await,
            Step::Over(run) => drop(self.runs.remove(&run)),
        }
    }

    /// Shows an approval request. The person answers it with the next line.
    async fn asked(&mut self, run: RunId, approval: ApprovalId) {
        let id = approval.to_string();
        let Ok(request) = self.client.get(&["api", "v1", "approvals", &id], &[]).await else {
            return self.deliver(None, &format!("A question waits: `belay approvals show {id}`"), None).await;
        };
        let decidable = text(&request, "/kind") != "credential";
        let question =
            Question { approval, offers_always: request.pointer("/covers").is_some_and(Json::is_string), decidable };
        if let Some(state) = self.runs.get(&run) {
            state.send_replace(Some(Arc::new(paused(run, self.session, approval))));
        }
        self.deliver(Some(run), &question_text(&request), Some(question)).await;
    }

    async fn deliver(&self, run: Option<RunId>, text: &str, question: Option<Question>) {
        let route = ReplyRoute { channel: ChannelId::new("chat"), conversation: "chat".into(), reply_to: None };
        // If the terminal is closed, nobody can be told.
        let _ = self.terminal.deliver(&Outbound { question, ..Outbound::new(run, route, text) }).await;
    }

    /// Connects again, however long it takes.
    async fn reconnect(&self) -> Events {
        let mut is_told = false;
        loop {
            sleep(AGAIN).await;
            match self.client.session_events(self.session, self.follow.cursor()).await {
                Ok(events) => {
                    if is_told {
                        let _ = self.terminal.say("connected again").await; // as above
                    }
                    return events;
                }
                Err(failure) if !is_told => {
                    is_told = true;
                    let _ = self.terminal.say(&format!("{}; trying again", failure.what)).await; // as above
                }
                Err(_) => {}
            }
        }
    }
}

/// The record of a run that waits for the answer to an approval request, as far as the terminal reads it.
fn paused(run_id: RunId, session: &str, approval: ApprovalId) -> RunRecord {
    let waiting_for = WaitingFor {
        approval,
        kind: ApprovalKind::Approval,
        tool: String::new(),
        summary: String::new(),
        expires_at: UnixMillis(0),
    };
    RunRecord {
        run_id,
        session: SessionKey::new(session),
        status: RunStatus::Paused,
        reason: None,
        evidence: serde_json::Map::new(),
        reply: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        attempt: 1,
        accepted_at: UnixMillis(0),
        started_at: None,
        ended_at: None,
        waiting_for: Some(waiting_for),
        files: Vec::new(),
    }
}

fn command(command: String, reply: String, resumes: Option<RunId>) -> Ack {
    Ack::Command(CommandReply { command, reply, resumes, refused: false })
}

/// An approval request with everything that its answer is bound to.
fn question_text(request: &Json) -> String {
    let id = text(request, "/id");
    let pairs = request.pointer("/bound").and_then(Json::as_array).into_iter().flatten();
    let bound: Vec<_> = pairs.map(|pair| (text(pair, "/0").to_owned(), text(pair, "/1").to_owned())).collect();
    let mut lines = match text(request, "/kind") {
        "approval" => {
            let [tool, summary, why] = ["/tool", "/summary", "/detail"].map(|field| text(request, field));
            vec![about_call(tool, summary, &bound, why)]
        }
        // The words of an MCP server or of a model, which must not act as Markdown.
        _ => vec![fence(&waits_for(request)).trim_end().to_owned(), shown_line(text(request, "/detail"))],
    };
    lines.retain(|line| !line.is_empty());
    lines.push(match (text(request, "/kind"), request.pointer("/covers").and_then(Json::as_str)) {
        ("form", _) => how_to_answer(request, text(request, "/id")),
        ("credential", _) => "Your next line is taken as the secret.".to_owned(),
        (_, Some(covers)) => {
            format!("Answer **yes**, **no**, or **always** ({}). (/approve {id}, /deny {id})", shown_line(covers))
        }
        (_, None) => format!("Answer **yes** or **no**. (/approve {id}, /deny {id})"),
    });
    lines.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_server_do_not_act_as_markup() {
        let form = json!({
            "id": "q1",
            "kind": "form",
            "server": "files",
            "tool": "mcp_files_read",
            "summary": "# Approved\n[my bank](https://example.com)",
            "detail": "*it* asks",
            "fields": [],
        });
        let shown = question_text(&form);
        let words = "the MCP server files asks, for mcp_files_read: # Approved\n[my bank](https://example.com)";
        assert!(shown.starts_with(&format!("```\n{words}\n```\n\n`*it* asks`\n\n")), "{shown}");
    }
}
