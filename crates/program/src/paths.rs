//! The paths of settings files, data, and the control socket.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::exit::{Exit, Failure};

/// The machine's settings, read first.
const SYSTEM_SETTINGS: &str = "/etc/belay/belay.toml";

/// The control socket of a daemon that systemd started with `RuntimeDirectory=belay`.
const SYSTEM_CONTROL_SOCKET: &str = "/run/belay/control.sock";

/// Longest path of a Unix socket in bytes: `sun_path` holds 108, one of them the closing zero.
///
/// Source: Linux, unix(7), "Address format".
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// The paths of this user or this service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Settings files that are read if they exist, in ascending priority.
    pub settings: Vec<PathBuf>,
    /// Settings files that the command line names (`--config`).
    pub named: Vec<PathBuf>,
    /// The data directory: `$STATE_DIRECTORY`, else `$XDG_DATA_HOME/belay`, else `~/.local/share/belay`.
    pub data: PathBuf,
    /// The control socket: `$RUNTIME_DIRECTORY/control.sock`, else `control.sock` in `$STATE_DIRECTORY`, else
    /// `$XDG_RUNTIME_DIR/belay/control.sock`, else `control.sock` in the data directory. A path that is too long for a
    /// socket is replaced by a short one: a hash of the path as a private directory in the temporary directory.
    pub control_socket: PathBuf,
}

impl Paths {
    /// Finds the paths.
    ///
    /// # Errors
    /// The environment names no place for data: no state directory and no home. Or the state or runtime directory is a
    /// relative path: without it, a command would go to another daemon.
    pub fn find(env: &Environment) -> Result<Self, Failure> {
        let home = env.directory("HOME");
        let state = first_of(env, "STATE_DIRECTORY")?;
        // The socket of another daemon of the same user may be in its runtime directory.
        let has_own_place = state.is_some();
        let data = state
            .or_else(|| env.directory("XDG_DATA_HOME").map(|dir| dir.join("belay")))
            .or_else(|| home.as_ref().map(|home| home.join(".local/share/belay")))
            .ok_or_else(|| {
                Failure::new(Exit::Refused, "there is no place for data: neither HOME nor XDG_DATA_HOME is set")
                    .next("set XDG_DATA_HOME (or STATE_DIRECTORY, in a service) to a directory that may be written")
            })?;
        let user_settings = env.directory("XDG_CONFIG_HOME").or_else(|| home.map(|home| home.join(".config")));
        let settings = std::iter::once(PathBuf::from(SYSTEM_SETTINGS))
            .chain(user_settings.map(|dir| dir.join("belay/belay.toml")))
            .collect();
        let socket = first_of(env, "RUNTIME_DIRECTORY")?
            .or_else(|| env.directory("XDG_RUNTIME_DIR").filter(|_| !has_own_place).map(|dir| dir.join("belay")))
            .unwrap_or_else(|| data.clone())
            .join("control.sock");
        let temp = env.directory("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        Ok(Self { settings, named: Vec::new(), control_socket: fit_socket(socket, &temp), data })
    }

    /// Adds the settings files of the command line.
    #[must_use]
    pub fn with_named(mut self, files: &[PathBuf]) -> Self {
        self.named = files.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone())).collect();
        self
    }

    /// The history of prompts, unless the settings name another file.
    pub fn history(&self) -> PathBuf {
        self.data.join("history")
    }

    /// The sockets at which a client looks for a daemon, in this order: this user's, then the machine's.
    pub fn client_sockets(&self) -> Vec<PathBuf> {
        let system = PathBuf::from(SYSTEM_CONTROL_SOCKET);
        let mut sockets = vec![self.control_socket.clone()];
        if self.control_socket != system {
            sockets.push(system);
        }
        sockets
    }

    /// Makes the data directory and the directory of the control socket, readable by this user alone.
    ///
    /// # Errors
    /// A directory cannot be made; or the socket's directory belongs to another user, who could then answer in the
    /// daemon's place.
    pub fn make_directories(&self) -> io::Result<()> {
        private_directory(&self.data)?;
        if let Some(dir) = self.control_socket.parent() {
            private_directory(dir)?;
            if std::fs::metadata(dir)?.uid() != std::fs::metadata(&self.data)?.uid() {
                let what = format!("{} belongs to another user", dir.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
        }
        Ok(())
    }
}

/// systemd may give several directories, separated by colons; the first one is used.
fn first_of(env: &Environment, name: &str) -> Result<Option<PathBuf>, Failure> {
    let Some(value) = env.raw(name) else { return Ok(None) };
    let first = value.as_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
    let path = PathBuf::from(OsStr::from_bytes(first));
    if path.is_absolute() {
        return Ok(Some(path));
    }
    let what = format!("{name} must be an absolute path and is `{}`", path.display());
    Err(Failure::new(Exit::Refused, what).next(format!("write for example {name}=\"$PWD/{}\"", path.display())))
}

fn fit_socket(socket: PathBuf, temp: &Path) -> PathBuf {
    if socket.as_os_str().len() <= SOCKET_PATH_MAX_BYTES {
        return socket;
    }
    let hash = blake3::hash(socket.as_os_str().as_bytes()).to_hex();
    temp.join(format!("belay-{}", &hash[..16])).join("control.sock")
}

/// Makes a directory and its ancestors, for this user alone.
pub fn private_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| named(error, path))
}

