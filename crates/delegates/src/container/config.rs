//! Settings of workers: `[workers]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[workers]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersConfig {
    /// Whether the model gets the tool `run_in_worker`.
    pub enabled: bool,
    /// Where a worker runs.
    pub host: WorkerHostKind,
    /// Most steps of one worker; a call may request fewer. Clamped to 1 and [`MOST_TURNS`]. The settings have it as
    /// `jobs.max_steps`.
    #[serde(skip)]
    pub max_turns: u32,
    /// Most seconds of one worker, from its start to its end; a call may request fewer. The settings have it as
    /// `agent.subagents.max_time_s`.
    #[serde(skip)]
    pub max_time_s: u64,
    /// Tools that workers may use although they run in the host. They pass the effect gate like any call.
    pub host_tools: Vec<String>,
    /// For a container: the image. It needs only the C library for which the program was built.
    pub image: String,
    /// For a container: the socket of Docker or Podman.
    pub docker_socket: PathBuf,
    /// For a container: its network. Empty: none.
    pub network: String,
}

/// Where a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerHostKind {
    /// In the sandbox of commands, `[tools.sandbox]`.
    Sandbox,
    /// In a container of Docker or Podman.
    Container,
}

/// Most steps of a worker. 500: longer work belongs in several jobs.
pub const MOST_TURNS: u32 = 500;

impl Default for WorkersConfig {
    /// 50 steps and 10 minutes: the figures of IronClaw's workers.
    fn default() -> Self {
        Self {
            enabled: false,
            host: WorkerHostKind::Sandbox,
            max_turns: 50,
            max_time_s: 600,
            host_tools: ["calculate", "clock", "recall"].map(str::to_owned).to_vec(),
            image: "debian:stable-slim".to_owned(),
            docker_socket: PathBuf::from("/var/run/docker.sock"),
            network: String::new(),
        }
    }
}

impl WorkersConfig {
    /// Returns all problems; each begins with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.host == WorkerHostKind::Container {
            if self.image.trim().is_empty() {
                problems.push("workers.image: must not be empty".to_owned());
            }
            if !self.docker_socket.is_absolute() {
                problems.push("workers.docker_socket: must be an absolute path".to_owned());
            }
        }
        problems
    }

    /// Most steps of one worker.
    pub fn turns(&self) -> u32 {
        self.max_turns.clamp(1, MOST_TURNS)
    }

    /// Longest time of one worker.
    pub fn max_time(&self) -> Duration {
        Duration::from_secs(self.max_time_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_problems_name_their_keys() {
        assert_eq!(WorkersConfig::default().validate(), Vec::<String>::new());
        let config = WorkersConfig {
            host: WorkerHostKind::Container,
            image: " ".into(),
            docker_socket: "docker.sock".into(),
            ..WorkersConfig::default()
        };
        let keys: Vec<_> =
            config.validate().iter().map(|problem| problem.split(':').next().map(str::to_owned)).collect();
        let expected = ["image", "docker_socket"];
        assert_eq!(keys, expected.map(|key| Some(format!("workers.{key}"))));
    }

    #[test]
    fn steps_are_brought_within_their_bounds() {
        for (given, expected) in [(0, 1), (1, 1), (500, 500), (501, 500), (u32::MAX, 500)] {
            assert_eq!(WorkersConfig { max_turns: given, ..WorkersConfig::default() }.turns(), expected);
        }
    }
}
