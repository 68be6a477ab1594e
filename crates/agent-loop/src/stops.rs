//! The stop engine's place in the loop: what it is shown, and how its verdicts are carried out.

use std::sync::Arc;

use belay_protocol::{
    Arguments, Finding, Message, MessageBody, ModelReply, RunEnd, StopReason, ToolCall, ToolResult, ToolSet, ToolStatus,
};

use crate::config::AgenticLoopConfig;
use crate::context::{LoopContext, Reasoning, answers};
use crate::delegate::Meter;
use crate::notices;
use crate::policies::{Action, CallOutcome, Observation, Verdict};
use crate::state::{Fired, Step};

/// What results of a batch say that was not run because of a verdict.
const HELD_BACK: &str = "not executed: this call repeats earlier calls without making progress";
/// What results of a batch say that was not run because the run has to end.
const OUT_OF_BUDGET: &str = "not executed: the run has reached a limit";
/// How the gate and the loop begin the result of a call whose arguments the tool refuses.
pub const INVALID_ARGUMENTS: &str = "invalid arguments";

/// How a batch has run.
pub(crate) struct Ran<'a> {
    /// Whether every call failed.
    pub(crate) all_failed: bool,
    /// What the rules said before it ran.
    pub(crate) noticed: Vec<Verdict>,
    /// The run's tools.
    pub(crate) tools: &'a ToolSet,
}

/// What becomes of a batch before it runs.
pub(crate) enum BatchCheck {
    /// It runs; words to the model come behind their results, since providers take nothing in between.
    Run(Vec<Verdict>),
    /// It does not; the run goes on, and the model has been told why.
    HeldBack,
    /// It does not, and the run ends.
    End(RunEnd),
}

impl LoopContext {
    /// A person says something more: it is seen by the rules and joins the conversation.
    pub(crate) fn inject(&mut self, config: &AgenticLoopConfig, message: Arc<Message>) -> Option<RunEnd> {
        let verdict = self.state.stops.observe(&config.rules, Observation::User(message.text()));
        self.messages.push(message);
        self.apply_verdict(verdict)
    }

    /// Before a model call: the time, what has been used, and one step more.
    pub(crate) fn on_step(&mut self, config: &AgenticLoopConfig, meter: &Meter) -> Option<RunEnd> {
        let mut verdicts = self.measure(config, meter);
        verdicts.extend(self.state.stops.observe(&config.rules, Observation::Step));
        verdicts.into_iter().fold(None, |end, verdict| end.or_else(|| self.apply_verdict(Some(verdict))))
    }

    /// Shows the rules the time and what has been used.
    fn measure(&mut self, config: &AgenticLoopConfig, meter: &Meter) -> Vec<Verdict> {
        let stops = &mut self.state.stops;
        let mut verdicts = Vec::new();
        if let Some(now) = meter.clock_ms {
            verdicts.extend(stops.observe(&config.rules, Observation::Clock(now)));
        }
        verdicts.extend(stops.observe(&config.rules, Observation::Totals(&meter.totals)));
        verdicts
    }

    /// A whole reply: what follows from it, once the rules have heard its text.
    pub(crate) fn on_reply(&mut self, reply: ModelReply, reasoning: &Reasoning, config: &AgenticLoopConfig) -> Step {
        let armed = reasoning.offered(&self.state).is_some();
        let step = self.state.accept(reply, armed, config);
        let (text, nudged) = match &step {
            Step::Answer { text } | Step::Execute { text, .. } => (text, false),
            // A brake answers these two.
            Step::Nudge { text } | Step::Discard { text, .. } => (text, true),
            Step::HeldBack | Step::End(_) => return step,
        };
        match self.state.stops.observe(&config.rules, Observation::Assistant { text, nudged }) {
            Some(verdict) if verdict.action != Action::Notice => self.on_aborted_stream(text, verdict),
            noticed => {
                self.apply_verdict(noticed).map_or(step, Step::End) // a notice ends nothing
            }
        }
    }

    /// A text that repeats itself, cut off while it streamed or not: it steers this run alone, and nothing that was asked
    /// for along with it is done.
    pub(crate) fn on_aborted_stream(&mut self, text: &str, verdict: Verdict) -> Step {
        if !text.trim().is_empty() {
            self.push(Message::assistant(text).for_run());
        }
        self.apply_verdict(Some(verdict)).map_or(Step::HeldBack, Step::End)
    }

    /// Calls that are about to run. The batch is in the context; held back, each of its calls gets a result that says so.
    pub(crate) fn check_batch(
        &mut self,
        config: &AgenticLoopConfig,
        batch: &Message,
        meter: &Meter,
        tools: &ToolSet,
    ) -> BatchCheck {
        let mut noticed = Vec::new();
        for verdict in self.measure(config, meter) {
            if verdict.action != Action::Notice {
                self.answer(batch.tool_calls(), OUT_OF_BUDGET);
                return self.apply_verdict(Some(verdict)).map_or(BatchCheck::HeldBack, BatchCheck::End);
            }
            noticed.push(verdict);
        }
        for call in batch.tool_calls() {
            let spec = tools.get(&call.name).map(|tool| tool.spec());
            let seen = Observation::ToolCall { name: &call.name, arguments: &call.arguments, spec };
            let verdict = self.state.stops.observe(&config.rules, seen);
            // A limit of calls lets those run that are within it: they are admitted one by one, and then the run ends.
            let holds =
                |verdict: &Verdict| verdict.action != Action::Notice && verdict.finding.reason != StopReason::ToolCalls;
            if verdict.as_ref().is_some_and(holds) {
                self.answer(batch.tool_calls(), HELD_BACK);
                return self.apply_verdict(verdict).map_or(BatchCheck::HeldBack, BatchCheck::End);
            }
            noticed.extend(verdict);
        }
        BatchCheck::Run(noticed)
    }

