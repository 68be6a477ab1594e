//! `belay freeze` and `belay thaw`.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use serde_json::{Map, Value as Json};

use super::{Client, text};
use crate::args::{FreezeArgs, FrozenPart, ThawArgs};

/// Freezes, or lists what is frozen.
pub async fn freeze(args: &FreezeArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let path = ["api", "v1", "freeze"];
    let answer = if args.list {
        let query: &[(&str, &str)] = if args.all { &[("all", "true")] } else { &[] };
        client.get(&path, query).await?
    } else {
        let mut body = body(&args.part);
        body.extend(args.reason.clone().map(|reason| ("detail".to_owned(), Json::from(reason))));
        client.post(&path, Some(&Json::Object(body)), Duration::ZERO).await?
    };
    shown(&answer, args.all, args.client.json, out);
    Ok(Exit::Fine)
}

/// Ends a freeze.
pub async fn thaw(args: &ThawArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let body = Json::Object(body(&args.part));
    let answer = Client::find(&args.client, env)?.post(&["api", "v1", "thaw"], Some(&body), Duration::ZERO).await?;
    shown(&answer, false, args.client.json, out);
    Ok(Exit::Fine)
}

fn body(part: &FrozenPart) -> Map<String, Json> {
    let fields = [("person", &part.person), ("channel", &part.channel), ("routine", &part.routine)];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Json::from(value.clone()?)))).collect()
}

fn shown(answer: &Json, all: bool, json: bool, out: Output<'_>) {
    if json {
        return out.json(answer);
    }
    match answer.pointer("/freezes").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default() {
        [] if all => out.line("nothing was ever frozen"),
        [] => out.line("nothing is frozen"),
        freezes => out.lines(freezes.iter().map(said)),
    }
}

/// The lines about a freeze and its receipt.
pub(super) fn said(freeze: &Json) -> String {
    let [kind, name, channel, id] =
        ["/scope/kind", "/scope/name", "/scope/channel", "/scope/id"].map(|path| text(freeze, path));
    let what = match (kind, channel) {
        ("person", "") => format!("person {id}"),
        ("person", channel) => format!("person {channel}:{id}"),
        ("channel", channel) => format!("channel {channel}"),
        ("routine", _) => format!("routine {name}"),
        _ => "everything".to_owned(),
    };
    let (at, thawed, actor) = (text(freeze, "/at"), text(freeze, "/thawed_at"), text(freeze, "/actor"));
    let mut said = match thawed {
        "" => format!("frozen: {what}, since {at} by {actor}"),
        thawed => format!("thawed: {what}, from {at} to {thawed} by {actor}"),
    };
    if let reason @ [_, ..] = text(freeze, "/detail").as_bytes() {
        said.push_str(&format!(" ({})", String::from_utf8_lossy(reason)));
    }
    let Some(receipt) = freeze.pointer("/receipt") else { return said };
    let list = |path: &str| receipt.pointer(path).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let empty = match receipt.pointer("/trees_empty_ms").and_then(Json::as_u64) {
        Some(ms) => format!("no process was left after {ms} ms"),
        None if thawed.is_empty() => "some processes are still ending".to_owned(),
        None => "some processes were still ending at the thaw".to_owned(),
    };
    let acknowledged = receipt.pointer("/acknowledged_ms").and_then(Json::as_u64).unwrap_or_default();
    let (stopped, outside) = (list("/stopped"), list("/outside"));
    said.push_str(&format!("\n  in force after {acknowledged} ms; stopped runs: {}; {empty}", stopped.len()));
    for what in stopped.iter().filter_map(Json::as_str) {
        said.push_str(&format!("\n  stopped {what}"));
    }
    for what in outside.iter().filter_map(Json::as_str) {
        said.push_str(&format!("\n  may still act outside: {what}"));
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_freeze_is_told_with_its_receipt() {
        let base = json!({"scope": {"kind": "person", "channel": "telegram", "id": "42"}, "at": "T", "actor": "a"});
        assert_eq!(said(&base), "frozen: person telegram:42, since T by a");
        let whole = json!({"scope": {"kind": "all"}, "at": "T", "actor": "a", "detail": "why",
            "receipt": {"acknowledged_ms": 3, "trees_empty_ms": null, "stopped": ["r"], "outside": ["x"]}});
        assert_eq!(
            said(&whole),
            "frozen: everything, since T by a (why)\n  in force after 3 ms; stopped runs: 1; some processes are still \
             ending\n  stopped r\n  may still act outside: x"
        );
        let thawed = json!({"scope": {"kind": "all"}, "at": "T", "thawed_at": "U", "actor": "a",
            "receipt": {"acknowledged_ms": 3, "trees_empty_ms": 9, "stopped": [], "outside": []}});
        assert_eq!(
            said(&thawed),
            "thawed: everything, from T to U by a\n  in force after 3 ms; stopped runs: 0; no process was left after 9 ms"
        );
    }
}
