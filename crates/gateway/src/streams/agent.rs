//! Converts facts and deltas of one run to `agent` events. Pure.

use belay_protocol::{Delta, Event, EventKind, Partial, RunId, RunRecord, RunStatus, SessionKey, UnixMillis};
use serde::Serialize;
use serde_json::{Value, json};

use super::agent_data::agent_data;
use super::source::News;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AgentEvent {
    /// Absent in a notice, which belongs to no run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<RunId>,
    /// 1, 2, 3 … for each run and reader. A gap: deltas were dropped because the reader was too slow.
    pub(crate) seq: u64,
    /// `lifecycle`, `assistant`, `reasoning`, `tool`, `compaction`, `queue`, `approval`, `plan`, `subagent` or `file`; `notice` belongs to no run.
    #[cfg_attr(test, schemars(extend("enum" = ["lifecycle", "assistant", "reasoning", "tool", "compaction", "queue", "approval", "plan", "subagent", "file", "notice"])))]
    pub(crate) stream: &'static str,
    /// Milliseconds since 1970.
    pub(crate) ts: i64,
    /// The fields of an event of this stream: see docs/reference/websocket.md.
    #[cfg_attr(test, schemars(with = "serde_json::Map<String, Value>"))]
    pub(crate) data: Value,
    pub(crate) session_key: SessionKey,
    /// The number of the underlying fact, as a cursor; deltas have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cursor: Option<u64>,
}

impl AgentEvent {
    /// Converts a fact to a notice of a conversation, if it is one.
    pub(crate) fn notice(fact: &Event) -> Option<Self> {
        let EventKind::Notice { text } = &fact.kind else { return None };
        Some(Self {
            run_id: None,
            seq: 1,
            stream: "notice",
            ts: fact.at.0,
            data: json!({ "text": text }),
            session_key: fact.session.clone()?,
            cursor: Some(fact.seq.0),
        })
    }

    /// Whether it may be dropped for a slow reader: later events repeat its content.
    pub(crate) fn is_passing(&self) -> bool {
        self.cursor.is_none() && self.data.get("final").is_none()
    }
}

/// Converts the news of one run to events.
pub(crate) struct AgentMapper {
    run: RunId,
    session: SessionKey,
    seq: u64,
    /// The model's text in the current step.
    said: Partial,
    /// The reader may have received text of the current step that is not in `said`, from another mapper.
    is_continued: bool,
    ended: bool,
}

impl AgentMapper {
    /// For a run of that session whose reader has received `seq` events.
    pub(crate) fn new(run: RunId, session: SessionKey, seq: u64) -> Self {
        Self { run, session, seq, said: Partial::default(), is_continued: seq > 0, ended: false }
    }

    /// The number of the last event.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether the run has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }

    /// Converts news of the run, at that date.
    pub(crate) fn news(&mut self, news: News, at: UnixMillis) -> Vec<AgentEvent> {
        match news {
            News::Fact(fact, record) => self.fact(&fact, record.as_deref()),
            News::SoFar(_, _, said) => self.so_far(said, at),
            News::Delta(_, _, delta) => self.delta(delta, at).into_iter().collect(),
            News::Lost(_, _, fragments) => {
                self.lost(fragments);
                Vec::new()
            }
        }
    }

    /// Converts a fact. `record` is the run's record if the fact is its end.
    fn fact(&mut self, fact: &Event, record: Option<&RunRecord>) -> Vec<AgentEvent> {
        if self.ended {
            return Vec::new();
        }
        let Some((stream, data)) = agent_data(fact, record) else { return Vec::new() };
        let mut events = Vec::new();
        if matches!(fact.kind, EventKind::RunEnded { .. }) {
            self.ended = true;
            events.extend(self.whole_answer(record, fact.at));
        }
        // Only the last event of a fact carries its cursor: a reader that resumes there has received all of them.
        events.push(AgentEvent { cursor: Some(fact.seq.0), ..self.event(stream, data, fact.at) });
        events
    }

    /// Converts a delta.
    fn delta(&mut self, delta: Delta, at: UnixMillis) -> Option<AgentEvent> {
        if self.ended {
            return None;
        }
        self.is_continued = false; // the text so far, if there was any, has come before
        let (stream, data) = match delta {
            Delta::Text { step, text } => {
                self.step(step);
                self.said.text.push_str(&text);
                ("assistant", json!({ "text": self.said.text, "delta": text, "step": step }))
            }
            Delta::Reasoning { step, text } => {
                self.step(step);
                self.said.reasoning.push_str(&text);
                ("reasoning", json!({ "text": self.said.reasoning, "delta": text, "step": step }))
            }
            Delta::Tool { call_id, text } => {
                ("tool", json!({ "phase": "update", "toolCallId": call_id, "partialResult": text }))
            }
        };
        Some(self.event(stream, data, at))
    }

