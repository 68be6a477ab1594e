//! Reading the settings again while the daemon runs: all of them are checked, then what can change does, as a whole. A
//! problem anywhere changes nothing.

use belay_agent::{Reloader, Rules};
use belay_channels::AllowLists;
use belay_models::{EnvKeys, LlmConfig, PriceList};
use belay_protocol::StoreError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::args::SettingsArgs;
use crate::environment::Environment;
use crate::paths::Paths;
use crate::secrets::check_all;
use crate::settings::{Changes, Problem, Settings, load, reloaded};
use crate::stop_rules::stop_rules;
use crate::systemd;
use crate::telemetry::LogFilter;

/// Where the settings came from, and those that are in force.
pub(crate) struct Source {
    pub(crate) args: SettingsArgs,
    pub(crate) env: Environment,
    pub(crate) paths: Paths,
    pub(crate) settings: Settings,
    pub(crate) log: LogFilter,
}

/// The parts of the daemon whose rules can be swapped.
pub(crate) struct Swaps {
    /// Who may talk to the Telegram bot.
    pub(crate) allow_lists: AllowLists,
    /// What the models cost.
    pub(crate) prices: PriceList,
    /// The settings of the models with every `auto` decided, and their keys: by these the prices are told apart.
    pub(crate) llm: LlmConfig,
    pub(crate) keys: EnvKeys,
}

/// Reads the settings again at each request.
pub(crate) struct Reload {
    source: Source,
    swaps: Swaps,
    agent: Reloader,
    /// What the service manager is told of a daemon that is ready.
    status: String,
}

impl Reload {
    pub(crate) fn new(source: Source, swaps: Swaps, agent: Reloader, status: String) -> Self {
        Self { source, swaps, agent, status }
    }

    /// Works until told to stop, or until nobody can ask any more.
    pub(crate) async fn work(mut self, mut requests: mpsc::Receiver<()>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased; // the end first
                () = stop.cancelled() => return,
                request = requests.recv() => if request.is_none() { return },
            }
            systemd::reloading();
            match self.reload().await {
                Ok(Changes { reloaded, needs_restart }) => info!(
                    changed = %listed(&reloaded),
                    needs_restart = %listed(&needs_restart),
                    "settings reloaded"
                ),
                Err(NotReloaded::Refused(problems)) => {
                    error!(problems = %joined(&problems), "settings not reloaded; nothing was changed");
                }
                Err(NotReloaded::Store(error)) => error!(
                    %error,
                    "settings not reloaded: the store did not take all routines of routines.define; \
                     no other setting was changed; reload again"
                ),
            }
            systemd::ready(&self.status);
        }
    }

    /// Reads, checks and applies the settings.
    ///
    /// # Errors
    /// Every problem of the settings, or what the store says; then no rule has changed.
    async fn reload(&mut self) -> Result<Changes, NotReloaded> {
        let Source { args, env, paths, .. } = &self.source;
        // Files are read as at the start: small, local, and once.
        let loaded = load(args, env, paths)?;
        check_all(&loaded, env)?; // a restart with them would not be refused
        let (next, changes) = reloaded(&self.source.settings, &loaded.settings)
            .map_err(|error| vec![Problem::new("settings", error.to_string())])?;
        let problems = next.problems(&loaded.origins);
        if !problems.is_empty() {
            return Err(problems.into()); // fine after a restart, and not together with what is in force until then
        }
        self.apply(&next).await.map_err(NotReloaded::Store)?;
        self.source.settings = next;
        Ok(changes)
    }

    /// The agent first: it alone can fail, and then nothing else may have changed.
    async fn apply(&self, next: &Settings) -> Result<(), StoreError> {
        let Swaps { allow_lists, prices, llm, keys } = &self.swaps;
        let rules = Rules {
            stops: stop_rules(next),
            limits: next.limits.clone(),
            approvals: next.approvals.clone(),
            routines: next.routines.define.clone(),
        };
        let apply_rest = || {
            self.source.log.replace(&next.telemetry);
            allow_lists.replace(&next.channels.telegram);
            // The budgets of the agent ask for the prices.
            prices.replace(&priced(llm, &next.llm), keys);
        };
        self.agent.apply(rules, apply_rest).await
    }
}

/// Why the settings were not reloaded.
enum NotReloaded {
    /// What was read cannot be used.
    Refused(Vec<Problem>),
    /// Some routines may be stored, and nothing else has changed.
    Store(StoreError),
}

impl From<Vec<Problem>> for NotReloaded {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Refused(problems)
    }
}

/// The models in force with other prices.
fn priced(running: &LlmConfig, next: &LlmConfig) -> LlmConfig {
    let mut llm = LlmConfig { price: next.price, ..running.clone() };
    for (fallback, next) in llm.fallbacks.iter_mut().zip(&next.fallbacks) {
        fallback.price = next.price;
    }
    llm
}

fn listed(keys: &[String]) -> String {
    if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") }
}

/// All problems in one line.
fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
}
