//! Writes files whole: beside their places first, then all are renamed. Nothing is half-written.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use belay_program::exit::{Exit, Failure};
use belay_program::paths::private_directory;
use secrecy::{ExposeSecret, SecretString};
use tempfile::NamedTempFile;

/// The mode of a new file without secrets. The umask may take rights away.
const OPEN_MODE: u32 = 0o644;

/// The mode of a secret.
const SECRET_MODE: u32 = 0o600;

/// The content of a file to write.
pub(super) enum Content {
    /// A text that others may read. An existing file keeps its mode and its owner.
    Text(String),
    /// A secret, readable by its owner alone. Its directory is made for this user alone.
    Secret(SecretString),
}

/// A file to write.
pub(super) struct NewFile {
    /// Its path.
    pub(super) path: PathBuf,
    /// Its content.
    pub(super) content: Content,
}

/// Writes all files. If one cannot be written, none is changed.
///
/// # Errors
/// What cannot be written (69).
pub(super) fn write(files: &[NewFile]) -> Result<(), Failure> {
    let mut written = Vec::new();
    // Text first: its directory is made for others to read, the directory of secrets below it is not.
    let (texts, secrets): (Vec<_>, Vec<_>) = files.iter().partition(|file| matches!(file.content, Content::Text(_)));
    for file in texts.iter().chain(&secrets) {
        written.push((beside(file).map_err(|error| refused(&file.path, error))?, &file.path));
    }
    // The secrets first, so that no settings name a file that does not exist.
    for (temporary, path) in written.into_iter().rev() {
        temporary.persist(path).map_err(|error| refused(path, error.error))?;
        let directory = path.parent().map(File::open);
        // The rename is done; only a power cut could still lose it.
        let _ = directory.map(|directory| directory.and_then(|directory| directory.sync_all()));
    }
    Ok(())
}

/// Writes a file beside its place.
fn beside(file: &NewFile) -> io::Result<NamedTempFile> {
    let directory = file.path.parent().unwrap_or(Path::new("/"));
    if file.path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
    }
    let (mode, text, end) = match &file.content {
        Content::Text(text) => {
            fs::create_dir_all(directory)?;
            (OPEN_MODE, text.as_str(), "")
        }
        Content::Secret(secret) => {
            private_directory(directory)?;
            (SECRET_MODE, secret.expose_secret(), "\n")
        }
    };
    let permissions = Permissions::from_mode(mode);
    let mut temporary =
        tempfile::Builder::new().prefix(".belay-setup-").permissions(permissions).tempfile_in(directory)?;
    if let (Content::Text(_), Ok(before)) = (&file.content, fs::metadata(&file.path)) {
        temporary.as_file().set_permissions(before.permissions())?;
        let now = temporary.as_file().metadata()?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            fchown(temporary.as_file(), Some(before.uid()), Some(before.gid()))?;
        }
    }
    temporary.write_all(text.as_bytes())?;
    temporary.write_all(end.as_bytes())?;
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

fn refused(path: &Path, error: io::Error) -> Failure {
    let directory = path.parent().unwrap_or(path).display();
    Failure::new(Exit::OutOfReach, format!("{} cannot be written: {error}; nothing was changed", path.display()))
        .next(format!("make {directory} writable for this user, or name another settings file with --config"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(path: PathBuf, text: &str) -> NewFile {
        NewFile { path, content: Content::Text(text.to_owned()) }
    }

    #[test]
    fn secrets_are_private_texts_keep_their_mode_and_nothing_is_left_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, secret) = (dir.path().join("belay.toml"), dir.path().join("secrets/key"));
        fs::write(&settings, "old").unwrap();
        fs::set_permissions(&settings, Permissions::from_mode(0o640)).unwrap();
        let key = NewFile { path: secret.clone(), content: Content::Secret("hush".into()) };
        write(&[key, text(settings.clone(), "new")]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&settings), mode(&secret), mode(secret.parent().unwrap())), (0o640, 0o600, 0o700));
        assert_eq!(fs::read_to_string(&settings).unwrap(), "new");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "hush\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn if_one_file_cannot_be_written_none_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let settings = dir.path().join("belay.toml");
        fs::write(&settings, "old").unwrap();
        fs::create_dir(dir.path().join("taken")).unwrap();
        for bad in ["taken", "belay.toml/key"] {
            let key = NewFile { path: dir.path().join(bad), content: Content::Secret("hush".into()) };
            let failure = write(&[text(settings.clone(), "new"), key]).unwrap_err();
            assert!(failure.what.contains(bad) && failure.what.contains("nothing was changed"), "{failure}");
        }
        assert_eq!(fs::read_to_string(&settings).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
