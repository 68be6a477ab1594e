//! A build without the feature `manual` has no completions for shells.

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use clap::Command;

/// The name of a shell.
pub(crate) type Shell = String;

/// Says so.
///
/// # Errors
/// Always (78).
pub(crate) fn print(_shell: Shell, _program: Command, _out: Output<'_>) -> Result<Exit, Failure> {
    let what = "this build of Belay has no completions for shells (feature manual)";
    Err(Failure::new(Exit::Refused, what).next("install the full build; `belay --version --long` names the parts"))
}
