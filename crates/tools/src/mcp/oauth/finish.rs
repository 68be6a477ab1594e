//! Completes a login, and ends it.

use std::sync::Arc;

use belay_protocol::{EndedLogin, LoginRefusal, LoginReport};
use tracing::info;
use url::Url;

use super::kept::Kept;
use super::login::{Login, now};
use super::needs::Until;
use super::pending::Answer;
use super::tokens::{NotGranted, ask, post, told};
use super::trouble::{failed, refused};

impl Login {
    /// Completes a login.
    pub(super) async fn finish(&self, answer: &str) -> Result<LoginReport, LoginRefusal> {
        let answer = Answer::read(answer)?;
        let no_login = || {
            let server = &self.server;
            refused(format!("this answer is of no login that waits: run `belay mcp login {server}` again"))
        };
        if !self.state().pending.as_ref().is_some_and(|pending| pending.is_of(&answer)) {
            return Err(no_login());
        }
        // The code is good once: it is used when its tokens have a place.
        let _one = self.changing.lock().await;
        let _file = self.file.lock().await.map_err(failed)?;
        self.file.check_place().await.map_err(failed)?;
        // An answer of something else does not end the login that waits.
        let pending = self.state().pending.take_if(|pending| pending.is_of(&answer));
        let pending = pending.ok_or_else(no_login)?;
        let code = pending.code(answer)?;
        let (origin, verifier) = (&pending.origin, &pending.verifier);
        let fields: [(&str, &str); 5] = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("code_verifier", verifier.expose()),
            ("redirect_uri", &pending.redirect_uri),
            ("resource", &origin.resource),
        ];
        let hidden = [code.expose(), verifier.expose()];
        let granted = ask(&origin.token_endpoint, &origin.client, &fields, &hidden).await;
        let granted = granted.map_err(|error| match error {
            NotGranted::Refused(words) | NotGranted::NoClient(words) => {
                failed(format!("its authorization server does not take the code: {words}"))
            }
            NotGranted::Unavailable { why, .. } => failed(format!("the code was not exchanged: {why}")),
        })?;
        let kept = Kept::new(pending.origin, granted, now());
        if let Err(why) = self.file.write(&kept).await {
            // Nobody would know of the tokens.
            return Err(failed(match revoke(&kept).await {
                Ok(()) => format!("{why}; the new tokens are revoked"),
                Err(left) => format!("{why}; the new tokens are not revoked: {left}"),
            }));
        }
        {
            let mut state = self.state();
            (state.kept, state.is_unsaved, state.is_lost) = (Some(Some(Arc::new(kept))), false, false);
            (state.needed, state.challenge) = (None, None);
            state.told.clear();
        }
        info!(server = self.server, "logged in at an mcp server");
        self.news.tell(&self.server, None);
        Ok(self.report().await)
    }

    /// Ends the login.
    pub(super) async fn end(&self) -> Result<EndedLogin, LoginRefusal> {
        let _one = self.changing.lock().await;
        let _file = self.file.lock().await.map_err(failed)?;
        // The tokens of the file may have been replaced. A file that cannot be read is deleted too.
        let is_unsaved = self.state().is_unsaved;
        let kept = if is_unsaved { self.kept().await } else { self.read().await }.unwrap_or_default();
        let revoked = match &kept {
            Some(kept) => revoke(kept).await,
            None => Err(String::new()),
        };
        self.file.remove().await.map_err(failed)?;
        {
            let mut state = self.state();
            (state.kept, state.is_unsaved, state.pending) = (Some(None), false, None);
        }
        if kept.is_some() {
            self.need("it was logged out".into(), Until::Login);
        }
        let (ended, is_revoked) = (kept.is_some(), revoked.is_ok());
        Ok(EndedLogin {
            server: self.server.clone(),
            ended,
            revoked: is_revoked,
            detail: revoked.err().unwrap_or_default(),
        })
    }
}

/// Revokes the refresh token, with which the access tokens end, or else the access token.
///
/// Source: RFC 7009.
async fn revoke(kept: &Kept) -> Result<(), String> {
    let Some(endpoint) = kept.revocation_endpoint.as_deref().and_then(|url| Url::parse(url).ok()) else {
        return Err("its authorization server cannot revoke tokens".into());
    };
    let (token, hint) = match &kept.refresh {
        Some(refresh) => (refresh, "refresh_token"),
        None => (&kept.access, "access_token"),
    };
    let fields = [("token", token.expose()), ("token_type_hint", hint)];
    let answer = post(&endpoint, &kept.client, &fields).await.map_err(|none| none.why)?;
    if answer.status.is_success() {
        return Ok(());
    }
    let words = told(&answer.object().unwrap_or_default(), &kept.client, &[token.expose()]);
    Err(format!("its authorization server answers {}", words.unwrap_or_else(|| answer.status.to_string())))
}
