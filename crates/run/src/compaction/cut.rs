//! Selects the messages to remove from a context that is too long. Pure.
//!
//! As many of the newest turns stay as fit, cut at the beginning of a turn. If the running turn alone is too long, its
//! oldest complete steps are removed. The user's messages in it and its newest step, which may have open calls, are
//! never removed. A call and its results are always removed together.

use std::ops::Range;
use std::sync::Arc;

use belay_protocol::{Message, MessageBody, MessageScope};

use super::account::{Account, is_pinned};
use crate::own_tools::{EMIT_VALUE, SENDING_TOOLS};

/// The messages to remove from a context, and those that stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    messages: Vec<Arc<Message>>,
    /// Whether the first message is a pinned summary.
    pinned: bool,
    turn_start: usize,
    /// Indexes of the messages to remove, ascending.
    leaving: Vec<usize>,
}

/// A shortened context.
#[derive(Clone, Debug, PartialEq)]
pub struct Compacted {
    /// The new context: the pinned summary, then the messages that stay.
    pub messages: Vec<Arc<Message>>,
    /// The text of the summary, heading included.
    pub summary: String,
    /// Number of removed messages.
    pub dropped: u32,
    /// Those of them that belong to the running turn, by their index in it, from 0.
    pub left_of_turn: Vec<u32>,
    /// Number of messages of earlier turns that stay, as the store counts them for every turn. Two kinds are not
    /// counted: a result that replaces one lost in a crash, and a notice, which may be stored at any time.
    pub kept_of_earlier_turns: u32,
    /// Index of the running turn's first message in the new context.
    pub turn_start: usize,
}

impl Cut {
    /// Selects the messages to remove from a context whose running turn begins at `turn_start`, so that `keep`
    /// estimated tokens stay, or half of the present number if that is less. `None`: nothing can be removed.
    pub fn of(messages: &[Arc<Message>], turn_start: usize, keep: u64) -> Option<Self> {
        let pinned = messages.first().is_some_and(|message| is_pinned(message));
        let head = usize::from(pinned);
        let turn_start = turn_start.clamp(head.min(messages.len()), messages.len());
        let keep = keep.min(tokens(&messages[head..]) / 2);
        let from = first_turn_that_stays(messages, head..turn_start, keep);
        let mut leaving: Vec<usize> = (head..from).collect();
        if from == turn_start {
            leaving.extend(steps_that_leave(messages, turn_start, keep));
        }
        (!leaving.is_empty()).then(|| Self { messages: messages.to_vec(), pinned, turn_start, leaving })
    }

    /// Selects all messages, for a summary that replaces nothing.
    pub fn whole(messages: &[Arc<Message>]) -> Self {
        let pinned = messages.first().is_some_and(|message| is_pinned(message));
        let leaving = (usize::from(pinned)..messages.len()).collect();
        Self { messages: messages.to_vec(), pinned, turn_start: messages.len(), leaving }
    }

    /// The whole context before the cut.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The messages to remove, oldest first.
    pub fn leaving(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.leaving.iter().map(|at| &*self.messages[*at])
    }

    /// Number of turns that are removed completely.
    pub fn whole_turns(&self) -> usize {
        self.leaving.iter().filter(|at| **at < self.turn_start && begins_turn(&self.messages[**at])).count()
    }

    /// The material of the summary.
    pub fn account(&self) -> Account<'_> {
        Account::new(self.pinned.then(|| self.messages[0].text()), self.leaving().collect())
    }

    /// Replaces the removed messages by this summary.
    pub fn close(&self, summary: String) -> Compacted {
        let mut messages = vec![super::account::pinned(&summary)];
        let stays = |at: &usize| self.leaving.binary_search(at).is_err();
        let head = usize::from(self.pinned);
        messages.extend((head..self.messages.len()).filter(stays).map(|at| self.messages[at].clone()));
        let earlier: Vec<usize> = (head..self.turn_start).filter(stays).collect();
        let counts = |message: &Message| message.scope.is_thread() && !message.is_notice();
        let kept = earlier.iter().filter(|at| counts(&self.messages[**at])).count();
        let left_of_turn = self.leaving.iter().filter_map(|at| at.checked_sub(self.turn_start));
        Compacted {
            messages,
            summary,
            dropped: self.leaving.len() as u32,
            left_of_turn: left_of_turn.map(|number| number as u32).collect(),
            kept_of_earlier_turns: kept as u32,
            turn_start: 1 + earlier.len(),
        }
    }
}

impl Compacted {
    /// Whether the context is shorter than before.
    pub fn gains(&self, cut: &Cut) -> bool {
        tokens(&self.messages) < tokens(&cut.messages)
    }
}

/// Estimated tokens of these messages.
pub fn tokens(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| message.estimated_tokens()).sum()
}

/// Index of the first earlier turn from which at most `keep` tokens follow; otherwise the index of the running turn.
fn first_turn_that_stays(messages: &[Arc<Message>], earlier: Range<usize>, keep: u64) -> usize {
    let mut behind = tokens(&messages[earlier.end..]);
    let mut from = earlier.end;
    for at in earlier.rev() {
        behind += messages[at].estimated_tokens();
        if behind > keep {
            break;
        }
        if begins_turn(&messages[at]) {
            from = at;
        }
    }
    from
}

