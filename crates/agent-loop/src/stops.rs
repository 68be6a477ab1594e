//! Connects the stop engine with the loop: passes observations to it and carries out its verdicts.

use std::sync::Arc;

use belay_protocol::{
    Arguments, Finding, Message, MessageBody, ModelReply, RunEnd, StopLayer, StopReason, ToolCall, ToolResult, ToolSet,
    ToolStatus,
};

use crate::account::{Evidence, calls};
use crate::config::AgenticLoopConfig;
use crate::context::{LoopContext, Reasoning, answers};
use crate::delegate::Meter;
use crate::intent::unfenced;
use crate::notices;
use crate::policies::tool_loops::{Outline, ToolLoopConfig};
use crate::policies::{Action, CallOutcome, Observation, Verdict};
use crate::state::{Fired, Step};

/// The result of the calls of a batch that did not run because of a verdict.
const HELD_BACK: &str = "not executed: this call repeats earlier calls without making progress";
/// The result of the calls of a batch that did not run because the run has to end.
const OUT_OF_BUDGET: &str = "not executed: the run has reached a limit";
/// The first words of a result when the tool refuses the arguments. The effect gate and this crate write them.
pub const INVALID_ARGUMENTS: &str = "invalid arguments";

/// The facts about a batch that has run.
pub(crate) struct Ran<'a> {
    /// Whether every call failed.
    pub(crate) all_failed: bool,
    /// The verdicts of the rules before it ran.
    pub(crate) noticed: Vec<Verdict>,
    /// The run's tools.
    pub(crate) tools: &'a ToolSet,
}

/// The decision about a batch before it runs.
pub(crate) enum BatchCheck {
    /// It runs. Notices to the model follow its results, because providers accept no message between a call and its
    /// result.
    Run(Vec<Verdict>),
    /// It does not run. The run continues, and the model has been told the reason.
    HeldBack,
    /// It does not run, and the run ends.
    End(RunEnd),
}

impl LoopContext {
    /// Tells the detection of chanting what the run works on: the newest message of the person.
    pub(crate) fn observe_request(&mut self, config: &AgenticLoopConfig) {
        let request = self.messages.iter().rev().find(|message| matches!(message.body, MessageBody::User { .. }));
        if let Some(request) = request.filter(|_| config.rules.cuts_streams(&self.state.stops)) {
            self.state.stops.measures.chanting.request(request.text());
        }
    }

    /// Passes another message of the person to the rules and adds it to the conversation.
    pub(crate) fn inject(&mut self, config: &AgenticLoopConfig, message: Arc<Message>) -> Option<RunEnd> {
        let verdict = self.state.stops.observe(&config.rules, Observation::User(message.text()));
        self.messages.push(message);
        self.apply_verdict(verdict)
    }

    /// Called before a model call: passes the time, the usage and one more step to the rules.
    pub(crate) fn on_step(&mut self, config: &AgenticLoopConfig, meter: &Meter) -> Option<RunEnd> {
        let mut verdicts = self.measure(config, meter);
        verdicts.extend(self.state.stops.observe(&config.rules, Observation::Step));
        verdicts.into_iter().fold(None, |end, verdict| end.or_else(|| self.apply_verdict(Some(verdict))))
    }

    /// Passes the time and the usage to the rules.
    fn measure(&mut self, config: &AgenticLoopConfig, meter: &Meter) -> Vec<Verdict> {
        let stops = &mut self.state.stops;
        let mut verdicts = Vec::new();
        if let Some(now) = meter.clock_ms {
            verdicts.extend(stops.observe(&config.rules, Observation::Clock(now)));
        }
        verdicts.extend(stops.observe(&config.rules, Observation::Totals(&meter.totals)));
        verdicts
    }

    /// Decides what follows from a complete reply, after the rules have judged its text.
    pub(crate) fn on_reply(
        &mut self,
        mut reply: ModelReply,
        reasoning: &Reasoning,
        config: &AgenticLoopConfig,
    ) -> Step {
        // Where JSON is the answer, a call in a code fence would be taken for it.
        if reasoning.has_format() && reply.tool_calls.is_empty() && reasoning.is_call(&reply.text) {
            reply.text = unfenced(&reply.text).to_owned();
        }
        let tools_offered = reasoning.offered(&self.state).is_some();
        let step = self.state.accept(reply, reasoning.tools(), tools_offered, config);
        let (text, nudged) = match &step {
            Step::Answer { text } | Step::Execute { text, .. } => (text, false),
            // A guardrail answers these two.
            Step::Nudge { text, .. } | Step::Discard { text, .. } => (text, true),
            Step::HeldBack | Step::End(_) => return step,
        };
        match self.state.stops.observe(&config.rules, Observation::Assistant { text, nudged }) {
            Some(verdict) if verdict.action != Action::Notice => self.on_aborted_stream(text, verdict),
            noticed => {
                self.apply_verdict(noticed).map_or(step, Step::End) // a notice never ends a run
            }
        }
    }