/// Adds the path to an error: the messages of the operating system do not contain it.
fn named(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn find<const N: usize>(env: [(&str, &str); N]) -> Paths {
        Paths::find(&Environment::from(env)).unwrap()
    }

    #[test]
    fn data_goes_to_the_state_directory_then_xdg_then_home() {
        let home = ("HOME", "/home/u");
        let xdg = ("XDG_DATA_HOME", "/xdg");
        let state = ("STATE_DIRECTORY", "/var/lib/belay:/var/lib/other");
        assert_eq!(find([home]).data, Path::new("/home/u/.local/share/belay"));
        assert_eq!(find([home, xdg]).data, Path::new("/xdg/belay"));
        assert_eq!(find([home, xdg, state]).data, Path::new("/var/lib/belay"));
        assert_eq!(find([home, ("XDG_DATA_HOME", "relative")]).data, Path::new("/home/u/.local/share/belay"));
        assert!(Paths::find(&Environment::default()).is_err());
    }

    #[test]
    fn a_relative_directory_of_the_service_is_refused_by_its_name() {
        for name in ["STATE_DIRECTORY", "RUNTIME_DIRECTORY"] {
            for value in ["copy", "./copy:/var/lib/belay", ":/var/lib/belay"] {
                let refused = Paths::find(&Environment::from([("HOME", "/home/u"), (name, value)])).unwrap_err();
                assert!(refused.exit == Exit::Refused && refused.what.starts_with(name), "{value}: {refused}");
            }
            assert!(Paths::find(&Environment::from([("HOME", "/home/u"), (name, "")])).is_ok());
        }
    }

    #[test]
    fn the_control_socket_goes_to_the_runtime_directory_then_to_the_data() {
        let home = ("HOME", "/home/u");
        let xdg = ("XDG_RUNTIME_DIR", "/run/user/1000");
        let own = ("RUNTIME_DIRECTORY", "/run/belay");
        assert_eq!(find([home]).control_socket, Path::new("/home/u/.local/share/belay/control.sock"));
        assert_eq!(find([home, xdg]).control_socket, Path::new("/run/user/1000/belay/control.sock"));
        assert_eq!(find([home, xdg, own]).control_socket, Path::new("/run/belay/control.sock"));
        assert_eq!(find([home, xdg, own]).client_sockets().len(), 1);
        // Two projects differ by their data directories alone.
        let project = ("STATE_DIRECTORY", "/home/u/project/.belay");
        assert_eq!(find([home, xdg, project]).control_socket, Path::new("/home/u/project/.belay/control.sock"));
        assert_eq!(find([home, xdg, project, own]).control_socket, Path::new("/run/belay/control.sock"));
        assert_eq!(find([home]).client_sockets()[1], Path::new("/run/belay/control.sock"));
    }

    #[test]
    fn a_path_too_long_for_a_socket_becomes_a_short_one_and_always_the_same() {
        let long = format!("/{}", "d".repeat(120));
        let paths = find([("HOME", &long), ("TMPDIR", "/tmp/t")]);
        assert!(paths.control_socket.as_os_str().len() <= SOCKET_PATH_MAX_BYTES, "{paths:?}");
        assert!(paths.control_socket.starts_with("/tmp/t"), "{paths:?}");
        assert_eq!(paths, find([("HOME", &long), ("TMPDIR", "/tmp/t")]));
        assert_ne!(paths.control_socket, find([("HOME", &format!("{long}2")), ("TMPDIR", "/tmp/t")]).control_socket);
    }
}