    /// Converts the text before the following deltas, for a reader that joined late or has missed deltas.
    fn so_far(&mut self, said: Partial, at: UnixMillis) -> Vec<AgentEvent> {
        if self.ended {
            return Vec::new();
        }
        let step = said.step;
        self.step(step);
        let had = std::mem::replace(&mut self.said, said);
        let had = (!std::mem::take(&mut self.is_continued)).then_some(had);
        let had = |text: fn(&Partial) -> &String| had.as_ref().map(|had| text(had).as_str());
        let said = [
            ("reasoning", text_update(had(|said| &said.reasoning), &self.said.reasoning, step)),
            ("assistant", text_update(had(|said| &said.text), &self.said.text, step)),
        ];
        let events = said.into_iter().filter_map(|(stream, data)| Some(self.event(stream, data?, at)));
        events.collect()
    }

    /// Counts dropped deltas, so that the numbers have a gap.
    fn lost(&mut self, fragments: u64) {
        self.seq += fragments;
    }

    /// The whole answer of a completed run, for readers that missed parts of it: `delta` is the missing rest.
    fn whole_answer(&mut self, record: Option<&RunRecord>, at: UnixMillis) -> Option<AgentEvent> {
        let record = record.filter(|record| record.status == RunStatus::Completed)?;
        let text = record.reply.as_deref().filter(|text| !text.is_empty())?;
        let data = match text.strip_prefix(self.said.text.as_str()).filter(|_| !self.is_continued) {
            Some(rest) => json!({ "text": text, "delta": rest, "final": true }),
            None => json!({ "text": text, "delta": text, "replace": true, "final": true }),
        };
        Some(self.event("assistant", data, at))
    }

    fn step(&mut self, step: u32) {
        if step != self.said.step {
            self.said.begin(step);
        }
    }

    fn event(&mut self, stream: &'static str, data: Value, at: UnixMillis) -> AgentEvent {
        self.seq += 1;
        let (run_id, session_key) = (Some(self.run), self.session.clone());
        AgentEvent { run_id, seq: self.seq, stream, ts: at.0, data, session_key, cursor: None }
    }
}

