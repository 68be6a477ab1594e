//! Converts facts to the data of `agent` events. Pure.

use belay_protocol::{Event, EventKind, RunRecord, RunStatus, SentFile, StopReason, ToolStatus};
use serde_json::{Value, json};

use super::terminal::Verdict;

/// The stream and data of a fact, with the run's record if the fact is its end. `None`: the fact belongs to no stream
/// of `agent` events; it is in the log of facts.
pub(super) fn agent_data(fact: &Event, record: Option<&RunRecord>) -> Option<(&'static str, Value)> {
    use EventKind as Kind;
    let kind = &fact.kind;
    let (stream, data) = match kind {
        Kind::RunAccepted | Kind::Queued { .. } | Kind::Joined { .. } => ("queue", queue(kind)),
        Kind::RunStarted { attempt } => {
            let data = json!({ "phase": "start", "startedAt": fact.at.0, "attempt": attempt });
            ("lifecycle", Some(data))
        }
        Kind::ModelCalled { .. } | Kind::ModelFallback { .. } | Kind::GuardrailTriggered { .. } => {
            ("lifecycle", course(kind))
        }
        Kind::RunEnded { status, reason, .. } => ("lifecycle", Some(end(fact, *status, *reason, record))),
        Kind::ToolStarted { .. } | Kind::ToolFinished { .. } => ("tool", tool(kind)),
        Kind::CompactionStarted { .. } | Kind::Compacted { .. } | Kind::CompactionAbandoned { .. } => {
            ("compaction", compaction(kind))
        }
        Kind::SubagentStarted { .. } | Kind::SubagentEnded { .. } => ("subagent", subagent(kind)),
        Kind::PlanCreated { .. } | Kind::PlanChanged { .. } | Kind::PlanStep { .. } => ("plan", plan(kind)),
        Kind::GoalChecked { .. } => ("goal", goal(kind)),
        Kind::ApprovalRequested { .. } | Kind::ApprovalFirstYes { .. } | Kind::ApprovalResolved { .. } => {
            ("approval", approval(kind))
        }
        Kind::FileSent { file } => ("file", Some(sent_file(file))),
        // A notice is an event of its session. Changes of a conversation, deliveries, jobs and routines are not part of
        // a run's progress. Hooks, processes, and parts of an answer that were committed early, concern the operator,
        // who reads them in the log.
        Kind::ThreadEdited { .. } | Kind::Delivered { .. } | Kind::Hook { .. } | Kind::MessageEmitted { .. } => {
            return None;
        }
        Kind::ProcessStarted { .. } | Kind::ProcessEnded { .. } => return None,
        Kind::JobChanged { .. } | Kind::RoutineRunStarted { .. } | Kind::RoutineRunEnded { .. } => return None,
        Kind::HeartbeatSkipped { .. } | Kind::Notice { .. } | Kind::GrantRevoked { .. } => return None,
        // The state of tools concerns all runs.
        Kind::ToolFailing { .. } | Kind::ToolStateChanged { .. } | Kind::ServerNeedsLogin { .. } => return None,
    };
    Some((stream, data?))
}

/// A sent file.
fn sent_file(file: &SentFile) -> Value {
    json!({
        "fileId": file.id, "toolCallId": file.call_id, "name": file.name, "mediaType": file.media_type,
        "bytes": file.bytes, "sha256": file.sha256, "caption": file.caption, "place": file.place, "url": file.url,
    })
}

fn queue(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::RunAccepted => json!({ "phase": "accepted" }),
        EventKind::Queued { mode, before } => json!({ "phase": "queued", "mode": mode, "before": before }),
        EventKind::Joined { runs, mode } => json!({ "phase": "joined", "runs": runs, "mode": mode }),
        _ => return None,
    })
}

