//! Landlock: a second restriction of reading and writing, independent of the mounts.
//!
//! It holds even if a mount is wrong or the filter misses a system call. It also restricts what mounts cannot: abstract
//! Unix sockets and signals to processes outside, and TCP ports of a shared network.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::stage::Files;
use crate::sandbox::config::Landlock;
use crate::sandbox::{HOME, LINK, WORKSPACE};

/// The newest Landlock ABI that is requested. An older kernel applies the part that it supports.
const ABI_ASKED: ABI = ABI::V9;

/// Private in every sandbox, except with the policy `full`.
const TEMPORARY: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", HOME];

/// Restricts this process.
///
/// # Errors
/// Landlock is required and the kernel has none, or ports are given and its version does not support them; or the
/// kernel refuses the rules.
pub(crate) fn restrict(landlock: Landlock, files: Files, ports: Option<&[u16]>) -> Result<(), String> {
    let enforced = enforce(landlock, files, ports)
        .map_err(|error| format!("Landlock does not take the rules: {error}. Ports need Linux 6.7 or later"))?;
    if enforced == RulesetStatus::NotEnforced && landlock == Landlock::Required {
        return Err("the kernel does not offer Landlock (Linux 5.13 or later, with landlock in the list lsm=); \
                    tools.sandbox.landlock = \"optional\" does without"
            .to_owned());
    }
    Ok(())
}

/// Refuses this process all files and all TCP ports, as far as the kernel supports it.
///
/// # Errors
/// The kernel refuses the rules.
#[cfg(feature = "pdf")]
pub(crate) fn restrict_all() -> Result<(), String> {
    let nothing = || {
        Ruleset::default()
            .handle_access(AccessFs::from_all(ABI_ASKED))?
            .handle_access(AccessNet::from_all(ABI_ASKED))?
            .scope(Scope::from_all(ABI_ASKED))?
            .create()?
            .restrict_self()
    };
    nothing().map(|_| ()).map_err(|error: RulesetError| format!("Landlock does not take the rules: {error}"))
}

fn enforce(landlock: Landlock, files: Files, ports: Option<&[u16]>) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(ABI_ASKED))?.scope(Scope::from_all(ABI_ASKED))?;
    if ports.is_some() {
        // Everything else is applied as far as the kernel supports it. But a list of ports must be enforced.
        let level = match landlock {
            Landlock::Required => CompatLevel::HardRequirement,
            Landlock::Optional => CompatLevel::BestEffort,
        };
        ruleset = ruleset
            .set_compatibility(level)
            .handle_access(AccessNet::ConnectTcp)?
            .set_compatibility(CompatLevel::BestEffort);
    }
    let mut created = ruleset.create()?;
    for (path, access) in rules(files) {
        // A missing path needs no rule: access without a rule is refused.
        created = created.add_rules(path_beneath_rules([path], access))?;
    }
    for port in ports.unwrap_or_default() {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(created.restrict_self()?.ruleset)
}

/// The allowed access beneath each path. The rules of all parent directories of a file add up.
fn rules(files: Files) -> Vec<(&'static Path, BitFlags<AccessFs>)> {
    let all = AccessFs::from_all(ABI_ASKED);
    if files == Files::All {
        return vec![(Path::new("/"), all)];
    }
    let device = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules = vec![(Path::new("/"), AccessFs::from_read(ABI_ASKED)), (Path::new("/dev"), device)];
    rules.extend(TEMPORARY.map(|path| (Path::new(path), all)));
    // Without a worker there is no file at this path, so there is no rule. The owner of the socket decides which
    // requests it answers.
    rules.push((Path::new(LINK), AccessFs::ReadFile | AccessFs::ResolveUnix));
    if files == Files::Workspace {
        rules.push((Path::new(WORKSPACE), all));
    }
    rules
}
