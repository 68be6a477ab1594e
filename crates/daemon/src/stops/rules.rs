//! The rules that recordings are judged by.

use std::path::Path;

use belay_agent_loop::policies::{RulesFile, StopRules};

use super::CheckArgs;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::paths::Paths;
use crate::settings::{load, refused};

/// What a rules file is, for those who wrote another.
const WHAT_IT_HOLDS: &str =
    "a file of rules holds what stands in [stops] of the settings, and perhaps a table [limits]";

/// The progress rules, or those of a file; with the limits of the settings where that is asked for. Limits of the file win.
pub(super) fn of_check(args: &CheckArgs, env: &Environment) -> Result<StopRules, Failure> {
    let file = args.rules.as_deref().map(read).transpose()?.unwrap_or_default();
    let limits = match (args.with_limits, &file.limits) {
        (true, None) => {
            let paths = Paths::find(env)?;
            load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?.settings.limits.run
        }
        _ => file.run_limits(),
    };
    Ok(StopRules::compile(&file.stops, &limits))
}

/// The progress rules, or those of a file.
pub(super) fn of_file(path: Option<&Path>) -> Result<StopRules, Failure> {
    let file = path.map(read).transpose()?.unwrap_or_default();
    Ok(StopRules::compile(&file.stops, &file.run_limits()))
}

/// Reads a file of rules.
///
/// # Errors
/// 78: it cannot be read, or a rule in it cannot be used; all problems at once.
fn read(path: &Path) -> Result<RulesFile, Failure> {
    let refuse = |what: String| Failure::new(Exit::Refused, format!("{}: {what}", path.display())).next(WHAT_IT_HOLDS);
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let file: RulesFile = toml::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let mut problems = file.stops.validate();
    problems.extend(file.run_limits().validate());
    match problems.is_empty() {
        true => Ok(file),
        false => Err(refuse(problems.join("\n  "))),
    }
}