/// The events between the start of a run and its end.
fn course(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::ModelCalled { step, attempts, input, output, .. } => {
            let usage = json!({ "input": input, "output": output });
            json!({ "phase": "step", "step": step, "attempts": attempts, "usage": usage })
        }
        EventKind::ModelFallback { from, to, reason } => {
            json!({ "phase": "fallback", "from": from, "to": to, "reason": reason })
        }
        EventKind::GuardrailTriggered { guardrail, count, force_text } => {
            json!({ "phase": "notice", "guardrail": guardrail, "count": count, "forceText": force_text })
        }
        _ => return None,
    })
}

fn end(fact: &Event, status: RunStatus, reason: StopReason, record: Option<&RunRecord>) -> Value {
    let verdict = Verdict::of(status, reason);
    let phase = if status == RunStatus::Failed { "error" } else { "end" };
    let mut data =
        json!({ "phase": phase, "endedAt": fact.at.0, "status": verdict.word(), "stopReason": reason.word() });
    if verdict.is_aborted() {
        data["aborted"] = true.into();
    }
    if verdict != Verdict::Ok {
        let line = record.and_then(|record| record.reply.as_deref()).filter(|line| !line.is_empty());
        data["error"] = line.unwrap_or(reason.user_line()).into();
    }
    data
}

fn tool(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::ToolStarted { call_id, name, arguments } => {
            json!({ "phase": "start", "toolCallId": call_id, "name": name, "arguments": arguments })
        }
        EventKind::ToolFinished { call_id, name, status, took_ms, result } => json!({
            "phase": "result", "toolCallId": call_id, "name": name, "isError": *status != ToolStatus::Success,
            "status": status, "tookMs": took_ms, "result": result,
        }),
        _ => return None,
    })
}

fn compaction(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::CompactionStarted { tokens, reason } => {
            json!({ "phase": "start", "tokens": tokens, "reason": reason })
        }
        EventKind::Compacted { messages, before, after, source, will_retry } => json!({
            "phase": "end", "completed": true, "messages": messages, "tokensBefore": before, "tokensAfter": after,
            "source": source, "willRetry": will_retry,
        }),
        EventKind::CompactionAbandoned { reason } => {
            json!({ "phase": "end", "completed": false, "reason": reason })
        }
        _ => return None,
    })
}

fn subagent(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::SubagentStarted { call_id, task, depth } => {
            json!({ "phase": "start", "toolCallId": call_id, "task": task, "depth": depth })
        }
        EventKind::SubagentEnded { call_id, termination, reason, turns } => json!({
            "phase": "end", "toolCallId": call_id, "termination": termination, "stopReason": reason.word(),
            "turns": turns,
        }),
        _ => return None,
    })
}

fn goal(kind: &EventKind) -> Option<Value> {
    let EventKind::GoalChecked { attempt, attempts, holds, missing } = kind else { return None };
    Some(json!({ "phase": "checked", "attempt": attempt, "attempts": attempts, "holds": holds, "missing": missing }))
}

fn plan(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::PlanCreated { plan_id, title, steps } => {
            json!({ "phase": "created", "planId": plan_id, "title": title, "steps": steps })
        }
        EventKind::PlanChanged { change, index, steps, actor } => {
            json!({ "phase": change, "index": index, "steps": steps, "actor": actor })
        }
        EventKind::PlanStep { index, status, executor, note } => {
            json!({ "phase": "step", "index": index, "status": status, "executor": executor, "note": note })
        }
        _ => return None,
    })
}

fn approval(kind: &EventKind) -> Option<Value> {
    Some(match kind {
        EventKind::ApprovalRequested { approval, call_id, name, kind, summary, detail } => json!({
            "phase": "requested", "approvalId": approval, "toolCallId": call_id, "name": name, "kind": kind,
            "summary": summary, "detail": detail,
        }),
        EventKind::ApprovalFirstYes { approval, actor } => {
            json!({ "phase": "first_yes", "approvalId": approval, "actor": actor })
        }
        EventKind::ApprovalResolved { approval, state, actor } => {
            json!({ "phase": "resolved", "approvalId": approval, "decision": state, "actor": actor })
        }
        _ => return None,
    })
}
