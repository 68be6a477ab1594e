//! A batch of tool calls before and after it runs. `admit` gives each call a unique id and checks it; `close_batch`
//! makes sure that each call has exactly one result.

use std::collections::HashSet;
use std::sync::Arc;

use belay_protocol::{Arguments, CallId, Message, MessageBody, ToolCall, ToolResult, ToolSet, ToolStatus};
use serde_json::{Map, Value};

use crate::context::{LoopContext, Reasoning, answers, is_result};
use crate::delegate::AdmittedCall;
use crate::duplicates::DuplicateTracker;

/// Longest tool name that enters the context, in characters. 64 is the most that the large providers accept in a
/// history. With a longer name in it, the provider would refuse every later request of the conversation.
const NAME_MAX_CHARS: usize = 64;

impl LoopContext {
    /// Appends the assistant message with its calls, and returns for each call whether it can run.
    pub fn admit(
        &mut self,
        text: String,
        calls: Vec<ToolCall>,
        reasoning: &Reasoning,
    ) -> (Arc<Message>, Vec<AdmittedCall>) {
        let offered = reasoning.offered(&self.state);
        let mut used = self.call_ids();
        let mut admitted = Vec::with_capacity(calls.len());
        for (at, mut call) in calls.into_iter().enumerate() {
            call.id = unused_id(call.id, self.state.iteration, at, &mut used);
            if let Arguments::Malformed(raw) = &call.arguments
                && let Some(tool) = offered.and_then(|tools| tools.get(&call.name))
                && let Some(arguments) = tool.repaired(raw)
            {
                call.arguments = Arguments::Object(arguments);
            }
            let refusal = refusal(&call, offered, reasoning.tools());
            call.name = presentable_name(call.name);
            let refused = refusal.map(|text| ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                status: ToolStatus::Error,
                text,
            });
            if refused.is_some() {
                tracing::debug!(iteration = self.state.iteration, tool = call.name, "tool call refused");
            }
            admitted.push(AdmittedCall { call, refused });
        }
        let calls = admitted.iter().map(|admitted| admitted.call.clone()).collect();
        let batch = Arc::new(Message::assistant_calls(text, calls));
        self.messages.push(Arc::clone(&batch));
        (batch, admitted)
    }

    /// Orders the results behind `batch` like its calls, with exactly one result for each call. Returns whether every
    /// call failed. A missing result becomes `NotExecuted`, unless the batch is `paused`. A second result of a call,
    /// and a result without a call, are removed. If the delegate keeps its contract, the messages do not change.
    pub(crate) fn close_batch(&mut self, batch: &Arc<Message>, paused: bool) -> bool {
        let Some(at) = self.messages.iter().rposition(|message| Arc::ptr_eq(message, batch)) else {
            tracing::error!("the delegate removed a batch of calls from the context");
            return false;
        };
        if paused {
            // A person decides about this batch. That ends a streak of failures.
            self.state.duplicates = DuplicateTracker::default();
        }
        let mut appended = self.messages.split_off(at + 1);
        let mut all_failed = true;
        for call in batch.tool_calls() {
            let found = appended.iter().position(|message| answers(message, &call.id));
            let result = match found {
                Some(at) => appended.remove(at),
                None if paused => continue,
                None => {
                    tracing::warn!(call_id = %call.id, tool = call.name, "a tool call was left without a result");
                    Arc::new(not_executed(call))
                }
            };
            // A call that the delegate skipped, because a newer message took precedence, has not failed.
            let skipped = |result: &ToolResult| found.is_some() && result.status == ToolStatus::NotExecuted;
            all_failed &=
                matches!(&result.body, MessageBody::Tool(result) if result.status.is_failure() && !skipped(result));
            self.messages.push(result);
        }
        self.messages.extend(appended.into_iter().filter(|message| !is_result(message)));
        all_failed
    }

    fn call_ids(&self) -> HashSet<CallId> {
        self.messages.iter().flat_map(|message| message.tool_calls()).map(|call| call.id.clone()).collect()
    }
}

/// Returns the given id if no call in the context has it. Otherwise makes an id from the iteration and the position of
/// the call.
fn unused_id(given: CallId, iteration: u32, at: usize, used: &mut HashSet<CallId>) -> CallId {
    if !given.as_str().trim().is_empty() && used.insert(given.clone()) {
        return given;
    }
    let mut id = format!("call_{iteration}_{at}");
    while !used.insert(CallId::from(id.as_str())) {
        id.push('x');
    }
    id.into()
}

/// The error that the model reads when a call cannot run; `None` when it can run.
fn refusal(call: &ToolCall, offered: Option<&ToolSet>, all: &ToolSet) -> Option<String> {
    let name: String = call.name.chars().take(NAME_MAX_CHARS).collect();
    let Some(tools) = offered else {
        let any_more = if all.is_empty() { "" } else { " any more" };
        return Some(format!("no tools are offered{any_more}; answer with text"));
    };
    if tools.get(&call.name).is_none() {
        let available: Vec<&str> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        return Some(format!("no tool named {name}; available: {}", available.join(", ")));
    }
    let Arguments::Malformed(raw) = &call.arguments else { return None };
    let what = match serde_json::from_str::<Map<String, Value>>(raw) {
        Err(error) => format!(" ({error})"),
        Ok(_) => String::new(),
    };
    Some(format!("the arguments of {name} are not a JSON object{what}; call it again with a complete JSON object"))
}

