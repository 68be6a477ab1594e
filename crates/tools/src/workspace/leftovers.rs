//! Removes the temporary files of writes that a crash interrupted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Minimum age of a file to be removed. One hour: another Belay may be writing in the same workspace, and no write
/// takes that long.
const MIN_AGE: Duration = Duration::from_secs(3600);

/// Longest time for the search. 50 ms: the start waits for it. Files that are not found in this time are found at a
/// later start.
const LIMIT: Duration = Duration::from_millis(50);

/// Removes the temporary files of interrupted writes, as far as it finds them in time, and returns their number. Does
/// not follow links. Blocks; call it on the blocking pool.
pub fn sweep(workspace: &Path) -> usize {
    sweep_until(workspace, SystemTime::now().checked_sub(MIN_AGE), Instant::now() + LIMIT)
}

fn sweep_until(workspace: &Path, before: Option<SystemTime>, deadline: Instant) -> usize {
    let mut directories: Vec<PathBuf> = vec![workspace.to_owned()];
    let mut removed = 0;
    while let Some(directory) = directories.pop() {
        // Directories that cannot be read are skipped without a message.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            if Instant::now() >= deadline {
                return removed;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_str().is_some_and(is_temporary) {
                let changed = entry.metadata().and_then(|file| file.modified()).ok();
                if changed.is_some() && changed <= before && std::fs::remove_file(entry.path()).is_ok() {
                    removed += 1;
                }
            }
        }
    }
    removed
}

/// Whether [`super::write`] could have created this name.
fn is_temporary(name: &str) -> bool {
    let digits = name.strip_prefix(".belay-").and_then(|rest| rest.strip_suffix(".tmp"));
    digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_old_files_of_that_name_are_removed_and_no_link_is_followed() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = format!(".belay-{}.tmp", "0123456789abcdef".repeat(2));
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let files = [
            dir.path().join(&name),
            dir.path().join("a/b").join(&name),
            dir.path().join(".belay-7.tmp"),
            dir.path().join("notes.tmp"),
            elsewhere.path().join(&name),
        ];
        files.iter().for_each(|file| std::fs::write(file, "x").unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("out")).unwrap();
        std::fs::create_dir(dir.path().join("a").join(&name)).unwrap();

        let (now, later) = (SystemTime::now(), Instant::now() + Duration::from_secs(60));
        assert_eq!(sweep_until(dir.path(), now.checked_sub(MIN_AGE), later), 0, "they are new");
        assert_eq!(sweep_until(dir.path(), now.checked_add(MIN_AGE), Instant::now()), 0, "there is no time");
        assert_eq!(sweep_until(dir.path(), now.checked_add(MIN_AGE), later), 2);
        assert_eq!(files.map(|file| file.exists()), [false, false, true, true, true]);
    }
}
