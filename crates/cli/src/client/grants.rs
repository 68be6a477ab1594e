//! Grants of the command line: shown, and on a terminal asked about, before they are given.

use std::io::{self, IsTerminal};

use belay_program::exit::{Exit, Failure};
use belay_program::output;
use belay_program::typed::{line, show};
use belay_protocol::WorkGrant;

/// Parses the grants of the options `--allow`.
///
/// # Errors
/// 2: one is invalid.
pub(super) fn parsed(allow: &[String]) -> Result<Vec<WorkGrant>, Failure> {
    let parse = |text: &String| WorkGrant::parse(text).map_err(|what| Failure::new(Exit::WrongUsage, what));
    allow.iter().map(parse).collect()
}

/// Shows these grants, also those that a file brings along, and asks the person at the terminal whether to give them.
/// Without a terminal they are shown, and nobody is asked.
///
/// # Errors
/// 130: the person says no, or the input has ended.
pub(super) async fn confirm(grants: &[WorkGrant], is_confirmed: bool) -> Result<(), Failure> {
    if grants.is_empty() || is_confirmed {
        return Ok(());
    }
    output::print_error(&format!("Nobody will be asked about these calls:{}", lines(grants)));
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Ok(());
    }
    show("Give these grants? [y/N] ");
    match line().await.unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Interrupted, "nothing was created")),
    }
}

/// The lines of a list of grants, each with a line break before it.
pub(super) fn lines(grants: &[WorkGrant]) -> String {
    let lines: String = grants.iter().enumerate().map(|(at, grant)| grant.line(at + 1)).collect();
    belay_text::escaped(&lines).into_owned()
}
