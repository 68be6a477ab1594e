//! A model that plays the replies of a test and checks the requests.
//!
//! It records every request and checks its transcript: each tool call has exactly one result before the next other
//! message, and no result lacks its call. A violation panics with the transcript. If the code under test catches
//! panics, the violation is raised again when the test calls [`ScriptedModel::seen`] or drops the model.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Arguments, CallId, DeltaSink, FellBack, FinishReason, Heard, Message, MessageBody, ModelError, ModelErrorKind,
    ModelInfo, ModelProvider, ModelReply, ModelRequest, Price, ToolCall, Usage,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::golden;
use crate::seen_request::SeenRequest;

/// One reply of a scripted model.
#[derive(Clone, Debug)]
pub struct Scripted {
    delay: Duration,
    pieces: Vec<String>,
    /// The delay between two pieces.
    pace: Duration,
    ending: Ending,
}

#[derive(Clone, Debug)]
enum Ending {
    Reply(ModelReply),
    Error(ModelError),
    Hang,
    /// It fails once, and then pauses forever before the next request.
    Pause,
    Panic(String),
}

impl Scripted {
    fn new(ending: Ending) -> Self {
        Self { delay: Duration::ZERO, pieces: Vec::new(), pace: Duration::ZERO, ending }
    }

    /// This reply.
    pub fn reply(reply: ModelReply) -> Self {
        Self::new(Ending::Reply(reply))
    }

    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::reply(ModelReply { text: text.into(), attempts: 1, ..ModelReply::default() })
    }

    /// A text that is streamed in pieces.
    pub fn streamed<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces: Vec<String> = pieces.into_iter().map(Into::into).collect();
        Self { pieces: pieces.clone(), ..Self::text(pieces.concat()) }
    }

    /// One call. For `arguments` see [`Scripted::calls`].
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::calls([(name, arguments)])
    }

    /// A batch of calls with generated ids. Arguments are a JSON object; a JSON string is raw text of the provider, for
    /// malformed arguments.
    pub fn calls<'n>(calls: impl IntoIterator<Item = (&'n str, Value)>) -> Self {
        let calls = calls.into_iter().map(|(name, arguments)| {
            let arguments = match arguments {
                Value::String(raw) => Arguments::parse(&raw),
                object => Arguments::parse(&object.to_string()),
            };
            // Empty for now: the model inserts the number of its request.
            ToolCall { id: CallId::from(""), name: name.into(), arguments }
        });
        Self::reply(ModelReply {
            tool_calls: calls.collect(),
            finish: FinishReason::ToolCalls,
            attempts: 1,
            ..ModelReply::default()
        })
    }

    /// A failure. For a failure after pieces see [`Scripted::after_pieces`].
    pub fn error(kind: ModelErrorKind) -> Self {
        Self::new(Ending::Error(ModelError::new(kind, "scripted")))
    }

    /// No reply until the call is dropped; [`ScriptedModel::dropped`] counts such calls.
    pub fn hang() -> Self {
        Self::new(Ending::Hang)
    }

    /// A failure, and then a pause before the next request until the call is dropped. No request is in progress during
    /// the pause.
    pub fn pausing() -> Self {
        Self::new(Ending::Pause)
    }

    /// A panic with this message.
    pub fn panic(message: impl Into<String>) -> Self {
        Self::new(Ending::Panic(message.into()))
    }

    /// The same with this text beside its calls. It has no effect on scripted failures.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        self.change(|reply| reply.text = text.into())
    }

    /// The same with these call ids in order: empty or equal ids, as a faulty provider sends them.
    #[must_use]
    pub fn with_ids<'i>(self, ids: impl IntoIterator<Item = &'i str>) -> Self {
        self.change(|reply| {
            for (call, id) in reply.tool_calls.iter_mut().zip(ids) {
                call.id = if id.is_empty() { EMPTY_ID.into() } else { id.into() };
            }
        })
    }

    /// The same, truncated by the token limit.
    #[must_use]
    pub fn truncated(self) -> Self {
        self.change(|reply| reply.finish = FinishReason::Length)
    }

    /// The same with this usage.
    #[must_use]
    pub fn with_usage(self, input: u64, output: u64) -> Self {
        self.change(|reply| reply.usage = Some(Usage { input, cached_input: 0, output }))
    }

    /// The same, answered by a fallback model of this name and price.
    #[must_use]
    pub fn standing_in(self, name: &str, price: Price) -> Self {
        self.change(|reply| {
            reply.answered_by = Some(name.to_owned());
            reply.price = Some(price);
            reply.fell_back = Some(FellBack { from: "scripted".into(), why: "rate_limited".into() });
        })
    }

    /// The same after these pieces were streamed: a stream that hangs, fails or panics midway.
    #[must_use]
    pub fn after_pieces<T: Into<String>>(mut self, pieces: impl IntoIterator<Item = T>) -> Self {
        self.pieces = pieces.into_iter().map(Into::into).collect();
        self
    }

    /// The same after this delay. It takes no real time in a test with paused time.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same with this delay after each piece. It takes no real time in a test with paused time.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    fn change(mut self, change: impl FnOnce(&mut ModelReply)) -> Self {
        if let Ending::Reply(reply) = &mut self.ending {
            change(reply);
        }
        self
    }
}

