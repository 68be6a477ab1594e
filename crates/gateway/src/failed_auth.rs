//! Limits wrong tokens and wrong webhook secrets by address. Only wrong ones are counted and delayed: the right one is
//! admitted, even from an address that is being used for guessing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::ApiError;
use crate::peer::Peer;

/// Number of wrong tokens from one address within [`WINDOW`] after which further wrong ones are delayed for [`LOCK`].
const FAILURES: u32 = 10;

/// How long a wrong token counts.
const WINDOW: Duration = Duration::from_secs(60);

/// How long the wrong tokens of an address are delayed.
const LOCK: Duration = Duration::from_secs(300);

/// The delay. 250 ms: four guesses a second for each connection, and too little for a person to notice.
const LATE: Duration = Duration::from_millis(250);

/// Number of addresses that are remembered. Above it, the address that has been quiet for longest is forgotten.
const ADDRESSES: usize = 4096;

/// Wrong tokens by address. A request without any token is no attempt and does not count.
#[derive(Default)]
pub(crate) struct FailedAuthLimiter(Mutex<HashMap<IpAddr, Attempts>>);

struct Attempts {
    failures: u32,
    /// Time of the first failure.
    since: Instant,
    locked_until: Option<Instant>,
}

impl FailedAuthLimiter {
    /// Counts a wrong token and returns the answer to it: `refusal`, or after too many failures a delayed 429.
    ///
    /// # Cancel safety
    /// The attempt is counted even if this is dropped midway.
    pub(crate) async fn refuse(&self, peer: Option<Peer>, refusal: ApiError) -> ApiError {
        let Some(Peer::Tcp(address)) = peer else { return refusal };
        match self.locked(address) {
            Some(wait) => {
                tokio::time::sleep(LATE).await;
                ApiError::too_many_attempts(wait)
            }
            None => {
                self.failed(address);
                refusal
            }
        }
    }

    /// How long this address has to wait, if it has had too many failures.
    fn locked(&self, address: IpAddr) -> Option<Duration> {
        let table = self.table();
        let until = table.get(&network(address))?.locked_until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    /// Counts a wrong token.
    fn failed(&self, address: IpAddr) {
        let (address, now) = (network(address), Instant::now());
        let mut table = self.table();
        if table.len() >= ADDRESSES && !table.contains_key(&address) {
            table.retain(|_, attempts| !attempts.is_over(now));
            let quietest = table.iter().min_by_key(|(_, attempts)| attempts.since).map(|(address, _)| *address);
            if let Some(quietest) = quietest.filter(|_| table.len() >= ADDRESSES) {
                table.remove(&quietest);
            }
        }
        let attempts = table.entry(address).or_insert(Attempts { failures: 0, since: now, locked_until: None });
        if attempts.is_over(now) {
            *attempts = Attempts { failures: 0, since: now, locked_until: None };
        }
        attempts.failures += 1;
        if attempts.failures >= FAILURES && attempts.locked_until.is_none() {
            attempts.locked_until = Some(now + LOCK);
            tracing::warn!(%address, "too many wrong tokens or secrets; those of the address are answered late for a while");
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<IpAddr, Attempts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    /// Whether these failures no longer count.
    fn is_over(&self, now: Instant) -> bool {
        match self.locked_until {
            Some(until) => until <= now,
            None => self.since + WINDOW <= now,
        }
    }
}

/// The network that is counted as one: an IPv4 address, or the /64 of one IPv6 subscriber.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_wrong_tokens_in_a_minute_lock_an_address_for_five_and_no_other() {
        let failed_auth = FailedAuthLimiter::default();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        for _ in 0..9 {
            failed_auth.failed(one);
        }
        assert_eq!(failed_auth.locked(one), None);
        failed_auth.failed(one);
        assert_eq!((failed_auth.locked(one), failed_auth.locked(other)), (Some(LOCK), None));
        tokio::time::advance(LOCK - Duration::from_secs(1)).await;
        failed_auth.failed(one);
        assert_eq!(failed_auth.locked(one), Some(Duration::from_secs(1)), "attempts while locked change nothing");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(failed_auth.locked(one), None);
        failed_auth.failed(one);
        assert_eq!(failed_auth.locked(one), None, "it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_failures_lock_no_address() {
        let failed_auth = FailedAuthLimiter::default();
        let address = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..50 {
            failed_auth.failed(address);
            tokio::time::advance(Duration::from_secs(7)).await;
        }
        assert_eq!(failed_auth.locked(address), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded_and_a_whole_ipv6_network_is_one_address() {
        let failed_auth = FailedAuthLimiter::default();
        for n in 0..u32::try_from(ADDRESSES).unwrap_or(u32::MAX) + 100 {
            failed_auth.failed(IpAddr::from(n.to_be_bytes()));
        }
        assert_eq!(failed_auth.table().len(), ADDRESSES);
        for n in 0..10 {
            failed_auth.failed(IpAddr::from([0x2001, 0xdb8, 0, 0, n, 0, 0, 1]));
        }
        assert!(failed_auth.locked(IpAddr::from([0x2001, 0xdb8, 0, 0, 0xffff, 0, 0, 2])).is_some());
        assert!(failed_auth.locked(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1])).is_none());
    }
}
