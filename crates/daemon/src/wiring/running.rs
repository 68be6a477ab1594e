//! The running daemon: waits for its parts, and ends them in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use belay_agent::{AgentExit, DRAIN_REST_S};
use belay_channels::StdinChannel;
use belay_crash_point::crash_point;
use belay_gateway::GatewayError;
use belay_hooks::HookSet;
use belay_parts::{HOOKS_GRACE, ProgramsHandle, Store};
use belay_program::exit::Exit;
use belay_program::systemd;
use belay_protocol::ModelInfo;
use belay_settings::Settings;
use signal_hook_tokio::Handle;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// The running daemon. All tasks are in `tasks`; `wait` joins them.
pub(crate) struct Running {
    pub(super) tasks: JoinSet<Ended>,
    /// The task id of the agent, to recognise it when it panics.
    pub(super) agent: Option<Id>,
    /// Cancelled by a signal, or when a part fails.
    pub(super) root: CancellationToken,
    /// Cancelled when the agent has drained: until then, status and stop requests work.
    pub(super) gateway_stop: CancellationToken,
    pub(super) signals_end: Handle,
    pub(super) store: Store,
    /// The prompt must end before the process, or the terminal would stay in the prompt's mode.
    pub(super) stdin: Option<Arc<StdinChannel>>,
    /// Closed before the store: no process of a run outlives the daemon, however the daemon ends.
    pub(super) programs: ProgramsHandle,
    pub(super) hooks: HookSet,
    pub(super) address: Option<SocketAddr>,
    pub(super) model: ModelInfo,
    pub(super) ready: watch::Receiver<bool>,
    /// Longest time from the beginning of the drain to the end of the process.
    pub(super) drain_limit: Duration,
}

/// Longest time in which hooks, programs and the store end, after everything else. 3 s: programs have 2 s between SIGTERM and
/// SIGKILL.
const CLOSE_REST_S: u64 = 3;

/// Longest time from the beginning of a drain to the end of the process. The stop timeout of a service manager is above it.
pub(crate) fn drain_limit(settings: &Settings) -> Duration {
    Duration::from_secs(settings.agent.drain_s + DRAIN_REST_S + settings.gateway.drain_s + CLOSE_REST_S)
}

/// A part that has ended.
pub(super) enum Ended {
    Agent(AgentExit),
    Gateway(Result<(), GatewayError>),
    Signals,
    Reloads,
    /// The connections to MCP servers.
    Connections,
    Janitor,
    Backups,
    Recorder,
    #[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "a build without exporters"))]
    Exporter,
    /// The upkeep of this node of a cluster.
    Node,
}

impl Running {
    /// One line about the address and the model.
    pub(crate) fn describe(&self) -> String {
        let place = self.address.map_or("on the control socket".to_owned(), |address| format!("on http://{address}"));
        let model = if self.model.rehearsal {
            "rehearsal, a built-in stand-in".to_owned()
        } else {
            format!("{} by {}", self.model.model, self.model.provider)
        };
        format!("ready {place} (model: {model})")
    }

    /// Shows a line above the prompt. `false`: there is no prompt.
    pub(crate) async fn say_above_prompt(&self, text: &str) -> bool {
        let Some(stdin) = self.stdin.as_ref().filter(|stdin| stdin.has_prompt()) else { return false };
        // As for stderr: if the terminal is closed, nobody can be told.
        let _ = stdin.say(&format!("belay: {text}")).await;
        true
    }

    /// Waits until the agent has drained and ended, ends the other parts, and closes the store. If that takes longer than
    /// [`drain_limit`], the process exits: a service manager would kill it a moment later, and nobody would know why.
    pub(crate) async fn wait(self) -> Exit {
        let (ready, limit) = (self.ready.clone(), self.drain_limit);
        let mut closed = Box::pin(self.until_closed());
        tokio::select! {
            exit = &mut closed => exit,
            () = drained_for(limit, ready) => {
                let limit_s = limit.as_secs();
                error!(limit_s, "the drain did not end in time; the process ends now, and its next start continues the work");
                // To drop the parts would be to wait for them. What was accepted is in the store.
                std::process::exit(Exit::Internal as i32)
            }
        }
    }