/// Replaces characters of a tool name that providers refuse in a history. Names of existing tools never contain them,
/// so only names of refused calls change.
fn presentable_name(name: String) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= NAME_MAX_CHARS && name.chars().all(fits) {
        return name;
    }
    let name: String = name.chars().take(NAME_MAX_CHARS).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".into() } else { name }
}

fn not_executed(call: &ToolCall) -> Message {
    Message::tool(ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        status: ToolStatus::NotExecuted,
        text: "not executed".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, name: &str, raw: &str) -> ToolCall {
        ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse(raw) }
    }

    fn result(id: &str, status: ToolStatus) -> Arc<Message> {
        Arc::new(Message::tool(ToolResult { call_id: id.into(), name: "t".into(), status, text: id.into() }))
    }

    fn settled(appended: Vec<Arc<Message>>, paused: bool) -> (Vec<String>, bool) {
        let batch = Arc::new(Message::assistant_calls("", vec![call("a", "t", ""), call("b", "t", "")]));
        let mut context = LoopContext::new(vec![Arc::new(Message::user("go")), Arc::clone(&batch)]);
        context.messages.extend(appended);
        let all_failed = context.close_batch(&batch, paused);
        (context.messages[2..].iter().map(|message| message.text().to_owned()).collect(), all_failed)
    }

    #[test]
    fn a_batch_is_settled_with_one_result_for_each_call_in_order() {
        use ToolStatus::{Error, Success};
        let notice = || Arc::new(Message::system("notice"));
        for (name, appended, paused, texts, all_failed) in [
            ("as promised", vec![result("a", Success), result("b", Error)], false, vec!["a", "b"], false),
            ("all failed", vec![result("a", Error), result("b", Error)], false, vec!["a", "b"], true),
            ("out of order", vec![result("b", Error), result("a", Error)], false, vec!["a", "b"], true),
            ("one missing", vec![result("b", Success)], false, vec!["not executed", "b"], false),
            ("both missing", vec![], false, vec!["not executed", "not executed"], true),
            (
                "both skipped",
                vec![result("a", ToolStatus::NotExecuted), result("b", ToolStatus::NotExecuted)],
                false,
                vec!["a", "b"],
                false,
            ),
            (
                "one twice",
                vec![result("a", Error), result("a", Success), result("b", Error)],
                false,
                vec!["a", "b"],
                true,
            ),
            (
                "a stranger",
                vec![result("z", Success), result("a", Error), result("b", Error)],
                false,
                vec!["a", "b"],
                true,
            ),
            (
                "a notice between",
                vec![result("a", Success), notice(), result("b", Success)],
                false,
                vec!["a", "b", "notice"],
                false,
            ),
            ("paused", vec![result("a", Success)], true, vec!["a"], false),
        ] {
            assert_eq!(
                settled(appended, paused),
                (texts.into_iter().map(String::from).collect(), all_failed),
                "{name}"
            );
        }
    }

    #[test]
    fn a_batch_that_waits_for_a_person_ends_the_streak_of_failures() {
        let mut context = LoopContext::default();
        for paused in [false, true, false] {
            let batch = Arc::new(Message::assistant_calls("", vec![call("a", "t", "")]));
            context.messages.push(Arc::clone(&batch));
            let all_failed = context.close_batch(&batch, paused);
            if !paused {
                assert_eq!(context.state.judge(batch.tool_calls(), all_failed), None, "never the second in a row");
            }
        }
    }

    #[test]
    fn ids_are_unique_in_the_whole_context_and_never_empty() {
        let mut context = LoopContext::default();
        context.state.iteration = 7;
        context.push(Message::assistant_calls("", vec![call("old", "t", ""), call("call_7_1", "t", "")]));
        let reasoning = Reasoning::new(Default::default(), Default::default(), Arc::default(), 1, 1);
        let lying = vec![call("new", "t", ""), call("old", "t", ""), call("new", "t", ""), call(" ", "t", "")];
        let (batch, _) = context.admit(String::new(), lying, &reasoning);
        let ids: Vec<&str> = batch.tool_calls().iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["new", "call_7_1x", "call_7_2", "call_7_3"]);
    }

    #[test]
    fn names_that_a_provider_would_refuse_are_made_presentable() {
        for (name, presentable) in [
            ("read_file", "read_file"),
            ("read file", "read_file"),
            ("", "unnamed"),
            ("功能\n", "___"),
            (&"x".repeat(1000), &*"x".repeat(64)),
        ] {
            assert_eq!(presentable_name(name.into()), presentable);
        }
    }
}
