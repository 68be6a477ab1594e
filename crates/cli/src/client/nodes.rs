//! `belay nodes`: the daemons that share the database.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::Value as Json;

use super::{Client, number, text};
use crate::args::ClientArgs;

/// The part of a lease below which its row is yellow, in milliseconds: three renewals are missing.
const LATE_MS: u64 = 6_000;

/// Lists the nodes, and the work that one of them does at a time.
pub async fn nodes(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let report = Client::find(args, env)?.get(&["api", "v1", "nodes"], &[]).await?;
    if args.json {
        out.json(&report);
        return Ok(Exit::Fine);
    }
    let list = |pointer| report.pointer(pointer).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    match list("/nodes") {
        [] => out.line("this daemon uses its database alone (cluster.enabled is false)"),
        nodes => {
            out.table(&table(nodes));
            let differing: Vec<_> = nodes.iter().filter(|node| differs(node)).map(|node| text(node, "/name")).collect();
            if !differing.is_empty() {
                out.line("");
                out.line(&format!(
                    "{}: settings that all nodes must share differ from this node's",
                    differing.join(", ")
                ));
            }
        }
    }
    if let leases @ [_, ..] = list("/leases") {
        out.line("");
        out.table(&leases_table(leases));
    }
    Ok(Exit::Fine)
}

fn differs(node: &Json) -> bool {
    node.pointer("/settings_differ").and_then(Json::as_bool) == Some(true)
}

fn head<const N: usize>(names: [&str; N]) -> Vec<Cell> {
    names.map(|name| Cell::new(name, Tone::Dim)).into()
}

fn table(nodes: &[Json]) -> Vec<Vec<Cell>> {
    let row = |node: &Json| {
        let (state, left) = (text(node, "/state"), number(node, "/lease_ms"));
        let tone = match state {
            "alive" if left >= LATE_MS => Tone::Good,
            "alive" | "draining" => Tone::Warn,
            "lost" => Tone::Bad,
            _ => Tone::Dim,
        };
        let lease = match state {
            "alive" | "draining" => Cell::new(format!("{}.{} s", left / 1_000, left % 1_000 / 100), tone),
            _ => Cell::new("", Tone::Plain),
        };
        let here = node.pointer("/here").and_then(Json::as_bool) == Some(true);
        let name = format!("{}{}", text(node, "/name"), if here { " (this one)" } else { "" });
        vec![
            Cell::new(name, Tone::Plain),
            Cell::new(state, tone),
            lease,
            number(node, "/lanes").to_string().into(),
            text(node, "/version").into(),
            text(node, "/started_at").into(),
            text(node, "/ended_at").into(),
        ]
    };
    let head = head(["NODE", "STATE", "LEASE", "LANES", "VERSION", "STARTED", "ENDED"]);
    std::iter::once(head).chain(nodes.iter().map(row)).collect()
}

fn leases_table(leases: &[Json]) -> Vec<Vec<Cell>> {
    let row = |lease: &Json| {
        let work = match (text(lease, "/channel"), text(lease, "/task")) {
            ("", task) => format!("task {task}"),
            (channel, _) => format!("channel {channel}"),
        };
        vec![work.into(), text(lease, "/node").into(), number(lease, "/epoch").to_string().into()]
    };
    std::iter::once(head(["WORK", "NODE", "EPOCH"])).chain(leases.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_node_and_each_leased_work_has_a_row() {
        let nodes = [
            json!({"name": "a", "state": "alive", "lease_ms": 14_230, "lanes": 3, "version": "0.1.0",
                   "started_at": "T1", "here": true, "settings_differ": false}),
            json!({"name": "b", "state": "alive", "lease_ms": 2_000, "lanes": 0, "version": "0.1.0",
                   "started_at": "T0", "here": false, "settings_differ": true}),
            json!({"name": "c", "state": "lost", "lease_ms": 0, "lanes": 1, "version": "0.1.0", "started_at": "T",
                   "ended_at": "T9", "here": false, "settings_differ": false}),
        ];
        let leases = [
            json!({"channel": "telegram", "node": "a", "epoch": 4}),
            json!({"task": "janitor", "node": "b", "epoch": 1}),
        ];
        let error = OnceLock::new();
        let words = |rows: &[Vec<Cell>]| -> Vec<String> {
            let lines = Output::plain(&error).aligned(rows);
            lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(
            words(&table(&nodes))[1..],
            ["a (this one) alive 14.2 s 3 0.1.0 T1", "b alive 2.0 s 0 0.1.0 T0", "c lost 1 0.1.0 T T9"]
        );
        assert_eq!(table(&nodes)[2][1], Cell::new("alive", Tone::Warn));
        assert_eq!(words(&leases_table(&leases))[1..], ["channel telegram a 4", "task janitor b 1"]);
        assert_eq!(nodes.iter().filter(|node| differs(node)).count(), 1);
    }
}
