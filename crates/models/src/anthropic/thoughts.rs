//! Stores the model's thoughts before its latest calls, so that they can be sent back.
//!
//! While a model thinks, the format requires that a chain of calls is replayed unchanged: the blocks of thoughts, with
//! their signatures, precede the calls that followed from them. If the thoughts of a chain are lost, the request may
//! only be sent without thinking. That is always allowed, and it is what happens after a restart. The thoughts of
//! chains that have ended in an answer are not needed any more.
//!
//! Source: Anthropic API reference, "Extended thinking", "Preserving thinking blocks" and "Toggling thinking modes".

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{CallId, Message, ModelError};

use super::request::{Role, role_of};
use crate::bounds::TEXT_MAX_BYTES;
use crate::failure::network;
use crate::wire::json;

/// Most bytes that are stored; beyond that, the oldest thoughts are dropped. 4 MiB: a hundred chains of the longest
/// thoughts.
const KEPT_MAX_BYTES: usize = 4 << 20;

/// Bytes that each entry counts in addition to its text, so that the number of empty entries is bounded too.
const OVERHEAD_BYTES: usize = 128;

/// The thoughts before calls, by the first call of each reply.
#[derive(Default)]
pub(super) struct Thoughts {
    // Locked for a few instructions, never across an await.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_call: HashMap<CallId, Arc<str>>,
    oldest_first: VecDeque<CallId>,
    bytes: usize,
}

/// The blocks to insert into a conversation: each before the blocks of the message at this index.
pub(super) type Replay = Vec<(usize, Arc<str>)>;

impl Thoughts {
    /// Stores the blocks, possibly none, that came before this call.
    pub(super) fn keep(&self, call: &CallId, blocks: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += blocks.len() + OVERHEAD_BYTES;
        match kept.by_call.insert(call.clone(), blocks.into()) {
            Some(before) => kept.bytes -= before.len() + OVERHEAD_BYTES,
            None => kept.oldest_first.push_back(call.clone()),
        }
        while kept.bytes > KEPT_MAX_BYTES
            && let Some(oldest) = kept.oldest_first.pop_front()
        {
            let forgotten = kept.by_call.remove(&oldest).map_or(0, |blocks| blocks.len() + OVERHEAD_BYTES);
            kept.bytes -= forgotten;
        }
    }

    /// Returns the blocks to replay so that the model can continue to think. `None`: some are lost, and the model must
    /// not think now.
    pub(super) fn replay(&self, messages: &[Arc<Message>]) -> Option<Replay> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replay = Replay::new();
        let mut later = None;
        for (at, message) in messages.iter().enumerate().rev() {
            let Some(role) = role_of(message) else { continue };
            if role == Role::Assistant {
                match message.tool_calls().first() {
                    Some(call) => replay.push((at, kept.by_call.get(&call.id)?.clone())),
                    // A text that precedes thoughts in the same turn was not sent by the model in this form.
                    None if later == Some(Role::Assistant) && !replay.is_empty() => return None,
                    // An answer. The chain began after it.
                    None => break,
                }
            }
            later = Some(role);
        }
        replay.reverse();
        Some(replay)
    }
}

/// The thoughts of an answer that is being received.
#[derive(Default)]
pub(super) struct Thinking {
    blocks: Vec<Block>,
    bytes: usize,
    /// Thoughts came after other blocks, so their position would be unknown when they are sent back.
    misplaced: bool,
}

enum Block {
    Open {
        text: String,
        signature: String,
    },
    /// Encrypted by the provider.
    Redacted(String),
}

impl Thinking {
    /// Begins a block of thoughts. `behind`: other blocks came before it.
    pub(super) fn begin(&mut self, text: &str, signature: &str, behind: bool) -> Result<(), ModelError> {
        self.misplaced |= behind;
        self.blocks.push(Block::Open { text: String::new(), signature: String::new() });
        self.add(text, signature)
    }

    /// Adds a block that only the provider can read.
    pub(super) fn redacted(&mut self, data: &str, behind: bool) -> Result<(), ModelError> {
        self.misplaced |= behind;
        self.count(data.len())?;
        self.blocks.push(Block::Redacted(data.to_owned()));
        Ok(())
    }

