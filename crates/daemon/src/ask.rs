//! `belay ask`: one message without a daemon. The whole agent, with a channel that says one thing and answers the questions
//! of its run, and a store in memory.

mod person;

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use belay_agent::{Agent, AgentParts};
use belay_automation::{HeartbeatConfig, JobsConfig, RoutinesConfig};
use belay_protocol::{
    Accepted, Ack, AckSender, Body, Channel, ChannelError, ChannelId, Clock, Control, DeclaredOutput, DeliverError,
    Envelope, Inbound, InboundStream, Outbound, Principal, Question, ReplyRoute, RunRecord, RunWatch, SessionKey,
};
use belay_protocol::{BootId, Refusal};
use belay_run::{Absent, AgentConfig};
use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

use self::person::{Person, Said};
use crate::args::AskArgs;
use crate::client::verdict;
use crate::clock::SystemClock;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{Output, complain, note};
use crate::paths::Paths;
use crate::secrets::Secrets;
use crate::settings::{load, refused};
use crate::signals::{OnHangup, SignalWatch};
use crate::stop_rules::stop_rules;
use crate::telemetry;
use crate::wiring::{
    Chosen, HOOKS_GRACE, Programs, Store, ToolPorts, VERSION, agent_failure, hooks, keep_apart, workspace_of,
};

/// Answers one message; the exit code is the verdict of its run.
pub(crate) async fn ask(args: &AskArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let text = crate::input::message(&args.text)?;
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let loaded = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?;
    let telemetry = &loaded.settings.telemetry;
    telemetry::start(&if loaded.is_set("telemetry.log") { telemetry.clone() } else { telemetry.quiet() }, env);
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;

    let settings = &loaded.settings;
    keep_apart(settings, env, &paths)?;
    let secrets = Secrets::find(&loaded, env).map_err(|problems| refused(&problems))?;
    let chosen = Chosen::find(settings, &secrets).await?;
    if let Some(notice) = &chosen.notice {
        note(notice);
    }
    if std::io::stderr().is_terminal() {
        note(&format!("workspace {}", workspace_of(settings, env, &paths).display()));
    }
    let store = Store::memory()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let tool_ports = ToolPorts { notes: store.ports().notes, runs: store.ports().runs, clock: clock.clone() };
    let mut programs = Programs::open(settings, env, &paths, tool_ports).await?;
    let hooks = hooks(settings, env, programs.kept())?;
    let closing = programs.closing();
    let (channel, answer, talk) = AskChannel::new(text, args.outputs.clone(), Person::find(args.text == "-", env));
    let agent = Agent::start(AgentParts {
        // Nothing else runs: an interrupted question is given up at once.
        config: AgentConfig { drain_s: 0, ..settings.agent.clone() },
        limits: settings.limits.clone(),
        rules: stop_rules(settings),
        queue: settings.queue.clone(),
        sessions: settings.sessions.clone(),
        // One question is answered; nothing begins beside it.
        routines: RoutinesConfig { enabled: false, ..RoutinesConfig::default() },
        heartbeat: HeartbeatConfig::default(),
        // Nothing outlives the answer.
        jobs: JobsConfig { enabled: false, ..settings.jobs.clone() },
        health: settings.tools.health.clone(),
        approvals: settings.approvals.clone(),
        compaction: settings.compaction.clone(),
        streaming: settings.streaming.clone(),
        processes: programs.processes(),
        hooks: hooks.bound(),
        outputs: Some(programs.outputs()),
        model: chosen.provider,
        tools: std::mem::take(&mut programs.tools),
        channels: vec![Arc::new(channel)],
        absent: Absent::new(),
        store: store.ports(),
        clock,
        boot: BootId::new(),
        version: VERSION.into(),
        max_tokens: settings.llm.max_tokens,
        max_attempts: settings.llm.max_attempts,
        ready: watch::channel(false).0,
        // A question is answered in this process: nobody waits beside it for a worker's link.
        workers: None,
        context: programs.context(),
    })
    .await
    .map_err(|error| agent_failure(&error))?;

    let stop = CancellationToken::new();
    let interrupted = CancellationToken::new();
    let signals_end = signals.handle();
    let mut tasks = JoinSet::new();
    tasks.spawn(signals.watch(interrupted.clone()));
    let agent_stop = stop.clone();
    tasks.spawn(async move {
        agent.run(agent_stop).await;
    });
    let answered = tokio::select! {
        answered = until_answered(answer, talk) => Some(answered),
        () = interrupted.cancelled() => None,
    };
    stop.cancel();
    signals_end.close();
    while let Some(ended) = tasks.join_next().await {
        if let Err(broken) = ended {
            error!(%broken, "a part broke");
        }
    }
    hooks.close(HOOKS_GRACE).await;
    closing.close().await;
    match answered {
        None => Ok(Exit::Interrupted),
        Some(answered) => show(answered?, args, out),
    }
}

/// What a question leads to.
enum Answered {
    Run(Arc<RunRecord>),
    Command(String),
}

