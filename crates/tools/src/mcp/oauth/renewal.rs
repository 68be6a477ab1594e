//! Renews the access token of a login, once for all requests that need it.

use std::sync::Arc;

use belay_protocol::Secret;
use tokio::sync::oneshot;
use tracing::{debug, error};
use url::Url;

use super::kept::Kept;
use super::login::{Login, now};
use super::needs::Until;
use super::renewals::Renewal;
use super::tokens::{NotGranted, ask};
use super::trouble::LoginTrouble;

impl Login {
    /// A token that is newer than `used`: one that another request has got meanwhile, or a renewed one.
    ///
    /// # Errors
    /// A person has to log in, or the server cannot be asked now.
    ///
    /// # Cancel safety
    /// If the future is dropped, the renewal goes on: the server may have ended the old refresh token already.
    pub(super) async fn renewed(self: &Arc<Self>, used: Secret) -> Result<Secret, LoginTrouble> {
        self.renewal(used).await
    }

    /// The renewal of this token: one for all that wait for it, also if it fails. Otherwise each of them would send the same
    /// refresh token, one after the other.
    fn renewal(self: &Arc<Self>, used: Secret) -> Renewal {
        let mut renewals = self.lock_renewals();
        while renewals.tasks.try_join_next().is_some() {}
        if let Some(renewal) = renewals.of(&used) {
            return renewal;
        }
        let (sender, renewal) = renewals.begin(used.clone());
        let login = self.clone();
        renewals.tasks.spawn(async move {
            let renewed = login.renew(&used, &sender).await;
            // Without a receiver, the next request takes the token.
            let _ = sender.send(renewed);
        });
        renewal
    }

    async fn renew(
        &self,
        used: &Secret,
        waiting: &oneshot::Sender<Result<Secret, LoginTrouble>>,
    ) -> Result<Secret, LoginTrouble> {
        let _one = self.changing.lock().await;
        let _file = self.file.lock().await.map_err(LoginTrouble::Unavailable)?;
        if waiting.is_closed() {
            return Err(LoginTrouble::Unavailable("nobody waits for the renewal of its login".into()));
        }
        let is_unsaved = self.state().is_unsaved;
        // Another process may have renewed it.
        let kept = if is_unsaved { self.kept().await? } else { self.read().await? };
        let Some(kept) = kept else { return Err(self.need("nobody has logged in".into(), Until::Request)) };
        if kept.access != *used {
            return Ok(kept.access.clone());
        }
        let Some(refresh) = &kept.refresh else { return Err(self.need_again()) };
        if is_unsaved {
            // A new refresh token is not used before it is on disk.
            self.file.write(&kept).await.map_err(LoginTrouble::Unavailable)?;
            self.state().is_unsaved = false;
        }
        let endpoint = Url::parse(&kept.token_endpoint);
        let endpoint = endpoint.map_err(|_| LoginTrouble::Unavailable("its login has no token endpoint".into()))?;
        let fields =
            [("grant_type", "refresh_token"), ("refresh_token", refresh.expose()), ("resource", &kept.resource)];
        let hidden = [refresh.expose(), used.expose()];
        match ask(&endpoint, &kept.client, &fields, &hidden).await {
            Ok(granted) => {
                debug!(server = self.server, "the login at an mcp server is renewed");
                self.state().is_lost = false;
                self.need_no_more(|until| until == Until::Renewal);
                let renewed = (*kept).clone().renewed(granted, now());
                let token = renewed.access.clone();
                self.keep(renewed).await;
                Ok(token)
            }
            Err(NotGranted::Refused(words)) => {
                let was_lost = std::mem::take(&mut self.state().is_lost);
                let lost = if was_lost { "; the answer to the renewal before was lost" } else { "" };
                self.keep((*kept).clone().ended()).await;
                Err(self
                    .need(format!("its authorization server renews the login no more: {words}{lost}"), Until::Renewal))
            }
            // The refresh token stays: the server may know the client again.
            Err(NotGranted::NoClient(words)) => {
                Err(self.need(format!("its authorization server refuses the client: {words}"), Until::Renewal))
            }
            Err(NotGranted::Unavailable { why, may_be_lost }) => {
                self.state().is_lost |= may_be_lost;
                Err(LoginTrouble::Unavailable(format!("it cannot be renewed: {why}")))
            }
        }
    }

    /// The reason that was told before, or that the login has ended.
    fn need_again(&self) -> LoginTrouble {
        let told = self.state().needed.clone().filter(|need| need.until == Until::Renewal);
        self.need(told.map_or_else(|| "its login has ended".into(), |need| need.why), Until::Renewal)
    }

    /// Uses this login from now on, and writes it. If that fails, the next renewal writes it first.
    async fn keep(&self, kept: Kept) {
        {
            let mut state = self.state();
            (state.kept, state.is_unsaved) = (Some(Some(Arc::new(kept.clone()))), true);
        }
        match self.file.write(&kept).await {
            Ok(()) => self.state().is_unsaved = false,
            Err(why) => {
                error!(server = self.server, why, "a renewed login is not on disk; a restart may need a new login")
            }
        }
    }
}
