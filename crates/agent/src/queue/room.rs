//! Whether one more message may wait, and which one gives way if not.

use belay_protocol::QueueDrop;

/// A message that waits, as far as room for another one is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It waits, and may become a line of a digest for the turn that answers the new one.
    Shortenable,
    /// It waits, and must be answered by a turn of its own: it comes from another place or person, or asks for more than
    /// words.
    Alone,
    /// It is such a line already.
    Shortened,
    /// A turn has it in hand: never a victim.
    InFlight,
}

/// What a new message finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room.
    Free,
    /// There is room once this one has become a line of a digest.
    Shorten(usize),
    /// There is room once this one has ended.
    End(usize),
    /// There is none: the new one is answered "busy".
    None,
}

/// What a new message finds among those that wait, oldest first. As many may be shortened as may wait: the digest, too, has
/// an end.
pub(crate) fn room(waiting: &[Waits], cap: usize, drop: QueueDrop) -> Room {
    let at = |wanted: &[Waits]| waiting.iter().position(|waits| wanted.contains(waits));
    let count = |wanted: &[Waits]| waiting.iter().filter(|waits| wanted.contains(waits)).count();
    if count(&[Waits::Shortenable, Waits::Alone]) < cap {
        return Room::Free;
    }
    match drop {
        QueueDrop::New => Room::None,
        QueueDrop::Old => at(&[Waits::Shortenable, Waits::Alone]).map_or(Room::None, Room::End),
        QueueDrop::Summarize if count(&[Waits::Shortened]) >= cap => Room::None,
        QueueDrop::Summarize => at(&[Waits::Shortenable]).map_or(Room::None, Room::Shorten),
    }
}

#[cfg(test)]
mod tests {
    use QueueDrop::{New, Old, Summarize};
    use Waits::{Alone, InFlight, Shortenable, Shortened};

    use super::*;

    #[test]
    fn the_oldest_that_may_give_way_does_and_what_is_in_flight_never() {
        for (name, waiting, drop, expected) in [
            ("nobody waits", vec![], New, Room::Free),
            ("one of two", vec![Shortenable], New, Room::Free),
            ("what is in flight takes no room", vec![InFlight, InFlight, Shortenable], New, Room::Free),
            ("lines take no room", vec![Shortened, Shortened, Shortenable], Summarize, Room::Free),
            ("full, and the new one gives way", vec![Shortenable, Alone], New, Room::None),
            ("full, and the oldest gives way", vec![Alone, Shortenable], Old, Room::End(0)),
            ("full, and the oldest is in flight", vec![InFlight, Shortenable, Alone], Old, Room::End(1)),
            ("full, and the oldest is shortened", vec![Shortenable, Shortenable], Summarize, Room::Shorten(0)),
            ("full, and the oldest cannot be", vec![Alone, Shortenable], Summarize, Room::Shorten(1)),
            ("full, and none can be", vec![Alone, Alone], Summarize, Room::None),
            (
                "behind lines and what is in flight",
                vec![InFlight, Shortened, Shortenable, Alone],
                Summarize,
                Room::Shorten(2),
            ),
            ("the digest is full as well", vec![Shortened, Shortened, Shortenable, Shortenable], Summarize, Room::None),
        ] {
            assert_eq!(room(&waiting, 2, drop), expected, "{name}");
        }
    }
}
