//! Calls of the client's tools: a message `use NAME ARGUMENTS; NAME ARGUMENTS` makes them, and their results are the reply.

use belay_protocol::*;

use super::{FakeAgent, NOW};

impl FakeAgent {
    /// Pauses the run for these calls, after a text.
    pub(super) fn call_client(&self, id: RunId, calls: &str, inbound: &Inbound) {
        let call = |(at, call): (usize, &str)| {
            let (name, arguments) = call.split_once(' ').unwrap_or((call, "{}"));
            ClientCall { id: format!("own-{at}").as_str().into(), name: name.into(), arguments: arguments.into() }
        };
        let calls: Vec<ClientCall> = calls.split("; ").enumerate().map(call).collect();
        let step = self.lives.lock().unwrap().get(&id).map_or(1, |life| life.said.step + 1);
        self.delta(id, step, "I look.");
        let asked = |call: &ClientCall| ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: Arguments::parse(&call.arguments),
        };
        self.store.wrote(id, Message::assistant_calls("I look.", calls.iter().map(asked).collect()));
        if let Some(life) = self.lives.lock().unwrap().get_mut(&id) {
            life.record.reply = Some("I look.".into());
            life.record.usage.tool_calls = u32::try_from(calls.len()).unwrap();
            (life.record.usage.input, life.record.usage.output) = (5, 2);
        }
        self.pause(id, ApprovalKind::ClientCalls { calls, results: Vec::new() }, "calls", inbound);
    }

    /// The run of the calls ends with their results, unless these are `begin WORDS`, or `use …` for further calls. Whatever
    /// else it was told is a fact of the store.
    pub(super) fn take_results(&self, request: ApprovalId, answer: ClientAnswer, inbound: &Inbound) -> Ack {
        let said = |result: &ClientResult| format!("{}{}", result.text, result.said);
        let reply = answer.results.iter().map(said).collect::<Vec<_>>().join(" and ");
        let mut approvals = self.store.approvals.lock().unwrap();
        let Some(asked) = approvals.iter_mut().find(|asked| asked.id == request) else {
            return Ack::Refused(Refusal::Unknown("No run waits for these results.".into()));
        };
        if asked.state != ApprovalState::Waiting {
            return Ack::Refused(Refusal::Decided("They have come before.".into()));
        }
        if let ApprovalKind::ClientCalls { results, .. } = &mut asked.kind {
            *results = answer.results;
        }
        let asked_for = Some(WaitingFor::from(&*asked));
        (asked.state, asked.decided_at) = (ApprovalState::Approved, Some(UnixMillis(NOW)));
        let run = asked.run_id;
        if let ApprovalKind::ClientCalls { calls, results } = &asked.kind {
            for (call, result) in calls.iter().zip(results) {
                let (call_id, name) = (call.id.clone(), call.name.clone());
                let result = ToolResult { call_id, name, status: ToolStatus::Success, text: result.text.clone() };
                self.store.wrote(run, Message::tool(result));
            }
        }
        drop(approvals);
        let last = self.store.last_note(run).map(|note| note.fields).unwrap_or_default();
        let changed = answer.note.filter(|fields| *fields != last);
        self.store.keep_notes(run, changed.map(|fields| ClientNote { after: Some(request), fields }));
        if let Some(life) = self.lives.lock().unwrap().get_mut(&run) {
            life.record.reply = None;
            life.finished.send_replace(None);
            // Its row says for a moment that it waits.
            let waits = RunRecord { status: RunStatus::Paused, waiting_for: asked_for, ..life.record.clone() };
            self.store.put(waits);
        }
        match (reply.strip_prefix("begin "), reply.strip_prefix("use ")) {
            (Some(words), _) => self.delta(run, 2, words),
            (None, Some(calls)) => self.call_client(run, calls, inbound),
            (None, None) => self.finish(run, StopReason::FinalText, &reply),
        }
        let reply = "The run continues with the results.".into();
        Ack::Command(CommandReply { command: "/results".into(), reply, resumes: Some(run), refused: false })
    }
}
