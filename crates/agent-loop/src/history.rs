//! The repair of a history, so that every provider accepts it. Pure.
//!
//! Providers reject a whole conversation for one call without a result, one result without a call, or one repeated id,
//! and they reject every later request with it too. A crash, an edit or a bug must not end a conversation in that way,
//! so each request passes here. A valid history is borrowed: checking 400 messages is one scan and copies nothing.
//!
//! The wire formats do the rest: they join texts if roles have to alternate, and add a filler if a conversation has to
//! begin with the user. Instructions may be anywhere.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use belay_protocol::{CallId, Message, MessageBody, ToolCall, ToolResult, ToolStatus};

/// The result for a call whose result is missing.
const NO_RESULT: &str = "no result was recorded: this may or may not have been done; check before doing it again";

/// The name for a call without a name.
const UNNAMED: &str = "unnamed";

/// The history in a valid form: each call has a name, an id that no other call has, and exactly one result, directly
/// behind its batch and in its order. There are no other results and no empty assistant messages.
///
/// Repairs: a misplaced result moves to its call, and the first of several results counts. A missing result becomes one
/// that says so. A result without a call and an empty assistant message are removed. A call without a name gets one. A
/// call with an empty or repeated id gets a new id, which is the same at each repair. All other messages stay unchanged
/// and in place.
pub fn normalise(messages: &[Arc<Message>]) -> Cow<'_, [Arc<Message>]> {
    if is_sound(messages) { Cow::Borrowed(messages) } else { Cow::Owned(repair(messages)) }
}

/// Whether the history is valid.
fn is_sound(messages: &[Arc<Message>]) -> bool {
    let mut ids = HashSet::new();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        at += 1;
        if says_nothing(message) || matches!(message.body, MessageBody::Tool(_)) {
            return false; // results are passed over with their batch
        }
        for call in message.tool_calls() {
            let answered = messages.get(at).is_some_and(|next| result(next).is_some_and(|it| it.call_id == call.id));
            if is_blank(call.id.as_str()) || is_blank(&call.name) || !ids.insert(&call.id) || !answered {
                return false;
            }
            at += 1;
        }
    }
    true
}

fn repair(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let results = results_of_calls(messages);
    let mut ids = Ids::of(messages);
    let mut repaired = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        if says_nothing(message) || matches!(message.body, MessageBody::Tool(_)) {
            continue;
        }
        let calls: Vec<ToolCall> =
            message.tool_calls().iter().enumerate().map(|(n, call)| ids.usable(call, at, n)).collect();
        repaired.push(with_calls(message, &calls));
        for (n, call) in calls.into_iter().enumerate() {
            repaired.push(match results.get(&(at, n)) {
                Some(found) => with_id(&messages[*found], &call.id),
                None => Arc::new(Message::tool(ToolResult {
                    call_id: call.id,
                    name: call.name,
                    status: ToolStatus::OutcomeUnknown,
                    text: NO_RESULT.into(),
                })),
            });
        }
    }
    repaired
}

/// The position of the result of each call. A call is given by its message and its index in it. A result belongs to the
/// newest batch before it that has a call with its id; of several such calls, to the first one without a result.
fn results_of_calls(messages: &[Arc<Message>]) -> HashMap<(usize, usize), usize> {
    let mut open: HashMap<&CallId, (usize, VecDeque<usize>)> = HashMap::new();
    let mut found = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        for (n, call) in message.tool_calls().iter().enumerate() {
            let (batch, waiting) = open.entry(&call.id).or_insert_with(|| (at, VecDeque::new()));
            if *batch != at {
                (*batch, *waiting) = (at, VecDeque::new());
            }
            waiting.push_back(n);
        }
        if let Some(result) = result(message)
            && let Some((batch, waiting)) = open.get_mut(&result.call_id)
            && let Some(n) = waiting.pop_front()
        {
            found.insert((*batch, n), at);
        }
    }
    found
}

/// The ids of a history's calls.
struct Ids {
    /// The ids of repaired calls so far.
    given: HashSet<CallId>,
    /// The ids of all calls before the repair.
    known: HashSet<CallId>,
}

