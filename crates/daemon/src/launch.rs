//! `belay launch`: the last stage inside the sandbox of a command; and `belay read-pdf`: the confined reader of PDF
//! files. The daemon starts itself this way. They are no commands for people, so the command line parser does not know
//! them.

use std::ffi::OsString;
use std::process::ExitCode;

use belay_tools::attachments::pdf;

/// Becomes the command, if this process was started as the last stage, and returns an exit code only if that failed;
/// the error is printed. Reads a PDF, if it was started for that. Must run first in `main`: nothing may be read, opened or started before the sandbox is in force.
pub(crate) fn become_command(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    match args.next()?.to_str()? {
        "launch" => Some(belay_tools::sandbox::launch::main(args)),
        pdf::COMMAND => Some(pdf::main(args)),
        _ => None,
    }
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
