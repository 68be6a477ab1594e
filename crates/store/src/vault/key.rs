//! The key that encrypts secrets, and its file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, RandomizedNonceKey};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use belay_protocol::StoreError;
use zeroize::Zeroizing;

/// The length of a key, in bytes: AES-256.
pub const KEY_BYTES: usize = 32;

/// The length that encryption adds to a text, in bytes: the tag of GCM.
pub(super) const TAG_BYTES: usize = 16;

/// The error of an unusable key. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key has the wrong length.
    #[error("a key for secrets has {KEY_BYTES} bytes, and this one has {found}")]
    Length {
        /// Its length, in bytes.
        found: usize,
    },
    /// The file has the wrong length: it is truncated, or is another file.
    #[error(
        "the key file {} has {found} bytes instead of {KEY_BYTES}: put the right file back. If there is none, remove \
         this one; a new key is made, and secrets that people gave before must be given again",
        path.display()
    )]
    FileLength {
        /// The file.
        path: PathBuf,
        /// Its length, in bytes.
        found: u64,
    },
    /// Users other than its owner may read the file.
    #[error(
        "the key file {} can be read by others (mode {mode:04o}): run `chmod 600` on it, and give secrets anew if \
         somebody may have read it",
        path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file could not be read or created.
    #[error("the key file {} cannot be used: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The key is not the one of the cluster.
    #[error(
        "the key for secrets is not the one of the other nodes of this cluster: copy the key file (secret.key) or the \
         credential of a node that works to this machine. If that key is lost, stop all nodes, run UPDATE belay_schema \
         SET key_check = NULL in the database, and give all nodes one new key; secrets that people gave before must be \
         given again"
    )]
    OtherThanCluster,
    /// The database could not be asked for the key of the cluster.
    #[error("the key for secrets could not be compared with the one of the cluster: {0}")]
    Unchecked(#[source] StoreError),
    /// The cryptographic library refuses to create a key.
    #[error("the system gives no randomness for a key")]
    NoRandomness,
}

/// The text that the key of links is derived from.
const LINKS: &[u8] = b"belay: key of links to sent files";

/// The text that the key of the check of a cluster is derived from.
const CHECK: &[u8] = b"belay: key of the check of a cluster";

/// A key that encrypts secrets. Debug output omits it, and it is wiped when it is dropped.
pub struct VaultKey {
    cipher: RandomizedNonceKey,
    links: Zeroizing<[u8; KEY_BYTES]>,
    check: hmac::Key,
}

impl VaultKey {
    /// Reads the key file, or creates it if there is none: random bytes, readable by its owner only (0600), on disk
    /// before this returns. Blocks. Call it while the store is open: the lock of the store keeps a second process from
    /// reading a partly written file.
    ///
    /// # Errors
    /// See [`KeyError`]. A file that other users may read is refused.
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        match File::open(path) {
            Ok(file) => read(file, path),
            Err(error) if error.kind() == ErrorKind::NotFound => create(path),
            Err(source) => Err(KeyError::Io { path: path.into(), source }),
        }
    }

    /// A key of these bytes, such as a credential of the service manager.
    ///
    /// # Errors
    /// [`KeyError::Length`] unless there are [`KEY_BYTES`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeyError> {
        if bytes.len() != KEY_BYTES {
            return Err(KeyError::Length { found: bytes.len() });
        }
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, bytes).map_err(|_| KeyError::NoRandomness)?;
        let derive = |text| hmac::sign(&hmac::Key::new(HMAC_SHA256, bytes), text);
        let mut links = Zeroizing::new([0; KEY_BYTES]);
        links.copy_from_slice(derive(LINKS).as_ref());
        Ok(Self { cipher, links, check: hmac::Key::new(HMAC_SHA256, derive(CHECK).as_ref()) })
    }

    /// A random key, for a store in memory.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`]
    pub fn generate() -> Result<Self, KeyError> {
        Self::from_bytes(&random()?[..])
    }

    /// A key that is derived from this one and reveals nothing about it, for signatures of links.
    pub fn for_links(&self) -> &[u8; KEY_BYTES] {
        &self.links
    }

    /// Recognises this key in a cluster, and reveals nothing about it.
    pub(crate) fn check_of(&self, cluster: &[u8]) -> Vec<u8> {
        hmac::sign(&self.check, cluster).as_ref().to_vec()
    }

    pub(super) fn cipher(&self) -> &RandomizedNonceKey {
        &self.cipher
    }
}

impl fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VaultKey(…)")
    }
}

fn read(mut file: File, path: &Path) -> Result<VaultKey, KeyError> {
    let in_file = |source| KeyError::Io { path: path.into(), source };
    // The metadata of the open file, so that the checked file is the one that is read.
    let metadata = file.metadata().map_err(in_file)?;
    refuse_readable(&metadata, path)?;
    if metadata.len() != KEY_BYTES as u64 {
        return Err(KeyError::FileLength { path: path.into(), found: metadata.len() });
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    file.read_exact(&mut bytes[..]).map_err(in_file)?;
    VaultKey::from_bytes(&bytes[..])
}

#[cfg(unix)]
fn refuse_readable(metadata: &std::fs::Metadata, path: &Path) -> Result<(), KeyError> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(KeyError::Readable { path: path.into(), mode }) }
}

