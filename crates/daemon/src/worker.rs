//! `belay worker`: one job, carried out for the daemon that has started this process behind walls.
//!
//! It reads no settings and no environment. What it is to do, it is told over the link; who it is, by the token that is
//! the one line of its standard input.

use std::io::{BufRead, Read};
use std::sync::Arc;

use belay_gateway::LinkClient;
use belay_protocol::{JobToken, ToolSet};
use belay_tools::worker::{WorkerEnvironment, own_tools, seal};

use crate::args::WorkerArgs;
use crate::exit::{Exit, Failure};

/// The directory of long outputs in the temporary one, which is this worker's alone.
const SCRATCH: &str = "belay-outputs";

/// Carries out the job.
///
/// # Errors
/// The room cannot be used, or the daemon cannot be reached or does not know the job; the daemon reads why on standard
/// error. How the job itself went, it has been told.
pub(crate) async fn worker(args: &WorkerArgs) -> Result<Exit, Failure> {
    let internal = |what: String| Failure::new(Exit::Internal, what);
    // Before the secret is here.
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
