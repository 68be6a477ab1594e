//! `belay stops check`: gives a verdict on recorded runs.

use std::io::Cursor;
use std::path::Path;

use belay_agent_loop::policies::StopRules;
use belay_cli::args::ClientArgs;
use belay_cli::client::{Client, IdKind, whole_id};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, print_error};
use belay_trajectory::explain::Follow;
use belay_trajectory::import::Format;
use belay_trajectory::{Judge, Reader};

use super::files::{runs, shown, unreadable};
use super::said::{self, Judged};
use super::{CheckArgs, rules};

/// Judges recordings, or a run of the daemon, and prints the verdicts. The verdict "stopped" is no failure.
pub async fn check(args: &CheckArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let rules = rules::of_check(args, env)?;
    if let Some(id) = &args.run {
        let client = Client::find(&ClientArgs { url: args.url.clone(), json: false }, env)?;
        let id = whole_id(&client, IdKind::Run, id).await?;
        let lines = client.get_text(&["api", "v1", "runs", &id, "trajectory"], &[]).await?;
        let mut follow = Follow::new(Judge::new(rules));
        for event in Reader::new(Cursor::new(lines)) {
            follow.observe(&event.map_err(|error| unreadable(Path::new(&id), &error))?);
        }
        said::verdicts(&[Judged { file: id, read: None, runs: vec![(String::new(), follow)] }], args.json, out);
        return Ok(Exit::Fine);
    }
    let format = args.format.as_deref().and_then(Format::from_word);
    let mut judged = Vec::new();
    let mut failures = Vec::new();
    for file in &args.sessions {
        match judge(file, format, &rules) {
            Ok(one) => judged.push(one),
            Err(failure) => failures.push(failure),
        }
    }
    said::verdicts(&judged, args.json, out);
    // All other files have their verdict; each failure is reported, and the last one gives the exit code.
    let Some(last) = failures.pop() else { return Ok(Exit::Fine) };
    failures
        .iter()
        .flat_map(|failure| failure.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        .for_each(|line| print_error(&line));
    Err(last)
}

fn judge(file: &Path, format: Option<Format>, rules: &StopRules) -> Result<Judged, Failure> {
    let new = || (String::new(), Follow::new(Judge::new(rules.clone())));
    let mut followed: Vec<(String, Follow)> = Vec::new();
    let read = runs(file, format, &mut |run, event| {
        if followed.len() <= run {
            followed.resize_with(run + 1, new);
        }
        followed[run].1.observe(&event);
    })?;
    let names = read.found.as_ref().map(|found| found.runs.clone()).unwrap_or_else(|| vec![String::new()]);
    followed.resize_with(names.len().max(followed.len()), new);
    for (run, name) in followed.iter_mut().zip(names) {
        run.0 = name;
    }
    Ok(Judged { file: shown(file), read: read.found.map(|found| found.summary()), runs: followed })
}
