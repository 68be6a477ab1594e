//! The console: its files, and the sign-in of browsers.
//!
//! The pages are clients of the API. A browser shows that it is signed in by a cookie; [`admission`] decides what a
//! request with one may do. Reading order: [`cookie`] → [`sign_ins`] → [`links`] → [`admission`] → [`files`].

pub(crate) mod admission;
pub(crate) mod cookie;
pub(crate) mod files;
pub(crate) mod links;
pub(crate) mod sign_ins;

pub(crate) use sign_ins::{SignIns, SignedIn};

use belay_protocol::SignIn;
use uuid::Uuid;

/// The context string of the digests of secrets of cookies and links.
const DIGEST: &str = "Belay: a sign-in at the console, 1";

/// A secret of 244 random bits, for a cookie or a link.
fn random_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// The digest of such a secret, in hexadecimal digits.
fn digest(secret: &str) -> String {
    blake3::Hasher::new_derive_key(DIGEST).update(secret.as_bytes()).finalize().to_hex().to_string()
}

/// Whether a principal may see and end a sign-in: operators all, others their own.
pub(crate) fn may_see(principal: &belay_protocol::Principal, sign_in: &SignIn) -> bool {
    principal.is_operator() || *principal.id == *sign_in.principal
}
