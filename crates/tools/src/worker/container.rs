//! Workers in containers of Docker or Podman.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use belay_protocol::{WorkerHost, WorkerProcess, WorkerStart};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::docker::{Docker, hand_over};
use super::host::arguments;

/// Where a container finds the workspace, the program, and the socket of its host.
const WORKSPACE: &str = "/workspace";
const PROGRAM: &str = "/belay/worker";
const LINK: &str = "/belay/link";
/// Size of the private temporary directory. 512 MiB: what IronClaw's containers get.
const TMP_MB: u64 = 512;
/// Most processes and threads. 256: as for a command in the sandbox.
const PROCESSES: u64 = 256;
/// Seconds from TERM to KILL. 2: as for every process of a run; a worker has nothing to put away.
const GRACE_S: u64 = 2;
/// How long the end of the daemon waits for containers. 5 s: the grace, and time for the server to answer.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Most characters of a worker's last words. 500: as for whatever else is repeated of another program.
const WORDS_CHARS: usize = 500;
/// The labels: whose container it is, for which job, and since when (milliseconds since 1970).
const OWNER: &str = "belay.owner";
const JOB: &str = "belay.job";
const CREATED: &str = "belay.created";

/// What containers of workers are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSettings {
    /// The socket of Docker or Podman.
    pub socket: PathBuf,
    /// The image. It is not fetched: it has to be there.
    pub image: String,
    /// Memory in MiB, swap included.
    pub memory_mb: u64,
    /// Share of the processor where others want it too; 1024 is an ordinary one.
    pub cpu_shares: u64,
    /// The network it is on. Empty: none.
    pub network: String,
    /// The workspace on this machine.
    pub workspace: PathBuf,
    /// The program on this machine that understands `worker`.
    pub program: PathBuf,
    /// The user and group that the worker runs as: the owner of the workspace and of the link's socket. Not root.
    pub user: (u32, u32),
    /// What tells this daemon's containers from another's: the path of its data, for example.
    pub owner: String,
}

/// Starts workers in containers.
#[derive(Debug)]
pub struct ContainerHost {
    docker: Docker,
    settings: ContainerSettings,
    /// Containers that were dropped and are being ended.
    endings: TaskTracker,
}

impl ContainerHost {
    /// A host of containers of this shape. Connects with the first request.
    ///
    /// # Errors
    /// No client can be made.
    pub fn new(settings: ContainerSettings) -> Result<Self, String> {
        Ok(Self { docker: Docker::new(&settings.socket)?, settings, endings: TaskTracker::new() })
    }

    /// Removes what an earlier daemon of this owner has left behind; how many there were. Meant for the start, when no
    /// worker of this daemon can be at work.
    ///
    /// # Errors
    /// The server of containers does not answer, or refuses.
    pub async fn reap(&self) -> Result<usize, String> {
        let left = self.docker.labelled(&format!("{OWNER}={}", self.settings.owner)).await?;
        for id in &left {
            self.docker.remove(id).await?;
        }
        Ok(left.len())
    }

    /// The container of a job: no rights, no network unless it is granted, nothing to write to but the workspace and a
    /// temporary directory in memory.
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
            "Env": [format!("HOME={WORKSPACE}"), "TMPDIR=/tmp"],
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
        // Before the start, so that its first read finds us.
        let stdin = self.docker.attach(id).await?;
        self.docker.start(id).await?;
        hand_over(stdin, start.token.expose()).await
    }
}

#[async_trait]
impl WorkerHost for ContainerHost {
    /// Whether somebody listens on the socket; whether the image is there shows itself with the first worker.
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
    /// Dropped midway, a container may stay that is never started, or finds its job gone and ends by itself; the next
    /// start of the daemon removes it.
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
                gone(self.docker.remove(&id).await);
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
    gone(docker.stop(&id, GRACE_S).await);
    gone(docker.remove(&id).await);
}

impl Drop for ContainerWorker {
    /// The host of containers owns the ending, and [`WorkerHost::close`] waits for it.
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
        match self.docker.last_words(&self.id).await {
            Ok(words) if !words.is_empty() => {
                let words: String = words.chars().take(WORDS_CHARS).collect();
                format!("exit code {code}; its last words: {words}")
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
        self.ended = true; // dropped before this, it is ended once more, which does no harm
    }
}

/// A container that could not be ended is told to the operator, and tried again with the next start.
fn gone(ended: Result<(), String>) {
    if let Err(why) = ended {
        tracing::error!(why, "the container of a worker may be left");
    }
}