/// A marker for an id that stays empty, since empty ids are generated.
const EMPTY_ID: &str = "\u{0}";

/// A [`ModelProvider`] that plays a script. Requests are numbered from 1, also in the ids of its calls: `call-2-0` is
/// the first call of its second reply.
pub struct ScriptedModel {
    info: ModelInfo,
    script: Mutex<Script>,
    begun: watch::Sender<usize>,
    dropped: watch::Sender<usize>,
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Scripted>,
    forever: Option<Scripted>,
    usage: Option<Usage>,
    seen: Vec<SeenRequest>,
    violation: Option<String>,
}

impl ScriptedModel {
    /// A model that gives these replies in order. A further request panics.
    pub fn new(replies: impl IntoIterator<Item = Scripted>) -> Self {
        Self {
            info: ModelInfo {
                provider: "scripted".into(),
                model: "scripted".into(),
                context_tokens: 100_000,
                price: None,
                rehearsal: false,
                vision: false,
                sampling: belay_protocol::SamplingSupport::ALL,
            },
            script: Mutex::new(Script { replies: replies.into_iter().collect(), ..Script::default() }),
            begun: watch::Sender::new(0),
            dropped: watch::Sender::new(0),
        }
    }

    /// The same, repeating this reply after the end of the script.
    #[must_use]
    pub fn then_forever(self, reply: Scripted) -> Self {
        self.script().forever = Some(reply);
        self
    }

    /// The same, reporting this usage with every reply that has none of its own.
    #[must_use]
    pub fn with_usage(self, input: u64, output: u64) -> Self {
        self.script().usage = Some(Usage { input, cached_input: 0, output });
        self
    }

    /// The same with changed properties, such as a price or a smaller context.
    #[must_use]
    pub fn with_info(mut self, change: impl FnOnce(&mut ModelInfo)) -> Self {
        change(&mut self.info);
        self
    }

    /// Adds a reply to the end of the script.
    pub fn push(&self, reply: Scripted) {
        self.script().replies.push_back(reply);
    }

    /// All requests so far.
    ///
    /// # Panics
    /// If one of them had an invalid transcript, or came after the end of the script.
    pub fn seen(&self) -> Vec<SeenRequest> {
        let mut script = self.script();
        let violation = script.violation.take();
        let seen = script.seen.clone();
        drop(script);
        if let Some(violation) = violation {
            panic!("{violation}");
        }
        seen
    }

    /// The number of replies that are left in the script.
    pub fn left(&self) -> usize {
        self.script().replies.len()
    }

    /// Waits until `count` requests were received.
    pub async fn called(&self, count: usize) {
        reach(&self.begun, count).await;
    }

    /// Waits until `count` calls were dropped before their end.
    pub async fn dropped(&self, count: usize) {
        reach(&self.dropped, count).await;
    }

