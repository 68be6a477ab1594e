//! The program `belay`. All of it is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_daemon::main(std::env::args_os())
}
