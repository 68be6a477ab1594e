//! Which cursor may be kept: the newest one that no unsettled message is in front of.

use std::collections::{BTreeMap, VecDeque};

/// The maximum number of cursors that wait. Beyond it, the newest one is replaced by the next: that one covers more,
/// and is kept later.
const CURSORS_MAX: usize = 256;

/// The cursors of one connection, and the messages in front of them.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    next: u64,
    /// The messages without a settled answer by their places in the stream, with their keys and the number of their
    /// copies that are not answered yet.
    open: BTreeMap<u64, (String, u32)>,
    /// The cursors that wait for them, in the order of the stream.
    cursors: VecDeque<(u64, String)>,
}

impl Progress {
    /// Takes a message. Returns its place. A message that is sent again has the place of the first time, since a cursor
    /// behind it covers it.
    /// `key`: of the message, among all conversations.
    pub(crate) fn begin(&mut self, key: &str) -> u64 {
        if let Some((place, (_, copies))) = self.open.iter_mut().find(|(_, (open, _))| open == key) {
            *copies += 1;
            return *place;
        }
        self.next += 1;
        self.open.insert(self.next, (key.to_owned(), 1));
        self.next
    }

    /// The message at this place is settled: it is durable, or refused for good.
    /// Its place stays open while another copy is not answered: two edits of a message have one key.
    pub(crate) fn settle(&mut self, place: u64) {
        if let Some((_, copies)) = self.open.get_mut(&place) {
            *copies = copies.saturating_sub(1);
            if *copies == 0 {
                self.open.remove(&place);
            }
        }
    }

    /// The message at this place comes again, as another copy.
    pub(crate) fn put_off(&mut self, place: u64) {
        if let Some((_, copies)) = self.open.get_mut(&place) {
            *copies = copies.saturating_sub(1);
        }
    }

    /// Takes a cursor. The older one waits for nothing any more if nothing is between the two. At most [`CURSORS_MAX`]
    /// wait.
    pub(crate) fn add(&mut self, cursor: String) {
        let is_same_place = self.cursors.back().is_some_and(|(place, _)| *place == self.next);
        if is_same_place || self.cursors.len() == CURSORS_MAX {
            self.cursors.pop_back();
        }
        self.cursors.push_back((self.next, cursor));
    }

    /// The number of messages without a settled answer.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// The newest cursor that may be kept now. It is returned once.
    pub(crate) fn kept(&mut self) -> Option<String> {
        let oldest = self.open.keys().next().copied().unwrap_or(u64::MAX);
        let mut kept = None;
        while self.cursors.front().is_some_and(|(place, _)| *place < oldest) {
            kept = self.cursors.pop_front().map(|(_, cursor)| cursor);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_waits_for_all_messages_in_front_of_it() {
        let mut progress = Progress::default();
        progress.add("0".into());
        assert_eq!((progress.kept(), progress.kept()), (Some("0".into()), None));
        let (one, two) = (progress.begin("a"), progress.begin("b"));
        progress.add("2".into());
        progress.settle(two);
        assert_eq!(progress.kept(), None, "a is open");
        let three = progress.begin("c");
        progress.add("3".into());
        progress.settle(one);
        assert_eq!(progress.kept().as_deref(), Some("2"), "c is open");
        progress.put_off(three);
        assert_eq!(progress.kept(), None, "c comes again");
        assert_eq!((progress.begin("c"), progress.begin("c")), (three, three), "sent again, it keeps its place");
        progress.settle(three);
        assert_eq!(progress.kept(), None, "another copy of c is open");
        progress.settle(three);
        assert_eq!((progress.kept().as_deref(), progress.open()), (Some("3"), 0));
    }

    #[test]
    fn cursors_without_messages_between_them_are_one() {
        let mut progress = Progress::default();
        let one = progress.begin("a");
        (0..1_000).for_each(|n| progress.add(n.to_string()));
        assert_eq!(progress.cursors.len(), 1);
        progress.settle(one);
        assert_eq!(progress.kept().as_deref(), Some("999"));
    }

    #[test]
    fn the_cursors_behind_an_open_message_are_bounded_and_the_newest_one_is_among_them() {
        let mut progress = Progress::default();
        let first = progress.begin("first");
        for number in 0..CURSORS_MAX * 2 {
            let place = progress.begin(&number.to_string());
            progress.add(number.to_string());
            progress.settle(place);
            assert_eq!(progress.kept(), None, "the first message is open");
        }
        assert_eq!(progress.cursors.len(), CURSORS_MAX);
        progress.settle(first);
        assert_eq!(progress.kept(), Some((CURSORS_MAX * 2 - 1).to_string()));
    }
}
