//! Reads rollouts of Codex CLI.
//!
//! Seen in files of version 0.171.0 on 2026-11-29: `~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`, records with `type`
//! and `payload`. Those of the type `response_item` are the conversation, as items of the Responses API. An `event_msg`
//! says the same for the screen. The output of a command has a head with an id and times that differ in each call, and
//! its exit code stands only there. A record `compacted` holds the summary that replaces the context, and the event
//! `thread_rolled_back` says that the person has taken back their newest messages.

use serde_json::Value;

use super::Reads;
use super::content::{field, number};
use super::responses::Items;
use super::tape::Tape;

/// The types of records.
const KINDS: &[&str] =
    &["session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state", "token_usage_record"];

/// Whether a record is one of a rollout.
pub(super) fn is_typical(record: &Value) -> bool {
    KINDS.contains(&field(record, "type")) && record.get("payload").is_some_and(Value::is_object)
}

/// Reads the records of one file.
#[derive(Default)]
pub(super) struct Codex {
    items: Items,
    /// Whether records of the tokens of single answers were seen. Then the totals for the screen are ignored.
    has_usage: bool,
    total: u64,
}

impl Codex {
    fn usage(&mut self, usage: &Value, tape: &mut Tape) {
        tape.run("", String::new).usage(number(usage, "input_tokens"), number(usage, "output_tokens"));
    }
}

impl Reads for Codex {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        let Some(payload) = record.get("payload") else {
            return match record {
                Value::Array(records) => records.iter().for_each(|record| self.record(record, tape)),
                _ => tape.skip(field(record, "type")),
            };
        };
        match (field(record, "type"), field(payload, "type")) {
            ("response_item", _) => {
                if let Err(kind) = self.items.item(tape.run("", String::new), payload) {
                    tape.skip(&kind);
                }
            }
            ("token_usage_record", _) => {
                self.has_usage = true;
                self.usage(&payload["usage"], tape);
            }
            ("event_msg", "token_count") if !self.has_usage => {
                // The same total comes again with each change of a rate limit.
                let total = number(&payload["info"]["total_token_usage"], "total_tokens");
                if total != std::mem::replace(&mut self.total, total) {
                    self.usage(&payload["info"]["last_token_usage"], tape);
                }
            }
            ("compacted", _) => tape.run("", String::new).compacted(0, 0),
            ("event_msg", "thread_rolled_back") => tape.run("", String::new).rewound(),
            ("event_msg", kind) if !kind.is_empty() => tape.skip(&format!("event_msg {kind}")),
            (kind, _) => tape.skip(kind),
        }
    }
}
