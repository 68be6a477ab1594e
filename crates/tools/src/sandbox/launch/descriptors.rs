//! Open files of whoever started us: none of them goes along.
//!
//! The daemon closes its own at an exec, but what it was started with itself (by a shell, a test) may be open still, and
//! bubblewrap passes it on: a descriptor of a directory outside would be a door through every wall.

use std::fs;

/// Input, output and errors: what a command is meant to have.
const STANDARD: i32 = 2;

/// Closes every descriptor but the standard ones and the one to keep, the sealed program.
///
/// # Errors
/// There is no `/proc` to see them by.
pub(crate) fn close_all_but(keep: Option<i32>) -> Result<(), String> {
    let failed = |error| format!("open files cannot be looked for in /proc/self/fd: {error}");
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")
        .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>, _>>())
        .map_err(failed)?
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > STANDARD && Some(*descriptor) != keep)
        .collect();
    for descriptor in open {
        // One of them was the directory just read, and is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
