//! Resource limits, which the kernel enforces for each process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::stage::Limits;

const MIB: u64 = 1024 * 1024;

/// Processor seconds between SIGXCPU and SIGKILL, so that a program can exit in an orderly way.
const CPU_GRACE_S: u64 = 5;

/// Sets the limits. Never raises a limit above its current maximum.
pub(crate) fn restrict(limits: &Limits) -> Result<(), String> {
    let memory = limits.memory_mb.saturating_mul(MIB);
    let file = limits.file_mb.saturating_mul(MIB);
    for (what, resource, soft, hard) in [
        // Limits the data segment instead of the address space, because runtimes with a garbage collector reserve far
        // more address space than they use.
        ("memory", Resource::Data, memory, memory),
        ("processes", Resource::Nproc, limits.processes, limits.processes),
        ("open files", Resource::Nofile, limits.open_files, limits.open_files),
        ("file size", Resource::Fsize, file, file),
        ("processor time", Resource::Cpu, limits.cpu_s, limits.cpu_s.saturating_add(CPU_GRACE_S)),
        // A core dump could contain data that the program has read.
        ("memory images", Resource::Core, 0, 0),
    ] {
        let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
        setrlimit(resource, limit).map_err(|errno| format!("the limit of {what} cannot be set: {errno}"))?;
    }
    Ok(())
}
