//! The program `belay-small`: `belay` without the parts that a build may leave out.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_daemon::main(std::env::args_os())
}