impl Ids {
    fn of(messages: &[Arc<Message>]) -> Self {
        let known = messages.iter().flat_map(|message| message.tool_calls()).map(|call| call.id.clone()).collect();
        Self { given: HashSet::new(), known }
    }

    /// The call with a name and a unique id. `at` and `n` are its position.
    fn usable(&mut self, call: &ToolCall, at: usize, n: usize) -> ToolCall {
        let mut call = call.clone();
        if is_blank(&call.name) {
            call.name = UNNAMED.into();
        }
        if is_blank(call.id.as_str()) || self.given.contains(&call.id) {
            let mut id = format!("call_again_{at}_{n}");
            while self.is_taken(&id) {
                id.push('x');
            }
            call.id = id.into();
        }
        self.given.insert(call.id.clone());
        call
    }

    fn is_taken(&self, id: &str) -> bool {
        let id = CallId::from(id);
        self.known.contains(&id) || self.given.contains(&id)
    }
}

/// The message with these calls; shared if they are its own.
fn with_calls(message: &Arc<Message>, calls: &[ToolCall]) -> Arc<Message> {
    if message.tool_calls() == calls {
        return Arc::clone(message);
    }
    let mut changed = Message::clone(message);
    if let MessageBody::Assistant { tool_calls, .. } = &mut changed.body {
        *tool_calls = calls.to_vec();
    }
    Arc::new(changed)
}

/// The result with the id of this call; shared if it has that id.
fn with_id(message: &Arc<Message>, id: &CallId) -> Arc<Message> {
    if result(message).is_some_and(|result| result.call_id == *id) {
        return Arc::clone(message);
    }
    let mut changed = Message::clone(message);
    if let MessageBody::Tool(result) = &mut changed.body {
        result.call_id = id.clone();
    }
    Arc::new(changed)
}

fn result(message: &Message) -> Option<&ToolResult> {
    match &message.body {
        MessageBody::Tool(result) => Some(result),
        _ => None,
    }
}

