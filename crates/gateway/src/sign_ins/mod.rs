//! The sign-in of browsers: a secret in a cookie, whose digest is stored. Reading order: [`cookie`] → `links` → `kept`.

pub(crate) mod cookie;
mod kept;
mod links;

pub(crate) use kept::{SignIns, SignedIn, VALID_MS};

use uuid::Uuid;

/// The context string of the digests of secrets of cookies and links.
const DIGEST: &str = "Belay: a sign-in at the console, 1";

/// A secret of 244 random bits, for a cookie or a link.
fn random_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// The digest of such a secret, in hexadecimal digits. `tls`: whether it belongs to the cookie over TLS. The secret of one
/// cookie is of no use in the other.
fn digest(secret: &str, tls: bool) -> String {
    blake3::Hasher::new_derive_key(DIGEST)
        .update(&[u8::from(tls)])
        .update(secret.as_bytes())
        .finalize()
        .to_hex()
        .to_string()
}
