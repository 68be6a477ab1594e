//! Closes inherited file descriptors.
//!
//! The daemon's own descriptors close at an exec. But descriptors that the daemon inherited (from a shell or a test)
//! may still be open, and bubblewrap passes them on. A descriptor of a directory outside would bypass all restrictions.

use std::fs;

/// Standard input, output and error are kept.
const STANDARD: i32 = 2;

/// Closes every descriptor except the standard ones and `keep`, the sealed program.
///
/// # Errors
/// `/proc` cannot be read.
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
        // One of them belonged to the directory listing above and is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
