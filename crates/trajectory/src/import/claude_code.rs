//! Reads sessions of Claude Code.
//!
//! Seen in files of version 2.1.197 on 2026-11-29: `~/.claude/projects/PROJECT/SESSION.jsonl`, and those of subagents in
//! `PROJECT/SESSION/subagents/agent-ID.jsonl`. Each block of an answer is a record of its own, with the id and the usage
//! of the answer; results of parallel calls come in any order. Older versions wrote the records of subagents into the
//! session, with `isSidechain` and no `agentId`. `claude --output-format stream-json` prints similar records.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

use super::content::{field, list, text_of};
use super::tape::Tape;
use super::{Reads, anthropic};

/// Whether a record is one of a session.
pub(super) fn is_typical(record: &Value) -> bool {
    let has = |key: &str| record.get(key).is_some_and(Value::is_string);
    has("type")
        && (has("sessionId") || has("session_id") || has("leafUuid") || (has("uuid") && has("parentUuid")))
        && record.get("part").is_none() // events of opencode
}

/// Reads the records of one file.
#[derive(Default)]
pub(super) struct ClaudeCode {
    hasher: RandomState,
    /// Digests of the records so far: a resumed session repeats some.
    seen: HashSet<u64>,
    /// The run of each record of a subagent without an id, by digest.
    chains: HashMap<u64, String>,
    /// The id of the newest answer of each run.
    answers: HashMap<String, Option<String>>,
}

impl ClaudeCode {
    fn digest(&self, uuid: &str) -> u64 {
        self.hasher.hash_one(uuid)
    }

    /// The key of the run that a record belongs to.
    fn key(&mut self, record: &Value) -> String {
        let agent = [field(record, "agentId"), field(record, "parent_tool_use_id")].concat();
        if !agent.is_empty() {
            return format!("agent {agent}");
        }
        if record.get("isSidechain").and_then(Value::as_bool) != Some(true) {
            return String::new();
        }
        // The first record of a subagent has no parent among those of subagents.
        let parent = self.chains.get(&self.digest(field(record, "parentUuid"))).cloned();
        let key = parent.unwrap_or_else(|| format!("subagent {}", field(record, "uuid")));
        self.chains.insert(self.digest(field(record, "uuid")), key.clone());
        key
    }

    fn message(&mut self, record: &Value, message: &Value, tape: &mut Tape) {
        let key = self.key(record);
        tape.next();
        let recorder = tape.run(&key, || key.clone());
        let is = |name: &str| record.get(name).and_then(Value::as_bool) == Some(true);
        let holds_result = list(message, "content").iter().any(|block| field(block, "type").ends_with("tool_result"));
        if is("isApiErrorMessage") || ((is("isMeta") || is("isCompactSummary")) && !holds_result) {
            // The program speaks, not the person or the model.
            return recorder.thought(text_of(message.get("content")));
        }
        let answer = self.answers.entry(key).or_default();
        if let Err(what) = anthropic::message(recorder, message, answer) {
            tape.skip(&what);
        }
    }
}

impl Reads for ClaudeCode {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        if let Value::Array(records) = record {
            return records.iter().for_each(|record| self.record(record, tape));
        }
        let kind = field(record, "type");
        let uuid = field(record, "uuid");
        match record.get("message") {
            _ if !uuid.is_empty() && !self.seen.insert(self.digest(uuid)) => tape.skip("repeated record"),
            Some(message) if matches!(kind, "user" | "assistant") && message.is_object() => {
                self.message(record, message, tape);
            }
            _ => tape.skip(kind),
        }
    }
}
