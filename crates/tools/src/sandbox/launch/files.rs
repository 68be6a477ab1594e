//! Landlock: what may be read and written, once more, by another part of the kernel than the mounts.
//!
//! Should a mount be wrong or a call slip through the filter, this still holds. It also closes what mounts cannot:
//! abstract Unix sockets and signals to processes outside, and TCP ports of a shared network.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::stage::Files;
use crate::sandbox::config::Landlock;
use crate::sandbox::{LINK, WORKSPACE};

/// The newest Landlock that we ask for. Of an older kernel we take what it has.
const ABI_ASKED: ABI = ABI::V9;

/// Private in every sandbox but that of `full`.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Restricts this process.
///
/// # Errors
/// The kernel has no Landlock, or none that knows ports where ports are given, and it is required; or the rules are not
/// taken.
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

fn enforce(landlock: Landlock, files: Files, ports: Option<&[u16]>) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(ABI_ASKED))?.scope(Scope::from_all(ABI_ASKED))?;
    if ports.is_some() {
        // All else is taken as far as the kernel has it; but a port list that is not kept would be no list.
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
        // A path that is not there needs no rule: what has none is refused.
        created = created.add_rules(path_beneath_rules([path], access))?;
    }
    for port in ports.unwrap_or_default() {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(created.restrict_self()?.ruleset)
}

/// What may be done beneath which path. The rules of all directories on the way to a file add up.
fn rules(files: Files) -> Vec<(&'static Path, BitFlags<AccessFs>)> {
    let all = AccessFs::from_all(ABI_ASKED);
    if files == Files::All {
        return vec![(Path::new("/"), all)];
    }
    let device = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules = vec![(Path::new("/"), AccessFs::from_read(ABI_ASKED)), (Path::new("/dev"), device)];
    rules.extend(TEMPORARY.map(|path| (Path::new(path), all)));
    // Where a room has no link there is nothing at that path, and so no rule. The socket's owner decides what it answers.
    rules.push((Path::new(LINK), AccessFs::ReadFile | AccessFs::ResolveUnix));
    if files == Files::Workspace {
        rules.push((Path::new(WORKSPACE), all));
    }
    rules
}
