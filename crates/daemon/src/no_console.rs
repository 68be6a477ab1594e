//! A build without the feature `console` has no pages for a browser.

use belay_cli::args::ConsoleArgs;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;

/// Says so.
///
/// # Errors
/// Always (78).
pub(crate) async fn address(_args: &ConsoleArgs, _env: &Environment, _out: Output<'_>) -> Result<Exit, Failure> {
    let what = "this build of Belay has no console (feature console)";
    Err(Failure::new(Exit::Refused, what).next("install the full build; `belay --version --long` names the parts"))
}
