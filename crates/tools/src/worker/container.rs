//! Workers in containers of Docker or Podman.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use belay_protocol::{WorkerHost, WorkerProcess, WorkerStart};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::docker::{Docker, send_line};
use super::host::arguments;

/// Paths inside the container: the workspace, the program, and the socket of the worker host.
const WORKSPACE: &str = "/workspace";
const PROGRAM: &str = "/belay/worker";
const LINK: &str = "/belay/link";
/// Size of the private temporary directory. 512 MiB: as in IronClaw's containers.
const TMP_MB: u64 = 512;
/// Most processes and threads. 256: as for a command in the sandbox.
const PROCESSES: u64 = 256;
/// Seconds from SIGTERM to SIGKILL. 2: as for every process of a run; a worker has no state to save.
const GRACE_S: u64 = 2;
/// How long the shutdown of the daemon waits for containers. 5 s: the grace period, and time for the container engine
/// to answer.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Most characters of a worker's standard error in a report. 500: as for other quoted program output.
const STDERR_CHARS: usize = 500;
/// Labels of a container: the owning daemon, the job, and the creation time (milliseconds since 1970).
const OWNER: &str = "belay.owner";
const JOB: &str = "belay.job";
const CREATED: &str = "belay.created";

/// Settings of worker containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSettings {
    /// The socket of Docker or Podman.
    pub socket: PathBuf,
    /// The image. It must be present on this machine; it is not pulled.
    pub image: String,
    /// Memory limit in MiB, including swap.
    pub memory_mb: u64,
    /// CPU weight relative to other containers; 1024 is the default of the engine.
    pub cpu_shares: u64,
    /// The network of the container. Empty: no network.
    pub network: String,
    /// The path of the workspace on this machine.
    pub workspace: PathBuf,
    /// The path of the program on this machine; it must support the subcommand `worker`.
    pub program: PathBuf,
    /// User and group of the worker: the owner of the workspace and of the socket of the worker host. Not root.
    pub user: (u32, u32),
    /// Distinguishes the containers of this daemon from those of others, for example the path of its data directory.
    pub owner: String,
}

/// Starts workers in containers.
#[derive(Debug)]
pub struct ContainerHost {
    docker: Docker,
    settings: ContainerSettings,
    /// Tasks that stop the containers of dropped workers.
    endings: TaskTracker,
}

impl ContainerHost {
    /// Creates a host with these settings. The first request opens the connection.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn new(settings: ContainerSettings) -> Result<Self, String> {
        Ok(Self { docker: Docker::new(&settings.socket)?, settings, endings: TaskTracker::new() })
    }

    /// Removes the containers that an earlier daemon with the same owner label has left, and returns their number. Call
    /// it at the start, before this daemon starts workers.
    ///
    /// # Errors
    /// The container engine does not answer, or refuses.
    pub async fn reap(&self) -> Result<usize, String> {
        let left = self.docker.labelled(&format!("{OWNER}={}", self.settings.owner)).await?;
        for id in &left {
            self.docker.remove(id).await?;
        }
        Ok(left.len())
    }

    /// The request that creates the container of a job. The container has no capabilities and no network unless one is
    /// configured. It can only write to the workspace and to a temporary directory in memory.
    fn shape(&self, start: &WorkerStart) -> Value {
        let ContainerSettings { image, memory_mb, cpu_shares, network, workspace, program, user, owner, .. } =
            &self.settings;
        let memory = memory_mb.saturating_mul(1024 * 1024);
        let bind = |source: &PathBuf, target: &str, readonly: bool| json!({ "Type": "bind", "Source": source, "Target": target, "ReadOnly": readonly });
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let command: Vec<_> =
            arguments(start.job, LINK).into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        json!({
            "Image": image,
            "Entrypoint": [PROGRAM],
            "Cmd": command,
            // Private to the worker. Each command gets an empty home directory below it.
            "Env": ["HOME=/tmp", "TMPDIR=/tmp"],
            "User": format!("{}:{}", user.0, user.1),
            "WorkingDir": WORKSPACE,
            "Labels": { OWNER: owner, JOB: start.job.to_string(), CREATED: created.to_string() },
            "AttachStdin": true,
            "OpenStdin": true,
            "StdinOnce": true,
            "StopTimeout": GRACE_S,
            "NetworkDisabled": network.is_empty(),
            "HostConfig": {
                "Memory": memory,
                "MemorySwap": memory,
                "CpuShares": cpu_shares,
                "PidsLimit": PROCESSES,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "ReadonlyRootfs": true,
                "Init": true,
                "NetworkMode": if network.is_empty() { "none" } else { network },
                "Tmpfs": { "/tmp": format!("rw,nosuid,nodev,mode=1777,size={TMP_MB}m") },
                "Mounts": [
                    bind(workspace, WORKSPACE, false),
                    bind(program, PROGRAM, true),
                    bind(&start.socket, LINK, true),
                ],
            },
        })
    }

    async fn run(&self, id: &str, start: &WorkerStart) -> Result<(), String> {
        // Attaches before the start, so that the first read of the worker gets the token.
        let stdin = self.docker.attach(id).await?;
        self.docker.start(id).await?;
        send_line(stdin, start.token.expose()).await
    }
}

