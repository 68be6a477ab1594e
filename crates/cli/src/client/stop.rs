//! `belay stop`.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use belay_protocol::IdPrefix;
use serde_json::Value as Json;
use uuid::Uuid;

use super::ids::{IdKind, candidates, whole_id};
use super::{Client, text};
use crate::args::StopArgs;

/// Stops a run, a session, or everything.
pub async fn stop(args: &StopArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let run = match &args.target {
        Some(target) => run_of(&client, target).await?,
        None => None,
    };
    let path: Vec<&str> = match (args.target.as_deref(), run.as_deref()) {
        (None, _) => vec!["api", "v1", "stop"],
        (Some(_), Some(run)) => vec!["api", "v1", "runs", run, "stop"],
        (Some(session), None) => vec!["api", "v1", "sessions", session, "stop"],
    };
    let report = client.post(&path, None, Duration::ZERO).await?;
    if args.client.json {
        out.json(&report)
    } else {
        out.line(&said(&report))
    }
    Ok(Exit::Fine)
}

/// The run with this id or prefix. `None`: the target is the key of a session.
async fn run_of(client: &Client, target: &str) -> Result<Option<String>, Failure> {
    let Ok(prefix) = IdPrefix::parse(target) else { return Ok(None) };
    if Uuid::parse_str(target).is_err() && candidates(client, IdKind::Run, &prefix).await?.is_empty() {
        return Ok(None); // a session may be called "abcdef"
    }
    whole_id(client, IdKind::Run, target).await.map(Some)
}

fn said(report: &Json) -> String {
    let list = |name: &str| report.get(name).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default().to_vec();
    let (stopped, still) = (list("stopped"), list("still_running"));
    let processes = report.get("ended_processes").and_then(Json::as_u64).unwrap_or(0);
    let ended = match processes {
        0 => String::new(),
        1 => "ended 1 background process".to_owned(),
        n => format!("ended {n} background processes"),
    };
    let mut said = match stopped.len() {
        0 if still.is_empty() && processes == 0 => return "nothing was running".into(),
        0 if processes > 0 => ended,
        n if processes > 0 => format!("stopped {n} run{}, {ended}", if n == 1 { "" } else { "s" }),
        1 => "stopped 1 run".to_owned(),
        n => format!("stopped {n} runs"),
    };
    for run in stopped.iter().filter_map(Json::as_str) {
        said.push_str(&format!("\n  {run}"));
    }
    for run in &still {
        said.push_str(&format!("\n  {} is still ending: {}", text(run, "/run_id"), text(run, "/what")));
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stop_says_what_it_stopped_and_what_is_still_ending() {
        for (report, words) in [
            (json!({"stopped": [], "still_running": []}), "nothing was running"),
            (json!({"stopped": ["a"], "still_running": []}), "stopped 1 run\n  a"),
            (json!({"stopped": [], "still_running": [], "ended_processes": 1}), "ended 1 background process"),
            (
                json!({"stopped": ["a"], "still_running": [], "ended_processes": 2}),
                "stopped 1 run, ended 2 background processes\n  a",
            ),
            (
                json!({"stopped": ["a", "b"], "still_running": [{"run_id": "b", "pid": 7, "what": "sleep"}]}),
                "stopped 2 runs\n  a\n  b\n  b is still ending: sleep",
            ),
        ] {
            assert_eq!(said(&report), words);
        }
    }
}
