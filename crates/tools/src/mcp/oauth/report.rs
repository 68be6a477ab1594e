//! A login as people are shown it.

use belay_protocol::{LoginReport, LoginState, UnixMillis};

use super::login::{Login, now};
use super::trouble::LoginTrouble;

impl Login {
    /// The report for people.
    pub(in crate::mcp) async fn report(&self) -> LoginReport {
        let kept = self.kept().await;
        let needed = self.state().needed.clone().map(|need| need.why);
        let (mut scopes, mut expires_at, mut renewable) = (Vec::new(), None, false);
        if let Ok(Some(kept)) = &kept {
            (scopes, renewable) = (kept.scopes.clone(), kept.refresh.is_some());
            expires_at = kept.expires_at_ms.map(UnixMillis);
        }
        let has_ended = !renewable && expires_at.is_some_and(|at| at.0 <= now());
        let (state, detail) = match (kept, needed) {
            (Err(trouble), _) => {
                let (LoginTrouble::Unavailable(why) | LoginTrouble::Needed { why, .. }) = trouble;
                (LoginState::Unreadable, why)
            }
            (_, Some(why)) => (LoginState::Needed, why),
            (Ok(Some(_)), None) if has_ended => (LoginState::Needed, "its login has ended".into()),
            (Ok(Some(_)), None) => (LoginState::LoggedIn, String::new()),
            (Ok(None), None) => (LoginState::None, String::new()),
        };
        LoginReport { server: self.server.clone(), state, scopes, expires_at, renewable, detail }
    }
}
