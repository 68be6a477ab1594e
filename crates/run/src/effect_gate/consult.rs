//! Hooks at the gate. They check a call before the preflight, and its result before it enters the conversation.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_protocol::{AddedText, Arguments, HookPoint, MessageBody, TextKind, ToolCall, ToolResult, ToolStatus};

use super::{CallContext, EffectGate, Outcome, result_of};
use crate::approvals::{Wanted, question_body};
use crate::hooks::{CallAbout, HookContext, Sending};
use crate::live::bounded;

/// Characters of a text that hooks put before or after a question.
const ADDED_CHARS: usize = 1_000;

/// The text of a result that hooks had no time to check.
const WITHHELD: &str = "withheld: the run ended before the operator's hooks had checked this result";

impl EffectGate {
    /// Runs the hooks for a call. Arguments that hooks change replace the model's arguments in the context, so that the
    /// approval request, the journal and every later attempt see the call as it is made.
    ///
    /// # Errors
    /// The result of the call, if it must not be made.
    pub(super) async fn consult(
        &self,
        caller: &mut CallContext<'_>,
        context: &mut LoopContext,
        call: ToolCall,
    ) -> Result<ToolCall, ToolResult> {
        // A person has answered for this call, and the hooks had checked it before that.
        if caller.answers.contains_key(&call.id) || !self.hooks.is_bound(HookPoint::BeforeToolCall) {
            return Ok(call);
        }
        // A call that will be refused anyway needs no hook.
        let (Some(tool), Arguments::Object(arguments)) = (caller.tools.get(&call.name), &call.arguments) else {
            return Ok(call);
        };
        let mut facts = Vec::new();
        let decided = tokio::select! {
            biased; // a stopped run does not ask hooks
            () = caller.cancel.cancelled() => None,
            decided = self.hooks.before_tool_call(about(caller, &call), tool.spec(), arguments, &mut facts) => Some(decided),
        };
        let result = match decided {
            None => Err(result_of(&call, ToolStatus::NotExecuted, "not executed: the run was stopped".into())),
            Some(Err(refusal)) => Err(result_of(&call, ToolStatus::Denied, format!("denied: {refusal}"))),
            Some(Ok(changed)) if changed == *arguments => Ok(call),
            Some(Ok(changed)) => {
                let call = ToolCall { arguments: Arguments::Object(changed), ..call };
                put(&call, context);
                context.state.changed = Some(call.clone());
                Ok(call)
            }
        };
        facts.into_iter().for_each(|fact| caller.journal.note(fact));
        result
    }

    /// Runs the hooks for a question. They may put texts before and after it. The call, the facts and the reason stay as
    /// they are: a change that leaves them out is ignored.
    ///
    /// # Errors
    /// The result of the call, if the question must not be asked. A question that nobody reads must not be answered, so
    /// the call is denied.
    pub(super) async fn check_question(
        &self,
        caller: &mut CallContext<'_>,
        call: &ToolCall,
        wanted: Wanted,
    ) -> Result<Wanted, ToolResult> {
        if !self.hooks.is_bound(HookPoint::MessageSending) {
            return Ok(wanted);
        }
        let body = question_body(&call.name, &wanted.kind, &wanted.summary, &wanted.bound, &wanted.why);
        let sending = Sending {
            about: place(caller).into(),
            channel: caller.request.reply_to.as_ref().map(|route| &route.channel),
            kind: TextKind::Question,
            text: body.clone(),
            limit: None,
        };
        let mut facts = Vec::new();
        let decided = tokio::select! {
            biased; // a stopped run does not ask hooks
            () = caller.cancel.cancelled() => None,
            decided = self.hooks.message_sending(sending, &mut facts) => Some(decided),
        };
        facts.into_iter().for_each(|fact| caller.journal.note(fact));
        match decided {
            None => Err(result_of(call, ToolStatus::NotExecuted, "not executed: the run was stopped".into())),
            Some(Err(refusal)) => {
                let text = format!(
                    "denied: {} needs a person's approval, and the question was {refusal}. It was not executed.",
                    call.name
                );
                Err(result_of(call, ToolStatus::Denied, text))
            }
            Some(Ok(text)) if text == body => Ok(wanted),
            Some(Ok(text)) => match text.split_once(&body) {
                Some((before, after)) => {
                    let part = |text: &str| bounded(text, ADDED_CHARS);
                    let added = AddedText { before: part(before), after: part(after) };
                    Ok(Wanted { added: Some(Box::new(added)), ..wanted })
                }
                None => {
                    tracing::warn!(
                        run = %caller.request.run,
                        "a hook may add to a question and remove nothing; its change is ignored"
                    );
                    Ok(wanted)
                }
            },
        }
    }

    /// Runs the hooks for a result. They may change its text, and they are informed of the end of the call.
    pub(super) async fn show(&self, caller: &mut CallContext<'_>, context: &LoopContext, outcome: &mut Outcome) {
        let Outcome { result, own_words, took_ms, .. } = outcome;
        if self.hooks.is_bound(HookPoint::ToolResultPersist) {
            let mut facts = Vec::new();
            let call = CallAbout { place: place(caller), id: &result.call_id, tool: &result.name };
            let text = tokio::select! {
                biased; // a stop does not wait for hooks
                () = caller.cancel.cancelled() => None,
                text = self.hooks.tool_result_persist(call, result, &mut facts) => Some(text),
            };
            match text {
                Some(text) => result.text = text,
                None if *own_words => {} // the text contains nothing from a tool
                None => result.text = WITHHELD.into(),
            }
            facts.into_iter().for_each(|fact| caller.journal.note(fact));
        }
        if self.hooks.is_bound(HookPoint::AfterToolCall) {
            let call = CallAbout { place: place(caller), id: &result.call_id, tool: &result.name };
            let made = context.messages.iter().rev().flat_map(|message| message.tool_calls());
            let arguments = made.into_iter().find(|made| made.id == result.call_id).map(|made| &made.arguments);
            let arguments = match arguments {
                Some(Arguments::Object(arguments)) => Some(arguments),
                Some(Arguments::Malformed(_)) | None => None,
            };
            let spec = caller.tools.get(&result.name).map(|tool| tool.spec());
            self.hooks.after_tool_call(call, spec, arguments, result, *took_ms);
        }
    }
}

fn place<'a>(caller: &CallContext<'a>) -> HookContext<'a> {
    caller.request.into()
}

fn about<'a>(caller: &CallContext<'a>, call: &'a ToolCall) -> CallAbout<'a> {
    CallAbout { place: place(caller), id: &call.id, tool: &call.name }
}

/// Replaces the call of the model by the call that hooks had changed before a pause or a restart.
pub fn put_changed(context: &mut LoopContext) {
    if let Some(call) = context.state.changed.clone() {
        put(&call, context);
    }
}

/// Replaces the call with the same id in the message that contains it.
fn put(call: &ToolCall, context: &mut LoopContext) {
    let asks = |message: &belay_protocol::Message| message.tool_calls().iter().any(|made| made.id == call.id);
    let Some(message) = context.messages.iter_mut().rev().find(|message| asks(message)) else { return };
    let mut changed = (**message).clone();
    if let MessageBody::Assistant { tool_calls, .. } = &mut changed.body {
        tool_calls.iter_mut().filter(|made| made.id == call.id).for_each(|made| *made = call.clone());
    }
    changed.wire = Default::default(); // the provider's wire form does not match any more
    *message = Arc::new(changed);
}
