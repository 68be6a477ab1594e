//! Logins at servers over HTTP, by OAuth 2.1.
//!
//! **For**: a server that refuses requests without a token, and has none in the settings. An operator logs in once; the
//! tokens are in a file of the server, go with each request, and are renewed. A person is needed again only if the
//! authorization server says so.
//!
//! **Does not know**: browsers, and who may log in (the gateway). It opens no page: the command does.
//!
//! The rules that keep tokens where they belong: metadata is bounded, and followed to no other origin; each address is https,
//! or on this machine if the server is; the issuer of the metadata is the one that was asked for, and the answer of the browser
//! names it again; tokens, clients and refreshes are bound to the server's address, its issuer and its resource; one renewal
//! at a time, because the second use of a refresh token ends the login at many servers.
//!
//! Reading order: `trouble`, `address`, `challenge` → `fetch` → `discovery` → `client`, `tokens` → `kept`, `file` → `pending` → `login`, `needs`, `renewals` →
//! `begin`, `finish`, `renewal`, `report` → `logins`.
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization>

mod address;
mod begin;
mod challenge;
mod client;
mod discovery;
mod fetch;
mod file;
mod finish;
mod kept;
mod login;
mod logins;
mod needs;
mod pending;
mod renewal;
mod renewals;
mod report;
mod tokens;
mod trouble;

pub(super) use fetch::challenges;
pub(super) use login::Login;
pub(super) use logins::Logins;
pub(super) use trouble::LoginTrouble;

pub use logins::LoginChange;

/// Whether a header `WWW-Authenticate` says that a token is good, and lacks rights.
pub(super) fn lacks_scope(header: &str) -> bool {
    challenge::Challenge::read(header).wants_scope()
}
