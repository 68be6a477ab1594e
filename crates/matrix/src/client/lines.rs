//! The order of events, and how far they were read. Pure.
//!
//! Each room is a line: one event is worked on, and the next one begins when that is settled, so that nothing overtakes
//! a message that waits for its file or for a full conversation. Rooms do not wait for each other. A batch is settled
//! with the last of its events, and its token is kept when all earlier batches are settled too.

use std::collections::{HashMap, VecDeque};

use tokio_util::sync::CancellationToken;

use super::wire::Event;

/// Events that wait or are worked on, beyond which no news are asked for.
pub(crate) const OPEN_MAX: usize = 1000;

/// An event on its way to the agent.
pub(crate) struct Item {
    pub(crate) room: String,
    pub(crate) event: Event,
    /// Cancelled by a `/stop` behind it: its file is not waited for.
    pub(crate) hurry: CancellationToken,
    /// The batch that it settles; `None`: it is a `/stop` that is also in its line.
    batch: Option<u64>,
}

impl Item {
    /// Whether it is in its line; `false`: it is a `/stop` that is offered at once as well.
    pub(crate) fn is_in_order(&self) -> bool {
        self.batch.is_some()
    }
}

/// Events by room, and the batches that they settle.
#[derive(Default)]
pub(crate) struct Lines {
    lines: HashMap<String, Line>,
    batches: VecDeque<Batch>,
    /// The number of the first batch.
    first: u64,
    ready: VecDeque<Item>,
}

/// A room with an event that is worked on.
struct Line {
    waiting: VecDeque<Item>,
    hurry: CancellationToken,
}

struct Batch {
    token: String,
    open: usize,
    has_events: bool,
}

impl Lines {
    /// Takes the news of one answer. `is_stop`: whether an event of a room also acts at once.
    pub(crate) fn admit(
        &mut self,
        token: String,
        events: Vec<(String, Event)>,
        is_stop: impl Fn(&str, &Event) -> bool,
    ) {
        let number = self.first + self.batches.len() as u64;
        self.batches.push_back(Batch { token, open: events.len(), has_events: !events.is_empty() });
        for (room, event) in events {
            let batch = Some(number);
            let Some(line) = self.lines.get_mut(&room) else {
                let hurry = CancellationToken::new();
                self.lines.insert(room.clone(), Line { waiting: VecDeque::new(), hurry: hurry.clone() });
                self.ready.push_back(Item { room, event, hurry, batch });
                continue;
            };
            if is_stop(&room, &event) {
                line.hurry.cancel();
                line.hurry = CancellationToken::new();
                let (room, event, hurry) = (room.clone(), event.clone(), line.hurry.clone());
                self.ready.push_back(Item { room, event, hurry, batch: None });
            }
            line.waiting.push_back(Item { room, event, hurry: line.hurry.clone(), batch });
        }
    }

    /// The next event to work on.
    pub(crate) fn next(&mut self) -> Option<Item> {
        self.ready.pop_front()
    }

    /// Notes that an event is settled. The next one of its room becomes ready.
    pub(crate) fn settled(&mut self, item: &Item) {
        let Some(number) = item.batch else { return };
        let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        if let Some(batch) = self.batches.get_mut(at) {
            batch.open -= 1;
        }
        let next = self.lines.get_mut(&item.room).and_then(|line| line.waiting.pop_front());
        match next {
            Some(next) => self.ready.push_back(next),
            None => drop(self.lines.remove(&item.room)),
        }
    }

    /// The token to keep: of the last batch of those at the beginning that are settled, if they had events.
    pub(crate) fn reached(&mut self) -> Option<String> {
        let (mut token, mut has_events) = (None, false);
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.open == 0) {
            self.first += 1;
            has_events |= batch.has_events;
            token = Some(batch.token);
        }
        token.filter(|_| has_events)
    }

    /// The number of events that are not settled.
    pub(crate) fn open(&self) -> usize {
        self.batches.iter().map(|batch| batch.open).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str) -> Event {
        Event { id: id.to_owned(), ..Event::default() }
    }

    fn events(of: &[(&str, &str)]) -> Vec<(String, Event)> {
        of.iter().map(|(room, id)| ((*room).to_owned(), event(id))).collect()
    }

    fn ids(lines: &mut Lines) -> Vec<(Item, String)> {
        std::iter::from_fn(|| lines.next())
            .map(|item| (item.event.id.clone(), item))
            .map(|(id, item)| (item, id))
            .collect()
    }

    #[test]
    fn rooms_have_their_order_and_a_token_waits_for_all_before_it() {
        let mut lines = Lines::default();
        let is_stop = |_: &str, event: &Event| event.id == "stop";
        lines.admit("t1".into(), events(&[("!a", "1"), ("!b", "2"), ("!a", "3")]), is_stop);
        lines.admit("t2".into(), events(&[("!b", "4")]), is_stop);
        lines.admit("t3".into(), Vec::new(), is_stop);
        let first = ids(&mut lines);
        assert_eq!(first.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), ["1", "2"]);
        lines.settled(&first[1].0);
        let of_b = ids(&mut lines);
        assert_eq!(of_b[0].1, "4");
        lines.settled(&of_b[0].0);
        assert_eq!((lines.reached(), lines.open()), (None, 2));
        lines.settled(&first[0].0);
        let of_a = ids(&mut lines);
        assert_eq!((lines.reached(), of_a[0].1.as_str()), (None, "3"));
        lines.settled(&of_a[0].0);
        assert_eq!((lines.reached(), lines.open()), (Some("t3".into()), 0));
        assert!(lines.lines.is_empty());
        lines.admit("t4".into(), Vec::new(), is_stop);
        assert_eq!(lines.reached(), None, "an answer without events costs no commit");
    }

    #[test]
    fn a_stop_passes_a_message_that_waits_and_follows_it_as_well() {
        let mut lines = Lines::default();
        let is_stop = |_: &str, event: &Event| event.id == "stop";
        lines.admit("t1".into(), events(&[("!a", "1"), ("!a", "2")]), is_stop);
        let first = ids(&mut lines);
        lines.admit("t2".into(), events(&[("!a", "stop")]), is_stop);
        assert!(first[0].0.hurry.is_cancelled());
        let extra = ids(&mut lines);
        assert_eq!((extra.len(), extra[0].1.as_str()), (1, "stop"));
        lines.settled(&extra[0].0);
        lines.settled(&first[0].0);
        let second = ids(&mut lines);
        assert_eq!(second[0].1, "2");
        assert!(second[0].0.hurry.is_cancelled());
        lines.settled(&second[0].0);
        assert_eq!(ids(&mut lines)[0].1, "stop");
    }
}
