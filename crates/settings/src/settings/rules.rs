//! Reads the operator's lists of tables one by one: stop rules, approval rules, rules of failing tools, and hooks. Each
//! invalid element is reported with its origin, and none hides another.

use belay_agent_loop::policies::Rule;
use belay_hooks::HookConfig;
use belay_protocol::ToolHealthRule;
use belay_run::ApprovalRule;
use belay_text::near::nearest;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::merge::{Merged, Origins, plain};
use super::problem::Problem;

/// Reports the elements that cannot be read. A list with such an element is removed completely: the remaining elements
/// cannot be judged without it, and their indices would no longer match the file.
pub(super) fn remove_invalid(merged: &mut Merged) -> Vec<Problem> {
    let mut broken = take::<Rule>(merged, &["stops", "rules"]);
    broken.extend(take::<ApprovalRule>(merged, &["approvals", "rules"]));
    broken.extend(take::<ToolHealthRule>(merged, &["tools", "health", "rules"]));
    broken.extend(take::<HookConfig>(merged, &["hooks"]));
    broken
}

fn take<T: DeserializeOwned>(merged: &mut Merged, path: &[&str]) -> Vec<Problem> {
    let Some((last, sections)) = path.split_last() else { return Vec::new() };
    let mut parent = Some(&mut merged.tree);
    for section in sections {
        parent = parent.and_then(|tree| tree.get_mut(*section));
    }
    let Some(parent) = parent.and_then(Json::as_object_mut) else { return Vec::new() };
    let broken = parent.get(*last).map(|list| broken::<T>(&path.join("."), list, &merged.origins)).unwrap_or_default();
    if !broken.is_empty() {
        parent.remove(*last);
    }
    broken
}

/// The unreadable stop rules of a list, as `stops.rules[N].KEY: what`, counted from 0. Returns nothing if the value is
/// no list.
pub fn problems(rules: &Json) -> Vec<Problem> {
    broken::<Rule>("stops.rules", rules, &Origins::default())
}

fn broken<T: DeserializeOwned>(list: &str, elements: &Json, origins: &Origins) -> Vec<Problem> {
    let elements = elements.as_array().into_iter().flatten().enumerate();
    elements.filter_map(|(at, element)| problem::<T>(&format!("{list}[{at}]"), element, origins)).collect()
}

fn problem<T: DeserializeOwned>(element: &str, value: &Json, origins: &Origins) -> Option<Problem> {
    let error = serde_path_to_error::deserialize::<_, T>(value).err()?;
    let (path, message) = (error.path().to_string(), error.inner().to_string());
    let key = if path == "." { element.to_owned() } else { format!("{element}.{path}") };
    let (what, hint) = if let Some(rest) = message.strip_prefix("unknown field ") {
        // The deserialiser names the unknown key first, then the known ones.
        let mut words = rest.split('`').skip(1).step_by(2);
        let key = words.next().unwrap_or_default();
        let known: Vec<&str> = words.collect();
        let hint = match nearest(key, known.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", known.join(", ")),
        };
        ("unknown key".to_owned(), Some(hint))
    } else {
        plain(&message)
    };
    let what = match value.get("name").and_then(Json::as_str) {
        Some(name) => format!("`{name}`: {what}"),
        None => what,
    };
    Some(Problem::new(&key, what).from(origins.around(&key)).hint(hint))
}
