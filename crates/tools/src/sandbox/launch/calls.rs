//! The filter of system calls: what no command needs and what has let programs out before.
//!
//! It is a list of what is refused. A list of what is allowed would be tighter, and would break a program with each new
//! library: commands are anything. Refused calls answer EPERM, so that programs go on and say what they miss.
//!
//! Source of the numbers: the crate libc, for the processor this is compiled for. Programs for another one (32 bit) are
//! killed; so is nothing else.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

/// Refused whatever the arguments.
const REFUSED: &[c_long] = &[
    // Other file systems than those that were given.
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
    // Other namespaces, in which one is root.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Other processes.
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
    // Large doors into the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // The machine.
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

/// `open_tree_attr`, which the crate libc does not name yet. Calls since Linux 5.2 have one number on all processors.
///
/// Source: Linux, scripts/syscall.tbl.
const OPEN_TREE_ATTR: c_long = 467;

/// The first number beyond the calls that this list has been held against (Linux 6.17: `file_setattr`, 469). Newer ones
/// are answered as an older kernel would, and so are those of the x32 way of calling, which begin at 0x4000_0000.
const UNKNOWN: u32 = 470;

/// Kinds of sockets that are left: Unix, both internets, and netlink, by which programs ask for their own interfaces.
/// Others reach past the network namespace (vsock), or into parts of the kernel that are rarely looked at.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Flags of `clone` that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Requests of `ioctl` that type into a terminal as if its user had: `TIOCSTI` and `TIOCLINUX`.
///
/// Source: Linux, include/uapi/asm-generic/ioctls.h; the crate libc gives them another type with each C library.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// The argument of `personality` that only asks.
const PERSONALITY_ASKED: u64 = 0xffff_ffff;

/// Puts the filters up.
///
/// # Errors
/// The kernel has no seccomp filters, or the processor is one that the list has not been made for.
pub(crate) fn restrict() -> Result<(), String> {
    let filters = filters().map_err(|error| format!("the filter of system calls cannot be made: {error}"))?;
    for filter in &filters {
        apply_filter(filter).map_err(|error| format!("the kernel does not take a filter of system calls: {error}"))?;
    }
    Ok(())
}

/// One filter for each kind of answer; the kernel asks all, and the strictest answer counts.
fn filters() -> Result<[BpfProgram; 3], seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = |rules, errno: i32| {
        let answer = SeccompAction::Errno(errno.cast_unsigned());
        SeccompFilter::new(rules, SeccompAction::Allow, answer, arch)?.try_into()
    };
    // Its flags lie in memory, where no filter can look; the C library falls back to clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([filter(refused()?, libc::EPERM)?, filter(clone3, libc::ENOSYS)?, unknown()])
}

/// The calls that are refused. Those with rules are refused where one of the rules fits.
fn refused() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::BackendError> {
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
    Ok(calls)
}

/// Answers every number from [`UNKNOWN`] on with ENOSYS. Written out, for the crate compares arguments only.
fn unknown() -> BpfProgram {
    let step = |code: u32, jt, jf, k| {
        // The codes of the classic packet filter fit in 16 bits.
        sock_filter { code: code as u16, jt, jf, k }
    };
    vec![
        // The number lies at the beginning of `struct seccomp_data`.
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
    }
}
