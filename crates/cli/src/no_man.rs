//! A build without the feature `manual` has no manual pages.

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use clap::Command;

use crate::args::ManArgs;

/// Says so.
///
/// # Errors
/// Always (78).
pub async fn man(_program: Command, _args: &ManArgs, _out: Output<'_>) -> Result<Exit, Failure> {
    let what = "this build of Belay has no manual pages (feature manual)";
    Err(Failure::new(Exit::Refused, what)
        .next("use `belay help COMMAND`, or install the full build; `belay --version --long` names the parts"))
}