    /// Handles a text that repeats itself, whether the stream was cut off or not. The text joins the context for this
    /// run only, and nothing else that the reply asks for is done.
    pub(crate) fn on_aborted_stream(&mut self, text: &str, verdict: Verdict) -> Step {
        if !text.trim().is_empty() {
            self.push(Message::assistant(text).for_run());
        }
        self.apply_verdict(Some(verdict)).map_or(Step::HeldBack, Step::End)
    }

    /// Judges calls before they run. The batch is already in the context. If it is held back, each of its calls gets a
    /// result that says so.
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
            // A limit on calls does not hold back the batch: calls within the limit are admitted one by one, and then
            // the run ends.
            let holds =
                |verdict: &Verdict| verdict.action != Action::Notice && verdict.finding.reason != StopReason::ToolCalls;
            if verdict.as_ref().is_some_and(holds) {
                self.answer(batch.tool_calls(), HELD_BACK);
                let end = self.carry_out(verdict, config.rules.tool_loops(), tools);
                return end.map_or(BatchCheck::HeldBack, BatchCheck::End);
            }
            noticed.extend(verdict);
        }
        BatchCheck::Run(noticed)
    }

    /// Judges a batch that has run, with its results in the context: first the guardrail of duplicate failures, then
    /// the rules.
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
            // The guardrail has warned about this batch already. A second notice is left out.
            let said = warned.is_some() && verdict.as_ref().is_some_and(|verdict| verdict.action == Action::Notice);
            if !said {
                end = end.or(self.carry_out(verdict, config.rules.tool_loops(), ran.tools));
            }
        }
        end
    }

    /// Judges the newest batch like the loop does. For a batch whose last results came after the loop had ended,
    /// because a person had to be asked or the daemon restarted.
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

    /// Carries out a verdict: tells the model, or returns the end of the run. Our messages to the model are system
    /// messages of this run, so that none of them seems to come from the person.
    #[must_use]
    pub fn apply_verdict(&mut self, verdict: Option<Verdict>) -> Option<RunEnd> {
        self.carry_out(verdict, &ToolLoopConfig::default(), &ToolSet::default())
    }

    /// The same for a verdict about calls: the settings and the tools that the rules have analysed them with identify
    /// the calls of the evidence.
    fn carry_out(&mut self, verdict: Option<Verdict>, config: &ToolLoopConfig, tools: &ToolSet) -> Option<RunEnd> {
        let Verdict { action, finding, strike, say } = verdict?;
        tracing::info!(
            iteration = self.state.iteration, rule = finding.rule, count = finding.count,
            threshold = finding.threshold, strike, action = ?action, "a stop rule fired"
        );
        let message = match action {
            Action::Stop => {
                let detected = matches!(
                    finding.reason,
                    StopReason::ToolLoop | StopReason::Chanting | StopReason::JudgedLoop | StopReason::RepeatedReplies
                );
                let end = self.end_of(finding, config, tools);
                return Some(if detected { end.with("strikes", strike) } else { end });
            }
            Action::Recover => {
                self.state.stops.recover();
                match say {
                    Some(say) => Message::system(say),
                    None => {
                        let evidence = self.evidence(&finding, config, tools);
                        Message::system(evidence.for_model()).with_untrusted(evidence.quotes_untrusted())
                    }
                }
            }
            Action::Notice => Message::system(say.unwrap_or_else(|| notice(&finding))),
        };
        self.push(message.for_run());
        self.state.fired.push(Fired { rule: finding.rule, count: finding.count, strike });
        None
    }

    /// The end of a run by a finding that was stored in an earlier attempt.
    pub fn ended_by(&self, finding: Finding) -> RunEnd {
        self.end_of(finding, &ToolLoopConfig::default(), &ToolSet::default())
    }

    /// The end of a run by a finding. A rule about progress comes with its evidence in a sentence, and as a value.
    fn end_of(&self, finding: Finding, config: &ToolLoopConfig, tools: &ToolSet) -> RunEnd {
        if finding.reason.layer() != StopLayer::Progress || finding.reason == StopReason::OperatorRule {
            return RunEnd::from(finding);
        }
        let evidence = self.evidence(&finding, config, tools);
        RunEnd::from(finding).with("loop", evidence.facts()).with(RunEnd::EXPLANATION, evidence.sentence())
    }

    fn evidence(&self, finding: &Finding, config: &ToolLoopConfig, tools: &ToolSet) -> Evidence {
        let outline = |call: &ToolCall| {
            let spec = tools.get(&call.name).map(|tool| tool.spec());
            Outline::of(config, &call.name, &call.arguments, spec)
        };
        Evidence::of(finding, &calls::newest(&self.messages, self.state.iteration, outline))
    }

    fn answer(&mut self, calls: &[ToolCall], text: &str) {
        for call in calls {
            let (call_id, name) = (call.id.clone(), call.name.clone());
            let status = ToolStatus::NotExecuted;
            self.push(Message::tool(ToolResult { call_id, name, status, text: text.into() }));
        }
    }
}

/// Translates the status of a result into the outcome that the rules use.
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

fn notice(finding: &Finding) -> String {
    format!(
        "Notice: {} ({} so far). Read the results, change your approach, or give your final answer with what you have.",
        finding.rule.replace('_', " "),
        finding.count,
    )
}
