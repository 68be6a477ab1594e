//! Workers: where they are started, and the link by which they are answered.

use belay_agent::{WorkerRoom, WorkersParts};
use belay_gateway::WorkerLinkServer;

use super::gateway_failure;
use super::programs::Programs;
use crate::exit::Failure;
use crate::paths::Paths;
use crate::settings::Settings;

/// The socket of the link, beside the control socket. No longer than that one's name, so it fits where that one does.
const SOCKET: &str = "worker.sock";

/// Opens the link and finds the host of workers, where they are wanted.
///
/// # Errors
/// The socket cannot be made.
pub(super) fn open(
    settings: &Settings,
    paths: &Paths,
    programs: &Programs,
) -> Result<Option<(WorkersParts, WorkerLinkServer)>, Failure> {
    if !settings.workers.enabled {
        return Ok(None);
    }
    let host = match settings.workers.host {
        WorkerRoom::Sandbox => programs.worker_host(),
        WorkerRoom::Container => programs.worker_host(),
    };
    let socket = paths.control_socket.with_file_name(SOCKET);
    let (server, links) = WorkerLinkServer::bind(socket).map_err(|error| gateway_failure(&error))?;
    Ok(Some((WorkersParts { config: settings.workers.clone(), host, links }, server)))
}
