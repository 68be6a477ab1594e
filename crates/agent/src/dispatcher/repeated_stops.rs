//! Tells the first request of a stop that is repeated from its repetitions. These mean the runs that the first one has stopped, and no message
//! that came after it.

use std::collections::VecDeque;

use belay_protocol::OrderId;

/// How many stops are remembered. One that is forgotten stops again what its target has: too much, never too little.
const REMEMBERED: usize = 256;

/// The newest stops that are repeated until everything has ended.
#[derive(Debug, Default)]
pub(super) struct RepeatedStops(VecDeque<OrderId>);

impl RepeatedStops {
    /// Whether this stop was requested before. From then on it was.
    pub(super) fn is_again(&mut self, order: OrderId) -> bool {
        if self.0.contains(&order) {
            return true;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(order);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stops_are_remembered() {
        let (mut stops, first) = (RepeatedStops::default(), OrderId::new());
        assert_eq!([stops.is_again(first), stops.is_again(first)], [false, true]);
        assert!((0..REMEMBERED).all(|_| !stops.is_again(OrderId::new())));
        assert!(!stops.is_again(first), "it is forgotten");
        assert_eq!(stops.0.len(), REMEMBERED);
    }
}