    /// The number of calls that were dropped before their end.
    pub fn dropped_count(&self) -> usize {
        *self.dropped.borrow()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        // A test that has panicked elsewhere may still read the script.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and takes its reply.
    fn next(&self, request: &ModelRequest<'_>) -> Result<Scripted, String> {
        let mut script = self.script();
        script.seen.push(SeenRequest {
            prompt: request.prompt.text.clone(),
            tools: request.tools.map(|tools| tools.iter().map(|tool| tool.spec().name.clone()).collect()),
            messages: request.messages.to_vec(),
            model: request.model.map(str::to_owned),
            thinking: request.thinking,
            format: request.format.cloned(),
            max_tokens: request.max_tokens,
            max_attempts: request.max_attempts,
        });
        let number = script.seen.len();
        let checked = check_transcript(request.messages);
        let next = script.replies.pop_front().or_else(|| script.forever.clone());
        let next = match (checked, next) {
            (Err(what), _) => Err(format!("{what} in request {number}")),
            (_, None) => Err(format!("the script ends before request {number}")),
            (_, Some(next)) => Ok(next),
        };
        let usage = script.usage;
        next.map(|next| next.change(|reply| fill_in(reply, number, usage))).map_err(|what| {
            let violation = format!("{what}:\n{}", golden::render_messages(request.messages));
            script.violation.get_or_insert(violation.clone());
            violation
        })
    }
}

fn fill_in(reply: &mut ModelReply, number: usize, usage: Option<Usage>) {
    reply.usage = reply.usage.or(usage);
    for (at, call) in reply.tool_calls.iter_mut().enumerate() {
        match call.id.as_str() {
            "" => call.id = format!("call-{number}-{at}").into(),
            EMPTY_ID => call.id = "".into(),
            _ => {}
        }
    }
}

async fn reach(count: &watch::Sender<usize>, least: usize) {
    // The sender is borrowed for as long as we wait, so this cannot fail.
    let _ = count.subscribe().wait_for(|count| *count >= least).await;
}

/// Counts a call as dropped unless it ends.
struct Unfinished<'m>(Option<&'m watch::Sender<usize>>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(dropped) = self.0 {
            dropped.send_modify(|count| *count += 1);
        }
    }
}

#[async_trait]
impl ModelProvider for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn call(&self, request: ModelRequest<'_>, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
        let next = self.next(&request);
        self.begun.send_modify(|count| *count += 1);
        let next = next.unwrap_or_else(|violation| panic!("{violation}"));
        let mut unfinished = Unfinished(Some(&self.dropped));
        sink.sent();
        if !next.delay.is_zero() {
            tokio::time::sleep(next.delay).await;
        }
        let mut heard = false;
        for piece in &next.pieces {
            heard |= sink.text(piece) == Heard::Somebody;
            if next.pace.is_zero() { tokio::task::yield_now().await } else { tokio::time::sleep(next.pace).await }
        }
        if matches!(next.ending, Ending::Pause) {
            sink.restart();
        }
        if matches!(next.ending, Ending::Hang | Ending::Pause) {
            std::future::pending::<()>().await;
        }
        unfinished.0 = None;
        match next.ending {
            Ending::Reply(reply) => Ok(reply),
            Ending::Error(error) => {
                Err(ModelError { heard, abandoned: error.abandoned.max(u32::from(!next.pieces.is_empty())), ..error })
            }
            Ending::Panic(message) => panic!("{message}"),
            Ending::Hang | Ending::Pause => unreachable!("a call that hangs is dropped"),
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        let violation = self.script().violation.take();
        if let Some(violation) = violation
            && !std::thread::panicking()
        {
            panic!("{violation}");
        }
    }
}

