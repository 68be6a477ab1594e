//! Both ways of resolving a path give the same results, and neither leads outside of the root.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// Number of times that a path is resolved while names are exchanged.
const ROUNDS: usize = 5_000;

fn stepwise() -> PathResolution {
    PathResolution::Stepwise(Refusal::Filter(Errno::NOSYS.raw_os_error()))
}

fn root(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// The result of a resolution: device and inode of the opened file, or the error.
fn outcome(way: &PathResolution, root: &OwnedFd, path: &str, flags: OFlags) -> Result<(u64, u64), Errno> {
    way.open(root, path, flags).map(|fd| {
        let stat = fstat(&fd).unwrap();
        (stat.st_dev, stat.st_ino)
    })
}

/// The flags with which the workspace opens paths.
const FLAGS: [OFlags; 4] = [
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY),
    OFlags::PATH.union(OFlags::DIRECTORY),
    OFlags::RDONLY.union(OFlags::DIRECTORY),
    OFlags::PATH,
];

fn both_agree(root: &OwnedFd, path: &str) -> Result<(), String> {
    for flags in FLAGS {
        let kernel = outcome(&PathResolution::Kernel, root, path, flags);
        let steps = outcome(&stepwise(), root, path, flags);
        if kernel != steps {
            return Err(format!("{path:?} with {flags:?}: openat2 says {kernel:?}, the walk {steps:?}"));
        }
    }
    Ok(())
}

/// A directory `in` with every kind of path component, and a file and a directory outside of it.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("in");
    fs::create_dir_all(inside.join("a/b/c")).unwrap();
    fs::create_dir_all(dir.path().join("out/a")).unwrap();
    for file in ["in/f", "in/a/f", "in/a/b/f", "out/f", "out/a/f"] {
        fs::write(dir.path().join(file), file).unwrap();
    }
    rustix::fs::mkfifoat(CWD, inside.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    for (target, link) in [
        ("a", "to-a"),
        ("a/", "to-a-slash"),
        ("f", "to-f"),
        ("f/", "to-f-slash"),
        ("..", "up"),
        ("../out", "out"),
        ("../in/a", "out-and-in"),
        ("/etc", "absolute"),
        ("/proc/self/root", "magic"),
        ("nowhere", "dangling"),
        ("itself", "itself"),
        ("b/../../a/./b", "a/around"),
        ("../..", "a/b/to-root"),
        ("../../..", "a/b/to-above"),
        ("../f", "a/b/c/to-f"),
        ("pipe", "to-pipe"),
        (".", "here"),
    ] {
        symlink(target, inside.join(link)).unwrap();
    }
    // 40 links are followed, 41 are not.
    symlink("f", inside.join("link-1")).unwrap();
    for n in 2..=42 {
        symlink(format!("link-{}", n - 1), inside.join(format!("link-{n}"))).unwrap();
    }
    (dir, inside)
}

#[test]
fn a_walk_gives_the_answers_of_the_kernel() {
    let (_dir, inside) = tree();
    let root = root(&inside);
    let long = "x".repeat(256);
    for (path, expected) in [
        (".", Ok(())),
        ("f", Ok(())),
        ("./a//b/./f", Ok(())),
        ("a/..", Ok(())),
        ("a/b/../../f", Ok(())),
        ("f/", Err(Errno::NOTDIR)),
        ("f/.", Err(Errno::NOTDIR)),
        ("f/..", Err(Errno::NOTDIR)),
        ("f/x", Err(Errno::NOTDIR)),
        ("..", Err(Errno::XDEV)),
        ("a/../..", Err(Errno::XDEV)),
        ("../in/f", Err(Errno::XDEV)),
        ("nowhere/..", Err(Errno::NOENT)),
        ("to-a/f", Ok(())),
        ("to-a-slash/b", Ok(())),
        ("to-f", Ok(())),
        ("to-f/", Err(Errno::NOTDIR)),
        ("to-f-slash", Err(Errno::NOTDIR)),
        ("up", Err(Errno::XDEV)),
        ("out/f", Err(Errno::XDEV)),
        ("out-and-in/f", Err(Errno::XDEV)),
        ("absolute/passwd", Err(Errno::XDEV)),
        ("magic/etc", Err(Errno::XDEV)),
        ("dangling", Err(Errno::NOENT)),
        ("itself", Err(Errno::LOOP)),
        ("a/around/c", Ok(())),
        ("a/b/to-root/f", Ok(())),
        ("a/b/to-above", Err(Errno::XDEV)),
        ("a/b/c/to-f", Ok(())),
        ("link-40", Ok(())),
        ("link-41", Err(Errno::LOOP)),
        ("here/here/here/f", Ok(())),
        (&long, Err(Errno::NAMETOOLONG)),
    ] {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        assert_eq!(outcome(&stepwise(), &root, path, flags).map(|_| ()), expected, "{path:?}");
        both_agree(&root, path).unwrap();
    }
    both_agree(&root, "pipe").unwrap();
    both_agree(&root, "to-pipe").unwrap();
}

