//! File descriptors: how many of them clients may use.
//!
//! Each connection of a client holds one. Turns need others, for models, commands and files of the workspace, so clients
//! get half of them at most.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// The highest soft limit that Belay sets for itself. 65536: the limit of the unit. Programs that Belay starts inherit it,
/// and some of them visit each possible descriptor.
const MOST: u64 = 65_536;

/// The number of connections of clients, as the settings want it and the limit of descriptors allows it. Raises the soft limit
/// of the process before.
pub(super) fn connections(wanted: usize) -> usize {
    let limit = raised();
    let allowed = half_of(limit, wanted);
    if allowed < wanted {
        warn!(
            limit,
            max_connections = allowed,
            wanted,
            "fewer connections than gateway.max_connections are accepted: the limit of open files is too low; raise \
             LimitNOFILE of the unit, or ulimit -n"
        );
    }
    allowed
}

/// Raises the soft limit towards the hard one, and returns it.
fn raised() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let soft = current.unwrap_or(u64::MAX);
    let wanted = maximum.unwrap_or(u64::MAX).min(MOST);
    if soft >= wanted {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(error) => {
            debug!(%error, "the limit of open files could not be raised");
            soft
        }
    }
}

fn half_of(limit: u64, wanted: usize) -> usize {
    wanted.min(usize::try_from(limit / 2).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_half_of_the_descriptors_for_work() {
        for (limit, wanted, expected) in
            [(65_536, 4096, 4096), (1024, 4096, 512), (1024, 100, 100), (1, 4096, 1), (u64::MAX, 4096, 4096)]
        {
            assert_eq!(half_of(limit, wanted), expected, "{limit} {wanted}");
        }
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one_or_to_that_of_the_unit() {
        let limit = raised();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current.unwrap_or(u64::MAX), limit);
        assert!(limit >= maximum.unwrap_or(u64::MAX).min(MOST));
    }
}
