//! Block streaming: finished pieces of the model's text are sent as messages while the run continues.
//!
//! [`Blocks`] receives the published fragments and cuts them into pieces; it never waits. Once a piece of a model call
//! is ready, the call counts as shown and is not retried.

use std::collections::VecDeque;

use super::chunker::{Chunker, JOINT, Limits};
use super::config::{SendAt, StreamingConfig};
use crate::reply;

/// The ready pieces of a run's text, and the rest of the current step's text.
#[derive(Debug)]
pub struct Blocks {
    limits: Limits,
    at: SendAt,
    step: u32,
    chunker: Chunker,
    /// End of the part of the step's text that is in pieces, in bytes.
    cut_to: usize,
    ready: VecDeque<Block>,
    /// Digests of the blocks that earlier attempts have sent. Each one skips one equal block.
    before: Vec<String>,
}

/// The next message to send.
#[derive(Debug, PartialEq, Eq)]
pub struct Next {
    /// Its text.
    pub text: String,
    /// Number of pieces that it consists of.
    pub count: usize,
    /// Whether it is short and should wait for more text.
    pub may_wait: bool,
}

/// A ready piece.
#[derive(Debug)]
struct Block {
    text: String,
    /// Whether it is the end of a text. Such a piece may be joined with the next one.
    ends_text: bool,
}

impl Blocks {
    /// Cuts texts for a channel that accepts `channel_max` characters. `before`: digests of the blocks that were sent
    /// already.
    pub fn new(config: &StreamingConfig, channel_max: usize, before: Vec<String>) -> Self {
        let limits = Limits::new(config, channel_max);
        let (chunker, ready) = (Chunker::new(limits), VecDeque::new());
        Self { limits, at: config.at, step: 0, chunker, cut_to: 0, ready, before }
    }

    /// Starts a model call. The same `step` again means that nothing of the previous call was shown.
    pub fn begin(&mut self, step: u32) {
        if step != self.step {
            self.end_text();
        }
        self.step = step;
        self.chunker = Chunker::new(self.limits);
        self.cut_to = 0;
    }

    /// Adds a fragment. Returns whether a piece of this step is ready, so that the step counts as shown.
    pub fn push(&mut self, fragment: &str) -> bool {
        self.chunker.push(fragment);
        if self.at == SendAt::TextEnd {
            self.cut();
        }
        self.has_begun()
    }

    /// Ends a text after which the run continues: all of it becomes ready.
    pub fn end_text(&mut self) {
        self.cut();
        while let Some(piece) = self.chunker.next_of_rest() {
            self.cut_to = piece.of.end;
            self.ready.push_back(Block { text: piece.text, ends_text: true });
        }
    }

    /// Makes ready the pieces whose ends are certain. The rest of an answer is sent with the end of the run.
    pub fn cut(&mut self) {
        while let Some(piece) = self.chunker.next() {
            self.cut_to = piece.of.end;
            self.ready.push_back(Block { text: piece.text, ends_text: false });
        }
    }

    /// The next message: a piece, joined with following pieces where they fit. The pieces stay until [`Self::sent`].
    pub fn next(&self) -> Option<Next> {
        let mut blocks = self.ready.iter();
        let first = blocks.next()?;
        let (mut text, mut ends_text, mut count) = (first.text.clone(), first.ends_text, 1);
        for block in blocks {
            if !ends_text || !self.limits.take_both(&text, &block.text) {
                break;
            }
            text = text + JOINT + &block.text;
            ends_text = block.ends_text;
            count += 1;
        }
        let may_wait = ends_text && count == self.ready.len() && !self.limits.is_long_enough(&text);
        Some(Next { text, count, may_wait })
    }

    /// Removes the first `count` pieces, which were sent.
    pub fn sent(&mut self, count: usize) {
        self.ready.drain(..count.min(self.ready.len()));
    }

    /// Whether a piece of this step is ready or sent. A reader of the beginning must get the rest.
    pub fn has_begun(&self) -> bool {
        self.cut_to > 0
    }

    /// Whether an earlier attempt has sent the block with this digest. Each digest matches once.
    pub fn was_sent(&mut self, digest: &str) -> bool {
        let at = self.before.iter().position(|before| before == digest);
        at.map(|at| self.before.remove(at)).is_some()
    }

