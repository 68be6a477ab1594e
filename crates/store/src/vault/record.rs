//! The encrypted form of one secret.
//!
//! ```text
//! version (1 byte) | nonce (12) | ciphertext | tag (16)
//! ```
//!
//! The nonce is random for each record. Version, session and name are authenticated with it, so that a record cannot be
//! decrypted under another session or name.

use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use belay_protocol::{Secret, SessionKey, StoreError};
use zeroize::Zeroizing;

use super::key::{TAG_BYTES, VaultKey};

/// The version of the layout above.
const VERSION: u8 = 1;

impl VaultKey {
    /// # Errors
    /// [`StoreError::Unavailable`] if the system gives no randomness.
    pub(super) fn seal(&self, session: &SessionKey, name: &str, secret: &Secret) -> Result<Vec<u8>, StoreError> {
        let plain = secret.expose().as_bytes();
        // Allocated in its final size: growing would leave a copy that is never wiped.
        let mut buffer = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_BYTES));
        buffer.extend_from_slice(plain);
        let location = Aad::from(location(session, name));
        let nonce = self.cipher().seal_in_place_append_tag(location, &mut *buffer).map_err(|_| {
            StoreError::Unavailable("a secret could not be sealed: the system gives no randomness".into())
        })?;
        Ok([&[VERSION][..], nonce.as_ref(), &buffer].concat())
    }

    /// # Errors
    /// [`StoreError::Unavailable`] for anything but a record of this key, session and name.
    pub(super) fn open(&self, session: &SessionKey, name: &str, sealed: Vec<u8>) -> Result<Secret, StoreError> {
        self.opened(session, name, sealed).ok_or_else(|| {
            StoreError::Unavailable(format!(
                "the secret {name:?} cannot be opened: it was sealed with another key, or was changed since"
            ))
        })
    }

    fn opened(&self, session: &SessionKey, name: &str, sealed: Vec<u8>) -> Option<Secret> {
        let mut sealed = Zeroizing::new(sealed); // it is decrypted in place
        let (version, rest) = sealed.split_first_mut()?;
        let (nonce, rest) = (*version == VERSION).then_some(rest)?.split_first_chunk_mut::<NONCE_LEN>()?;
        let location = Aad::from(location(session, name));
        let plain = self.cipher().open_in_place(Nonce::assume_unique_for_key(*nonce), location, rest).ok()?;
        std::str::from_utf8(plain).ok().map(|text| Secret::new(text.to_owned()))
    }
}

/// The authenticated location of a record. The length before the session makes the form unambiguous.
fn location(session: &SessionKey, name: &str) -> Vec<u8> {
    let session = session.as_str().as_bytes();
    [&[VERSION][..], &(session.len() as u64).to_be_bytes(), session, name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> VaultKey {
        VaultKey::from_bytes(&[byte; 32]).expect("of the right length")
    }

    fn sealed(text: &str) -> Vec<u8> {
        key(1).seal(&"s".into(), "n", &Secret::new(text.into())).expect("sealed")
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_with_its_key() {
        for text in ["hunter2", "", "пароль 🗝", &"x".repeat(16 * 1024)] {
            let record = sealed(text);
            assert_eq!(record.len(), 1 + 12 + text.len() + 16);
            assert_eq!(key(1).open(&"s".into(), "n", record).expect("opens").expose(), text);
        }
    }

    #[test]
    fn the_same_secret_is_never_sealed_the_same_way_twice() {
        assert_ne!(sealed("hunter2"), sealed("hunter2"));
    }

    #[test]
    fn a_record_opens_nowhere_else_and_with_no_other_key() {
        for (byte, session, name) in [(2, "s", "n"), (1, "t", "n"), (1, "s", "m"), (1, "sn", ""), (1, "", "sn")] {
            let outcome = key(byte).open(&session.into(), name, sealed("hunter2"));
            let Err(StoreError::Unavailable(words)) = outcome else { panic!("{byte} {session} {name}") };
            assert!(words.contains("another key") && !words.contains("hunter2"), "{words}");
        }
    }

    #[test]
    fn a_record_that_was_changed_anywhere_or_cut_off_does_not_open() {
        let whole = sealed("hunter2");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(key(1).open(&"s".into(), "n", changed).is_err(), "changed at {at}");
            assert!(key(1).open(&"s".into(), "n", whole[..at].to_vec()).is_err(), "cut off at {at}");
        }
    }
}
