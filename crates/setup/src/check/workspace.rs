//! Findings of `belay check` about the workspace.

use belay_settings::Problem;
use belay_tools::PathResolution;

use super::{Finding, State};

/// How paths are kept inside the workspace. Both methods are equally strict, so neither is a problem.
pub(super) fn paths(resolution: &PathResolution) -> Finding {
    let detail = match resolution {
        PathResolution::Kernel => "the kernel keeps paths inside it (openat2)".to_owned(),
        PathResolution::Stepwise(why) => format!("paths are resolved step by step, as safe as by openat2: {why}"),
    };
    Finding::new("workspace", State::Ok, detail)
}

/// Belay's own files that tools could reach. A start is refused because of them.
pub(super) fn own_files(problems: &[Problem]) -> Vec<Finding> {
    problems.iter().map(|problem| Finding::new("workspace", State::Refused, problem.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use belay_tools::Refusal;

    use super::*;

    #[test]
    fn a_filter_that_refuses_openat2_is_named_and_is_no_problem() {
        for (resolution, part) in [
            (PathResolution::Kernel, "openat2"),
            (PathResolution::Stepwise(Refusal::Filter(38)), "a system call filter refuses openat2 with ENOSYS"),
            (PathResolution::Stepwise(Refusal::Filter(1)), "a system call filter refuses openat2 with EPERM"),
            (PathResolution::Stepwise(Refusal::Filter(13)), "a system call filter refuses openat2 with EACCES"),
            (PathResolution::Stepwise(Refusal::Filter(129)), "a system call filter refuses openat2 with error 129"),
            (PathResolution::Stepwise(Refusal::OldKernel("5.4.0".to_owned())), "the kernel (5.4.0) is older than 5.6"),
        ] {
            let finding = paths(&resolution);
            assert!(finding.state == State::Ok && finding.detail.contains(part), "{finding:?}");
        }
    }
}
