//! `belay launch`: the last stage inside the sandbox of a command. The daemon starts itself this way. It is no command
//! for people, so the command line parser does not know it.

use std::ffi::OsString;
use std::process::ExitCode;

/// Becomes the command, if this process was started as the last stage. Returns an exit code only if that failed; the
/// error is printed. Must run first in `main`: nothing may be read, opened or started before the sandbox is in force.
pub(crate) fn become_command(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    (args.next()? == "launch").then(|| belay_tools::sandbox::launch::main(args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_commands_are_left_to_the_command_line() {
        for args in [&["belay"][..], &["belay", "run"], &["launch", "run"], &["belay", "run", "launch"]] {
            assert!(become_command(args.iter().map(OsString::from)).is_none(), "{args:?}");
        }
    }
}
