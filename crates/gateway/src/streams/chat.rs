//! Converts facts and deltas of one run to `chat` events: the text as a person would read it. Pure; the time is an
//! argument.

use std::time::Duration;

use belay_protocol::{Delta, Partial, RunId, RunRecord, Seq, SessionKey, StopReason};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::terminal::Verdict;

/// Shortest time between two deltas of one run. 150 ms: as fast as a person reads, and fewer events than deltas of the
/// model.
const PACE: Duration = Duration::from_millis(150);

/// An answer of only this word counts as no answer. A text that may become it is held back.
const SILENT: &str = "NO_REPLY";

/// An event of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ChatEvent {
    /// Absent in a notice, which belongs to no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    session_key: SessionKey,
    seq: u64,
    /// `delta`, `final`, `aborted` or `error`; exactly one event per run is not `delta`. `notice`: belongs to no run.
    state: &'static str,
    /// The whole text so far; absent if there is nothing to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Value>,
    /// The text after that of the previous delta.
    #[serde(skip_serializing_if = "Option::is_none")]
    delta_text: Option<String>,
    /// The text does not continue the previous one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replace: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_kind: Option<&'static str>,
    /// The number of the underlying fact, as a cursor. The end has one, deltas have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<Seq>,
}

impl ChatEvent {
    /// The event of a notice in a conversation; `fact` is the number of its fact.
    pub(crate) fn notice(session: SessionKey, fact: Seq, text: &str) -> Self {
        Self {
            run_id: None,
            session_key: session,
            seq: 1,
            state: "notice",
            message: Some(json!({ "role": "system", "content": [{ "type": "text", "text": text }] })),
            delta_text: None,
            replace: false,
            stop_reason: None,
            error_message: None,
            error_kind: None,
            cursor: Some(fact),
        }
    }
}

/// Converts the news of one run to events.
pub(crate) struct ChatMapper {
    run: RunId,
    session: SessionKey,
    seq: u64,
    step: u32,
    text: String,
    /// The text that the reader has received.
    sent: String,
    sent_at: Option<Instant>,
    ended: bool,
}

impl ChatMapper {
    /// For a run of that session whose reader has received `seq` events.
    pub(crate) fn new(run: RunId, session: SessionKey, seq: u64) -> Self {
        Self { run, session, seq, step: 0, text: String::new(), sent: String::new(), sent_at: None, ended: false }
    }

    /// The number of the last event.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Adds a delta; only text counts.
    pub(crate) fn delta(&mut self, delta: Delta) {
        if let Delta::Text { step, text } = delta {
            if step != self.step {
                self.step = step;
                self.text.clear();
            }
            self.text.push_str(&text);
        }
    }

    /// Sets the text before the following deltas.
    pub(crate) fn so_far(&mut self, said: Partial) {
        (self.step, self.text) = (said.step, said.text);
    }

    /// When the next delta is due; `None`: there is no new text.
    pub(crate) fn due(&self) -> Option<Instant> {
        let silent = self.ended || self.text == self.sent || may_be_silent(&self.text);
        (!silent).then(|| self.sent_at.map_or_else(Instant::now, |at| at + PACE))
    }

    /// The due delta: the new text since the last one that was [taken](Self::taken). It replaces text of another mapper.
    pub(crate) fn due_delta(&self) -> ChatEvent {
        let is_continued = self.seq > 0 && self.sent.is_empty();
        let rest = self.text.strip_prefix(self.sent.as_str()).filter(|_| !is_continued);
        ChatEvent {
            message: Some(message(&self.text)),
            delta_text: Some(rest.unwrap_or(&self.text).to_owned()),
            replace: rest.is_none(),
            ..self.event(self.seq + 1, "delta")
        }
    }

    /// Records that the reader has received the delta.
    pub(crate) fn taken(&mut self, now: Instant) {
        self.seq += 1;
        self.sent.clone_from(&self.text);
        self.sent_at = Some(now);
    }

    /// Records that a due delta could not be sent. It is tried again later with the text of that time.
    pub(crate) fn refused(&mut self, now: Instant) {
        self.sent_at = Some(now);
    }

    /// The end of the run: the text that was held back, then exactly one last event. `fact` is the number of the run's
    /// last fact.
    pub(crate) fn end(&mut self, fact: Seq, reason: StopReason, record: Option<&RunRecord>) -> Vec<ChatEvent> {
        if self.ended {
            return Vec::new();
        }
        let mut events = Vec::new();
        if self.due().is_some() {
            events.push(self.due_delta());
            self.taken(Instant::now());
        }
        self.ended = true;
        self.seq += 1;
        let reply = record.and_then(|record| record.reply.clone()).filter(|text| !text.is_empty());
        let stop_reason = Some(reason.word());
        let last = match Verdict::of(reason.status(), reason) {
            Verdict::Ok => {
                ChatEvent { message: reply.as_deref().map(message), stop_reason, ..self.event(self.seq, "final") }
            }
            Verdict::Aborted => {
                let partial = Some(message(&self.text)).filter(|_| !self.text.is_empty());
                ChatEvent { message: partial, stop_reason, ..self.event(self.seq, "aborted") }
            }
            Verdict::Timeout | Verdict::Error => ChatEvent {
                stop_reason,
                error_message: Some(reply.unwrap_or_else(|| reason.user_line().to_owned())),
                error_kind: Some(error_kind(reason)),
                ..self.event(self.seq, "error")
            },
        };
        events.push(ChatEvent { cursor: Some(fact), ..last });
        events
    }

    fn event(&self, seq: u64, state: &'static str) -> ChatEvent {
        ChatEvent {
            run_id: Some(self.run),
            session_key: self.session.clone(),
            seq,
            state,
            message: None,
            delta_text: None,
            replace: false,
            stop_reason: None,
            error_message: None,
            error_kind: None,
            cursor: None,
        }
    }
}