    /// A batch that has run, with its results in the context: the brake of duplicate failures, then the rules.
    pub(crate) fn judge_batch(&mut self, config: &AgenticLoopConfig, batch: &Message, ran: Ran<'_>) -> Option<RunEnd> {
        let warned = self.state.judge(batch.tool_calls(), ran.all_failed);
        if let Some(count) = warned {
            notices::duplicate_failures(self, count);
        }
        let mut end =
            ran.noticed.into_iter().fold(None, |end, verdict| end.or_else(|| self.apply_verdict(Some(verdict))));
        for call in batch.tool_calls() {
            let found = self.messages.iter().rev().find(|message| answers(message, &call.id)).cloned();
            let Some(MessageBody::Tool(result)) = found.as_ref().map(|message| &message.body) else { continue };
            let outcome = outcome_of(call, result, ran.tools);
            let seen = Observation::ToolResult { name: &call.name, outcome, text: &result.text };
            let verdict = self.state.stops.observe(&config.rules, seen);
            // The brake has said it already: one word about one batch.
            let said = warned.is_some() && verdict.as_ref().is_some_and(|verdict| verdict.action == Action::Notice);
            if !said {
                end = end.or(self.apply_verdict(verdict));
            }
        }
        end
    }

    /// The newest batch, where its last results came after the loop had left it: a person had to be asked, or the daemon
    /// restarted. Judged as the loop does it.
    pub fn judge_last_batch(&mut self, config: &AgenticLoopConfig, tools: &ToolSet) -> Option<RunEnd> {
        let batch = self.messages.iter().rfind(|message| !message.tool_calls().is_empty())?.clone();
        let succeeded = |call: &ToolCall| {
            self.messages.iter().rev().any(|message| {
                matches!(&message.body, MessageBody::Tool(result) if result.call_id == call.id && !result.status.is_failure())
            })
        };
        let all_failed = !batch.tool_calls().iter().any(succeeded);
        self.judge_batch(config, &batch, Ran { all_failed, noticed: Vec::new(), tools })
    }

    /// Carries a verdict out: tells the model, or gives the end. Words of ours are system messages of this run: nothing
    /// is said in the person's name.
    #[must_use]
    pub fn apply_verdict(&mut self, verdict: Option<Verdict>) -> Option<RunEnd> {
        let Verdict { action, finding, strike, say } = verdict?;
        tracing::info!(
            iteration = self.state.iteration, rule = finding.rule, count = finding.count,
            threshold = finding.threshold, strike, action = ?action, "a stop rule fired"
        );
        let words = match action {
            Action::Stop => {
                let detected = matches!(
                    finding.reason,
                    StopReason::ToolLoop | StopReason::Chanting | StopReason::JudgedLoop | StopReason::RepeatedReplies
                );
                let end = RunEnd::from(finding);
                return Some(if detected { end.with("strikes", strike) } else { end });
            }
            Action::Recover => {
                self.state.stops.recover();
                say.unwrap_or_else(|| feedback(&finding))
            }
            Action::Notice => say.unwrap_or_else(|| notice(&finding)),
        };
        self.push(Message::system(words).for_run());
        self.state.fired.push(Fired { rule: finding.rule, count: finding.count, strike });
        None
    }

    fn answer(&mut self, calls: &[ToolCall], text: &str) {
        for call in calls {
            let (call_id, name) = (call.id.clone(), call.name.clone());
            let status = ToolStatus::NotExecuted;
            self.push(Message::tool(ToolResult { call_id, name, status, text: text.into() }));
        }
    }
}

/// How a call went, in the words of the rules.
fn outcome_of(call: &ToolCall, result: &ToolResult, tools: &ToolSet) -> CallOutcome {
    match result.status {
        ToolStatus::Success => CallOutcome::Success,
        ToolStatus::Denied => CallOutcome::Denied,
        ToolStatus::Cancelled | ToolStatus::NotExecuted => CallOutcome::NotExecuted,
        _ if tools.get(&call.name).is_none() => CallOutcome::UnknownTool,
        _ if matches!(call.arguments, Arguments::Malformed(_)) => CallOutcome::InvalidArguments,
        _ if result.text.starts_with(INVALID_ARGUMENTS) => CallOutcome::InvalidArguments,
        _ => CallOutcome::Failed,
    }
}

fn feedback(finding: &Finding) -> String {
    let quote = finding.quote.as_deref().map(|quote| format!(" (“{quote}”)")).unwrap_or_default();
    format!(
        "Notice: this run seems to be in a loop: {}{quote}, {} times. Review what you have achieved, what blocks you, \
         and what else could work. Do not repeat an action that gave no new result. Take a different approach, or give \
         your final answer now with what you have and state what is missing. If this happens again, the run ends.",
        finding.reason.word().replace('_', " "),
        finding.count,
    )
}

fn notice(finding: &Finding) -> String {
    format!(
        "Notice: {} ({} so far). Read the results, change your approach, or give your final answer with what you have.",
        finding.rule.replace('_', " "),
        finding.count,
    )
}