/// The whole text of a step, for a reader that `had` a part of it, or an unknown part (`None`). Returns `None` if nothing is
/// new.
fn text_update(had: Option<&str>, text: &str, step: u32) -> Option<Value> {
    if had.is_none() && text.is_empty() {
        return None;
    }
    match had.and_then(|had| text.strip_prefix(had)) {
        Some("") => None,
        Some(rest) => Some(json!({ "text": text, "delta": rest, "step": step })),
        None => Some(json!({ "text": text, "delta": text, "replace": true, "step": step })),
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Seq, StopReason, canonical_json};
    use serde_json::Map;

    use super::*;

    fn fact(seq: u64, kind: EventKind) -> Event {
        Event { seq: Seq(seq), at: UnixMillis(1000), session: Some("s".into()), run_id: None, kind }
    }

    fn ended(reason: StopReason) -> Event {
        fact(9, EventKind::RunEnded { status: reason.status(), reason, evidence: Map::new() })
    }

    fn record(reason: StopReason, reply: &str) -> RunRecord {
        RunRecord {
            run_id: RunId::new(),
            session: "s".into(),
            status: reason.status(),
            reason: Some(reason),
            evidence: Map::new(),
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

    fn text(step: u32, text: &str) -> Delta {
        Delta::Text { step, text: text.into() }
    }

    fn brief(events: &[AgentEvent]) -> Vec<String> {
        let line = |e: &AgentEvent| format!("{} {} {} {:?}", e.seq, e.stream, canonical_json(&e.data), e.cursor);
        events.iter().map(line).collect()
    }

    #[test]
    fn the_events_of_a_run_are_numbered_and_end_once_with_the_whole_answer() {
        let mut mapper = AgentMapper::new(RunId::new(), "s".into(), 0);
        let at = UnixMillis(1000);
        let mut all = mapper.fact(&fact(1, EventKind::RunAccepted), None);
        all.extend(mapper.fact(&fact(2, EventKind::RunStarted { attempt: 1 }), None));
        all.extend(mapper.delta(text(1, "I look."), at));
        all.extend(mapper.delta(text(2, "Fo"), at));
        mapper.lost(3);
        let record = record(StopReason::FinalText, "Found.");
        all.extend(mapper.fact(&ended(StopReason::FinalText), Some(&record)));
        all.extend(mapper.fact(&ended(StopReason::FinalText), Some(&record)));
        all.extend(mapper.delta(text(2, "late"), at));
        assert_eq!(
            brief(&all),
            [
                r#"1 queue {"phase":"accepted"} Some(1)"#,
                r#"2 lifecycle {"attempt":1,"phase":"start","startedAt":1000} Some(2)"#,
                r#"3 assistant {"delta":"I look.","step":1,"text":"I look."} None"#,
                r#"4 assistant {"delta":"Fo","step":2,"text":"Fo"} None"#,
                r#"8 assistant {"delta":"und.","final":true,"text":"Found."} None"#,
                r#"9 lifecycle {"endedAt":1000,"phase":"end","status":"ok","stopReason":"final_text"} Some(9)"#,
            ]
        );
        assert!(all[3].is_passing() && !all[4].is_passing() && !all[5].is_passing());
    }

    #[test]
    fn what_goes_on_before_the_end_is_shown_and_what_is_no_part_of_it_is_not() {
        for (kind, expected) in [
            (
                EventKind::CompactionStarted { tokens: 9000, reason: "threshold".into() },
                vec![r#"1 compaction {"phase":"start","reason":"threshold","tokens":9000} Some(1)"#],
            ),
            (
                EventKind::CompactionAbandoned { reason: "nothing_won".into() },
                vec![r#"1 compaction {"completed":false,"phase":"end","reason":"nothing_won"} Some(1)"#],
            ),
            (
                EventKind::Compacted {
                    messages: 4,
                    before: 9000,
                    after: 800,
                    source: "model".into(),
                    will_retry: true,
                },
                vec![
                    r#"1 compaction {"completed":true,"messages":4,"phase":"end","source":"model","tokensAfter":800,"tokensBefore":9000,"willRetry":true} Some(1)"#,
                ],
            ),
            (
                EventKind::ModelFallback { from: "a".into(), to: "b".into(), reason: "overloaded".into() },
                vec![r#"1 lifecycle {"from":"a","phase":"fallback","reason":"overloaded","to":"b"} Some(1)"#],
            ),
            (EventKind::ThreadEdited { edit: "undo".into() }, vec![]),
            (EventKind::Delivered { outcome: "sent".into() }, vec![]),
            (EventKind::MessageEmitted { digest: "00".into() }, vec![]),
            (EventKind::Hook { point: "p".into(), name: "n".into(), outcome: "changed".into() }, vec![]),
        ] {
            let mut mapper = AgentMapper::new(RunId::new(), "s".into(), 0);
            let events = mapper.fact(&fact(1, kind.clone()), None);
            assert_eq!(
                (brief(&events), mapper.is_over()),
                (expected.into_iter().map(String::from).collect(), false),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn an_end_has_its_reason() {
        for (reason, expected) in [
            (StopReason::FinalText, r#"{"endedAt":1000,"phase":"end","status":"ok","stopReason":"final_text"}"#),
            (
                StopReason::UserStop,
                r#"{"aborted":true,"endedAt":1000,"error":"Interrupted.","phase":"end","status":"error","stopReason":"user_stop"}"#,
            ),
            (
                StopReason::WallClock,
                r#"{"endedAt":1000,"error":"Stopped: the time for this request is up.","phase":"end","status":"timeout","stopReason":"wall_clock"}"#,
            ),
            (
                StopReason::MaxIterations,
                r#"{"endedAt":1000,"error":"Stopped: the limit of tool iterations was exceeded.","phase":"error","status":"error","stopReason":"max_iterations"}"#,
            ),
        ] {
            let mut mapper = AgentMapper::new(RunId::new(), "s".into(), 0);
            let events = mapper.fact(&ended(reason), None);
            let data: Vec<_> = events.iter().map(|event| canonical_json(&event.data)).collect();
            assert_eq!(data, [expected], "{reason:?}");
        }
    }

    #[test]
    fn a_late_reader_receives_the_text_so_far() {
        let mut mapper = AgentMapper::new(RunId::new(), "s".into(), 7);
        let said = Partial { step: 2, text: "Hel".into(), reasoning: "hm".into() };
        let mut all = mapper.so_far(said, UnixMillis(1));
        all.extend(mapper.delta(text(2, "lo"), UnixMillis(2)));
        assert_eq!(
            brief(&all),
            [
                r#"8 reasoning {"delta":"hm","replace":true,"step":2,"text":"hm"} None"#,
                r#"9 assistant {"delta":"Hel","replace":true,"step":2,"text":"Hel"} None"#,
                r#"10 assistant {"delta":"lo","step":2,"text":"Hello"} None"#,
            ]
        );
    }

    #[test]
    fn a_reader_that_lost_deltas_receives_the_whole_text() {
        let said = |step: u32, text: &str| Partial { step, text: text.into(), reasoning: String::new() };
        for (so_far, expected) in [
            (said(1, "Once upon"), vec![r#"5 assistant {"delta":" upon","step":1,"text":"Once upon"} None"#]),
            (said(1, "Once"), vec![]),
            (said(1, "Anew"), vec![r#"5 assistant {"delta":"Anew","replace":true,"step":1,"text":"Anew"} None"#]),
            (said(2, "Then"), vec![r#"5 assistant {"delta":"Then","step":2,"text":"Then"} None"#]),
            (said(2, ""), vec![]),
        ] {
            let mut mapper = AgentMapper::new(RunId::new(), "s".into(), 0);
            assert_eq!(mapper.delta(text(1, "Once"), UnixMillis(1)).iter().len(), 1);
            mapper.lost(3);
            assert_eq!(brief(&mapper.so_far(so_far.clone(), UnixMillis(2))), expected, "{so_far:?}");
        }
    }
}
