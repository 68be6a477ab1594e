//! The port for logins at MCP servers.

use async_trait::async_trait;
use serde::Serialize;

use crate::time::UnixMillis;

/// Logs in to MCP servers by OAuth. Only `belay_tools` knows the protocol. No answer has a token, a code or the secret of a
/// client.
#[async_trait]
pub trait ServerLogins: Send + Sync {
    /// Begins a login, which replaces one that has begun before. `port`: the port of 127.0.0.1 to which the browser is sent
    /// back, unless the settings name another one.
    ///
    /// # Errors
    /// See [`LoginRefusal`].
    ///
    /// # Cancel safety
    /// If the future is dropped, no login has begun. A client may be registered at the authorization server.
    async fn begin(&self, server: &str, port: u16) -> Result<BegunLogin, LoginRefusal>;

    /// Completes a login. `answer`: the address to which the browser was sent back, or its query. The tokens are on disk when
    /// this returns.
    ///
    /// # Errors
    /// See [`LoginRefusal`]. An answer of another login changes nothing; any other one ends the login that has begun.
    ///
    /// # Cancel safety
    /// If the future is dropped, the login may be lost; another one replaces it.
    async fn finish(&self, server: &str, answer: &str) -> Result<LoginReport, LoginRefusal>;

    /// Revokes the tokens at the authorization server, if it offers that, and deletes them.
    ///
    /// # Errors
    /// See [`LoginRefusal`]. A failed revocation is none: the answer says so.
    ///
    /// # Cancel safety
    /// If the future is dropped, the tokens may be revoked and still be on disk. A repetition deletes them.
    async fn end(&self, server: &str) -> Result<EndedLogin, LoginRefusal>;

    /// The logins of all servers that can have one, by name.
    async fn logins(&self) -> Vec<LoginReport>;
}

/// A login that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BegunLogin {
    /// The address to open in a browser.
    pub url: String,
    /// The address to which the browser is sent back: `http://127.0.0.1:PORT/callback`.
    pub redirect_uri: String,
    /// How long the login waits, in seconds.
    pub expires_in_s: u64,
}

/// The state of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoginState {
    /// Nobody has logged in, and the server has not asked for it.
    None,
    /// There are tokens.
    LoggedIn,
    /// A person has to log in; the detail says why.
    Needed,
    /// The file with the tokens cannot be used; the detail says why.
    Unreadable,
}

/// The login at one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoginReport {
    /// Name of the server in the settings.
    pub server: String,
    /// Its state.
    pub state: LoginState,
    /// The granted scopes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// When the access token expires; absent: there is none, or its server does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixMillis>,
    /// Whether the access token is renewed without a person.
    pub renewable: bool,
    /// Why a person has to log in, or why the file cannot be used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A login that was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedLogin {
    /// Name of the server in the settings.
    pub server: String,
    /// Whether there were tokens.
    pub ended: bool,
    /// Whether the authorization server has revoked them.
    pub revoked: bool,
    /// Why they are not revoked; empty if they are, or if there were none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Why a login did not begin, did not succeed, or did not end. The texts are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// There is no such server.
    NoServer(String),
    /// The request does not fit the server, or what has begun.
    Refused(String),
    /// The server, its authorization server, or the person has not let it succeed.
    Failed(String),
}