fn says_nothing(message: &Message) -> bool {
    matches!(&message.body, MessageBody::Assistant { text, tool_calls } if tool_calls.is_empty() && is_blank(text))
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_protocol::Arguments;

    /// A history in short form: `u:hi` a user message, `s:…` an instruction, `a:…` an answer, `a:…!c1,c2` one with
    /// calls of these ids, `r:c1=text` a result. Calls are named `t`, but `?c1` has no name.
    fn history(lines: &[&str]) -> Vec<Arc<Message>> {
        let line = |line: &&str| {
            let (kind, rest) = line.split_once(':').expect("a kind");
            Arc::new(match kind {
                "u" => Message::user(rest),
                "s" => Message::system(rest),
                "r" => {
                    let (id, text) = rest.split_once('=').expect("a text");
                    let (name, status) = ("t".to_owned(), ToolStatus::Success);
                    Message::tool(ToolResult { call_id: id.into(), name, status, text: text.into() })
                }
                _ => match rest.split_once('!') {
                    None => Message::assistant(rest),
                    Some((text, ids)) => Message::assistant_calls(text, ids.split(',').map(call).collect()),
                },
            })
        };
        lines.iter().map(line).collect()
    }

    fn call(id: &str) -> ToolCall {
        let (name, id) = id.strip_prefix('?').map_or(("t", id), |id| ("", id));
        ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse("{}") }
    }

    fn short(messages: &[Arc<Message>]) -> Vec<String> {
        let line = |message: &Arc<Message>| match &message.body {
            MessageBody::System { text } => format!("s:{text}"),
            MessageBody::User { text } => format!("u:{text}"),
            MessageBody::Data { text } => format!("d:{text}"),
            MessageBody::Assistant { text, tool_calls } if tool_calls.is_empty() => format!("a:{text}"),
            MessageBody::Assistant { text, tool_calls } => {
                let calls: Vec<_> = tool_calls.iter().map(|call| format!("{}.{}", call.name, call.id)).collect();
                format!("a:{text}!{}", calls.join(","))
            }
            MessageBody::Tool(result) if result.text == NO_RESULT => format!("r:{}?", result.call_id),
            MessageBody::Tool(result) => format!("r:{}={}", result.call_id, result.text),
        };
        messages.iter().map(line).collect()
    }

    #[test]
    fn what_is_wrong_is_repaired_and_nothing_else_is_touched() {
        for (name, given, repaired) in [
            ("a call without a result", vec!["u:go", "a:!c1", "u:and?"], vec!["u:go", "a:!t.c1", "r:c1?", "u:and?"]),
            ("a call at the end", vec!["u:go", "a:!c1,c2", "r:c1=1"], vec!["u:go", "a:!t.c1,t.c2", "r:c1=1", "r:c2?"]),
            ("results out of order", vec!["a:!c1,c2", "r:c2=2", "r:c1=1"], vec!["a:!t.c1,t.c2", "r:c1=1", "r:c2=2"]),
            (
                "a result behind other words",
                vec!["a:!c1", "u:wait", "s:note", "r:c1=1", "a:done"],
                vec!["a:!t.c1", "r:c1=1", "u:wait", "s:note", "a:done"],
            ),
            ("a second result", vec!["a:!c1", "r:c1=1", "r:c1=2", "u:x"], vec!["a:!t.c1", "r:c1=1", "u:x"]),
            ("a result of nobody", vec!["r:c0=0", "u:x", "r:c9=9", "a:y"], vec!["u:x", "a:y"]),
            ("a result before its call", vec!["u:x", "r:c1=1", "a:!c1"], vec!["u:x", "a:!t.c1", "r:c1?"]),
            ("an answer that says nothing", vec!["u:x", "a: \n", "u:y"], vec!["u:x", "u:y"]),
            ("a call without a name", vec!["a:!?c1", "r:c1=1"], vec!["a:!unnamed.c1", "r:c1=1"]),
            (
                "calls without ids",
                vec!["a:!,", "r:=1", "r:=2"],
                vec!["a:!t.call_again_0_0,t.call_again_0_1", "r:call_again_0_0=1", "r:call_again_0_1=2"],
            ),
            (
                "an id that is used again",
                vec!["a:!c1", "r:c1=1", "a:!c1,call_again_2_0", "r:c1=2", "r:call_again_2_0=3"],
                vec![
                    "a:!t.c1",
                    "r:c1=1",
                    "a:!t.call_again_2_0x,t.call_again_2_0",
                    "r:call_again_2_0x=2",
                    "r:call_again_2_0=3",
                ],
            ),
            (
                "an id twice in a batch",
                vec!["a:!c1,c1", "r:c1=1"],
                vec!["a:!t.c1,t.call_again_0_1", "r:c1=1", "r:call_again_0_1?"],
            ),
        ] {
            let given = history(&given);
            let once = normalise(&given);
            assert_eq!(short(&once), repaired, "{name}");
            assert!(matches!(once, Cow::Owned(_)), "{name}");
            assert!(matches!(normalise(&once), Cow::Borrowed(_)), "{name}: what was repaired is sound");
        }
    }

    #[test]
    fn what_is_sound_is_not_copied() {
        for lines in [
            vec![],
            vec!["u:a", "u:b", "a:c", "a:d", "s:e", "u: "],
            vec!["a:first", "u:x"],
            vec!["u:go", "a:look!c1,c2", "r:c1=", "r:c2=2", "s:note", "a:!c3", "r:c3=3", "a:done"],
        ] {
            let given = history(&lines);
            assert!(matches!(normalise(&given), Cow::Borrowed(_)), "{lines:?}");
        }
    }

    #[test]
    fn messages_that_stay_are_shared_and_keep_their_marks() {
        let mut given = history(&["u:go", "a:!c1", "r:c1=1", "a:"]);
        given[2] = Arc::new(Message::clone(&given[2]).with_untrusted(true).for_run());
        let repaired = normalise(&given);
        assert!(repaired.iter().zip(&given).all(|(after, before)| Arc::ptr_eq(after, before)));
        given[1] = history(&["a:!"]).remove(0);
        given[2] = Arc::new(Message::clone(&history(&["r:=1"])[0]).with_untrusted(true).for_run());
        let repaired = normalise(&given);
        assert!(repaired[2].untrusted && !repaired[2].scope.is_thread(), "{repaired:?}");
    }
}
