//! Pseudo-random numbers from a seed.

/// A pseudo-random number generator: SplitMix64. It is good enough for choosing words and positions, and gives the same
/// numbers on every machine.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Makes a generator from a seed, and a text that distinguishes several uses of one seed.
    pub(super) fn new(seed: u64, what: &str) -> Self {
        // FNV-1a: the same on every machine and with every version of the compiler.
        let mixed = what
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(seed ^ mixed)
    }

    /// The next number.
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit` − 1; 0 for a limit of 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.number().checked_rem(limit).unwrap_or(0)
    }

    /// A random item.
    ///
    /// # Panics
    /// If there are no items.
    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Shuffles the items. Every order is equally likely.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_use_others() {
        let draw = |seed, what| {
            let mut random = Random::new(seed, what);
            (0..4).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, "a"), draw(7, "a"));
        assert_ne!(draw(7, "a"), draw(7, "b"));
        assert_ne!(draw(7, "a"), draw(8, "a"));
        assert_eq!(Random::new(1, "").below(0), 0);
    }
}
