//! Determines which parts of the machine's file system a command sees.
//!
//! Pure, except that it checks whether a path is a directory. Hidden and shown paths form a list; the deepest path that
//! contains a file decides.

use std::path::{Path, PathBuf};

/// Hidden under every policy: the daemon's settings, and the secrets that systemd provides.
const SECRETS: &[&str] = &["/etc/belay", "/run/credentials"];

/// Hidden except under the policy `full`: files of other users, sockets of services, and files that only root may read
/// (relevant if Belay runs as root).
const PRIVATE: &[&str] = &[
    "/boot",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/home",
    "/media",
    "/mnt",
    "/root",
    "/run",
    "/sys/firmware",
    "/sys/fs",
    "/sys/kernel",
    "/var/backups",
    "/var/log",
    "/var/mail",
    "/var/spool",
];

/// One change to the visible file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// An empty directory replaces a directory.
    Empty(PathBuf),
    /// A device that cannot be opened replaces a file.
    Mask(PathBuf),
    /// The original content, inside a directory that an earlier change has emptied.
    Show(PathBuf),
}

/// The paths that are hidden in every sandbox, in addition to those of the settings. `all`: the policy is `full`.
pub(super) fn hidden<'a>(all: bool) -> impl Iterator<Item = &'a Path> {
    let private = if all { &[] } else { PRIVATE };
    SECRETS.iter().chain(private).map(Path::new)
}

/// The changes that hide and show these paths, in the order in which they must be applied. Skips paths that do not
/// exist or that this user cannot access, because commands cannot access them either.
pub(super) fn changes<'a>(
    hide: impl IntoIterator<Item = &'a Path>,
    show: impl IntoIterator<Item = &'a Path>,
) -> Vec<Change> {
    let hide = hide.into_iter().filter_map(real).map(|path| (path, false));
    let show = show.into_iter().filter_map(real).map(|path| (path, true));
    // If a path is both hidden and shown, it is hidden: the hidden entry comes first, and `dedup` keeps the first.
    let mut wishes: Vec<_> = hide.chain(show).collect();
    wishes.sort();
    wishes.dedup_by(|later, first| later.0 == first.0);
    let mut changes = Vec::new();
    for (path, shown) in &wishes {
        // Parents sort before their children, so the last parent in the list is the nearest.
        let above = wishes.iter().rfind(|(other, _)| other != path && path.starts_with(other));
        let shown_so_far = above.is_none_or(|(_, shown)| *shown);
        match (shown_so_far, shown) {
            (true, true) | (false, false) => {}
            (false, true) => changes.push(Change::Show(path.clone())),
            (true, false) if path.is_dir() => changes.push(Change::Empty(path.clone())),
            (true, false) => changes.push(Change::Mask(path.clone())),
        }
    }
    changes
}

/// Whether these paths hide a file or directory: the deepest one that contains it decides.
pub(super) fn hides<'a>(
    hide: impl IntoIterator<Item = &'a Path>,
    show: impl IntoIterator<Item = &'a Path>,
    path: &Path,
) -> bool {
    let depth = |path: PathBuf| path.components().count();
    let above = |other: &PathBuf| path.starts_with(other);
    let hidden = hide.into_iter().filter_map(real).filter(above).map(depth).max();
    let shown = show.into_iter().filter_map(real).filter(above).map(depth).max();
    hidden.is_some_and(|hidden| shown.is_none_or(|shown| shown <= hidden))
}

/// The path without symbolic links: a mount over a link would be a mount over its target.
fn real(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_deepest_wish_decides() {
        let root = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(root.path()).unwrap();
        for directory in ["home/me/tools/bin", "home/me/data/workspace", "home-of-others", "var"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        std::fs::write(base.join("key"), "secret").unwrap();
        std::os::unix::fs::symlink("var", base.join("link")).unwrap();
        let of = |paths: &[&str]| paths.iter().map(|path| base.join(path)).collect::<Vec<_>>();
        let empty = |path: &str| Change::Empty(base.join(path));
        let shown = |path: &str| Change::Show(base.join(path));
        for (hide, show, expected) in [
            (&["home"][..], &[][..], vec![empty("home")]),
            (&["home", "home/me/data"], &[], vec![empty("home")]),
            (&["home", "home-of-others"], &[], vec![empty("home"), empty("home-of-others")]),
            (&[], &["home"], vec![]),
            (&["home"], &["home/me/tools"], vec![empty("home"), shown("home/me/tools")]),
            (
                &["home", "home/me/data"],
                &["home/me", "home/me/data/workspace"],
                vec![empty("home"), shown("home/me"), empty("home/me/data"), shown("home/me/data/workspace")],
            ),
            (&["home"], &["home"], vec![empty("home")]),
            (&["key"], &[], vec![Change::Mask(base.join("key"))]),
            (&["link"], &[], vec![empty("var")]),
            (&["nowhere"], &["neither"], vec![]),
        ] {
            let (hide, show) = (of(hide), of(show));
            let hidden = |path: &str| {
                hides(hide.iter().map(PathBuf::as_path), show.iter().map(PathBuf::as_path), &base.join(path))
            };
            for change in &expected {
                match change {
                    Change::Empty(path) | Change::Mask(path) => assert!(hidden(path.to_str().unwrap()), "{change:?}"),
                    Change::Show(path) => assert!(!hidden(path.to_str().unwrap()), "{change:?}"),
                }
            }
            let found = changes(hide.iter().map(PathBuf::as_path), show.iter().map(PathBuf::as_path));
            assert_eq!(found, expected, "{hide:?} {show:?}");
        }
    }

    #[test]
    fn with_full_only_the_daemons_own_secrets_are_hidden() {
        let all: Vec<_> = hidden(true).collect();
        assert_eq!(all, [Path::new("/etc/belay"), Path::new("/run/credentials")]);
        let most: Vec<_> = hidden(false).collect();
        assert!(all.iter().chain(&[Path::new("/root"), Path::new("/run")]).all(|path| most.contains(path)));
    }
}
