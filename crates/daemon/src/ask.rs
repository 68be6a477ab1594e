//! `belay ask`: answers one message without a daemon. It starts the whole agent, with a store in memory and a channel
//! that sends this message and answers the approval requests of its run.

mod person;

use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use belay_agent::{Agent, AgentParts};
use belay_automation::{HeartbeatConfig, JobsConfig, RoutinesConfig};
use belay_channels::with_short_id;
use belay_cli::client::{AnswerScreen, verdict};
use belay_parts::{Chosen, HOOKS_GRACE, Programs, Store, ToolPorts, agent_failure, hooks, transcriber};
use belay_program::VERSION;
use belay_program::clock::SystemClock;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note, print_error};
use belay_program::paths::Paths;
use belay_program::signals::{OnHangup, SignalWatch};
use belay_protocol::{
    Accepted, Ack, AckSender, AttachmentIntake, Body, Channel, ChannelDisplay, ChannelError, ChannelId, ChannelProfile,
    Clock, Control, DeliverError, Envelope, Inbound, InboundStream, NoTroubles, Outbound, Principal, Provenance,
    Question, ReplyRoute, RunRecord, RunStatus, RunWatch, SessionKey, Streaming, Uploader,
};
use belay_protocol::{BootId, Refusal};
use belay_run::{AgentConfig, DisabledChannels};
use belay_settings::secrets::Secrets;
use belay_settings::{Loaded, load, refuse_own_files, refused, stop_rules, workspace_of};
use belay_telemetry::TelemetryConfig;
use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;
use tracing::error;

use self::person::{Person, PersonAnswer};
use crate::args::AskArgs;

/// Logging as the settings have it; warnings alone unless they name a level.
fn telemetry_of(loaded: &Loaded) -> TelemetryConfig {
    let telemetry = &loaded.settings.telemetry;
    if loaded.is_set("telemetry.log") { telemetry.clone() } else { telemetry.quiet() }
}

/// Answers one message. The exit code is the verdict of its run.
pub(crate) async fn ask(args: &AskArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let (text, is_input_used) = belay_program::input::with_piped(args.text.as_deref())?;
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let loaded = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?;
    belay_telemetry::start(&telemetry_of(&loaded), env, None);
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;

    let settings = &loaded.settings;
    refuse_own_files(settings, env, &paths)?;
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
    // The notes of one message need no search by meaning.
    let (notes, runs, events) = (store.ports().notes, store.ports().runs, None);
    // Its conversation is in memory, so its outputs are files of this machine, also beside a cluster.
    let needs = ToolPorts { notes, meaning: None, runs, events, clock: clock.clone(), shared: None, patient: true };
    let mut programs = Programs::open(settings, env, &paths, needs).await?;
    let hooks = hooks(settings, env, programs.kept())?;
    let handle = programs.handle();
    let screen = Arc::new(AnswerScreen::find(env, args.json));
    let transcriber = transcriber(settings, secrets.transcription.as_ref())?;
    let intake = programs.attachments(settings, &store, clock.clone(), transcriber)?;
    let first = Inbound {
        outputs: args.outputs.clone(),
        provenance: attached(&*intake, &args.images).await?,
        ..inbound(Body::Text(text))
    };
    let files = SentLines::default();
    let (channel, answer, person_link) =
        AskChannel::new(first, Person::find(is_input_used, env), screen.clone(), files.clone());
    let agent = Agent::start(AgentParts {
        leases: None,
        outgoing: programs.outgoing(settings, &store)?,
        callbacks: None,
        // Nobody asks for the status of this process.
        machine: Arc::new(NoTroubles),
        pairing: None,
        // Nothing else runs, so an interrupted run is stopped at once.
        config: AgentConfig { drain_s: 0, ..settings.agent.clone() },
        limits: settings.limits.clone(),
        rules: stop_rules(settings),
        queue: settings.queue.clone(),
        sessions: settings.sessions.clone(),
        // Only one message is answered, so routines are disabled.
        routines: RoutinesConfig { enabled: false, ..RoutinesConfig::default() },
        heartbeat: HeartbeatConfig::default(),
        // No job can outlive the answer.
        jobs: JobsConfig { enabled: false, ..settings.jobs.clone() },
        health: settings.tools.health.clone(),
        approvals: settings.approvals.clone(),
        compaction: settings.compaction.clone(),
        memory: settings.memory.clone(),
        streaming: settings.streaming.clone(),
        processes: programs.processes(),
        hooks: hooks.bound(),
        outputs: Some(programs.outputs()),
        model: chosen.provider,
        tools: std::mem::take(&mut programs.tools),
        channels: vec![Arc::new(channel)],
        absent: DisabledChannels::new(),
        store: store.ports(),
        clock,
        boot: BootId::new(),
        cluster: None,
        version: VERSION.into(),
        max_tokens: settings.llm.max_tokens,
        max_attempts: settings.llm.max_attempts,
        ready: watch::channel(false).0,
        // No worker link is served in this process.
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
        answered = until_answered(answer, person_link) => Some(answered),
        () = interrupted.cancelled() => None,
        () = screen.draw() => None,
    };
    stop.cancel();
    signals_end.close();
    while let Some(ended) = tasks.join_next().await {
        if let Err(broken) = ended {
            error!(%broken, "a part broke");
        }
    }
    hooks.close(HOOKS_GRACE).await;
    handle.close().await;
    match answered {
        Some(Ok(answered)) => {
            let exit = show(answered, args, out, &screen)?;
            if !args.json {
                files.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|line| out.line(line));
            }
            Ok(exit)
        }
        Some(Err(failure)) => {
            screen.clear();
            Err(failure)
        }
        None => {
            screen.clear();
            Ok(Exit::Interrupted)
        }
    }
}