#[async_trait]
impl WorkerHost for ContainerHost {
    /// Checks that the socket accepts connections. A missing image is only found when the first worker starts.
    fn ready(&self) -> Result<(), String> {
        let ContainerSettings { socket, user, .. } = &self.settings;
        if user.0 == 0 {
            return Err(
                "Belay runs as root, and a worker in a container must not: give Belay a user of its own".to_owned()
            );
        }
        std::os::unix::net::UnixStream::connect(socket)
            .map(drop)
            .map_err(|error| format!("no server of containers answers on {}: {error}", socket.display()))
    }

    /// # Cancel safety
    /// If the future is dropped, a container may remain that was never started, or that finds no job and exits. The
    /// next start of the daemon removes it.
    async fn start(&self, start: WorkerStart) -> Result<Box<dyn WorkerProcess>, String> {
        let id = self.docker.create(&format!("belay-worker-{}", start.job), &self.shape(&start)).await?;
        // A stop that came meanwhile has found no container yet.
        let started = if start.generation.is_current() {
            self.run(&id, &start).await
        } else {
            Err("the run was stopped".to_owned())
        };
        match started {
            Ok(()) => {
                let (docker, endings) = (self.docker.clone(), self.endings.clone());
                Ok(Box::new(ContainerWorker { docker, id, endings, ended: false }))
            }
            Err(why) => {
                log_failure(self.docker.remove(&id).await);
                Err(why)
            }
        }
    }

    async fn close(&self) {
        self.endings.close();
        if tokio::time::timeout(CLOSE_LIMIT, self.endings.wait()).await.is_err() {
            tracing::warn!("containers of workers were not ended in time; the next start removes them");
        }
    }
}

struct ContainerWorker {
    docker: Docker,
    id: String,
    endings: TaskTracker,
    ended: bool,
}

/// Stops and removes a container.
async fn end(docker: Docker, id: String) {
    log_failure(docker.stop(&id, GRACE_S).await);
    log_failure(docker.remove(&id).await);
}

impl Drop for ContainerWorker {
    /// The host owns the task that ends the container, and [`WorkerHost::close`] waits for it.
    fn drop(&mut self) {
        if !self.ended {
            self.endings.spawn(end(self.docker.clone(), std::mem::take(&mut self.id)));
        }
    }
}

#[async_trait]
impl WorkerProcess for ContainerWorker {
    async fn ended(&mut self) -> String {
        let code = match self.docker.wait(&self.id).await {
            Ok(0) => return "exit code 0".to_owned(),
            Ok(code) => code,
            Err(why) => return why,
        };
        match self.docker.stderr_tail(&self.id).await {
            Ok(output) if !output.is_empty() => {
                let output: String = output.chars().take(STDERR_CHARS).collect();
                format!("exit code {code}; its last words: {output}")
            }
            Ok(_) => format!("exit code {code}"),
            Err(why) => {
                tracing::debug!(why, "the last words of a container are not known");
                format!("exit code {code}")
            }
        }
    }

    async fn end(&mut self) {
        end(self.docker.clone(), self.id.clone()).await;
        self.ended = true; // if the future is dropped before this, the container is ended again, which is harmless
    }
}

/// Logs that a container could not be ended. The next start of the daemon tries again.
fn log_failure(ended: Result<(), String>) {
    if let Err(why) = ended {
        tracing::error!(why, "the container of a worker may be left");
    }
}