async fn until_answered(answer: oneshot::Receiver<Ack>, talk: Talk) -> Result<Answered, Failure> {
    match answer.await {
        Ok(Ack::Accepted(Accepted { watch: Some(watch), .. })) => {
            let ended = until_ended(watch, talk).await;
            ended.map(Answered::Run).ok_or_else(|| Failure::new(Exit::Internal, "the run ended without a record"))
        }
        Ok(Ack::Command(reply)) => Ok(Answered::Command(reply.reply)),
        Ok(Ack::Refused(refusal @ Refusal::Invalid(_))) => Err(Failure::new(Exit::UnusableInput, refusal)),
        Ok(Ack::Refused(refusal)) => Err(Failure::new(Exit::Failed, refusal)),
        Ok(_) | Err(_) => Err(Failure::new(Exit::Internal, "the message was not accepted")),
    }
}

/// Waits for the end of the run, and meanwhile has its questions answered.
async fn until_ended(mut watch: RunWatch, mut talk: Talk) -> Option<Arc<RunRecord>> {
    let is_end = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|run| run.status.is_end());
    let mut asking = None;
    loop {
        tokio::select! {
            biased; // the end first: a question whose run has ended needs no answer
            ended = watch.finished.wait_for(is_end) => return ended.ok()?.clone(),
            Some(said) = OptionFuture::from(asking.as_mut()) => {
                asking = None;
                say(&talk.say, said).await;
            }
            Some((question, text)) = talk.questions.recv(), if asking.is_none() => {
                asking = Some(Box::pin(talk.person.answer(question, text)));
            }
        }
    }
}

/// Hands an answer to the agent, and tells the person if it did not count.
async fn say(agent: &mpsc::Sender<Envelope>, said: Said) {
    let body = match said {
        Said::Decision(gate, decision) => Body::Control(Control::Decide { gate, decision }),
        Said::Secret(secret) => Body::Text(secret),
    };
    let (ack, answer) = AckSender::channel();
    if agent.send(Envelope { inbound: inbound(body, Vec::new()), ack }).await.is_err() {
        return; // intake has ended, and the run with it
    }
    if let Ok(Ack::Refused(refusal)) = answer.await {
        complain(&refusal.to_string());
    }
}

fn show(answered: Answered, args: &AskArgs, out: Output<'_>) -> Result<Exit, Failure> {
    let as_json = args.json;
    match answered {
        Answered::Run(record) => {
            let run = serde_json::to_value(&*record).map_err(|error| Failure::new(Exit::Internal, error))?;
            Ok(verdict(&run, as_json, out))
        }
        Answered::Command(_) if !args.outputs.is_empty() => Err(Failure::new(Exit::Failed, "a command has no outputs")
            .next(
                "leave out --output, or give the request \
                                                                             as text",
            )),
        Answered::Command(reply) if as_json => {
            out.json(&serde_json::json!({ "reply": reply }));
            Ok(Exit::Fine)
        }
        Answered::Command(reply) => {
            out.line(&reply);
            Ok(Exit::Fine)
        }
    }
}

/// The channel's id, its one session's key, and its principal's id.
const NAME: &str = "ask";

/// Questions and answers that wait for each other: a run asks one at a time.
const TALK: usize = 4;

/// Says one thing, passes on questions and their answers, and otherwise keeps quiet, so that the agent lives until it is
/// told to stop.
struct AskChannel {
    id: ChannelId,
    /// Taken by `start`, which is called once.
    said: Mutex<Option<mpsc::Receiver<Envelope>>>,
    questions: mpsc::Sender<(Question, String)>,
}

/// The other end of the channel.
struct Talk {
    say: mpsc::Sender<Envelope>,
    questions: mpsc::Receiver<(Question, String)>,
    person: Person,
}

impl AskChannel {
    fn new(text: String, outputs: Vec<DeclaredOutput>, person: Person) -> (Self, oneshot::Receiver<Ack>, Talk) {
        let (ack, answer) = AckSender::channel();
        let (say, said) = mpsc::channel(TALK);
        let (questions, asked) = mpsc::channel(TALK);
        let first = Envelope { inbound: inbound(Body::Text(text), outputs), ack };
        let _ = say.try_send(first); // it is empty, and its other end is here
        let channel = Self { id: ChannelId::from(NAME), said: Mutex::new(Some(said)), questions };
        (channel, answer, Talk { say, questions: asked, person })
    }
}

fn inbound(body: Body, outputs: Vec<DeclaredOutput>) -> Inbound {
    let channel = ChannelId::from(NAME);
    Inbound {
        reply_to: Some(ReplyRoute { channel: channel.clone(), conversation: NAME.into(), reply_to: None }),
        outputs,
        ..Inbound::new(channel, SessionKey::new(NAME), Principal::operator(NAME), body)
    }
}

#[async_trait]
impl Channel for AskChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).take();
        let said =
            said.ok_or_else(|| ChannelError { channel: self.id.clone(), detail: "it was started before".into() })?;
        let said = futures_util::stream::unfold(said, |mut said| async move { Some((said.recv().await?, said)) });
        Ok(Box::pin(said.take_until(intake.cancelled_owned())))
    }

    /// Passes on a question. A reply is read from its run.
    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let Some(question) = message.question.clone() else { return Ok(()) };
        let gone = |_| DeliverError::Refused { detail: "nobody asks any more".into() };
        self.questions.send((question, message.text.clone())).await.map_err(gone)
    }
}
