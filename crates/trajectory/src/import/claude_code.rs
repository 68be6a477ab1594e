//! Reads sessions of Claude Code.
//!
//! Seen in files of version 2.1.197 on 2026-11-29: `~/.claude/projects/PROJECT/SESSION.jsonl`, and those of subagents in
//! `PROJECT/SESSION/subagents/agent-ID.jsonl`. Each block of an answer is a record of its own, with the id and the usage
//! of the answer; results of parallel calls come in any order. Older versions wrote the records of subagents into the
//! session, with `isSidechain` and no `agentId`. `claude --output-format stream-json` prints similar records.
//!
//! A compaction is a record `compact_boundary`, and then a message `isCompactSummary`; older versions have only that one.
//! A person who goes back to an earlier message writes one whose `parentUuid` is a record before answers that were written
//! since; `parentUuid` is null in the first message, and in one that takes its place. The file is read line by line, so
//! the answers that they have discarded were handed over before.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use serde_json::Value;

use super::content::{field, list, number, text_of};
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
    /// The records so far, by digest, with the answers that their run had then. A resumed session repeats some.
    seen: HashMap<u64, u64>,
    /// The run of each record of a subagent without an id, by digest.
    chains: HashMap<u64, String>,
    answers: HashMap<String, Answers>,
}

/// The answers of a run.
#[derive(Default)]
struct Answers {
    /// The id of the newest one.
    newest: Option<String>,
    count: u64,
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

    /// The answers that the run had at the parent of a record; `None`: it has no parent that was read.
    fn parent(&self, record: &Value) -> Option<u64> {
        match record.get("parentUuid")? {
            Value::Null => Some(0), // the beginning of the session; stream-json has no such field
            parent => self.seen.get(&self.digest(parent.as_str()?)).copied(),
        }
    }

    /// Records a message. Returns the number of the answers that its run has, for one that ends a branch.
    fn message(&mut self, record: &Value, message: &Value, tape: &mut Tape) -> Option<u64> {
        let key = self.key(record);
        let parent = self.parent(record);
        tape.next();
        let recorder = tape.run(&key, || key.clone());
        let is = |name: &str| record.get(name).and_then(Value::as_bool) == Some(true);
        let holds_result = list(message, "content").iter().any(|block| field(block, "type").ends_with("tool_result"));
        if is("isCompactSummary") {
            recorder.compacted(0, 0);
        }
        if is("isApiErrorMessage") || ((is("isMeta") || is("isCompactSummary")) && !holds_result) {
            // The program speaks, not the person or the model.
            recorder.thought(text_of(message.get("content")));
            return None;
        }
        let answers = self.answers.entry(key).or_default();
        let is_of_person = field(message, "role") == "user" && !holds_result;
        if is_of_person && parent.is_some_and(|answered| answered < answers.count) {
            recorder.rewound();
        }
        let before = answers.newest.clone();
        if let Err(what) = anthropic::message(recorder, message, &mut answers.newest) {
            tape.skip(&what);
        } else if field(message, "role") == "assistant" && (before.is_none() || before != answers.newest) {
            answers.count += 1;
        }
        Some(answers.count)
    }

    fn compacted(&mut self, record: &Value, tape: &mut Tape) {
        let metadata = ["compactMetadata", "compact_metadata"].iter().find_map(|key| record.get(*key));
        let tokens =
            |names: [&str; 2]| metadata.and_then(|of| names.iter().map(|name| number(of, name)).max()).unwrap_or(0);
        let (before, after) = (tokens(["preTokens", "pre_tokens"]), tokens(["postTokens", "post_tokens"]));
        let key = self.key(record);
        tape.run(&key, || key.clone()).compacted(before, if before == 0 { 0 } else { after });
    }
}

/// Whether a record says that the context was shortened: to a summary, or by the older results of tools.
fn is_compaction(record: &Value) -> bool {
    field(record, "type") == "system"
        && matches!(field(record, "subtype"), "compact_boundary" | "microcompact_boundary")
}

impl Reads for ClaudeCode {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        if let Value::Array(records) = record {
            return records.iter().for_each(|record| self.record(record, tape));
        }
        let kind = field(record, "type");
        let uuid = field(record, "uuid");
        if !uuid.is_empty() && self.seen.contains_key(&self.digest(uuid)) {
            return tape.skip("repeated record");
        }
        let mut answered = None;
        match record.get("message") {
            Some(message) if matches!(kind, "user" | "assistant") && message.is_object() => {
                answered = self.message(record, message, tape);
            }
            _ if is_compaction(record) => self.compacted(record, tape),
            _ => tape.skip(kind),
        }
        if !uuid.is_empty() {
            // A record of the program stands where its parent does.
            let parent = || self.seen.get(&self.digest(field(record, "parentUuid"))).copied();
            let answered = answered.or_else(parent).or_else(|| self.answers.get("").map(|answers| answers.count));
            self.seen.insert(self.digest(uuid), answered.unwrap_or(0));
        }
    }
}
