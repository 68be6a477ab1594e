//! When a person has to log in.

use std::sync::Arc;

use belay_protocol::Secret;
use tracing::{info, warn};

use super::challenge::Challenge;
use super::login::{Login, now};
use super::trouble::LoginTrouble;
use crate::mcp::untrusted::line;

/// Most reasons that are told between two logins: a server names as many scopes as it likes.
const MAX_TOLD: usize = 32;

/// Why a person has to log in.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub(super) why: String,
    pub(super) until: Until,
}

/// The end of the need of a login. A login always ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Nothing else: the server asks for more rights, or somebody has logged out.
    Login,
    /// A request whose token the server takes.
    Request,
    /// A renewal. A request tells nothing if its token is about to expire.
    Renewal,
}

impl Login {
    /// Takes note that the server has refused a request with this token, or without one. Returns the token with which to repeat
    /// the request, once.
    ///
    /// # Errors
    /// A person has to log in, or the token cannot be renewed now.
    ///
    /// # Cancel safety
    /// As for [`Self::token`].
    pub(in crate::mcp) async fn refused(
        self: &Arc<Self>,
        used: Option<Secret>,
        header: &str,
    ) -> Result<Secret, LoginTrouble> {
        let challenge = Challenge::read(header);
        let lacks = challenge.wants_scope().then(|| lacks(&challenge));
        self.state().challenge = Some(challenge);
        match (lacks, used) {
            (Some(lacks), _) => Err(self.need(lacks, Until::Login)),
            (None, None) => Err(self.need("nobody has logged in".into(), Until::Request)),
            (None, Some(used)) => self.renewed(used).await,
        }
    }

    /// Takes note that the server has also refused the token that [`Self::refused`] has returned.
    pub(in crate::mcp) fn refused_again(&self, header: &str) -> LoginTrouble {
        let challenge = Challenge::read(header);
        let (why, until) = match challenge.wants_scope() {
            true => (lacks(&challenge), Until::Login),
            false => ("the server does not take its tokens".into(), Until::Request),
        };
        self.state().challenge = Some(challenge);
        self.need(why, until)
    }

    /// Takes note that the server has taken a request with a token of this login.
    pub(in crate::mcp) fn worked(&self) {
        let is_fresh = matches!(&self.state().kept, Some(Some(kept)) if !kept.is_stale(now()));
        self.need_no_more(|until| until == Until::Request || (until == Until::Renewal && is_fresh));
    }

    /// Takes note that nobody has to log in any more, if this ends the need.
    pub(super) fn need_no_more(&self, ends: impl Fn(Until) -> bool) {
        let ended = self.state().needed.take_if(|need| ends(need.until));
        if let Some(Need { why, .. }) = ended {
            info!(server = self.server, detail = why, "an mcp server needs no login any more");
            self.news.tell(&self.server, None);
        }
    }

    /// Takes note that a person has to log in, and tells it once for each reason.
    pub(super) fn need(&self, why: String, until: Until) -> LoginTrouble {
        let (is_other, is_new) = {
            let mut state = self.state();
            let before = state.needed.replace(Need { why: why.clone(), until });
            let is_new = state.told.len() < MAX_TOLD && state.told.insert(why.clone());
            (before.is_none_or(|before| before.why != why), is_new)
        };
        if is_new {
            warn!(server = self.server, detail = why, "needs login: belay mcp login {}", self.server);
        }
        if is_new || is_other {
            self.news.tell(&self.server, Some((&why, is_new)));
        }
        LoginTrouble::Needed { server: self.server.clone(), why }
    }
}

fn lacks(challenge: &Challenge) -> String {
    format!("the server asks for more rights: {}", line(&challenge.scopes.join(" "), 200))
}