#[cfg(not(unix))]
fn refuse_readable(_: &std::fs::Metadata, _: &Path) -> Result<(), KeyError> {
    Ok(())
}

/// The kernel's source of randomness.
///
/// The library's own generator is not used: its first seed takes some 50 ms of processor time at the first start, and a
/// daemon without secrets and TLS needs none.
#[cfg(unix)]
const KERNEL: &str = "/dev/urandom";

#[cfg(unix)]
fn random() -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    let filled = File::open(KERNEL).and_then(|mut kernel| kernel.read_exact(&mut bytes[..]));
    filled.map_err(|_| KeyError::NoRandomness)?;
    Ok(bytes)
}

#[cfg(not(unix))]
fn random() -> Result<Zeroizing<[u8; KEY_BYTES]>, KeyError> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    aws_lc_rs::rand::fill(&mut bytes[..]).map_err(|_| KeyError::NoRandomness)?;
    Ok(bytes)
}

/// Creates the file with a new key. A partly written file is deleted.
fn create(path: &Path) -> Result<VaultKey, KeyError> {
    let bytes = random()?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let in_file = |source| KeyError::Io { path: path.into(), source };
    let mut file = options.open(path).map_err(in_file)?;
    let written = file.write_all(&bytes[..]).and_then(|()| file.sync_all()).and_then(|()| sync_directory(path));
    if let Err(source) = written {
        let _ = std::fs::remove_file(path); // the next start says what is wrong with it
        return Err(in_file(source));
    }
    VaultKey::from_bytes(&bytes[..])
}

/// Synchronises the directory: otherwise a power cut could remove the new name, and secrets that were encrypted since
/// could never be read.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Secret;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret.key");
        (folder, path)
    }

    #[test]
    fn a_key_is_made_once_and_found_again() {
        let (_folder, path) = folder();
        let made = VaultKey::from_file(&path).expect("made");
        let bytes = std::fs::read(&path).expect("readable");
        assert!(bytes.len() == KEY_BYTES && bytes != [0; KEY_BYTES]);
        let record = made.seal(&"s".into(), "n", &Secret::new("hunter2".into())).expect("sealed");
        let found = VaultKey::from_file(&path).expect("found");
        assert_eq!(found.open(&"s".into(), "n", record).expect("opens").expose(), "hunter2");
        assert_eq!(std::fs::read(&path).expect("readable"), bytes);
    }

    #[test]
    fn no_two_keys_are_made_alike() {
        let ((_one, one), (_other, other)) = (folder(), folder());
        VaultKey::from_file(&one).expect("made");
        VaultKey::from_file(&other).expect("made");
        assert_ne!(std::fs::read(one).expect("readable"), std::fs::read(other).expect("readable"));
    }

    #[cfg(unix)]
    #[test]
    fn a_new_key_file_is_private_and_one_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_folder, path) = folder();
        VaultKey::from_file(&path).expect("made");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        for (mode, ok) in [(0o400, true), (0o600, true), (0o640, false), (0o604, false), (0o660, false), (0o644, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
            let outcome = VaultKey::from_file(&path);
            assert_eq!(outcome.is_ok(), ok, "{mode:o}");
            if let Err(error) = outcome {
                let words = error.to_string();
                assert!(words.contains("secret.key") && words.contains("chmod 600"), "{words}");
            }
        }
    }

    #[test]
    fn a_key_of_the_wrong_length_is_refused_and_its_file_left_as_it_is() {
        for length in [0, 1, 31, 33, 64, 100_000] {
            let bytes = vec![7; length];
            let error = VaultKey::from_bytes(&bytes).expect_err("refused");
            assert!(matches!(error, KeyError::Length { found } if found == length), "{error}");

            let (_folder, path) = folder();
            std::fs::write(&path, &bytes).expect("written");
            #[cfg(unix)]
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("changed");
            let words = VaultKey::from_file(&path).expect_err("refused").to_string();
            assert!(words.contains(&format!("{length} bytes instead of 32")) && words.contains("remove"), "{words}");
            assert_eq!(std::fs::read(&path).expect("readable"), bytes);
        }
    }

    #[test]
    fn a_key_file_that_cannot_be_is_named() {
        let (folder, path) = folder();
        for path in [path.join("below/secret.key"), folder.path().to_owned()] {
            let words = VaultKey::from_file(&path).expect_err("refused").to_string();
            assert!(words.contains(&path.display().to_string()), "{words}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = VaultKey::from_bytes(&[65; KEY_BYTES]).expect("of the right length");
        assert_eq!(format!("{key:?}"), "VaultKey(…)");
    }
}
