//! The renewals in progress: one for each token, shared by all requests that need it.

use belay_protocol::Secret;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::trouble::LoginTrouble;

type Renewed = Result<Secret, LoginTrouble>;

/// The answer to a renewal, for all that wait.
pub(super) type Renewal = Shared<BoxFuture<'static, Renewed>>;

/// The renewals in progress. They go on when their requests are given up: an answer that nobody takes would end the login.
#[derive(Default)]
pub(super) struct Renewals {
    pub(super) tasks: JoinSet<()>,
    /// The newest renewal, with the token that it replaces. It is gone when nobody waits any more.
    newest: Option<(Secret, WeakShared<BoxFuture<'static, Renewed>>)>,
}

impl Renewals {
    /// The renewal of this token that has no answer yet; `None`: there is none, or nobody waits for it.
    pub(super) fn of(&self, used: &Secret) -> Option<Renewal> {
        let (_, renewal) = self.newest.as_ref().filter(|(of, _)| of == used)?;
        renewal.upgrade().filter(|renewal| renewal.peek().is_none())
    }

    /// A new renewal of this token. The sender tells whether somebody still waits.
    pub(super) fn begin(&mut self, used: Secret) -> (oneshot::Sender<Renewed>, Renewal) {
        let (sender, receiver) = oneshot::channel();
        let broken = |_| Err(LoginTrouble::Unavailable("the renewal of its login broke off".into()));
        let renewal = receiver.map(move |renewed| renewed.unwrap_or_else(broken)).boxed().shared();
        self.newest = renewal.downgrade().map(|renewal| (used, renewal));
        (sender, renewal)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_renewal_is_shared_until_its_answer_and_ends_with_those_who_wait() {
        let (used, other) = (Secret::new("used".into()), Secret::new("other".into()));
        let mut renewals = Renewals::default();
        assert!(renewals.of(&used).is_none());
        let (sender, first) = renewals.begin(used.clone());
        let second = renewals.of(&used).unwrap();
        assert!(renewals.of(&other).is_none() && !sender.is_closed());
        let failure = LoginTrouble::Unavailable("it hangs".into());
        sender.send(Err(failure.clone())).unwrap();
        assert_eq!((first.clone().await.err(), second.await.err()), (Some(failure.clone()), Some(failure)));
        // Who comes later asks again.
        assert!(renewals.of(&used).is_none());

        let (sender, first) = renewals.begin(used.clone());
        let second = renewals.of(&used).unwrap();
        drop(first);
        assert!(!sender.is_closed());
        drop(second);
        assert!(sender.is_closed() && renewals.of(&used).is_none());
    }
}
