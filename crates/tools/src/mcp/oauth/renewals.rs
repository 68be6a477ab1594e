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

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use url::Url;

    use super::*;
    use crate::mcp::config::OauthConfig;
    use crate::mcp::oauth::Login;
    use crate::mcp::oauth::client::Client;
    use crate::mcp::oauth::file::LoginFile;
    use crate::mcp::oauth::kept::{Kept, Origin};
    use crate::mcp::oauth::tokens::Granted;

    /// The address of an authorization server that answers 503, and the number of its requests.
    async fn busy(tasks: &mut JoinSet<()>) -> (Url, Arc<AtomicUsize>) {
        // Another test of this process may have chosen it before.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Relaxed);
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn those_who_wait_share_a_failure_and_nobody_asks_for_one_who_is_gone() {
        let (mut tasks, directory) = (JoinSet::new(), tempfile::tempdir().unwrap());
        let (url, asked) = busy(&mut tasks).await;
        let used = Secret::new("used".into());
        let origin = Origin {
            server: url.clone(),
            resource: url.to_string(),
            issuer: url.to_string(),
            token_endpoint: url.clone(),
            revocation_endpoint: None,
            client: Client { id: "me".into(), secret: None, in_form: false },
            scopes: Vec::new(),
        };
        let refresh = Some(Secret::new("refresh".into()));
        let granted = Granted { access: used.clone(), refresh, lifetime_s: None, scopes: None };
        let file = LoginFile::new(directory.path(), "s");
        file.write(&Kept::new(origin, granted, 0)).await.unwrap();
        let login = Arc::new(Login::new("s", url, (OauthConfig::default(), None), file, Arc::default()));

        let renewed = || login.renewed(used.clone());
        let (one, two, three) = tokio::join!(renewed(), renewed(), renewed());
        assert!(one.is_err() && one == two && two == three, "{one:?} {two:?} {three:?}");
        assert_eq!(asked.load(Relaxed), 1);

        let busy = login.changing.lock().await;
        assert!(timeout(Duration::ZERO, renewed()).await.is_err());
        drop(busy);
        login.settle(Duration::from_secs(300)).await;
        assert_eq!(asked.load(Relaxed), 1);
    }

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
