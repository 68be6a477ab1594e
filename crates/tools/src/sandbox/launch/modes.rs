//! Rules of the system call filter against files with the set-user-ID or the set-group-ID bit.
//!
//! A file that a command makes belongs to Belay's user. With one of these bits, everybody who can reach the file runs it
//! with the rights of that user, outside of the sandbox and after the command has ended.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Calls that set the mode of a file: the position of the mode among their arguments, and the refused bits.
const MODES: &[(c_long, u8, &[u32])] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, BITS),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, BITS),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1, OF_DIRECTORIES),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, BITS),
    (libc::SYS_fchmod, 1, BITS),
    (libc::SYS_fchmodat, 2, BITS),
    (FCHMODAT2, 2, BITS),
    (libc::SYS_mkdirat, 2, OF_DIRECTORIES),
    (libc::SYS_mknodat, 2, BITS),
];

const BITS: &[u32] = &[libc::S_ISUID, libc::S_ISGID];

/// The kernel ignores both bits in the mode of a new directory. `cp -r` gives the set-group-ID bit of the directory that
/// it copies, so that bit is let through.
///
/// Source: Linux, fs/namei.c, `vfs_mkdir`.
const OF_DIRECTORIES: &[u32] = &[libc::S_ISUID];

/// `fchmodat2`, which the crate libc does not define for every processor. Calls since Linux 5.2 have the same number on
/// all processors.
///
/// Source: Linux, scripts/syscall.tbl.
const FCHMODAT2: c_long = 452;

/// Calls that open a file, with the positions of the flags and of the mode. The mode counts only if a flag of
/// [`CREATING`] is set; otherwise the argument has any value.
const OPENS: &[(c_long, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];

/// The flags with which a call creates a file. `O_TMPFILE` contains `O_DIRECTORY`, which creates nothing.
const CREATING: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// The calls with the rules by which they are refused.
///
/// `openat2` is not among them, because its mode lies in memory, where a filter cannot read it.
pub(super) fn set_id() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let has = |position, bit: u32| {
        let bit = u64::from(bit);
        SeccompCondition::new(position, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit)
    };
    let mut calls = BTreeMap::new();
    for (call, mode, bits) in MODES {
        let rules: Result<_, _> = bits.iter().map(|bit| SeccompRule::new(vec![has(*mode, *bit)?])).collect();
        calls.insert(*call, rules?);
    }
    for (call, flags, mode) in OPENS {
        let rule = |flag: i32, bit| SeccompRule::new(vec![has(*flags, flag.cast_unsigned())?, has(*mode, bit)?]);
        let rules: Result<_, _> =
            CREATING.into_iter().flat_map(|flag| BITS.iter().map(move |bit| rule(flag, *bit))).collect();
        calls.insert(*call, rules?);
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{DirBuilder, OpenOptions, Permissions};
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};

    #[test]
    fn a_mode_is_refused_only_where_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").unwrap();
        // A filter applies to its thread alone.
        let thread = std::thread::spawn({
            let root = dir.path().to_owned();
            move || {
                super::super::calls::restrict().unwrap();
                let refused = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(libc::EPERM);
                let create = |name: &str, mode| {
                    OpenOptions::new().write(true).create_new(true).mode(mode).open(root.join(name)).map(drop)
                };
                let chmod = |mode| std::fs::set_permissions(root.join("file"), Permissions::from_mode(mode));
                for mode in [0o4755, 0o2755, 0o6000, 0o7777] {
                    assert!(refused(create("new", mode)) && refused(chmod(mode)), "{mode:o}");
                    let directory = root.join(format!("directory-{mode:o}"));
                    let made = DirBuilder::new().mode(mode).create(&directory);
                    if mode & 0o4000 != 0 {
                        assert!(refused(made), "{mode:o}");
                    } else {
                        let bits = std::fs::metadata(&directory).unwrap().permissions().mode();
                        assert_eq!(bits & 0o6000, 0, "the kernel has to ignore the bits of {mode:o}");
                    }
                }
                // Without a flag that creates a file, the mode has no meaning.
                OpenOptions::new().read(true).mode(0o6755).open(root.join("file")).unwrap();
                for mode in [0o755, 0o1777, 0o000] {
                    create(&format!("{mode:o}"), mode).unwrap();
                    chmod(mode).unwrap();
                }
            }
        });
        thread.join().unwrap();
        assert!(!at("new").exists());
    }
}