/// Whether a text may still become the silent answer.
fn may_be_silent(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\n', '`']);
    SILENT.starts_with(text)
        || text.strip_prefix(SILENT).is_some_and(|rest| rest.trim_matches(['.', '`', '\n', ' ']).is_empty())
}

fn message(text: &str) -> Value {
    json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] })
}

/// The error kind, from a short closed list.
fn error_kind(reason: StopReason) -> &'static str {
    match reason {
        StopReason::WallClock | StopReason::ActiveTime => "timeout",
        StopReason::RateLimited | StopReason::Overloaded => "rate_limit",
        StopReason::ContextTooLong => "context_length",
        StopReason::ContentFilter | StopReason::HookRefused => "refusal",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{RunStatus, UnixMillis};

    use super::*;

    fn text(step: u32, text: &str) -> Delta {
        Delta::Text { step, text: text.into() }
    }

    fn record(status: RunStatus, reply: &str) -> RunRecord {
        RunRecord {
            run_id: RunId::new(),
            session: "s".into(),
            status,
            reason: None,
            evidence: Default::default(),
            reply: Some(reply.into()),
            usage: Default::default(),
            cost_micro_usd: 0,
            attempt: 1,
            accepted_at: UnixMillis(1),
            started_at: None,
            ended_at: None,
            waiting_for: None,
            files: Vec::new(),
        }
    }

    fn brief(event: &ChatEvent) -> String {
        let text = event.message.as_ref().and_then(|message| message.pointer("/content/0/text")?.as_str());
        let replace = if event.replace { " replace" } else { "" };
        let cursor = event.cursor.map_or(String::new(), |Seq(cursor)| format!(" behind {cursor}"));
        format!("{} {} {text:?} {:?}{replace}{cursor}", event.seq, event.state, event.delta_text)
    }

    fn take(mapper: &mut ChatMapper) -> String {
        let event = mapper.due_delta();
        mapper.taken(Instant::now());
        brief(&event)
    }

    #[tokio::test(start_paused = true)]
    async fn deltas_keep_their_pace_and_the_end_leaves_nothing_out() {
        let mut mapper = ChatMapper::new(RunId::new(), "s".into(), 0);
        assert_eq!(mapper.due(), None);
        mapper.delta(text(1, "I lo"));
        assert_eq!(mapper.due(), Some(Instant::now()));
        assert_eq!(take(&mut mapper), r#"1 delta Some("I lo") Some("I lo")"#);
        assert_eq!(mapper.due(), None);
        mapper.delta(text(1, "ok"));
        mapper.delta(text(1, "."));
        assert_eq!(mapper.due(), Some(Instant::now() + PACE), "not before the pace allows");
        tokio::time::advance(PACE).await;
        assert_eq!(take(&mut mapper), r#"2 delta Some("I look.") Some("ok.")"#);
        mapper.delta(text(2, "Found"));
        let end: Vec<_> = mapper
            .end(Seq(9), StopReason::FinalText, Some(&record(RunStatus::Completed, "Found.")))
            .iter()
            .map(brief)
            .collect();
        assert_eq!(end, [r#"3 delta Some("Found") Some("Found") replace"#, r#"4 final Some("Found.") None behind 9"#]);
        assert!(mapper.end(Seq(9), StopReason::FinalText, None).is_empty(), "one end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delta_that_was_not_given_comes_with_the_next_one() {
        let mut mapper = ChatMapper::new(RunId::new(), "s".into(), 0);
        mapper.delta(text(1, "a"));
        mapper.refused(Instant::now());
        assert_eq!(mapper.due(), Some(Instant::now() + PACE));
        mapper.delta(text(1, "b"));
        assert_eq!(take(&mut mapper), r#"1 delta Some("ab") Some("ab")"#);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_become_silence_is_held_back_and_silence_has_no_message() {
        for (pieces, shown) in [
            (&["NO_", "REPLY"][..], false),
            (&["NO", " PROBLEM"], true),
            (&["`NO_REPLY`"], false),
            (&["NO_REPLY is a word"], true),
        ] {
            let mut mapper = ChatMapper::new(RunId::new(), "s".into(), 0);
            for piece in pieces {
                mapper.delta(text(1, piece));
            }
            assert_eq!(mapper.due().is_some(), shown, "{pieces:?}");
        }
        let mut mapper = ChatMapper::new(RunId::new(), "s".into(), 0);
        mapper.delta(text(1, "NO_REPLY"));
        let end: Vec<_> = mapper
            .end(Seq(9), StopReason::FinalText, Some(&record(RunStatus::Completed, "")))
            .iter()
            .map(brief)
            .collect();
        assert_eq!(end, ["1 final None None behind 9"]);
    }

    #[test]
    fn a_stopped_run_keeps_its_text_and_a_failed_one_has_its_reason() {
        let mut stopped = ChatMapper::new(RunId::new(), "s".into(), 0);
        stopped.so_far(Partial { step: 1, text: "Once".into(), reasoning: String::new() });
        stopped.taken(Instant::now());
        let end = stopped.end(Seq(9), StopReason::UserStop, None);
        assert_eq!(brief(&end[0]), r#"2 aborted Some("Once") None behind 9"#);
        for (reason, kind) in [(StopReason::WallClock, "timeout"), (StopReason::MaxIterations, "unknown")] {
            let end = ChatMapper::new(RunId::new(), "s".into(), 0).end(Seq(9), reason, None);
            assert_eq!((end.len(), end[0].state, end[0].error_kind), (1, "error", Some(kind)));
        }
    }
}
