//! How many mails a person gets.
//!
//! A program that answers each mail, without a mark that says so, would go on for ever. After many answers within an
//! hour, its address gets one in an hour, until Belay has had nothing to refuse for an hour.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Most mails to one address within [`HOUR`]. Beyond that, one.
const MAILS_MAX: usize = 30;

/// The time in which mails are counted.
const HOUR: Duration = Duration::from_secs(3600);

/// The mails of the last hour by address. Only people of the settings get mails, so that it stays small. A start
/// forgets them.
#[derive(Default)]
pub(crate) struct Rate(Mutex<HashMap<String, Sent>>);

#[derive(Default)]
struct Sent {
    at: VecDeque<Instant>,
    refused_at: Option<Instant>,
}

impl Rate {
    /// Whether this address may get a mail now.
    pub(crate) fn admits(&self, address: &str) -> bool {
        let (now, mut all) = (Instant::now(), self.all());
        let sent = all.entry(address.to_owned()).or_default();
        let is_recent = |at: &Instant| now.duration_since(*at) < HOUR;
        while sent.at.front().is_some_and(|at| !is_recent(at)) {
            sent.at.pop_front();
        }
        let is_limited = sent.at.len() >= MAILS_MAX || sent.refused_at.as_ref().is_some_and(is_recent);
        if is_limited && !sent.at.is_empty() {
            sent.refused_at = Some(now);
            return false;
        }
        true
    }

    /// Notes that this address has got a mail.
    pub(crate) fn note(&self, address: &str) {
        self.all().entry(address.to_owned()).or_default().at.push_back(Instant::now());
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(rate: &Rate, address: &str) -> bool {
        let may = rate.admits(address);
        if may {
            rate.note(address);
        }
        may
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_a_limit_an_address_gets_one_mail_in_an_hour() {
        let rate = Rate::default();
        assert_eq!((0..100).filter(|_| sends(&rate, "a@b")).count(), MAILS_MAX);
        assert!(sends(&rate, "c@d"), "others are not limited");
        for _ in 0..5 {
            let mut sent = 0;
            for _ in 0..60 {
                tokio::time::advance(HOUR / 60).await;
                sent += usize::from(sends(&rate, "a@b"));
            }
            assert_eq!(sent, 1, "a loop goes on");
        }
        tokio::time::advance(HOUR * 2).await;
        assert_eq!((0..100).filter(|_| sends(&rate, "a@b")).count(), MAILS_MAX, "it has ended");
    }
}
