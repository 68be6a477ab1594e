//! When a person has to log in.

use std::sync::Arc;

use belay_protocol::Secret;
use tracing::warn;

use super::challenge::Challenge;
use super::login::Login;
use super::trouble::LoginTrouble;
use crate::mcp::untrusted::line;

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
            (Some(lacks), _) => Err(self.need(lacks)),
            (None, None) => Err(self.need("nobody has logged in".into())),
            (None, Some(used)) => self.renewed(used).await,
        }
    }

    /// Takes note that the server has also refused the token that [`Self::refused`] has returned.
    pub(in crate::mcp) fn refused_again(&self, header: &str) -> LoginTrouble {
        let challenge = Challenge::read(header);
        let why =
            if challenge.wants_scope() { lacks(&challenge) } else { "the server does not take its tokens".into() };
        self.state().challenge = Some(challenge);
        self.need(why)
    }

    /// Takes note that a person has to log in, and tells it once for each reason.
    pub(super) fn need(&self, why: String) -> LoginTrouble {
        let is_new = self.state().needed.replace(why.clone()).as_ref() != Some(&why);
        if is_new {
            warn!(server = self.server, why, "needs login: belay mcp login {}", self.server);
            self.news.tell(&self.server, Some(&why));
        }
        LoginTrouble::Needed { server: self.server.clone(), why }
    }
}

fn lacks(challenge: &Challenge) -> String {
    format!("the server asks for more rights: {}", line(&challenge.scopes.join(" "), 200))
}
