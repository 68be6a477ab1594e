//! The stage inside the sandbox, alone: what `belay launch` does, without the daemon around it.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The first argument is the word `launch`.
    belay_tools::sandbox::launch::main(std::env::args_os().skip(2))
}
