//! Tokens, read and generated.

use serde::{Deserialize, Serialize};

use super::observation::Observation;

/// Counts tokens: what each model call tells, until totals tell better.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub struct Tokens {
    input: u64,
    output: u64,
    /// Totals rule.
    told: bool,
}

impl Tokens {
    /// Takes what was seen.
    pub fn observe(&mut self, seen: &Observation<'_>) {
        match *seen {
            Observation::Usage { input, output } if !self.told => {
                self.input = self.input.saturating_add(input);
                self.output = self.output.saturating_add(output);
            }
            Observation::Totals(totals) => {
                self.told = true;
                self.input = self.input.max(totals.tokens_in);
                self.output = self.output.max(totals.tokens_out);
            }
            _ => {}
        }
    }

    /// Tokens read.
    pub fn input(self) -> u64 {
        self.input
    }

    /// Tokens generated.
    pub fn output(self) -> u64 {
        self.output
    }

    /// Both together.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Totals;

    #[test]
    fn usage_adds_up_until_totals_rule() {
        let totals = Totals { tokens_in: 100, tokens_out: 3, ..Totals::default() };
        let mut tokens = Tokens::default();
        for (seen, counts) in [
            (Observation::Usage { input: 10, output: 2 }, (10, 2, 12)),
            (Observation::Step, (10, 2, 12)),
            (Observation::Usage { input: 20, output: 3 }, (30, 5, 35)),
            (Observation::Totals(&totals), (100, 5, 105)),
            (Observation::Usage { input: 20, output: 3 }, (100, 5, 105)),
        ] {
            tokens.observe(&seen);
            assert_eq!((tokens.input(), tokens.output(), tokens.total()), counts, "{seen:?}");
        }
        let mut full = Tokens { input: u64::MAX, output: 1, told: false };
        full.observe(&Observation::Usage { input: 1, output: 1 });
        assert_eq!(full.total(), u64::MAX);
    }
}
