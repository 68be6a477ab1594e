//! `belay stops check`: gives a verdict on one recording.

use std::path::Path;

use belay_trajectory::{Judge, Reader};

use super::files::{recording, unreadable};
use super::{CheckArgs, rules};
use crate::args::ClientArgs;
use crate::client::{Client, IdKind, whole_id};
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Judges a recording, or a run of the daemon, and prints the verdict. The verdict "stopped" is no failure.
pub(crate) async fn check(args: &CheckArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut judge = Judge::new(rules::of_check(args, env)?);
    match &args.run {
        None => feed(&mut judge, recording(&args.file)?, &args.file)?,
        Some(id) => {
            let client = Client::find(&ClientArgs { url: args.url.clone(), json: false }, env)?;
            let id = whole_id(&client, IdKind::Run, id).await?;
            let lines = client.get_text(&["api", "v1", "runs", &id, "trajectory"], &[]).await?;
            feed(&mut judge, Reader::new(lines.as_bytes()), Path::new(&id))?;
        }
    }
    let verdict = serde_json::to_string(&judge.verdict()).map_err(|error| Failure::new(Exit::Internal, error))?;
    out.line(&verdict); // one line on a terminal too, for people who write scripts by trying
    Ok(Exit::Fine)
}

fn feed(judge: &mut Judge, events: Reader<impl std::io::BufRead>, from: &Path) -> Result<(), Failure> {
    for event in events {
        judge.observe(&event.map_err(|error| unreadable(from, &error))?);
    }
    Ok(())
}
