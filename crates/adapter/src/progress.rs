//! Which cursor may be kept: the newest one that no unsettled message is in front of.

use std::collections::{BTreeMap, VecDeque};

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

    /// Takes a cursor. The older one waits for nothing any more if nothing is between the two.
    pub(crate) fn add(&mut self, cursor: String) {
        if self.cursors.back().is_some_and(|(place, _)| *place == self.next) {
            self.cursors.pop_back();
        }
        self.cursors.push_back((self.next, cursor));
    }

    /// The number of messages without a settled answer, and of cursors that wait for them.
    pub(crate) fn waiting(&self) -> usize {
        self.open.len().max(self.cursors.len())
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
        assert_eq!((progress.kept().as_deref(), progress.waiting()), (Some("3"), 0));
    }

    #[test]
    fn cursors_without_messages_between_them_are_one() {
        let mut progress = Progress::default();
        let one = progress.begin("a");
        (0..1_000).for_each(|n| progress.add(n.to_string()));
        assert_eq!(progress.waiting(), 1);
        progress.settle(one);
        assert_eq!(progress.kept().as_deref(), Some("999"));
    }
}
