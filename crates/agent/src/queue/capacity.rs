//! Whether one more message may wait, and which one is removed otherwise.

use belay_protocol::QueueDrop;

/// State of a waiting message, for the decision about another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// It waits, and may become a line in a digest of the next turn.
    Shortenable,
    /// It waits, and needs a turn of its own: it comes from another channel or person, or asks for more than a text.
    Alone,
    /// It is a line of a digest already.
    Shortened,
    /// A turn has taken it; it is never removed.
    InFlight,
}

/// Capacity for a new message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// There is capacity.
    Free,
    /// There is capacity once this message has become a line of a digest.
    Shorten(usize),
    /// There is capacity once this message has ended.
    End(usize),
    /// There is no capacity: the new message is refused as "busy".
    None,
}

/// The capacity among the waiting messages, oldest first. At most `cap` messages may be in the digest, so the digest is
/// bounded too.
pub(crate) fn room(waiting: &[Position], cap: usize, drop: QueueDrop) -> Capacity {
    let at = |wanted: &[Position]| waiting.iter().position(|waits| wanted.contains(waits));
    let count = |wanted: &[Position]| waiting.iter().filter(|waits| wanted.contains(waits)).count();
    if count(&[Position::Shortenable, Position::Alone]) < cap {
        return Capacity::Free;
    }
    match drop {
        QueueDrop::New => Capacity::None,
        QueueDrop::Old => at(&[Position::Shortenable, Position::Alone]).map_or(Capacity::None, Capacity::End),
        QueueDrop::Summarize if count(&[Position::Shortened]) >= cap => Capacity::None,
        QueueDrop::Summarize => at(&[Position::Shortenable]).map_or(Capacity::None, Capacity::Shorten),
    }
}

#[cfg(test)]
mod tests {
    use Position::{Alone, InFlight, Shortenable, Shortened};
    use QueueDrop::{New, Old, Summarize};

    use super::*;

    #[test]
    fn the_oldest_that_may_give_way_does_and_what_is_in_flight_never() {
        for (name, waiting, drop, expected) in [
            ("nobody waits", vec![], New, Capacity::Free),
            ("one of two", vec![Shortenable], New, Capacity::Free),
            ("what is in flight takes no room", vec![InFlight, InFlight, Shortenable], New, Capacity::Free),
            ("lines take no room", vec![Shortened, Shortened, Shortenable], Summarize, Capacity::Free),
            ("full, and the new one gives way", vec![Shortenable, Alone], New, Capacity::None),
            ("full, and the oldest gives way", vec![Alone, Shortenable], Old, Capacity::End(0)),
            ("full, and the oldest is in flight", vec![InFlight, Shortenable, Alone], Old, Capacity::End(1)),
            ("full, and the oldest is shortened", vec![Shortenable, Shortenable], Summarize, Capacity::Shorten(0)),
            ("full, and the oldest cannot be", vec![Alone, Shortenable], Summarize, Capacity::Shorten(1)),
            ("full, and none can be", vec![Alone, Alone], Summarize, Capacity::None),
            (
                "behind lines and what is in flight",
                vec![InFlight, Shortened, Shortenable, Alone],
                Summarize,
                Capacity::Shorten(2),
            ),
            (
                "the digest is full as well",
                vec![Shortened, Shortened, Shortenable, Shortenable],
                Summarize,
                Capacity::None,
            ),
        ] {
            assert_eq!(room(&waiting, 2, drop), expected, "{name}");
        }
    }
}
