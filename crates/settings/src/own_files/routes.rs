//! Resolves paths, and checks whether a directory reaches them: by name, by device and inode, and by hard links.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links on one path. Source: path_resolution(7).
const MAX_LINKS: usize = 40;

/// Most entries of a workspace that are checked for a hard link to one of Belay's files.
const MAX_SCANNED: usize = 100_000;

/// Device and inode, which identify a directory or file under any name.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// A resolved path, with the links on its way: a person who can replace one of them controls the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    end: PathBuf,
    /// The links on the way, each with the real path of its directory.
    links: Vec<PathBuf>,
}

impl Route {
    /// Resolves a path. Missing parts stay as written.
    pub(super) fn of(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut rest: Vec<Vec<u8>> = parts(&absolute);
        let (mut end, mut links) = (PathBuf::from("/"), Vec::new());
        while let Some(part) = rest.pop() {
            if part == b".." {
                end.pop();
                continue;
            }
            let next = end.join(OsStr::from_bytes(&part));
            match std::fs::read_link(&next) {
                Ok(target) if links.len() < MAX_LINKS => {
                    links.push(next);
                    if target.is_absolute() {
                        end = PathBuf::from("/");
                    }
                    rest.append(&mut parts(&target));
                }
                _ => end = next,
            }
        }
        Self { end, links }
    }

    /// The target, without links.
    pub(super) fn end(&self) -> &Path {
        &self.end
    }
}

/// The components of a path in reverse order, without the root and `.`.
fn parts(path: &Path) -> Vec<Vec<u8>> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.as_bytes().to_vec()),
        Component::ParentDir => Some(b"..".to_vec()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let mut parts: Vec<_> = path.components().filter_map(part).collect();
    parts.reverse();
    parts
}

/// A directory that tools can reach, with the mounts in it.
#[derive(Debug)]
pub(super) struct Area {
    path: PathBuf,
    /// The directory itself, and the roots of the mounts in it.
    roots: HashSet<Identity>,
}

impl Area {
    pub(super) fn of(path: &Path) -> Self {
        let path = Route::of(path).end;
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let inside = mount_points(&mounts).filter(|mount| mount.starts_with(&path));
        let roots = std::iter::once(path.clone()).chain(inside).filter_map(|root| identity(&root)).collect();
        Self { path, roots }
    }

    /// Its path, without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path is in it, goes through a link in it, or is a hard link to a file in it.
    pub(super) fn reaches(&self, route: &Route) -> bool {
        let holds = |path: &Path| path.starts_with(&self.path) || path.ancestors().any(|above| self.is_root(above));
        holds(&route.end)
            || route.links.iter().filter_map(|link| link.parent()).any(holds)
            || self.has_name_of(&route.end)
    }

    fn is_root(&self, path: &Path) -> bool {
        identity(path).is_some_and(|found| self.roots.contains(&found))
    }

    /// Whether it contains a hard link to that file. Searches only if the file has several links.
    fn has_name_of(&self, file: &Path) -> bool {
        let Ok(found) = std::fs::metadata(file) else { return false };
        if !found.is_file() || found.nlink() < 2 {
            return false;
        }
        let mut rest = vec![self.path.clone()];
        let mut scanned = 0;
        while let Some(directory) = rest.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                scanned += 1;
                if scanned > MAX_SCANNED {
                    let (workspace, file) = (self.path.display(), file.display());
                    tracing::warn!(%workspace, %file, "one of Belay's files has several hard links, and not all of the workspace was searched for one");
                    return false;
                }
                match entry.metadata() {
                    Ok(entry) if (entry.dev(), entry.ino()) == (found.dev(), found.ino()) => return true,
                    Ok(metadata) if metadata.is_dir() => rest.push(entry.path()),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        false
    }
}

/// The mount points of a `mountinfo`. Source: proc(5): the fifth field, with escapes such as `\040` for spaces.
fn mount_points(mounts: &[u8]) -> impl Iterator<Item = PathBuf> {
    let points = mounts.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(|point| PathBuf::from(std::ffi::OsString::from_vec(unescaped(point))))
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_the_kernel_writes_them() {
        let mounts = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            35 22 0:31 /x /srv/a\\040b\\134c rw,relatime - tmpfs tmpfs rw\n\n";
        let points: Vec<_> = mount_points(mounts).collect();
        assert_eq!(points, [Path::new("/"), Path::new("/srv/a b\\c")]);
    }
}
