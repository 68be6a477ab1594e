//! Reloads the settings while the daemon runs. All of them are checked first; then all reloadable ones change together.
//! Any problem leaves everything unchanged.

use belay_agent::{Reloader, Rules};
use belay_models::{EnvKeys, LlmConfig, PriceList};
use belay_program::environment::Environment;
use belay_program::paths::Paths;
use belay_program::systemd;
use belay_protocol::StoreError;
use belay_settings::secrets::check_all;
use belay_settings::stop_rules;
use belay_settings::{Changes, Problem, Settings, SettingsArgs, load, reloaded};
use belay_telemetry::LogFilter;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::platform_people::PlatformPeople;

/// The sources of the settings, and the settings in force.
pub(crate) struct Source {
    pub(crate) args: SettingsArgs,
    pub(crate) env: Environment,
    pub(crate) paths: Paths,
    pub(crate) settings: Settings,
    pub(crate) log: LogFilter,
}

/// The parts of the daemon whose rules can be swapped.
pub(crate) struct Reloadable {
    /// Who may talk to Belay on message platforms.
    pub(crate) people: PlatformPeople,
    /// What the models cost.
    pub(crate) prices: PriceList,
    /// The settings of the models with every `auto` resolved, and their keys. They identify the models in the price
    /// list.
    pub(crate) llm: LlmConfig,
    pub(crate) keys: EnvKeys,
}

/// Reloads the settings on each request.
pub(crate) struct Reload {
    source: Source,
    reloadable: Reloadable,
    agent: Reloader,
    /// The status text of a ready daemon, for the service manager.
    status: String,
}

impl Reload {
    pub(crate) fn new(source: Source, reloadable: Reloadable, agent: Reloader, status: String) -> Self {
        Self { source, reloadable, agent, status }
    }

    /// Works until it is stopped, or until all senders of requests are dropped.
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
    /// All problems of the settings, or the error of the store; then no rule has changed.
    async fn reload(&mut self) -> Result<Changes, NotReloaded> {
        let Source { args, env, paths, .. } = &self.source;
        // Blocking reads, as at the start: the files are small, local, and read once.
        let loaded = load(args, env, paths)?;
        check_all(&loaded, env)?; // checks that a restart with them would succeed
        let (next, changes) = reloaded(&self.source.settings, &loaded.settings)
            .map_err(|error| vec![Problem::new("settings", error.to_string())])?;
        let problems = next.problems(&loaded.origins);
        if !problems.is_empty() {
            // Fine after a restart, but not together with the settings that stay in force until then.
            return Err(problems.into());
        }
        self.apply(&next).await.map_err(NotReloaded::Store)?;
        self.source.settings = next;
        Ok(changes)
    }

    /// Applies the settings. The agent comes first: only it can fail, and then nothing else has changed.
    async fn apply(&self, next: &Settings) -> Result<(), StoreError> {
        let Reloadable { people, prices, llm, keys } = &self.reloadable;
        let rules = Rules {
            stops: stop_rules(next),
            limits: next.limits.clone(),
            approvals: next.approvals.clone(),
            routines: next.routines.define.clone(),
        };
        let apply_rest = || {
            self.source.log.replace(&next.telemetry);
            people.replace(&next.channels);
            // The agent's budgets need the prices.
            prices.replace(&priced(llm, &next.llm), keys);
        };
        self.agent.apply(rules, apply_rest).await
    }
}

/// Why the settings were not reloaded.
enum NotReloaded {
    /// The settings are invalid.
    Refused(Vec<Problem>),
    /// The store failed: some routines may be stored, but nothing else has changed.
    Store(StoreError),
}

impl From<Vec<Problem>> for NotReloaded {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Refused(problems)
    }
}

/// The model settings in force, with the new prices.
fn priced(running: &LlmConfig, next: &LlmConfig) -> LlmConfig {
    let mut llm = LlmConfig { price_usd: next.price_usd, ..running.clone() };
    for (fallback, next) in llm.fallbacks.iter_mut().zip(&next.fallbacks) {
        fallback.price_usd = next.price_usd;
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
