//! `belay ask`: one message without a daemon. The whole agent, with a channel that says one thing and a store in memory.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use belay_agent::{Agent, AgentConfig, AgentParts};
use belay_agent_loop::StopRules;
use belay_protocol::{
    Accepted, Ack, AckSender, Body, Channel, ChannelError, ChannelId, Clock, DeclaredOutput, DeliverError, Envelope,
    Inbound, InboundStream, Outbound, Principal, RunRecord, SessionKey,
};
use belay_protocol::{BootId, NoProcesses, Refusal};
use futures_util::StreamExt;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::cli::AskArgs;
use crate::client::verdict;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};
use crate::paths::Paths;
use crate::secrets::Secrets;
use crate::settings::{load, refused};
use crate::signals::SignalWatch;
use crate::telemetry;
use crate::wiring::{Chosen, Store, SystemClock, VERSION, agent_failure, tools};

/// Answers one message; the exit code is the verdict of its run.
pub(crate) async fn ask(args: &AskArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let text = crate::input::message(&args.text)?;
    let paths = Paths::find(env)?;
    let loaded = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?;
    let telemetry = &loaded.settings.telemetry;
    telemetry::start(&if loaded.is_set("telemetry.log") { telemetry.clone() } else { telemetry.quiet() }, env);
    let signals = SignalWatch::install().map_err(|error| Failure::new(Exit::Internal, error))?;

    let settings = &loaded.settings;
    let secrets = Secrets::find(settings, env).map_err(|problems| refused(&problems))?;
    let chosen = Chosen::find(settings, &secrets).await?;
    if let Some(notice) = &chosen.notice {
        note(notice);
    }
    let store = Store::memory()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (channel, answer) = AskChannel::new(text, args.outputs.clone());
    let agent = Agent::start(AgentParts {
        // Nothing else runs: an interrupted question is given up at once.
        config: AgentConfig { drain_s: 0, ..settings.agent.clone() },
        limits: settings.limits.clone(),
        rules: Arc::new(StopRules::compile(&settings.stops, &settings.limits.run)),
        queue: settings.queue.clone(),
        approvals: settings.approvals.clone(),
        processes: Arc::new(NoProcesses),
        outputs: None,
        model: chosen.provider,
        tools: tools(settings, env, &paths, store.notes(), clock.clone())?,
        channels: vec![Arc::new(channel)],
        store: store.ports(),
        clock,
        boot: BootId::new(),
        version: VERSION.into(),
        max_tokens: settings.llm.max_tokens,
        max_attempts: settings.llm.max_attempts,
        ready: watch::channel(false).0,
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
        answered = until_answered(answer) => Some(answered),
        () = interrupted.cancelled() => None,
    };
    stop.cancel();
    signals_end.close();
    while let Some(ended) = tasks.join_next().await {
        if let Err(broken) = ended {
            error!(%broken, "a part broke");
        }
    }
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

async fn until_answered(answer: oneshot::Receiver<Ack>) -> Result<Answered, Failure> {
    match answer.await {
        Ok(Ack::Accepted(Accepted { watch: Some(mut watch), .. })) => {
            let ended = watch.finished.wait_for(Option::is_some).await.ok().and_then(|record| record.clone());
            ended.map(Answered::Run).ok_or_else(|| Failure::new(Exit::Internal, "the run ended without a record"))
        }
        Ok(Ack::Command(reply)) => Ok(Answered::Command(reply.reply)),
        Ok(Ack::Refused(refusal @ Refusal::Invalid(_))) => Err(Failure::new(Exit::UnusableInput, refusal)),
        Ok(Ack::Refused(refusal)) => Err(Failure::new(Exit::Failed, refusal)),
        Ok(_) | Err(_) => Err(Failure::new(Exit::Internal, "the message was not accepted")),
    }
}

fn show(answered: Answered, args: &AskArgs, out: Output<'_>) -> Result<Exit, Failure> {
    let as_json = args.json;
    match answered {
        Answered::Run(record) => {
            let run = serde_json::to_value(&*record).map_err(|error| Failure::new(Exit::Internal, error))?;
            Ok(verdict(&run, as_json, out))
        }
        Answered::Command(_) if !args.outputs.is_empty() => {
            Err(Failure::new(Exit::Failed, "a command has no outputs").next("leave out --output, or ask in words"))
        }
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

/// Says one thing and then keeps quiet, so that the agent lives until it is told to stop.
struct AskChannel {
    id: ChannelId,
    /// Taken by `start`, which is called once.
    question: Mutex<Option<Envelope>>,
}

impl AskChannel {
    fn new(text: String, outputs: Vec<DeclaredOutput>) -> (Self, oneshot::Receiver<Ack>) {
        let (ack, answer) = AckSender::channel();
        let id = ChannelId::from("ask");
        let inbound = Inbound {
            channel: id.clone(),
            session: SessionKey::new("ask"),
            principal: Principal::operator("ask"),
            key: None,
            reply_to: None,
            body: Body::Text(text),
            history: Vec::new(),
            want_deltas: false,
            outputs,
            relayed: false,
        };
        (Self { id, question: Mutex::new(Some(Envelope { inbound, ack })) }, answer)
    }
}

#[async_trait]
impl Channel for AskChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let question = self.question.lock().unwrap_or_else(PoisonError::into_inner).take();
        let said = futures_util::stream::iter(question).chain(futures_util::stream::pending());
        Ok(Box::pin(said.take_until(intake.cancelled_owned())))
    }

    async fn deliver(&self, _message: &Outbound) -> Result<(), DeliverError> {
        Err(DeliverError::Refused { detail: "the answer is read from its run".into() })
    }
}
