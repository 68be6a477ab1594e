//! The options before the text of a goal.

use std::fmt::Write as _;

use super::{BAD_BUDGET, GOAL_MAX_ATTEMPTS, GoalBudget};

impl GoalBudget {
    /// The options before the text, and the rest.
    pub(super) fn parse(text: &str) -> Result<(Self, &str), &'static str> {
        let (mut budget, mut rest) = (Self::default(), text.trim());
        // Keyboards of phones make one long dash of two.
        while let Some(option) = rest.strip_prefix("--").or_else(|| rest.strip_prefix('—')) {
            let (name, after) = option.split_once(char::is_whitespace).ok_or(BAD_BUDGET)?;
            let after = after.trim_start();
            let (value, after) = after.split_once(char::is_whitespace).ok_or(BAD_BUDGET)?;
            let whole = || value.parse::<u64>().ok().filter(|number| *number > 0).ok_or(BAD_BUDGET);
            match name {
                "attempts" => {
                    let attempts = u32::try_from(whole()?).ok().filter(|number| *number <= GOAL_MAX_ATTEMPTS);
                    budget.attempts = Some(attempts.ok_or(BAD_BUDGET)?);
                }
                "usd" => budget.micro_usd = Some(micro_usd(value).ok_or(BAD_BUDGET)?),
                "seconds" => budget.seconds = Some(whole()?),
                "minutes" => budget.seconds = Some(whole()?.checked_mul(60).ok_or(BAD_BUDGET)?),
                _ => return Err(BAD_BUDGET),
            }
            rest = after.trim_start();
        }
        Ok((budget, rest))
    }

    pub(super) fn written(&self) -> String {
        let mut text = String::new();
        if let Some(attempts) = self.attempts {
            let _ = write!(text, "--attempts {attempts} ");
        }
        if let Some(micro) = self.micro_usd {
            let _ = write!(text, "--usd {}.{:06} ", micro / 1_000_000, micro % 1_000_000);
        }
        if let Some(seconds) = self.seconds {
            let _ = write!(text, "--seconds {seconds} ");
        }
        text
    }
}

/// Millionths of a dollar; `None`: this is no amount above 0.
fn micro_usd(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let number = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() };
    let micro = number(whole)?.checked_mul(1_000_000)?.checked_add(number(&format!("{part:0<6}"))?)?;
    (micro > 0).then_some(micro)
}
