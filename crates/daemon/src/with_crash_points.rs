//! The program `belay-crash-points`: `belay` with the points of `make crash`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_daemon::main(std::env::args_os())
}