/// Checks that a provider accepts this conversation: every call has exactly one result before the next other message,
/// every result follows its call, and no id is used twice.
///
/// # Errors
/// The problem, as a phrase.
pub fn check_transcript(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<&CallId> = Vec::new();
    let mut used: HashSet<&CallId> = HashSet::new();
    for message in messages {
        if let MessageBody::Tool(result) = &message.body {
            let Some(at) = open.iter().position(|id| **id == result.call_id) else {
                return Err(format!("a result without an open call {:?}", result.call_id));
            };
            open.remove(at);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(format!("a call without a result {id:?}"));
        }
        for call in message.tool_calls() {
            if call.id.as_str().is_empty() || !used.insert(&call.id) {
                return Err(format!("an empty or repeated call id {:?}", call.id));
            }
            open.push(&call.id);
        }
    }
    match open.first() {
        Some(id) => Err(format!("a call without a result {id:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{NoSink, Prompt, ToolResult, ToolStatus};
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "clock".into(), arguments: Arguments::parse("") }
    }

    fn calls(ids: &[&str]) -> Message {
        Message::assistant_calls("", ids.iter().map(|id| call(id)).collect())
    }

    fn result(id: &str) -> Message {
        let status = ToolStatus::Success;
        Message::tool(ToolResult { call_id: id.into(), name: "clock".into(), status, text: "noon".into() })
    }

    fn request<'a>(prompt: &'a Prompt, messages: &'a [Arc<Message>]) -> ModelRequest<'a> {
        ModelRequest {
            prompt,
            tools: None,
            messages,
            model: None,
            thinking: None,
            sampling: None,
            format: None,
            calls: None,
            send_pictures: true,
            later_system: true,
            max_tokens: 1,
            max_attempts: 1,
        }
    }

    #[test]
    fn a_transcript_with_an_orphan_is_found_out() {
        for (name, messages, ok) in [
            ("empty", vec![], true),
            ("answered", vec![calls(&["a", "b"]), result("b"), result("a"), Message::user("x")], true),
            ("open at the end", vec![calls(&["a"])], false),
            ("open before a text", vec![calls(&["a"]), Message::user("x"), result("a")], false),
            ("half answered", vec![calls(&["a", "b"]), result("a"), Message::user("x")], false),
            ("answered twice", vec![calls(&["a"]), result("a"), result("a")], false),
            ("never asked", vec![Message::user("x"), result("a")], false),
            ("same id twice in a batch", vec![calls(&["a", "a"]), result("a"), result("a")], false),
            ("same id twice", vec![calls(&["a"]), result("a"), calls(&["a"]), result("a")], false),
            ("empty id", vec![calls(&[""]), result("")], false),
        ] {
            let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
            assert_eq!(check_transcript(&messages).is_ok(), ok, "{name}");
        }
    }

    #[tokio::test]
    async fn the_script_is_played_and_the_requests_are_kept() {
        let model = ScriptedModel::new([
            Scripted::call("clock", json!({})),
            Scripted::streamed(["1", "2"]).with_usage(1, 2),
            Scripted::error(ModelErrorKind::Network).after_pieces(["3"]),
        ])
        .with_usage(5, 7)
        .then_forever(Scripted::text("over"));
        let prompt = Prompt::new("be brief");
        let messages = [Arc::new(Message::user("hi"))];
        let request = request(&prompt, &messages);

        let first = model.call(request, &mut NoSink).await.expect("a reply");
        assert_eq!((first.tool_calls[0].id.as_str(), first.usage.map(|u| u.output)), ("call-1-0", Some(7)));
        let second = model.call(request, &mut NoSink).await.expect("a reply");
        assert_eq!((second.text.as_str(), second.usage.map(|u| u.output)), ("12", Some(2)));
        let third = model.call(request, &mut NoSink).await.expect_err("an error");
        assert_eq!((third.abandoned, third.heard), (1, false));
        for _ in 0..2 {
            assert_eq!(model.call(request, &mut NoSink).await.expect("a reply").text, "over");
        }
        let seen = model.seen();
        assert_eq!((seen.len(), seen[0].prompt.as_str(), seen[0].tools.is_none()), (5, "be brief", true));
    }

    #[tokio::test]
    async fn a_hanging_call_is_counted_when_it_is_dropped() {
        let model = ScriptedModel::new([Scripted::hang()]);
        let (prompt, mut sink) = (Prompt::default(), NoSink);
        tokio::select! {
            _ = model.call(request(&prompt, &[]), &mut sink) => panic!("it hangs"),
            () = model.called(1) => {}
        }
        model.dropped(1).await;
        assert_eq!(model.dropped_count(), 1);
    }

    #[tokio::test]
    #[should_panic(expected = "a call without a result")]
    async fn a_violation_that_was_caught_is_raised_again() {
        let model = Arc::new(ScriptedModel::new([Scripted::text("never said")]));
        let task = tokio::spawn({
            let model = Arc::clone(&model);
            async move {
                let prompt = Prompt::default();
                let messages = [Arc::new(calls(&["a"])), Arc::new(Message::user("x"))];
                let _ = model.call(request(&prompt, &messages), &mut NoSink).await;
            }
        });
        assert!(task.await.is_err(), "the task panicked");
        model.seen();
    }
}
