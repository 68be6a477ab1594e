//! Builds the host that starts workers, and the link that serves them.

use std::sync::Arc;

use belay_delegates::{WorkerHostKind, WorkersParts};
use belay_gateway::WorkerLinkServer;
use belay_parts::{Programs, gateway_failure};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_protocol::WorkerHost;
use belay_settings::{Settings, workspace_of};
use belay_tools::worker::{ContainerHost, ContainerSettings};

/// The socket of the link, beside the control socket. Its name is not longer, so it fits where the control socket fits.
const SOCKET: &str = "worker.sock";

/// The link to serve, and the host to close at the end of the daemon.
pub(super) struct Workers {
    pub(super) server: WorkerLinkServer,
    pub(super) host: Arc<dyn WorkerHost>,
}

/// Opens the link and the host of workers, if workers are enabled.
///
/// # Errors
/// The socket cannot be made. A host that cannot start workers is no error: the agent reports it and continues without.
pub(super) async fn open(
    settings: &Settings,
    env: &Environment,
    paths: &Paths,
    programs: &Programs,
) -> Result<Option<(WorkersParts, Workers)>, Failure> {
    if !settings.workers.enabled {
        return Ok(None);
    }
    let host = match settings.workers.host {
        WorkerHostKind::Sandbox => programs.worker_host().await,
        WorkerHostKind::Container => containers(settings, env, paths).await?,
    };
    let socket = paths.control_socket.with_file_name(SOCKET);
    let (server, links) = WorkerLinkServer::bind(socket).map_err(|error| gateway_failure(&error))?;
    let workers = Workers { server, host: host.clone() };
    Ok(Some((WorkersParts { config: settings.workers.clone(), host, links }, workers)))
}

/// Least memory of a worker's container, in MiB: Belay and the C library need a part of it.
const CONTAINER_LEAST_MB: u64 = 64;

/// Share of a busy processor of a worker's container. 1024 is what Docker and Podman give a container without the
/// option.
const CPU_SHARES: u64 = 1024;

/// The host of containers. Removes the containers that an earlier daemon of this data directory has left.
async fn containers(settings: &Settings, env: &Environment, paths: &Paths) -> Result<Arc<dyn WorkerHost>, Failure> {
    let internal = |error: String| Failure::new(Exit::Internal, error);
    let workers = &settings.workers;
    let workspace = workspace_of(settings, env, paths);
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let host = ContainerHost::new(ContainerSettings {
        socket: workers.docker_socket.clone(),
        image: workers.image.clone(),
        // A container has the memory of one process of a command, but no less than it needs to start.
        memory_mb: settings.tools.sandbox.memory_mb.max(CONTAINER_LEAST_MB),
        cpu_shares: CPU_SHARES,
        network: workers.network.clone(),
        // With links resolved: the container engine binds the real path.
        workspace: workspace.canonicalize().unwrap_or(workspace),
        program: std::env::current_exe().map_err(|error| internal(error.to_string()))?,
        user,
        owner: paths.data.display().to_string(),
    })
    .map_err(internal)?;
    match host.reap().await {
        Ok(0) => {}
        Ok(left) => tracing::info!(left, "containers of an earlier start were removed"),
        Err(why) => tracing::warn!(why, "whether an earlier start has left containers is not known"),
    }
    Ok(Arc::new(host))
}