    /// The part of an answer that was not sent in pieces. `said`: the text that the last step streamed.
    pub fn unsaid(&self, said: &str, answer: &str) -> Option<String> {
        let out = said.get(..self.cut_to).map(str::trim_start).filter(|out| !out.is_empty());
        let rest = out.and_then(|out| match reply::behind(said, self.cut_to, answer) {
            Some(rest) => Some(rest),
            None => answer.trim_start().strip_prefix(out).map(str::to_owned),
        });
        let rest = match rest {
            Some(rest) => self.chunker.clone().rest_of(&rest),
            None => Some(answer.to_owned()),
        };
        // Pieces that are ready but not sent go before the rest.
        let parts: Vec<String> = self.ready.iter().map(|block| block.text.clone()).chain(rest).collect();
        (!parts.is_empty()).then(|| parts.join(JOINT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(at: SendAt) -> Blocks {
        let config = StreamingConfig { min_chars: 20, max_chars: 200, at, ..StreamingConfig::default() };
        Blocks::new(&config, 4000, Vec::new())
    }

    fn drain(blocks: &mut Blocks) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(next) = blocks.next() {
            texts.push(next.text);
            blocks.sent(next.count);
        }
        texts
    }

    const ANSWER: &str = "The first paragraph.\n\nAnd the second one, which ends.";

    #[test]
    fn the_end_of_a_run_says_what_was_not_said() {
        let mut blocks = blocks(SendAt::TextEnd);
        blocks.begin(1);
        assert!(!blocks.push("The first para"));
        assert!(blocks.push("graph.\n\nAnd the second one, which ends."));
        assert_eq!(drain(&mut blocks), ["The first paragraph."]);
        assert_eq!(blocks.unsaid(ANSWER, ANSWER).as_deref(), Some("And the second one, which ends."));
    }

    #[test]
    fn another_answer_than_the_one_that_was_streamed_is_said_whole() {
        let mut blocks = blocks(SendAt::TextEnd);
        blocks.begin(1);
        blocks.push(ANSWER);
        assert_eq!(drain(&mut blocks).len(), 1);
        assert_eq!(blocks.unsaid(ANSWER, "Interrupted.").as_deref(), Some("Interrupted."));
    }

    #[test]
    fn shaping_an_answer_does_not_have_it_said_again() {
        for (streamed, rest) in [
            ("The first paragraph.\r\n\r\nAnd the second,\r\nwhich ends.", "And the second,\nwhich ends."),
            ("The first paragraph.\n\n[called tool clock with {}]\nAnd the second.", "And the second."),
            ("[called tool clock with {}]\nThe first paragraph.\n\nAnd the second.", "And the second."),
            ("The first:\n```\n[called tool x]\n```\n\nThe second.\n[called tool x]\n", "The second."),
            // A marker in code is a quotation, also after the cut.
            ("The first paragraph.\n\nA second one.\n```\n[called tool x]\n```", "```\n[called tool x]\n```"),
        ] {
            let reply::Reply::Text(answer) = reply::shape(streamed) else { unreachable!("{streamed}") };
            for added in ["", "\n\n[cut off]"] {
                let mut blocks = blocks(SendAt::TextEnd);
                blocks.begin(1);
                blocks.push(streamed);
                drain(&mut blocks);
                let unsaid = blocks.unsaid(streamed, &format!("{answer}{added}")).unwrap_or_default();
                assert!(unsaid.ends_with(&format!("{rest}{added}")), "{streamed:?} {unsaid:?}");
                assert!(!unsaid.contains("The first"), "{streamed:?} {unsaid:?}");
            }
        }
    }

    #[test]
    fn what_could_not_be_sent_goes_along_with_the_rest() {
        let mut blocks = blocks(SendAt::TextEnd);
        blocks.begin(1);
        blocks.push(ANSWER);
        assert_eq!(blocks.unsaid(ANSWER, ANSWER).as_deref(), Some(ANSWER));
    }

    #[test]
    fn short_ends_of_texts_go_together_and_wait_for_more() {
        let mut blocks = blocks(SendAt::TextEnd);
        for (step, text) in [(1, "Let me see."), (2, "One more look."), (3, ANSWER)] {
            blocks.begin(step);
            blocks.push(text);
            if step < 3 {
                blocks.end_text();
                assert_eq!(blocks.next().map(|next| next.may_wait), Some(step == 1), "{step}");
            }
        }
        let first = "Let me see.\n\nOne more look.\n\nThe first paragraph.";
        assert_eq!(drain(&mut blocks), [first]);
    }

    #[test]
    fn a_call_that_nobody_heard_leaves_nothing_behind() {
        let mut blocks = blocks(SendAt::TextEnd);
        blocks.begin(1);
        blocks.push("The first pa");
        blocks.begin(1);
        blocks.push(ANSWER);
        assert_eq!(drain(&mut blocks), ["The first paragraph."]);
    }

    #[test]
    fn at_the_end_of_a_message_means_not_before() {
        let mut blocks = blocks(SendAt::MessageEnd);
        blocks.begin(1);
        assert!(!blocks.push(ANSWER));
        assert_eq!(blocks.next(), None);
        blocks.end_text();
        assert_eq!(drain(&mut blocks), ["The first paragraph.", "And the second one, which ends."]);
    }
}
