//! The model of the night: it knows by a tag what it works for, and errs in five calls of a hundred.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Arguments, DeltaSink, FinishReason, Message, ModelError, ModelErrorKind, ModelInfo, ModelProvider, ModelReply,
    ModelRequest, Price, Purpose, ToolCall, Usage,
};
use belay_testkit::scripted_model::check_transcript;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::cast::{JobKind, Nature, nature};
use super::dice::Dice;

/// What every answer costs.
const USAGE: Usage = Usage { input: 1000, cached_input: 0, output: 100 };
pub(super) const PRICE: Price = Price { input: 1_000_000, cached_input: None, output: 5_000_000 };
/// Of a hundred calls so many go wrong.
const ERRORS: u64 = 5;

/// What the model has been through.
#[derive(Default)]
pub(super) struct Seen {
    /// Calls by tag.
    calls: BTreeMap<String, u64>,
    /// Whole answers by what they were for: what the provider charges.
    pub(super) answers: BTreeMap<Purpose, u64>,
    /// Calls that went wrong, by how.
    pub(super) errors: BTreeMap<&'static str, u64>,
    /// What should not have come: a broken transcript, or words that were for a routine.
    pub(super) wrong: Vec<String>,
}

pub(super) struct NightModel {
    info: ModelInfo,
    dice: Dice,
    seen: Mutex<Seen>,
    /// Rung by a call that kills the daemon.
    pub(super) poison: Notify,
}

