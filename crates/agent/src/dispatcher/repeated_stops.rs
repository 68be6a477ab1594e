//! Tells the first request of a stop that is repeated from its repetitions. These mean the runs and the processes that the
//! first one has stopped, and nothing that came after it.

use std::collections::VecDeque;

use belay_protocol::{OrderId, ProcessesOf};

/// How many stops are remembered. One that is forgotten stops again what its target has: too much, never too little.
const REMEMBERED: usize = 256;

/// The newest stops that are repeated until everything has ended, and whose processes in the background each one ends.
#[derive(Debug, Default)]
pub(super) struct RepeatedStops(VecDeque<(OrderId, Option<ProcessesOf>)>);

impl RepeatedStops {
    /// Whose processes the first request of this stop ended; `None`: this is the first, and it ends those of `of`.
    pub(super) fn again(&mut self, order: OrderId, of: &Option<ProcessesOf>) -> Option<Option<ProcessesOf>> {
        if let Some((_, first)) = self.0.iter().find(|(known, _)| *known == order) {
            return Some(first.clone());
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((order, of.clone()));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stops_are_remembered() {
        let (mut stops, first) = (RepeatedStops::default(), OrderId::new());
        let of = Some(ProcessesOf::Everyone);
        assert_eq!([stops.again(first, &of), stops.again(first, &None)], [None, Some(of)]);
        assert!((0..REMEMBERED).all(|_| stops.again(OrderId::new(), &None).is_none()));
        assert!(stops.again(first, &None).is_none(), "it is forgotten");
        assert_eq!(stops.0.len(), REMEMBERED);
    }
}