#[test]
fn a_path_deeper_than_the_open_directories_is_resolved() {
    let (_dir, inside) = tree();
    let root = root(&inside);
    let deep = vec!["d"; 3 * MAX_HELD].join("/");
    fs::create_dir_all(inside.join(&deep)).unwrap();
    let ups = |count| vec![".."; count].join("/");
    for count in [1, MAX_HELD - 1, MAX_HELD, MAX_HELD + 1, 2 * MAX_HELD + 1, 3 * MAX_HELD, 3 * MAX_HELD + 1] {
        let path = format!("{deep}/{}", ups(count));
        both_agree(&root, &path).unwrap();
        let leads_out = outcome(&stepwise(), &root, &path, OFlags::PATH) == Err(Errno::XDEV);
        assert_eq!(leads_out, count > 3 * MAX_HELD);
    }
    both_agree(&root, &format!("{deep}/{}/f", ups(3 * MAX_HELD))).unwrap();
    let rest = vec!["d"; 2 * MAX_HELD].join("/");
    both_agree(&root, &format!("{deep}/{}/{rest}/{}", ups(2 * MAX_HELD), ups(MAX_HELD))).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// For any path over any small tree of directories, files and links, both ways agree.
    #[test]
    fn any_path_over_any_tree_has_one_answer(
        links in prop::collection::vec((component_path(), component_path()), 0..8),
        paths in prop::collection::vec(component_path(), 1..12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        fs::create_dir_all(inside.join("a/b")).unwrap();
        fs::write(inside.join("f"), "").unwrap();
        fs::write(inside.join("a/f"), "").unwrap();
        for (link, target) in links {
            // Fails if the name is taken or its directory does not exist, which is fine.
            let _ = symlink(target, inside.join(link.trim_end_matches('/')));
        }
        let root = root(&inside);
        for path in paths {
            prop_assert_eq!(both_agree(&root, &path), Ok(()));
        }
    }
}

fn component_path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "f", "x", "y", "..", ".", ""]);
    prop::collection::vec(part, 1..6).prop_map(|parts| {
        let path = parts.join("/");
        let path = path.trim_start_matches('/');
        if path.is_empty() { ".".to_owned() } else { path.to_owned() }
    })
}

#[test]
fn while_names_are_swapped_a_walk_never_leaves_the_root() {
    let (dir, inside) = tree();
    let root = root(&inside);
    let outside: Vec<_> = ["out", "out/f", "out/a", "out/a/f", ""]
        .iter()
        .map(|path| fs::metadata(dir.path().join(path)).unwrap().ino())
        .collect();
    let stop = AtomicBool::new(false);
    let swap = |one: &str, other: &str| {
        let (one, other) = (inside.join(one), inside.join(other));
        while !stop.load(Ordering::Relaxed) {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        }
    };
    std::thread::scope(|scope| {
        // Swaps a directory with a link to the outside, a file with a link, and moves a directory out of its parent.
        scope.spawn(|| swap("a", "out"));
        scope.spawn(|| swap("f", "to-f"));
        let mut opened = 0;
        for _ in 0..ROUNDS {
            for path in ["a/f", "a/b/../f", "out/f", "a/b/to-root/a/f", "f", "a/b/c/../../../f"] {
                if let Ok((_, inode)) = outcome(&stepwise(), &root, path, OFlags::RDONLY | OFlags::NONBLOCK) {
                    assert!(!outside.contains(&inode), "{path} led outside");
                    opened += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(opened > 0, "nothing was opened at all");
    });
}

#[test]
fn a_filter_is_distinguished_from_an_old_kernel() {
    let (nosys, perm) = (Errno::NOSYS, Errno::PERM);
    for (errno, release, old) in [
        (nosys, "5.5.19", true),
        (nosys, "4.18.0-553.el8_10.x86_64", true),
        (nosys, "5.6.0", false),
        (nosys, "6.1.0-18-amd64", false),
        (nosys, "5.15-rc1", false),
        (nosys, "strange", false),
        (perm, "5.4.0", false),
        (perm, "6.8.0", false),
    ] {
        let refusal = Refusal::of(errno, release);
        assert_eq!(matches!(refusal, Refusal::OldKernel(_)), old, "{release}: {refusal}");
        let expected = if old { "older than 5.6" } else { "system call filter refuses openat2" };
        assert!(refusal.to_string().contains(expected), "{refusal}");
    }
}

/// A filter that answers `EAGAIN` stands for a machine where something renames without a pause.
#[test]
fn where_the_kernel_never_decides_the_walk_does() {
    let (dir, inside) = tree();
    let root = root(&inside);
    let behind_the_filter = move || {
        let rules = std::collections::BTreeMap::from([(libc::SYS_openat2, Vec::new())]);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let refuse = seccompiler::SeccompAction::Errno(libc::EAGAIN.cast_unsigned());
        let filter = seccompiler::SeccompFilter::new(rules, seccompiler::SeccompAction::Allow, refuse, arch).unwrap();
        seccompiler::apply_filter(&seccompiler::BpfProgram::try_from(filter).unwrap()).unwrap();
        for path in ["a/../f", "a/b/to-root/f", "../out/f", "nowhere"] {
            let steps = outcome(&stepwise(), &root, path, FLAGS[0]);
            assert_eq!(outcome(&PathResolution::Kernel, &root, path, FLAGS[0]), steps, "{path}");
            assert_ne!(steps, Err(Errno::AGAIN), "{path}");
        }
    };
    std::thread::spawn(behind_the_filter).join().unwrap();
    drop(dir);
}
