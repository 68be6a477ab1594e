//! The rules for judging recordings.

use std::path::Path;

use belay_agent_loop::policies::{RulesFile, StopRules, StopsConfig};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_settings::{NOT_FINITE, load, problems_of_rules, refused};
use belay_text::near::nearest;

use super::CheckArgs;

/// Explanation of a rules file, for errors.
const WHAT_IT_HOLDS: &str = "a file of rules has the keys of [stops] of the settings, and perhaps a table [limits]";

/// The progress rules, or the rules of a file. With `--with-limits` also the limits of the settings; limits of the file
/// take precedence.
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

/// The progress rules, or the rules of a file.
pub(super) fn of_file(path: Option<&Path>) -> Result<StopRules, Failure> {
    let file = path.map(read).transpose()?.unwrap_or_default();
    Ok(StopRules::compile(&file.stops, &file.run_limits()))
}

/// Compiles the rules of a text with the content of a rules file.
///
/// # Errors
/// All problems at once, one a line.
pub fn of_text(text: &str) -> Result<StopRules, String> {
    let file = parsed(text)?;
    Ok(StopRules::compile(&file.stops, &file.run_limits()))
}

/// Reads a rules file.
///
/// # Errors
/// 78: it cannot be read, or a rule in it is unusable; all problems at once.
fn read(path: &Path) -> Result<RulesFile, Failure> {
    let refuse = |what: String| Failure::new(Exit::Refused, format!("{}: {what}", path.display())).next(WHAT_IT_HOLDS);
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    parsed(&text).map_err(refuse)
}

/// Parses and checks the text of a rules file.
fn parsed(text: &str) -> Result<RulesFile, String> {
    let given: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let unusable = [unknown_keys(&given), unusable_values(given)].concat();
    if !unusable.is_empty() {
        return Err(unusable.join("\n  "));
    }
    let file: RulesFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut problems = file.stops.validate();
    problems.extend(file.run_limits().validate());
    problems.extend(file.stops.problems(&file.run_limits(), None));
    if problems.is_empty() { Ok(file) } else { Err(problems.join("\n  ")) }
}

/// The numbers that are not finite; if there are none, the rules that cannot be read.
fn unusable_values(mut given: toml::Table) -> Vec<String> {
    let mut not_finite = Vec::new();
    given.iter().for_each(|(key, value)| find_not_finite(key, value, &mut not_finite));
    match given.remove("rules") {
        Some(rules) if not_finite.is_empty() => {
            let rules = serde_json::to_value(rules).unwrap_or_default();
            problems_of_rules(&rules).iter().map(ToString::to_string).collect()
        }
        _ => not_finite,
    }
}

fn find_not_finite(key: &str, value: &toml::Value, found: &mut Vec<String>) {
    match value {
        toml::Value::Float(number) if !number.is_finite() => found.push(format!("{key}: {NOT_FINITE}")),
        toml::Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| find_not_finite(&format!("{key}[{index}]"), item, found));
        }
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| find_not_finite(&format!("{key}.{name}"), value, found));
        }
        _ => {}
    }
}

/// The unknown keys, each with a suggestion.
fn unknown_keys(given: &toml::Table) -> Vec<String> {
    let known = serde_json::to_value(StopsConfig::default()).unwrap_or_default();
    let known: Vec<&str> =
        known.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).chain(["limits"]).collect();
    let unknown = given.keys().filter(|key| !known.contains(&key.as_str()));
    let told = |key: &String| match nearest(key, known.iter().copied()) {
        Some(near) => format!("{key}: unknown key; did you mean {near}?"),
        None => format!("{key}: unknown key; there are {}", known.join(", ")),
    };
    unknown.map(told).collect()
}