/// The oldest steps of the running turn, until at most `keep` tokens of it are left. Never the newest step.
fn steps_that_leave(messages: &[Arc<Message>], turn_start: usize, keep: u64) -> Vec<usize> {
    let begins_step = |at: &usize| !messages[*at].tool_calls().is_empty();
    let steps: Vec<usize> = (turn_start + 1..messages.len()).filter(begins_step).collect();
    let mut left = tokens(&messages[turn_start..]);
    let mut leaving = Vec::new();
    for step in steps.windows(2) {
        if left <= keep {
            break;
        }
        if hands_over(&messages[step[0]]) {
            continue;
        }
        for at in (step[0]..step[1]).filter(|at| !begins_turn(&messages[*at])) {
            left = left.saturating_sub(messages[at].estimated_tokens());
            leaving.push(at);
        }
    }
    leaving
}

/// Whether a step has emitted a declared output or sent a message or a file. Both are read from the conversation, at the latest
/// at the end of the run.
fn hands_over(message: &Message) -> bool {
    let hands_over = |name: &str| name == EMIT_VALUE || SENDING_TOOLS.contains(&name);
    message.tool_calls().iter().any(|call| hands_over(&call.name))
}

/// Whether this is a message of a user.
pub(super) fn begins_turn(message: &Message) -> bool {
    message.scope == MessageScope::Thread && matches!(message.body, MessageBody::User { .. })
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Arguments, ToolCall, ToolResult, ToolStatus};
    use proptest::prelude::*;

    use super::*;

    fn calling(id: &str, tool: &str) -> Arc<Message> {
        let call = ToolCall { id: id.into(), name: tool.into(), arguments: Arguments::parse("{}") };
        Arc::new(Message::assistant_calls("", vec![call]))
    }

    fn call(id: &str) -> Arc<Message> {
        calling(id, "clock")
    }

    fn result(id: &str) -> Arc<Message> {
        let (name, status) = ("clock".into(), ToolStatus::Success);
        Arc::new(Message::tool(ToolResult { call_id: id.into(), name, status, text: "noon ".repeat(20) }))
    }

    fn user(text: impl Into<String>) -> Arc<Message> {
        Arc::new(Message::user(text))
    }

    fn turns(n: usize) -> Vec<Arc<Message>> {
        let turn = |i| {
            [user(format!("question {i} {}", "x".repeat(200))), Arc::new(Message::assistant(format!("answer {i}")))]
        };
        (0..n).flat_map(turn).collect()
    }

    fn compact(messages: &[Arc<Message>], turn_start: usize) -> Option<Compacted> {
        let cut = Cut::of(messages, turn_start, u64::MAX)?;
        let summary = cut.account().by_rule(4_000);
        Some(cut.close(summary))
    }

    #[test]
    fn older_turns_leave_and_their_account_stays() {
        let mut messages = turns(10);
        let turn_start = messages.len();
        messages.push(user("now"));
        let out = compact(&messages, turn_start).expect("something can leave");
        assert!(is_pinned(&out.messages[0]));
        assert!(out.summary.contains("question 0") && out.summary.contains("answer 0"));
        assert!(begins_turn(&out.messages[1]), "the cut is at the beginning of a turn");
        assert_eq!(out.messages[out.turn_start].text(), "now");
        assert_eq!(out.messages.len() as u32, 1 + out.kept_of_earlier_turns + 1);
        assert!(out.left_of_turn.is_empty());
        let again = compact(&out.messages, out.turn_start).expect("still something");
        assert!(again.summary.contains("question 0"), "an earlier account is carried on");
    }

    #[test]
    fn as_much_stays_as_is_to_be_kept_and_never_more_than_half() {
        let mut messages = turns(10);
        let turn_start = messages.len();
        messages.push(user("now"));
        let each = tokens(&messages[..2]);
        for (keep, turns_kept) in [(0, 0), (each - 1, 0), (each + 10, 1), (3 * each + 10, 3), (u64::MAX, 4)] {
            let cut = Cut::of(&messages, turn_start, keep).expect("something leaves");
            assert_eq!(cut.close(String::new()).kept_of_earlier_turns, 2 * turns_kept, "{keep}");
            assert_eq!(cut.whole_turns(), 10 - turns_kept as usize);
        }
    }

    #[test]
    fn a_result_that_stands_in_for_a_lost_one_stays_and_is_not_counted_among_what_is_stored() {
        let mut messages = turns(10);
        let stands_in = Arc::new(Message::clone(&result("c")).for_run());
        messages.extend([user("go"), call("c"), stands_in.clone()]);
        let turn_start = messages.len();
        messages.push(user("now"));
        let out = compact(&messages, turn_start).expect("something can leave");
        assert!(out.messages[..out.turn_start].contains(&stands_in));
        assert_eq!(out.kept_of_earlier_turns as usize, out.turn_start - 2, "the account is not counted either");
        assert_eq!(out.messages[out.turn_start].text(), "now");
    }

    #[test]
    fn instructions_that_a_client_brought_stay_in_force_whole() {
        let long = "be kind ".repeat(200);
        let mut messages = vec![Arc::new(Message::system(&long))];
        messages.extend(turns(40));
        let mut turn_start = messages.len();
        messages.push(user("now"));
        for _ in 0..3 {
            let Some(out) = compact(&messages, turn_start) else { break };
            assert_eq!(out.summary.matches(long.trim()).count(), 1, "{}", out.summary);
            (messages, turn_start) = (out.messages, out.turn_start);
            messages.insert(1, Arc::new(Message::system(&long))); // the client sends it again
            turn_start += 1;
        }
    }

    #[test]
    fn a_long_turn_loses_its_oldest_steps_and_nothing_that_a_person_has_said_in_it() {
        let messages = vec![
            user("do it"),
            call("a"),
            result("a"),
            user("in Tokyo"),
            call("b"),
            result("b"),
            call("c"),
            result("c"),
        ];
        let out = compact(&messages, 0).expect("steps can leave");
        let texts: Vec<_> = out.messages[out.turn_start..].iter().map(|message| message.text()).collect();
        assert_eq!(texts[..2], ["do it", "in Tokyo"]);
        assert_eq!(out.messages[out.turn_start + 2].tool_calls()[0].id, "c".into());
        assert_eq!((out.dropped, out.left_of_turn), (4, vec![1, 2, 4, 5]));
    }

    #[test]
    fn what_was_handed_over_or_sent_stays() {
        for tool in [[EMIT_VALUE].as_slice(), &SENDING_TOOLS].concat() {
            let mut messages = vec![user("do it"), calling("a", tool), result("a")];
            for id in ["b", "c", "d"] {
                messages.extend([call(id), result(id)]);
            }
            let out = compact(&messages, 0).expect("steps can leave");
            assert_eq!(out.messages[out.turn_start + 1].tool_calls()[0].id, "a".into(), "{tool}");
            assert!(!out.left_of_turn.contains(&1) && !out.left_of_turn.contains(&2), "{tool}");
        }
    }

    #[test]
    fn earlier_turns_and_steps_leave_together_where_the_turn_alone_is_too_long() {
        let mut messages = turns(2);
        messages.push(user("do it"));
        for id in ["a", "b", "c", "d", "e", "f"] {
            messages.extend([call(id), result(id)]);
        }
        let out = compact(&messages, 4).expect("both can leave");
        assert_eq!((out.kept_of_earlier_turns, out.turn_start), (0, 1));
        assert!(!out.left_of_turn.is_empty() && out.summary.contains("question 0"));
        assert_eq!(tokens(&out.messages[1..]), tokens(&messages) - out.summary_of(&messages));
    }

    #[test]
    fn nothing_leaves_where_there_is_nothing() {
        assert_eq!(compact(&[], 0), None);
        assert_eq!(compact(&[user("hello")], 0), None);
        assert_eq!(compact(&[user("hello"), call("a"), result("a")], 0), None);
    }

    impl Compacted {
        /// Estimated tokens of the removed messages.
        fn summary_of(&self, before: &[Arc<Message>]) -> u64 {
            let stays = |message: &&Arc<Message>| !self.messages.iter().any(|kept| Arc::ptr_eq(kept, message));
            before.iter().filter(stays).map(|message| message.estimated_tokens()).sum()
        }
    }

    proptest! {
        #[test]
        fn a_call_and_its_results_are_never_separated(
            shape in proptest::collection::vec(0u8..5, 1..40), keep in 0u64..2_000,
        ) {
            let mut messages = Vec::new();
            let mut turn_start = 0;
            for (i, kind) in shape.iter().enumerate() {
                match kind {
                    0 => { turn_start = messages.len(); messages.push(user(format!("u{i}"))); }
                    1 => messages.push(Arc::new(Message::assistant(format!("a{i}")))),
                    2 => messages.push(Arc::new(Message::user(format!("nudge {i}")).for_run())),
                    _ if !messages.is_empty() => { messages.push(call(&i.to_string())); messages.push(result(&i.to_string())); }
                    _ => messages.push(user(format!("u{i}"))),
                }
            }
            if let Some(cut) = Cut::of(&messages, turn_start, keep) {
                let out = cut.close(cut.account().by_rule(4_000));
                let ids = |calls: bool| -> Vec<String> {
                    out.messages.iter().flat_map(|m| match &m.body {
                        MessageBody::Tool(r) if !calls => vec![r.call_id.to_string()],
                        _ if calls => m.tool_calls().iter().map(|c| c.id.to_string()).collect(),
                        _ => vec![],
                    }).collect()
                };
                prop_assert_eq!(ids(true), ids(false));
                prop_assert_eq!(out.messages[out.turn_start].text(), messages[turn_start].text());
                prop_assert!(out.dropped > 0);
                prop_assert_eq!(out.messages.len() + out.dropped as usize, messages.len() + 1);
                prop_assert!(out.left_of_turn.iter().all(|number| *number > 0));
            }
        }
    }
}