/// What it does with a call.
enum Does {
    Say(String),
    Call(&'static str, Value),
    Err(&'static str, ModelErrorKind),
    /// Some pieces, and then the connection is lost.
    Cut,
    Hang,
    Kill,
}

impl NightModel {
    pub(super) fn new(dice: Dice) -> Self {
        let info = ModelInfo {
            provider: "night".into(),
            model: "night".into(),
            context_tokens: 200_000,
            price: Some(PRICE),
            rehearsal: false,
            vision: false,
            sampling: belay_protocol::SamplingSupport::ALL,
        };
        Self { info, dice, seen: Mutex::default(), poison: Notify::new() }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one answer costs, in millionths of a US dollar.
    pub(super) fn cost() -> u64 {
        USAGE.input + 5 * USAGE.output
    }

    fn decide(&self, request: &ModelRequest<'_>, tag: &str, nth: u64) -> (Duration, Does) {
        let number = tag[1..].parse().expect("a number");
        let step = 1 + last_step(request.messages);
        let roll = |what: &str, sides| self.dice.roll(&format!("{what} {tag}"), nth, sides);
        let offered = |name: &str| request.tools.is_some_and(|tools| tools.iter().any(|tool| tool.spec().name == name));
        if roll("errs", 100) < ERRORS {
            return (Duration::from_secs(1), self.err(roll("how", 5)));
        }
        if tag.starts_with('r') && nature(number) != Nature::FullJob {
            let nature = nature(number);
            let delay = if nature == Nature::Slow { 400 } else { 1 + roll("takes", 6) };
            let does = match nature {
                Nature::Broken => Does::Err("refused", ModelErrorKind::BadRequest),
                _ if offered("post") && step == 1 => Does::Call("post", json!({"step": step})),
                _ if roll("speaks", 3) == 0 => Does::Say(format!("report {nth} of {tag}")),
                _ => Does::Say("ROUTINE_OK".into()),
            };
            return (Duration::from_secs(delay), does);
        }
        let kind = if tag.starts_with('r') { JobKind::Plain } else { JobKind::of(number) };
        let again = request.messages.iter().any(|message| message.text().starts_with("This is attempt"));
        let (delay, steps) = match kind {
            JobKind::Long => (120 + roll("takes", 120), 40 + number % 20),
            JobKind::TalkedTo | JobKind::Cancelled => (60, 12),
            _ => (5 + roll("takes", 30), 3 + number % 4),
        };
        let terminate =
            |status: &str| Does::Call("terminate", json!({"status": status, "summary": format!("result of {tag}")}));
        let does = match kind {
            JobKind::Poison if step > 2 => Does::Kill,
            JobKind::SilentForEver if step > 1 => Does::Hang,
            JobKind::SilentOnce if step > 2 && !again => Does::Hang,
            JobKind::GivesUp if step > 2 => terminate("failure"),
            _ if offered("planning") => {
                let steps = ["look", "work", "look again"].map(|what| format!("[{tag}] {what}"));
                Does::Call("planning", json!({"command": "create", "title": "It", "steps": steps}))
            }
            _ if !offered("terminate") => Does::Say(format!("Everything of {tag} is tidy.")),
            JobKind::WithPlan if step <= 2 => Does::Call("look", json!({"step": step})),
            JobKind::WithPlan => terminate("success"),
            _ if step <= steps => Does::Call("post", json!({"step": step})),
            _ => terminate("success"),
        };
        (Duration::from_secs(delay), does)
    }

    fn err(&self, how: u64) -> Does {
        let later = Some(Duration::from_secs(20));
        match how {
            0 => Does::Err("connection lost", ModelErrorKind::Network),
            1 => Does::Err("overloaded", ModelErrorKind::Overloaded { retry_after: None }),
            2 => Does::Err("rate limited", ModelErrorKind::RateLimited { retry_after: later }),
            3 => Does::Cut,
            _ => Does::Say(String::new()),
        }
    }
}

/// What the messages are about: the newest tag in square brackets that somebody else than the model has said.
fn tag_of(messages: &[Arc<Message>]) -> Option<String> {
    messages.iter().find_map(|message| {
        let (_, behind) = message.text().split_once('[')?;
        let (tag, _) = behind.split_once(']')?;
        let is_tag = tag.len() == 4 && tag[1..].bytes().all(|byte| byte.is_ascii_digit());
        is_tag.then(|| tag.to_owned())
    })
}

/// The highest step that the model has asked for.
fn last_step(messages: &[Arc<Message>]) -> u64 {
    let calls = messages.iter().flat_map(|message| message.tool_calls());
    let steps = calls.filter_map(|call| serde_json::to_value(&call.arguments).ok()?.get("step")?.as_u64());
    steps.max().unwrap_or(0)
}

#[async_trait]
impl ModelProvider for NightModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        if let Err(what) = check_transcript(request.messages) {
            self.seen().wrong.push(what);
        }
        let Some(tag) = tag_of(request.messages) else {
            let words = request.messages.last().map_or(String::new(), |message| message.text().to_owned());
            self.seen().wrong.push(format!("a conversation was answered: {words}"));
            return Ok(ModelReply { text: "NO_REPLY".into(), attempts: 1, ..ModelReply::default() });
        };
        let nth = {
            let mut seen = self.seen();
            let calls = seen.calls.entry(tag.clone()).or_default();
            *calls += 1;
            *calls
        };
        let (delay, does) = self.decide(&request, &tag, nth);
        sink.sent();
        sleep(delay).await;
        let purpose = match tag.starts_with('r') && request.prompt.text.contains("for the routine") {
            true => Purpose::Routine,
            false => Purpose::Job,
        };
        let reply = ModelReply { attempts: 1, usage: Some(USAGE), ..ModelReply::default() };
        let reply = match does {
            Does::Say(text) => {
                if text.is_empty() {
                    *self.seen().errors.entry("empty").or_default() += 1;
                }
                ModelReply { text, ..reply }
            }
            Does::Call(name, arguments) => {
                let id = format!("{tag}-{nth}").into();
                let call = ToolCall { id, name: name.into(), arguments: Arguments::parse(&arguments.to_string()) };
                ModelReply { tool_calls: vec![call], finish: FinishReason::ToolCalls, ..reply }
            }
            Does::Err(how, kind) => {
                *self.seen().errors.entry(how).or_default() += 1;
                return Err(ModelError::new(kind, how));
            }
            Does::Cut => {
                *self.seen().errors.entry("cut stream").or_default() += 1;
                sink.text("half of a");
                return Err(ModelError { abandoned: 1, ..ModelError::new(ModelErrorKind::Network, "cut off") });
            }
            Does::Hang => std::future::pending().await,
            Does::Kill => {
                self.poison.notify_one();
                std::future::pending().await
            }
        };
        *self.seen().answers.entry(purpose).or_default() += 1;
        Ok(reply)
    }
}