    /// Adds pieces to the newest block.
    pub(super) fn add(&mut self, text: &str, signature: &str) -> Result<(), ModelError> {
        self.count(text.len() + signature.len())?;
        if let Some(Block::Open { text: so_far, signature: signed }) = self.blocks.last_mut() {
            so_far.push_str(text);
            signed.push_str(signature);
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes += bytes;
        if self.bytes > TEXT_MAX_BYTES {
            return Err(network(format!("the model's reasoning is longer than {TEXT_MAX_BYTES} bytes")));
        }
        Ok(())
    }

    /// The serialised blocks, each followed by a comma. `None`: they cannot be sent back.
    pub(super) fn blocks(&self) -> Option<String> {
        let form = |block: &Block| match block {
            Block::Open { text, signature } => {
                format!("{{\"type\":\"thinking\",\"thinking\":{},\"signature\":{}}},", json(text), json(signature))
            }
            Block::Redacted(data) => format!("{{\"type\":\"redacted_thinking\",\"data\":{}}},", json(data)),
        };
        (!self.misplaced).then(|| self.blocks.iter().map(form).collect())
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Arguments, ToolCall, ToolStatus};

    use super::*;
    use crate::testing::result;

    fn called(id: &str) -> Message {
        Message::assistant_calls(
            "",
            vec![ToolCall { id: id.into(), name: "clock".into(), arguments: Arguments::parse("") }],
        )
    }

    fn returned(id: &str) -> Message {
        result(id, "clock", ToolStatus::Success, "12:00")
    }

    #[test]
    fn a_chain_is_replayed_whole_or_not_at_all() {
        let (user, assistant) = (Message::user, Message::assistant);
        let thoughts = Thoughts::default();
        thoughts.keep(&"a".into(), "A,");
        thoughts.keep(&"b".into(), "");
        for (messages, expected) in [
            (vec![], Some(vec![])),
            (vec![user("x")], Some(vec![])),
            (vec![user("x"), called("a"), returned("a")], Some(vec![(1, "A,")])),
            (vec![user("x"), called("a"), returned("a"), called("b"), returned("b")], Some(vec![(1, "A,"), (3, "")])),
            (vec![user("x"), called("a"), returned("a"), user("and?")], Some(vec![(1, "A,")])),
            // The thoughts of a chain that has ended are not needed.
            (vec![user("x"), called("lost"), returned("lost"), assistant("noon"), user("y")], Some(vec![])),
            (vec![user("x"), called("lost"), returned("lost"), called("a"), returned("a")], None),
            (vec![user("x"), called("lost"), returned("lost")], None),
            // A text directly before the calls would be in the same turn.
            (vec![user("x"), assistant("well"), Message::system("go on"), called("a"), returned("a")], None),
            (vec![user("x"), assistant("well"), user("go on"), called("a"), returned("a")], Some(vec![(3, "A,")])),
        ] {
            let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
            let expected =
                expected.map(|replay| replay.into_iter().map(|(at, blocks)| (at, blocks.into())).collect::<Replay>());
            assert_eq!(thoughts.replay(&messages), expected, "{messages:?}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let thoughts = Thoughts::default();
        let half = "x".repeat(KEPT_MAX_BYTES / 2 - OVERHEAD_BYTES);
        for id in ["a", "b", "b", "c"] {
            thoughts.keep(&id.into(), &half);
        }
        let known = |id: &str| thoughts.replay(&[Arc::new(called(id))]).is_some();
        assert_eq!([known("a"), known("b"), known("c")], [false, true, true]);
    }

    #[test]
    fn blocks_are_sent_back_as_they_came() {
        let mut thinking = Thinking::default();
        let pieces =
            [thinking.begin("", "", false), thinking.add("h\"m", ""), thinking.add("", "si"), thinking.add("", "g")];
        assert!(pieces.iter().all(Result::is_ok) && thinking.redacted("xyz", false).is_ok());
        let expected =
            r#"{"type":"thinking","thinking":"h\"m","signature":"sig"},{"type":"redacted_thinking","data":"xyz"},"#;
        assert_eq!(thinking.blocks().as_deref(), Some(expected));
        assert!(thinking.begin("late", "", true).is_ok());
        assert_eq!(thinking.blocks(), None);
        assert!(thinking.add(&"x".repeat(TEXT_MAX_BYTES), "").is_err());
    }
}
