//! `belay completions`: scripts that complete commands in a shell.

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use clap::Command;
pub(crate) use clap_complete::Shell;

/// Prints the script for a shell.
///
/// # Errors
/// None; other builds have no scripts.
pub(crate) fn print(shell: Shell, mut program: Command, out: Output<'_>) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "belay", &mut script);
    out.line(String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Fine)
}