    async fn until_closed(mut self) -> Exit {
        let (mut exit, mut is_lost) = (Exit::Fine, false);
        let announce = announce_drain(self.ready.clone());
        let lost = self.store.lost();
        let watch_parts = async {
            while let Some(ended) = self.tasks.join_next().await {
                match ended {
                    Ok(Ended::Agent(why)) => {
                        info!(?why, "agent ended");
                        return;
                    }
                    Ok(
                        Ended::Signals
                        | Ended::Reloads
                        | Ended::Connections
                        | Ended::Janitor
                        | Ended::Backups
                        | Ended::Recorder
                        | Ended::Exporter
                        | Ended::Node,
                    ) => {}
                    Ok(Ended::Gateway(ended)) => {
                        error!(?ended, "the gateway ended before the agent");
                        exit = Exit::Internal;
                        self.root.cancel();
                    }
                    Err(broken) => {
                        report(&broken);
                        exit = Exit::Internal;
                        if self.agent == Some(broken.id()) {
                            return;
                        }
                        self.root.cancel();
                    }
                }
            }
        };
        let parts = async { tokio::join!(watch_parts, announce) };
        tokio::select! {
            biased; // a daemon that is lost begins nothing
            lost = lost => {
                error!("{}", lost.words());
                self.lose().await;
                (exit, is_lost) = (Exit::Busy, true);
            }
            _ = parts => {}
        }
        self.end_the_rest();
        self.join(is_lost).await;
        exit
    }

    /// Ends all work and all processes at once, since this daemon is [`Lost`](belay_parts::Lost).
    pub(super) async fn lose(&mut self) {
        self.tasks.abort_all();
        self.programs.close().await;
    }

    /// Ends all parts but the agent.
    pub(super) fn end_the_rest(&self) {
        self.gateway_stop.cancel();
        self.signals_end.close();
    }

    /// Waits for all parts, and closes the store. `abandon`: nothing waits to be written.
    pub(super) async fn join(mut self, abandon: bool) {
        if let Some(stdin) = &self.stdin {
            stdin.close().await;
        }
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ended::Gateway(Err(error))) => error!(%error, "the gateway ended badly"),
                Ok(_) => {}
                Err(broken) => report(&broken),
            }
        }
        if !self.hooks.close(HOOKS_GRACE).await {
            tracing::warn!("some hooks did not end in time");
        }
        self.programs.close().await;
        crash_point!("drain.before-close");
        if abandon {
            self.store.abandon().await;
        } else {
            self.store.close().await;
        }
    }
}

fn report(broken: &JoinError) {
    if broken.is_cancelled() {
        return; // the daemon is lost
    }
    error!(%broken, "a part of the daemon broke");
}

/// Waits until the drain has taken so long.
async fn drained_for(limit: Duration, mut ready: watch::Receiver<bool>) {
    // An error means that the agent has ended, which ends the drain too.
    let _ = ready.wait_for(|ready| !ready).await;
    sleep(limit).await;
}

/// Notifies the service manager when the drain begins: when messages are no longer accepted.
async fn announce_drain(mut ready: watch::Receiver<bool>) {
    // An error means that the agent has ended, which ends the drain too.
    let _ = ready.wait_for(|ready| !ready).await;
    systemd::stopping();
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_limit_of_a_drain_counts_from_its_beginning() {
        let (sender, ready) = watch::channel(true);
        let (limit, begun) = (drain_limit(&Settings::default()), Instant::now());
        let drains = async {
            sleep(Duration::from_secs(3600)).await;
            sender.send_replace(false);
        };
        tokio::join!(drained_for(limit, ready), drains);
        assert_eq!(begun.elapsed(), Duration::from_secs(3600) + limit);
    }

    #[test]
    fn the_service_unit_fits_the_settings() {
        let unit = include_str!("../../../../deploy/belay.service");
        let value =
            |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}"));
        let settings = Settings::default();
        let drain = drain_limit(&settings).as_secs();
        assert!(value("TimeoutStopSec=").parse::<u64>().expect("seconds") > drain);
        assert!(unit.contains(&format!("{drain} s at the very worst")), "{drain}");
        let pod = include_str!("../../../../deploy/kubernetes/statefulset.yaml");
        assert!(pod.contains(&format!("# Above the {drain} s of the longest drain.")), "{drain}");
        assert_eq!((value("Type="), value("KillMode="), value("StandardInput=")), ("notify", "mixed", "null"));
        // The built-in file explains every credential of the unit.
        let credentials: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("#LoadCredential=")).collect();
        assert!(credentials.len() >= 7);
        for credential in credentials {
            let name = credential.split(':').next().unwrap_or_default();
            assert!(include_str!("../../../../config/default.toml").contains(name), "{name}");
        }
    }
}
