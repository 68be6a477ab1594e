//! Clients for the server of one platform.

use reqwest::ClientBuilder;
use reqwest::redirect::{Action, Attempt, Policy};

/// Redirects of one request that are followed, all on the same host.
const REDIRECTS_MAX: usize = 3;

/// Has a client follow no redirect to another host, which could be one of the inner network, and tell no server the
/// address that it came from, which may contain a token.
pub fn on_one_host(builder: ClientBuilder) -> ClientBuilder {
    builder.referer(false).redirect(Policy::custom(stay_on_host))
}

fn stay_on_host(attempt: Attempt<'_>) -> Action {
    let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if same && attempt.previous().len() <= REDIRECTS_MAX { attempt.follow() } else { attempt.stop() }
}
