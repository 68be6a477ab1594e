//! The control socket: a Unix socket for its owner, root and, if configured, the members of a group.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::Group;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::error::GatewayError;
use crate::socket_watch::SocketWatch;

/// Connections that wait in the kernel to be accepted; more are refused.
const BACKLOG: u32 = 128;

/// A group of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// As the settings name it.
    name: String,
    gid: u32,
}

impl ControlGroup {
    /// Looks up the group of `gateway.control_group`, by its name or its number; `None`: the setting is empty.
    ///
    /// # Errors
    /// There is no such group.
    pub fn find(name: &str) -> Result<Option<Self>, GatewayError> {
        let name = name.trim();
        if name.is_empty() {
            return Ok(None);
        }
        let refuse = |what: String| GatewayError::Group { name: name.to_owned(), what };
        let gid = match name.parse() {
            Ok(gid) => gid,
            Err(_) => match Group::from_name(name) {
                Ok(Some(group)) => group.gid.as_raw(),
                Ok(None) => {
                    return Err(refuse(format!(
                        "there is no such group on this machine; `groupadd --system {name}` makes it"
                    )));
                }
                Err(error) => return Err(refuse(format!("the groups of this machine cannot be read: {error}"))),
            },
        };
        Ok(Some(Self { name: name.to_owned(), gid }))
    }

    /// Changes the group of a file, unless it is correct already. With `Group=` in the unit each new file has the
    /// group, and a filter of system calls may forbid changing it.
    fn give(&self, path: &Path) -> Result<(), GatewayError> {
        if std::fs::symlink_metadata(path).is_ok_and(|file| file.gid() == self.gid) {
            return Ok(());
        }
        std::os::unix::fs::chown(path, None, Some(self.gid)).map_err(|error| GatewayError::Group {
            name: self.name.clone(),
            what: format!(
                "the control socket {} cannot be given to it: {error}; the daemon has to be a member itself (Group={} in the \
                 unit)",
                path.display(),
                self.name
            ),
        })
    }

    /// Checks that the group's members can reach a socket: each directory above must be passable for them.
    ///
    /// # Errors
    /// Names a directory that is not.
    pub fn reaches(&self, socket: &Path) -> Result<(), GatewayError> {
        for directory in socket.ancestors().skip(1).filter(|directory| !directory.as_os_str().is_empty()) {
            // A missing directory is made when the daemon starts, which checks again.
            let Ok(found) = std::fs::metadata(directory) else { continue };
            let mode = found.mode();
            if mode & 0o001 == 0 && !(mode & 0o010 != 0 && found.gid() == self.gid) {
                let (socket, directory) = (socket.display(), directory.display());
                let what = format!(
                    "its members cannot reach {socket}, since {directory} is closed to them; as a service, set \
                     RuntimeDirectory=belay and RuntimeDirectoryMode=0755, elsewhere open the directory to the group (chmod 710)"
                );
                return Err(GatewayError::Group { name: self.name.clone(), what });
            }
        }
        Ok(())
    }
}

/// A Unix socket for its owner alone, or also for a group. Dropping it removes its file. If the file is deleted or replaced,
/// the socket is bound again.
pub(crate) struct ControlSocket {
    bound: Bound,
    group: Option<ControlGroup>,
    watch: SocketWatch,
    /// Why the path cannot be bound again, if that was logged.
    failed: Option<String>,
}

impl ControlSocket {
    /// Binds the path for the owner and the group. Replaces a file that a dead daemon left behind.
    pub(crate) fn bind(path: PathBuf, group: Option<&ControlGroup>) -> Result<Self, GatewayError> {
        let bound = Bound::bind(path, group)?;
        let watch = SocketWatch::of(&bound.file.path);
        Ok(Self { bound, group: group.cloned(), watch, failed: None })
    }

    /// Returns the next connection, and whether its user may use the socket. With a group the file permissions admit only
    /// the owner, the group and root, and every peer is an operator: the kernel reports only the first group of a peer, which
    /// may be a member by another one. Cancel safe.
    pub(crate) async fn accept(&mut self) -> std::io::Result<(UnixStream, bool)> {
        loop {
            tokio::select! {
                accepted = self.bound.listener.accept() => {
                    let (stream, _) = accepted?;
                    let trusted = self.group.is_some() || stream.peer_cred().is_ok_and(|peer| is_ours(peer.uid()));
                    return Ok((stream, trusted));
                }
                () = self.watch.changed() => self.renew(),
            }
        }
    }

    /// Binds the path again, unless its file is still that of this socket, or a daemon that lives has it.
    fn renew(&mut self) {
        let path = self.bound.file.path.clone();
        if !self.bound.file.is_own() {
            let bound = make_directory(&path, self.group.is_some())
                .map_err(|source| GatewayError::Socket { path: path.clone(), source })
                .and_then(|()| Bound::bind(path.clone(), self.group.as_ref()));
            match bound {
                Ok(bound) => {
                    (self.bound, self.failed) = (bound, None);
                    tracing::warn!(path = %path.display(), "the file of the control socket was gone; it is bound again");
                }
                Err(error) => {
                    let error = error.to_string();
                    if self.failed.as_ref() != Some(&error) {
                        tracing::error!(
                            error,
                            "the file of the control socket is gone; commands do not reach this daemon"
                        );
                    }
                    self.failed = Some(error);
                }
            }
        }
        self.watch = SocketWatch::of(&path);
    }
}

