//! One-time links that sign a browser in.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::{digest, random_secret};

/// How long a link is valid: long enough to copy it to a browser on another machine.
pub(crate) const VALID: Duration = Duration::from_secs(300);

/// The maximum number of valid links. One more replaces the oldest.
const LINKS_MAX: usize = 16;

/// The links that are valid, by the digest of their secret. They do not survive a restart.
#[derive(Default)]
pub(crate) struct Links(Mutex<Vec<(String, Instant)>>);

impl Links {
    /// Makes a link, and returns its secret.
    pub(crate) fn issue(&self) -> String {
        let (secret, now) = (random_secret(), Instant::now());
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|(_, expires)| *expires > now);
        if links.len() >= LINKS_MAX {
            links.remove(0);
        }
        links.push((digest(&secret, false), now + VALID));
        secret
    }

    /// Withdraws all links.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Uses a link. `false`: it has expired, was used, or does not exist.
    pub(crate) fn take(&self, secret: &str) -> bool {
        let (presented, now) = (digest(secret, false), Instant::now());
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(known, _): &(String, Instant)| bool::from(known.as_bytes().ct_eq(presented.as_bytes()));
        let Some(at) = links.iter().position(is_it) else { return false };
        links.remove(at).1 > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_link_is_used_once_within_five_minutes() {
        let links = Links::default();
        let (first, second) = (links.issue(), links.issue());
        assert!(!links.take("") && !links.take(&digest(&first, false)));
        assert!(links.take(&first) && !links.take(&first));
        tokio::time::advance(VALID).await;
        assert!(!links.take(&second));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_link_gives_way_to_a_new_one() {
        let links = Links::default();
        let all: Vec<_> = (0..=LINKS_MAX).map(|_| links.issue()).collect();
        assert!(!links.take(&all[0]));
        assert!(all[1..].iter().all(|link| links.take(link)));
    }
}
