//! `belay worker`: carries out one job for the daemon, which has started this process in a sandbox.
//!
//! It reads no settings and no environment. It gets its task over the link, and its token from the only line of its
//! standard input.

use std::io::{BufRead, Read};
use std::sync::Arc;

use belay_gateway::LinkClient;
use belay_program::exit::{Exit, Failure};
use belay_protocol::{JobToken, ToolSet};
use belay_tools::worker::{WorkerEnvironment, own_tools, seal};

use crate::args::WorkerArgs;

/// The directory for long outputs, in the temporary directory, which belongs to this worker alone.
const SCRATCH: &str = "belay-outputs";

/// Carries out the job.
///
/// # Errors
/// The sandbox is unusable, or the daemon cannot be reached or does not know the job. The daemon reads the error on
/// standard error. The result of the job itself goes over the link.
pub(crate) async fn worker(args: &WorkerArgs) -> Result<Exit, Failure> {
    let internal = |what: String| Failure::new(Exit::Internal, what);
    // Before this process has the secret.
    seal().map_err(internal)?;
    let token = token()?;
    let link = LinkClient::new(&args.socket, args.job, &token).map_err(|error| internal(error.to_string()))?;
    let found = |error: std::io::Error| internal(format!("the sandbox of this worker cannot be inspected: {error}"));
    let room = WorkerEnvironment {
        workspace: std::env::current_dir().map_err(found)?,
        scratch: std::env::temp_dir().join(SCRATCH),
        program: std::env::current_exe().map_err(found)?,
    };
    let tools = ToolSet::new(own_tools(&room).map_err(internal)?);
    let end = belay_delegates::container::work(Arc::new(link), tools).await;
    end.map(|_| Exit::Fine).map_err(|error| Failure::new(Exit::OutOfReach, error))
}

fn token() -> Result<JobToken, Failure> {
    let mut line = String::new();
    let most = 2 * JobToken::BYTES as u64 + 1;
    let read = std::io::stdin().lock().take(most).read_line(&mut line);
    read.map_err(|error| error.to_string())
        .and_then(|_| JobToken::parse(line.trim_end()))
        .map_err(|error| Failure::new(Exit::UnusableInput, format!("standard input: {error}")))
}
