//! Deliveries whose result is unknown: the effect of a repetition, the key by which a platform recognises it, and the
//! answer of a platform that was asked.

use std::time::Duration;

use crate::ids::OutboxId;
use crate::time::UnixMillis;

/// The effect of sending a message again although the platform may have accepted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// The platform may show it twice. An unknown result is not repeated.
    #[default]
    Ambiguous,
    /// The platform merges it with the first one, which has the same [`OutboxKey`]. An unknown result is repeated, also
    /// after a crash or a restart.
    Harmless {
        /// How long the platform remembers a key. Repetitions begin before that time since the first attempt with an
        /// unknown result. A channel states less than the platform promises: by the deadline of its request, and by the
        /// difference of the clocks.
        for_: Duration,
    },
}

impl Repeat {
    /// Whether a repetition at `now` is harmless. `since`: the beginning of the first attempt whose result is unknown.
    pub fn is_harmless(self, since: UnixMillis, now: UnixMillis) -> bool {
        match self {
            Self::Ambiguous => false,
            Self::Harmless { for_ } => {
                let age = u64::try_from(now.0.saturating_sub(since.0)); // a clock that was set back proves nothing
                age.is_ok_and(|age| Duration::from_millis(age) < for_)
            }
        }
    }
}

/// The answer of a platform to the question whether it has a message, see
/// [`SentMessages::look_up`](crate::SentMessages::look_up).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// It has these pieces, counted from the first one of the message, with those that were known before. The delivery
    /// continues behind them.
    Sent {
        /// The number of pieces.
        pieces: u32,
    },
    /// It has none beyond those that are known, and none can arrive any more. The delivery is repeated.
    NotSent,
    /// Nobody can know.
    Unknown,
    /// The platform could not be asked now. The question is repeated, within the number of attempts of a delivery.
    Later {
        /// The delay that the platform asks for.
        after: Option<Duration>,
        /// The reason, for the log.
        detail: String,
    },
}

/// The key by which a platform recognises a repetition: the same for all attempts of a message, also after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutboxKey(OutboxId);

impl OutboxKey {
    /// The maximum length of [`Self::piece`].
    pub const PIECE_MAX: usize = 43;

    /// The length of [`Self::short`].
    pub const SHORT: usize = 25;

    /// The key of a message.
    pub fn of(id: OutboxId) -> Self {
        Self(id)
    }

    /// The key of a piece, counted from 0: letters, digits and `-`. Where a platform has one memory for requests of
    /// several kinds, the channel appends the kind.
    pub fn piece(self, number: u32) -> String {
        format!("{}-{number}", self.0.as_uuid().simple())
    }

    /// The same in 25 letters and digits, for platforms whose keys are short. Case matters. Pieces that are 238,328
    /// apart share a key.
    pub fn short(self, number: u32) -> String {
        let mut key = String::with_capacity(Self::SHORT);
        push_base_62(&mut key, self.0.as_uuid().as_u128(), 22);
        push_base_62(&mut key, number.into(), 3);
        key
    }
}

/// Appends the last digits of a number to the base of 62.
fn push_base_62(text: &mut String, number: u128, digits: u32) {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for digit in (0..digits).rev() {
        let value = number / 62_u128.pow(digit) % 62;
        text.push(char::from(DIGITS[value as usize]));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_repetition_is_harmless_for_a_time() {
        let harmless = Repeat::Harmless { for_: Duration::from_secs(2) };
        for (repeat, since, now, expected) in [
            (Repeat::Ambiguous, 0, 0, false),
            (harmless, 1_000, 1_000, true),
            (harmless, 1_000, 2_999, true),
            (harmless, 1_000, 3_000, false),
            (harmless, 1_000, 999, false), // a clock that was set back
            (harmless, i64::MIN, i64::MAX, false),
        ] {
            assert_eq!(repeat.is_harmless(UnixMillis(since), UnixMillis(now)), expected, "{repeat:?} {since} {now}");
        }
    }

    #[test]
    fn the_longest_keys_have_their_lengths() {
        let key = OutboxKey::of(OutboxId::from(Uuid::max()));
        assert_eq!(key.piece(u32::MAX), "ffffffffffffffffffffffffffffffff-4294967295");
        assert_eq!(key.piece(u32::MAX).len(), OutboxKey::PIECE_MAX);
        assert_eq!(key.short(1), "7n42DGM5Tflk9n8mt7Fhc7001");
        assert_eq!(key.short(u32::MAX).len(), OutboxKey::SHORT);
    }

    proptest! {
        #[test]
        fn keys_differ_by_message_and_by_piece(ids in prop::collection::hash_set(any::<u128>(), 1..8), pieces in 1_u32..200) {
            let keys = || ids.iter().map(|id| OutboxKey::of(Uuid::from_u128(*id).into()));
            let long: HashSet<_> = keys().flat_map(|key| (0..pieces).map(move |number| key.piece(number))).collect();
            let short: HashSet<_> = keys().flat_map(|key| (0..pieces).map(move |number| key.short(number))).collect();
            prop_assert_eq!((long.len(), short.len()), (ids.len() * pieces as usize, ids.len() * pieces as usize));
            let plain = |key: &String| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            prop_assert!(long.iter().all(plain) && short.iter().all(|key| plain(key) && !key.contains('-')));
        }
    }
}
