//! A digest of 64 bits. It is the same on every machine and in every version, because digests are stored with the run.
//!
//! It compares a few hundred values of one run. An accidental collision among them is about as likely as a flipped bit
//! in memory. It does not resist an attacker who searches for collisions, and does not need to: an attacker who chooses
//! the calls can vary them instead.

/// Odd constants with well mixed bits: the fractional parts of the square roots of 2 and 3.
const MIX: [u64; 2] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];

/// A digest that is being computed.
#[derive(Clone, Copy)]
pub(super) struct Digest(u64);

impl Digest {
    /// Begins a digest. Different seeds give unrelated digests of the same data.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed ^ MIX[1])
    }

    /// Adds a number.
    pub(super) fn word(&mut self, word: u64) {
        self.0 = fold(self.0 ^ MIX[0], word ^ MIX[1]).wrapping_add(word);
    }

    /// Adds a text and its length. The length keeps two different sequences of texts from giving the same bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.word(u64::from_le_bytes(*chunk));
        }
        // A loop over at most seven bytes is faster than a copy of unknown length.
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        // The rest has at most seven bytes, so the length fits into the eighth.
        self.word(last ^ (bytes.len() as u64).rotate_left(56));
    }

    /// Returns the digest.
    pub(super) fn finish(self) -> u64 {
        fold(self.0 ^ MIX[1], MIX[0])
    }
}

/// The digest of one text.
pub(super) fn of(bytes: &[u8]) -> u64 {
    let mut digest = Digest::new(0);
    digest.bytes(bytes);
    digest.finish()
}

/// The digest of two numbers in order.
pub(super) fn pair(first: u64, second: u64) -> u64 {
    let mut digest = Digest::new(1);
    digest.word(first);
    digest.word(second);
    digest.finish()
}

/// 32 bits of a digest, never 0, because 0 means "none".
pub(super) fn short(digest: u64) -> u32 {
    ((digest ^ (digest >> 32)) as u32).max(1)
}

/// Multiplies to 128 bits and combines the halves by XOR, as wyhash does.
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn digests_differ_for_texts_that_differ_in_a_little() {
        let mut seen = HashSet::new();
        for n in 0..20_000u32 {
            assert!(seen.insert(of(format!("item {n}").as_bytes())));
        }
        for text in ["", "\0", "\0\0", "a", "a\0", "abcdefgh", "abcdefgh\0"] {
            assert!(seen.insert(of(text.as_bytes())), "{text:?}");
        }
        assert_ne!(pair(1, 2), pair(2, 1));
    }

    #[test]
    fn a_stored_digest_means_the_same_in_a_later_version() {
        assert_eq!((of(b"read_file"), pair(1, 2)), (4_509_367_637_675_166_391, 7_998_591_230_213_130_028));
    }
}
