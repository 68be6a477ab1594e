//! The operator's lists of tables, stop rules and hooks, read one by one, so that each broken one is named and none hides
//! another.

use belay_agent_loop::policies::Rule;
use belay_hooks::HookConfig;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::merge::{Merged, plain};
use super::problem::{Problem, nearest};

/// Reports the rules that cannot be read. If there are any, all are taken out: what the others mean together cannot be
/// judged, and their numbers would no longer be the ones in the file.
pub(super) fn take_broken(merged: &mut Merged) -> Vec<Problem> {
    let mut broken = take_broken_rules(merged);
    broken.extend(take_broken_hooks(merged));
    broken
}

fn take_broken_hooks(merged: &mut Merged) -> Vec<Problem> {
    let hooks = merged.tree.get("hooks").and_then(Json::as_array).into_iter().flatten().enumerate();
    let broken: Vec<Problem> = hooks.filter_map(|(index, hook)| problem::<HookConfig>("hooks", index, hook)).collect();
    if !broken.is_empty()
        && let Some(tree) = merged.tree.as_object_mut()
    {
        tree.remove("hooks");
    }
    let origin = merged.origins.of("hooks");
    broken.into_iter().map(|problem| problem.from(origin)).collect()
}

fn take_broken_rules(merged: &mut Merged) -> Vec<Problem> {
    let Some(stops) = merged.tree.get_mut("stops").and_then(Json::as_object_mut) else { return Vec::new() };
    let broken = stops.get("rules").map(problems).unwrap_or_default();
    if !broken.is_empty() {
        stops.remove("rules");
    }
    let origin = merged.origins.of("stops.rules");
    broken.into_iter().map(|problem| problem.from(origin)).collect()
}

/// Each rule of a list that cannot be read, as `stops.rules.N: what`, counted from 0. What is no list is left to others.
pub(crate) fn problems(rules: &Json) -> Vec<Problem> {
    let rules = rules.as_array().into_iter().flatten().enumerate();
    rules.filter_map(|(index, rule)| problem::<Rule>("stops.rules", index, rule)).collect()
}

fn problem<T: DeserializeOwned>(list: &str, index: usize, rule: &Json) -> Option<Problem> {
    let error = serde_path_to_error::deserialize::<_, T>(rule).err()?;
    let (path, message) = (error.path().to_string(), error.inner().to_string());
    let (what, hint) = if let Some(rest) = message.strip_prefix("unknown field ") {
        // The deserialiser names the key, then the ones that there are.
        let mut words = rest.split('`').skip(1).step_by(2);
        let key = words.next().unwrap_or_default();
        let known: Vec<&str> = words.collect();
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", known.join(", ")),
        };
        (format!("unknown key {path}"), Some(hint))
    } else {
        let (what, hint) = plain(&message);
        (if path == "." { what } else { format!("{path}: {what}") }, hint)
    };
    let what = match rule.get("name").and_then(Json::as_str) {
        Some(name) => format!("`{name}`: {what}"),
        None => what,
    };
    Some(Problem::new(format!("{list}.{index}"), what).hint(hint))
}
