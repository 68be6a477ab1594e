//! The system call filter (seccomp): refuses calls that commands do not need and that have allowed sandbox escapes.
//!
//! It is a deny list. An allow list would be stricter, but would break programs with each new library version, because
//! a command may be any program. Refused calls return EPERM, so that programs continue and report the error.
//!
//! Source of the numbers: the crate libc, for the processor that this is compiled for. Only programs for another
//! architecture (32 bit) are killed.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, apply_filter_all_threads, sock_filter,
};

use super::modes;

/// Refused with any arguments.
const REFUSED: &[c_long] = &[
    // Mounting other file systems.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    // Creating or entering namespaces, where a process may be root.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Accessing other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Keys of the session that started the daemon.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Large attack surfaces of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Changing the machine itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// `open_tree_attr`, which the crate libc does not define yet. Calls since Linux 5.2 have the same number on all
/// processors.
///
/// Source: Linux, scripts/syscall.tbl.
const OPEN_TREE_ATTR: c_long = 467;

/// The first number after the calls that were reviewed for this list (Linux 6.17: `file_setattr`, 469). Newer calls
/// return the same error as on an older kernel. This includes the x32 calls, which begin at 0x4000_0000.
const UNKNOWN: u32 = 470;

/// Allowed socket families: Unix, IPv4, IPv6, and netlink, by which programs query their own network interfaces. Others
/// bypass the network namespace (vsock), or use rarely reviewed parts of the kernel.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Flags of `clone` that create a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Requests of `ioctl` that insert input into a terminal as if its user had typed it: `TIOCSTI` and `TIOCLINUX`.
///
/// Source: Linux, include/uapi/asm-generic/ioctls.h; in the crate libc, their type depends on the C library.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// The argument of `personality` that only queries the value.
const PERSONALITY_ASKED: u64 = 0xffff_ffff;

/// Installs the filters.
///
/// # Errors
/// The kernel does not support seccomp filters, or the list does not support this processor.
pub(crate) fn restrict() -> Result<(), String> {
    let filters = filters().map_err(|error| format!("the filter of system calls cannot be made: {error}"))?;
    for filter in &filters {
        apply_filter(filter).map_err(|error| format!("the kernel does not take a filter of system calls: {error}"))?;
    }
    Ok(())
}

/// Refused to a process that only computes.
#[cfg(feature = "pdf")]
const REFUSED_TO_COMPUTING: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
];

/// Also refuses sockets, files that are not open yet, and other programs, for a process that only computes.
///
/// # Errors
/// As [`restrict`].
#[cfg(feature = "pdf")]
pub(crate) fn restrict_to_computing() -> Result<(), String> {
    let refused: BTreeMap<c_long, Vec<SeccompRule>> =
        REFUSED_TO_COMPUTING.iter().map(|call| (*call, Vec::new())).collect();
    let filter =
        filter(refused, libc::EPERM).map_err(|error| format!("the filter of system calls cannot be made: {error}"))?;
    apply_filter(&filter).map_err(|error| format!("the kernel does not take a filter of system calls: {error}"))
}

/// Refuses files with the set-user-ID or the set-group-ID bit to all threads of this process and to the processes that
/// it starts.
///
/// # Errors
/// As [`restrict`].
pub(crate) fn refuse_set_id() -> Result<(), String> {
    let filters = set_id_filters().map_err(|error| format!("the filter of system calls cannot be made: {error}"))?;
    for filter in &filters {
        apply_filter_all_threads(filter)
            .map_err(|error| format!("the kernel does not take a filter of system calls: {error}"))?;
    }
    Ok(())
}

fn set_id_filters() -> Result<[BpfProgram; 2], BackendError> {
    let openat2 = BTreeMap::from([(libc::SYS_openat2, Vec::new())]);
    Ok([filter(modes::set_id()?, libc::EPERM)?, filter(openat2, libc::ENOSYS)?])
}

/// One filter for each kind of error. The kernel runs all filters and applies the strictest result.
fn filters() -> Result<[BpfProgram; 3], BackendError> {
    // Their flags lie in memory, where a filter cannot read them. Programs fall back to `clone` and `openat`, as on older
    // kernels.
    let in_memory = [libc::SYS_clone3, libc::SYS_openat2].map(|call| (call, Vec::new()));
    Ok([filter(refused()?, libc::EPERM)?, filter(in_memory.into(), libc::ENOSYS)?, unknown()])
}

/// A filter that returns this error for these calls.
fn filter(calls: BTreeMap<c_long, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let answer = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(calls, SeccompAction::Allow, answer, arch)?.try_into()
}

/// The refused calls. A call with rules is refused if one of its rules matches.
fn refused() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let argument = |index, op, value| SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value);
    let mut calls: BTreeMap<_, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let namespace = |flag: i32| {
        let flag = u64::from(flag.cast_unsigned());
        SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    calls.insert(libc::SYS_clone, NAMESPACES.into_iter().map(namespace).collect::<Result<_, _>>()?);
    let typing = |request| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request)?]);
    calls.insert(libc::SYS_ioctl, TYPING.into_iter().map(typing).collect::<Result<_, _>>()?);
    let changing = [0, PERSONALITY_ASKED].map(|harmless| argument(0, SeccompCmpOp::Ne, harmless));
    calls.insert(libc::SYS_personality, vec![SeccompRule::new(changing.into_iter().collect::<Result<_, _>>()?)?]);
    let other = FAMILIES.map(|family| argument(0, SeccompCmpOp::Ne, u64::from(family.cast_unsigned())));
    calls.insert(libc::SYS_socket, vec![SeccompRule::new(other.into_iter().collect::<Result<_, _>>()?)?]);
    calls.extend(modes::set_id()?);
    Ok(calls)
}

/// Returns ENOSYS for every number from [`UNKNOWN`] on. Written as BPF instructions, because the crate can only compare
/// arguments.
fn unknown() -> BpfProgram {
    let step = |code: u32, jt, jf, k| {
        // The opcodes of classic BPF fit in 16 bits.
        sock_filter { code: code as u16, jt, jf, k }
    };
    vec![
        // The number is the first field of `struct seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, UNKNOWN),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_filters_can_be_made_and_are_short_enough_for_the_kernel() {
        for filter in filters().unwrap() {
            assert!(!filter.is_empty() && filter.len() <= 4096, "{}", filter.len());
        }
    }

    #[test]
    fn every_refused_call_is_known_to_the_list() {
        for call in REFUSED {
            assert!((0..c_long::from(UNKNOWN)).contains(call), "{call}");
        }
        assert!(modes::set_id().unwrap().keys().all(|call| !REFUSED.contains(call)), "a rule replaces a refusal");
    }
}