/// The answer to the message.
enum Answered {
    Run(Arc<RunRecord>),
    Command(String),
}

async fn until_answered(answer: oneshot::Receiver<Ack>, person_link: PersonLink) -> Result<Answered, Failure> {
    match answer.await {
        Ok(Ack::Accepted(Accepted { watch: Some(watch), .. })) => {
            let ended = until_ended(watch, person_link).await;
            ended.map(Answered::Run).ok_or_else(|| Failure::new(Exit::Internal, "the run ended without a record"))
        }
        Ok(Ack::Command(reply)) => Ok(Answered::Command(reply.reply)),
        Ok(Ack::Refused(refusal @ Refusal::Invalid(_))) => Err(Failure::new(Exit::UnusableInput, refusal)),
        Ok(Ack::Refused(refusal)) => Err(Failure::new(Exit::Failed, refusal)),
        Ok(_) | Err(_) => Err(Failure::new(Exit::Internal, "the message was not accepted")),
    }
}

/// Waits for the end of the run, and lets the person answer its approval requests meanwhile.
async fn until_ended(mut watch: RunWatch, mut person_link: PersonLink) -> Option<Arc<RunRecord>> {
    let is_end = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|run| run.status.is_end());
    let mut asking = None;
    loop {
        tokio::select! {
            biased; // the end first: after it, no approval request needs an answer
            ended = watch.finished.wait_for(is_end) => return ended.ok()?.clone(),
            Some(reply) = OptionFuture::from(asking.as_mut()) => {
                asking = None;
                send_answer(&person_link.sender, reply).await;
            }
            Some((question, text)) = person_link.questions.recv(), if asking.is_none() => {
                asking = Some(Box::pin(person_link.person.answer(question, text)));
            }
        }
    }
}

/// Sends an answer to the agent. Tells the person if it was refused.
async fn send_answer(agent: &mpsc::Sender<Envelope>, reply: PersonAnswer) {
    let body = match reply {
        PersonAnswer::Decision(approval, decision) => Body::Control(Control::Decide { approval, decision }),
        PersonAnswer::Secret(secret) => Body::Text(secret),
    };
    let (ack, answer) = AckSender::channel();
    if agent.send(Envelope { inbound: inbound(body), ack }).await.is_err() {
        return; // intake has ended, and the run with it
    }
    if let Ok(Ack::Refused(refusal)) = answer.await {
        print_error(&refusal.to_string());
    }
}

fn show(answered: Answered, args: &AskArgs, out: Output<'_>, screen: &AnswerScreen) -> Result<Exit, Failure> {
    let as_json = args.json;
    match answered {
        Answered::Run(record) => {
            match record.reply.as_deref().filter(|_| record.status == RunStatus::Completed) {
                Some(reply) if screen.answered(reply) => return Ok(Exit::Fine),
                Some(_) => {}
                None => screen.clear(),
            }
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
            if !screen.answered(&reply) {
                out.line(&reply);
            }
            Ok(Exit::Fine)
        }
    }
}

/// The channel's id, the key of its only session, and the id of its principal.
const NAME: &str = "ask";