/// Makes the directory of a socket if it is missing, for its owner alone or so that a group can pass.
fn make_directory(socket: &Path, for_group: bool) -> std::io::Result<()> {
    let Some(directory) = socket.parent().filter(|directory| !directory.exists()) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(if for_group { 0o755 } else { 0o700 }).create(directory)
}

/// A socket and its file.
struct Bound {
    listener: UnixListener,
    file: File,
}

impl Bound {
    fn bind(path: PathBuf, group: Option<&ControlGroup>) -> Result<Self, GatewayError> {
        check_free(&path)?;
        let fail = |source| GatewayError::Socket { path: path.clone(), source };
        // The file gets its name when somebody listens on it, so that no other daemon takes it for one of a dead daemon.
        let unnamed = path.with_file_name(format!(".{}", std::process::id()));
        let _ = std::fs::remove_file(&unnamed); // of a dead daemon with this number, if there is one
        let socket = UnixSocket::new_stream().map_err(fail)?;
        socket.bind(&unnamed).map_err(fail)?;
        let mut file = File::of(&unnamed).map_err(fail)?;
        if let Some(group) = group {
            group.give(&unnamed)?;
            group.reaches(&path)?;
        }
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(mode)).map_err(fail)?;
        // Nobody could connect before this point, so every waiting peer has passed the file permissions.
        let listener = socket.listen(BACKLOG).map_err(fail)?;
        std::fs::rename(&unnamed, &path).map_err(fail)?;
        file.path = path;
        Ok(Self { listener, file })
    }
}

/// The file of a socket. Dropping this removes it, unless another file is in its place.
struct File {
    path: PathBuf,
    /// Device and inode. The system gives no other file this number while the socket lives.
    id: (u64, u64),
}

impl File {
    fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: id_at(path)? })
    }

    fn is_own(&self) -> bool {
        id_at(&self.path).is_ok_and(|id| id == self.id)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.is_own() {
            let _ = std::fs::remove_file(&self.path); // the next start removes a remaining file
        }
    }
}

fn id_at(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Whether a user is the daemon's own user or root.
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Checks that the path has no file, or a socket that nobody answers on.
fn check_free(path: &Path) -> Result<(), GatewayError> {
    let fail = |source| Err(GatewayError::Socket { path: path.to_owned(), source });
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return fail(error),
        Ok(file) if !file.file_type().is_socket() => return fail(Errno::ADDRINUSE.into()),
        Ok(_) => {}
    }
    match connect_at_once(path) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        // A daemon lives, although its queue may be full.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => Err(GatewayError::SocketInUse(path.to_owned())),
        Err(error) => fail(error.into()),
    }
}

/// Tries to connect, without waiting for a place in the queue of the other side.
fn connect_at_once(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_group_is_named_or_numbered_and_one_that_does_not_exist_is_refused() {
        let gid = |name| ControlGroup::find(name).unwrap().map(|group| group.gid);
        assert_eq!((gid(""), gid("  "), gid("root"), gid("4711")), (None, None, Some(0), Some(4711)));
        let refused = ControlGroup::find("no-such-group").unwrap_err().to_string();
        assert!(refused.contains("gateway.control_group: no-such-group") && refused.contains("groupadd"), "{refused}");
    }

    #[tokio::test]
    async fn a_socket_takes_its_name_when_somebody_listens_and_only_from_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        std::fs::write(&path, "a note").unwrap();
        assert!(matches!(Bound::bind(path.clone(), None), Err(GatewayError::Socket { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a note");
        std::fs::remove_file(&path).unwrap();

        drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // of a daemon that was killed
        let living = Bound::bind(path.clone(), None).unwrap();
        connect_at_once(&path).unwrap();
        assert!(matches!(Bound::bind(path.clone(), None), Err(GatewayError::SocketInUse(_))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no file without a name stays");
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_members_cannot_pass_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, group) = (dir.path().join("run"), ControlGroup { name: "ops".into(), gid: 4711 });
        std::fs::create_dir(&inner).unwrap();
        let chmod = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        for (mode, reached) in [(0o755, true), (0o711, true), (0o710, false), (0o700, false)] {
            chmod(dir.path(), 0o755);
            chmod(&inner, mode);
            assert_eq!(group.reaches(&inner.join("control.sock")).is_ok(), reached, "{mode:o}");
        }
        chmod(&inner, 0o755);
        chmod(dir.path(), 0o700);
        let refused = group.reaches(&inner.join("control.sock")).unwrap_err().to_string();
        assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
    }
}
