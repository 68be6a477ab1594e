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
    /// Whether this address may get a mail now. The mail counts from here on, so that mails that are sent at once are
    /// not more than the limit; one that was not sent is [taken back](Self::take_back).
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
        sent.at.push_back(now);
        true
    }

    /// Takes back the latest admitted mail to this address, which was not sent.
    pub(crate) fn take_back(&self, address: &str) {
        if let Some(sent) = self.all().get_mut(address) {
            sent.at.pop_back();
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn beyond_a_limit_an_address_gets_one_mail_in_an_hour() {
        let rate = Rate::default();
        assert_eq!((0..100).filter(|_| rate.admits("a@b")).count(), MAILS_MAX);
        assert!(rate.admits("c@d"), "others are not limited");
        for _ in 0..5 {
            let mut sent = 0;
            for _ in 0..60 {
                tokio::time::advance(HOUR / 60).await;
                sent += usize::from(rate.admits("a@b"));
            }
            assert_eq!(sent, 1, "a loop goes on");
        }
        tokio::time::advance(HOUR * 2).await;
        assert_eq!((0..100).filter(|_| rate.admits("a@b")).count(), MAILS_MAX, "it has ended");
    }
    #[tokio::test(start_paused = true)]
    async fn mails_that_were_not_sent_do_not_count() {
        let rate = Rate::default();
        for _ in 0..MAILS_MAX * 2 {
            assert!(rate.admits("a@b"));
            rate.take_back("a@b");
        }
        assert_eq!((0..MAILS_MAX * 2).filter(|_| rate.admits("a@b")).count(), MAILS_MAX);
        rate.take_back("c@d");
    }
}