/// Capacity of the queues of requests and answers: a run has one open request at a time.
const ASK_CAPACITY: usize = 4;

/// Sends one message, and passes approval requests and answers on. Its stream stays open, so the agent lives until it
/// is stopped.
struct AskChannel {
    id: ChannelId,
    /// Taken by `start`, which is called once.
    messages: Mutex<Option<mpsc::Receiver<Envelope>>>,
    questions: mpsc::Sender<(Question, String)>,
    screen: Arc<AnswerScreen>,
    files: SentLines,
}

/// The lines about the files that the run has sent, shown after its answer.
type SentLines = Arc<Mutex<Vec<String>>>;

/// The person's end of the channel.
struct PersonLink {
    sender: mpsc::Sender<Envelope>,
    questions: mpsc::Receiver<(Question, String)>,
    person: Person,
}

impl AskChannel {
    fn new(
        first: Inbound,
        person: Person,
        screen: Arc<AnswerScreen>,
        files: SentLines,
    ) -> (Self, oneshot::Receiver<Ack>, PersonLink) {
        let (ack, answer) = AckSender::channel();
        let (sender, messages) = mpsc::channel(ASK_CAPACITY);
        let (questions, asked) = mpsc::channel(ASK_CAPACITY);
        let first = Envelope { inbound: first, ack };
        let _ = sender.try_send(first); // cannot fail: the queue is empty and its receiver is in this function
        let channel =
            Self { id: ChannelId::from(NAME), messages: Mutex::new(Some(messages)), questions, screen, files };
        (channel, answer, PersonLink { sender, questions: asked, person })
    }
}

/// Takes the files of the message; `None`: there are none.
async fn attached(intake: &dyn AttachmentIntake, files: &[PathBuf]) -> Result<Option<Arc<Provenance>>, Failure> {
    if files.is_empty() {
        return Ok(None);
    }
    if files.len() > intake.max_count() {
        let what = format!("at most {} files can be attached (attachments.max_count)", intake.max_count());
        return Err(Failure::new(Exit::UnusableInput, what));
    }
    let from = Uploader { channel: ChannelId::from(NAME), principal: NAME.into() };
    let mut attachments = Vec::new();
    for path in files {
        let unusable = |error: &dyn Display| Failure::new(Exit::UnusableInput, format!("{}: {error}", path.display()));
        let file = tokio::fs::File::open(path).await.map_err(|error| unusable(&error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let taken = intake.take(&from, &name, Box::pin(ReaderStream::new(file))).await;
        attachments.push(taken.map_err(|error| unusable(&error))?.attachment);
    }
    Ok(Some(Arc::new(Provenance { attachments, ..Provenance::default() })))
}

fn inbound(body: Body) -> Inbound {
    let channel = ChannelId::from(NAME);
    Inbound {
        reply_to: Some(ReplyRoute { channel: channel.clone(), conversation: NAME.into(), reply_to: None }),
        ..Inbound::new(channel, SessionKey::new(NAME), Principal::operator(NAME), body)
    }
}

#[async_trait]
impl Channel for AskChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        let messages = messages
            .ok_or_else(|| ChannelError { channel: self.id.clone(), detail: "it was started before".into() })?;
        let messages =
            futures_util::stream::unfold(
                messages,
                |mut messages| async move { Some((messages.recv().await?, messages)) },
            );
        Ok(Box::pin(messages.take_until(intake.cancelled_owned())))
    }

    fn display(&self) -> ChannelDisplay<'_> {
        let streaming = if self.screen.is_live() { Streaming::Live(&*self.screen) } else { Streaming::Off };
        ChannelDisplay { streaming, ..ChannelDisplay::default() }
    }

    fn profile(&self) -> ChannelProfile<'_> {
        // A file stays where it is: its path is shown.
        ChannelProfile { max_file_bytes: u64::MAX, ..ChannelProfile::default() }
    }

    /// Passes an approval request to the person, and keeps the lines about files. Replies are read from the run.
    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        if let Some(file) = &message.file {
            let mut lines = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            lines.extend(Some(message.text.clone()).filter(|caption| !caption.is_empty()));
            lines.push(file.line());
        }
        let Some(question) = message.question.clone() else { return Ok(()) };
        let gone = |_| DeliverError::Refused { detail: "nobody asks any more".into() };
        self.questions.send((question, with_short_id(message).into_owned())).await.map_err(gone)
    }
}
