//! The files of the workspace that are part of every prompt. They are read when they have changed, and cut to the
//! context budget.

use belay_protocol::{Bootstrap, BootstrapFile, Skipped, Unusable};

use super::config::{ContextConfig, MIN_CHARS};
use super::cut::cut;
use super::read::text;
use crate::workspace::{Stamp, Workspace};

/// Largest file that is read, in bytes. 4 MiB: far more than a prompt contains, so that a long memory file is cut
/// instead of skipped.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The stamps of the files when they were read. If they differ from the current stamps, the files are read again. For
/// an unusable file, the reason replaces the stamp.
pub(super) type Stamps = Vec<Result<Option<Stamp>, Unusable>>;

/// Returns the current stamps of the files, without reading the files. Blocks.
pub(super) fn stamps(workspace: &Workspace, config: &ContextConfig) -> Stamps {
    let stamp = |name: &String| match workspace.stamped(name) {
        Ok(found) => Ok(found.map(|(_, stamp)| stamp)),
        Err(unusable) => Err(unusable),
    };
    config.files.iter().map(stamp).collect()
}

/// Reads the files. Blocks.
pub(super) fn read(workspace: &Workspace, config: &ContextConfig) -> Bootstrap {
    let mut bootstrap = Bootstrap::default();
    let mut budget = config.total_max_chars();
    for name in &config.files {
        match read_one(workspace, name) {
            Ok(Some(whole)) => match fit(name, &whole, config.file_max_chars, budget) {
                Ok(file) => {
                    budget -= file.text.chars().count().min(budget);
                    bootstrap.files.push(file);
                }
                Err(why) => bootstrap.skipped.push(Skipped { what: name.clone(), why, unread: false }),
            },
            Ok(None) => {}
            Err(unusable) => {
                let unread = unusable.is_unread();
                bootstrap.skipped.push(Skipped { what: name.clone(), why: unusable.why, unread });
            }
        }
    }
    bootstrap
}

/// Reads one file; `None` if it does not exist or is blank.
fn read_one(workspace: &Workspace, name: &str) -> Result<Option<String>, Unusable> {
    let Some((file, stamp)) = workspace.stamped(name)? else { return Ok(None) };
    let text = text(file, &stamp, MAX_BYTES)?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn fit(name: &str, text: &str, file_max: usize, budget: usize) -> Result<BootstrapFile, String> {
    let whole_chars = text.chars().count();
    let max = file_max.min(budget);
    if whole_chars > max && max < MIN_CHARS {
        return Err(format!(
            "the files before it have used up the space for all of them; {budget} characters were left"
        ));
    }
    let (text, cut) = cut(text, whole_chars, max, name);
    Ok(BootstrapFile { name: name.to_owned(), text, whole_chars, cut })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn config(files: &[&str]) -> ContextConfig {
        ContextConfig { files: files.iter().map(|name| (*name).to_owned()).collect(), ..ContextConfig::default() }
    }

    fn read_in(dir: &Path, config: &ContextConfig) -> Bootstrap {
        read(&Workspace::open(dir).unwrap(), config)
    }

    fn names(bootstrap: &Bootstrap) -> Vec<&str> {
        bootstrap.files.iter().map(|file| &*file.name).collect()
    }

    #[test]
    fn files_come_in_their_order_and_those_that_are_missing_or_blank_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("MEMORY.md", "m"), ("AGENTS.md", "\u{feff}rules\r\n\r\n"), ("USER.md", " \n\t\n")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::write(dir.path().join("HEARTBEAT.md"), "not told").unwrap();
        let bootstrap = read_in(dir.path(), &ContextConfig::default());
        let file = |name: &str, text: &str| BootstrapFile {
            name: name.into(),
            text: text.into(),
            whole_chars: text.len(),
            cut: false,
        };
        assert_eq!(
            bootstrap,
            Bootstrap { files: vec![file("AGENTS.md", "rules"), file("MEMORY.md", "m")], skipped: vec![] }
        );
    }

    #[test]
    fn unusable_files_are_skipped_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let untrusted = tempfile::tempdir().unwrap();
        fs::write(untrusted.path().join("secret"), "hush").unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("binary"), b"a\0b").unwrap();
        fs::write(at("latin"), b"caf\xe9").unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink(untrusted.path().join("secret"), at("escape")).unwrap();
        symlink("../../../../../../etc/hostname", at("relative")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let fifo = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
        fs::File::create(at("huge")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        fs::write(at("good"), "told").unwrap();
        symlink("good", at("inside")).unwrap();
        let bad = ["binary", "latin", "directory", "escape", "relative", "loop", "fifo", "huge"];
        let bootstrap = read_in(dir.path(), &config(&[&bad[..], &["good", "inside"]].concat()));
        assert_eq!(names(&bootstrap), ["good", "inside"], "a link within the workspace is as good as a file");
        let reasons: Vec<_> = bootstrap.skipped.iter().map(|skipped| (&*skipped.what, &*skipped.why)).collect();
        for (skipped, (name, why)) in reasons.iter().zip([
            ("binary", "zero bytes"),
            ("latin", "not UTF-8 (byte 3)"),
            ("directory", "is a directory"),
            ("escape", "leads out of the workspace"),
            ("relative", "leads out of the workspace"),
            ("loop", "too many symbolic links"),
            ("fifo", "is a pipe"),
            ("huge", "4194305 bytes"),
        ]) {
            assert!(skipped.0 == name && skipped.1.contains(why), "{skipped:?}: {why}");
        }
        assert_eq!(reasons.len(), bad.len());
        assert!(!format!("{bootstrap:?}").contains("hush"));
    }

    #[test]
    fn long_files_are_cut_and_files_without_space_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            fs::write(dir.path().join(name), name.repeat(3000)).unwrap();
        }
        let config = ContextConfig { file_max_chars: 1000, ..config(&["a", "b", "c", "d"]) };
        let bootstrap = read_in(dir.path(), &config);
        assert_eq!(names(&bootstrap), ["a", "b", "c"]);
        assert!(bootstrap.files.iter().all(|file| file.cut && file.whole_chars == 3000));
        assert!(bootstrap.files.iter().map(|file| file.text.chars().count()).sum::<usize>() <= 3000);
        assert_eq!(bootstrap.skipped[0].what, "d");
        assert!(bootstrap.skipped[0].why.contains("have used up the space"), "{:?}", bootstrap.skipped);
    }

    #[test]
    fn a_changed_file_has_another_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let config = config(&["a", "b"]);
        let nothing = stamps(&workspace, &config);
        fs::write(dir.path().join("a"), "1").unwrap();
        let one = stamps(&workspace, &config);
        assert_ne!(nothing, one);
        assert_eq!(one, stamps(&workspace, &config));
        fs::write(dir.path().join("a"), "12").unwrap();
        assert_ne!(one, stamps(&workspace, &config));
    }
}
