//! Reading the settings again while the daemon runs: all of them are checked, then what can change does, as a whole. A
//! problem anywhere changes nothing.

use belay_agent::{Reloader, Rules};
use belay_channels::AllowLists;
use belay_models::{EnvKeys, LlmConfig, PriceList};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::environment::Environment;
use crate::paths::Paths;
use crate::secrets::{Secrets, hook_tokens, mcp_tokens, skill_keys};
use crate::settings::{Changes, Loaded, Problem, Settings, SettingsArgs, load, reloaded};
use crate::systemd;
use crate::telemetry::LogFilter;
use crate::wiring::stop_rules;

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
                Err(problems) => error!(problems = %joined(&problems), "settings not reloaded; nothing was changed"),
            }
            systemd::ready(&self.status);
        }
    }

    /// Reads, checks and applies the settings.
    ///
    /// # Errors
    /// Every problem of the settings; then nothing has changed.
    async fn reload(&mut self) -> Result<Changes, Vec<Problem>> {
        let Source { args, env, paths, .. } = &self.source;
        // Files are read as at the start: small, local, and once.
        let loaded = load(args, env, paths)?;
        check_secrets(&loaded, env)?;
        let (next, changes) = reloaded(&self.source.settings, &loaded.settings)
            .map_err(|error| vec![Problem::new("settings", error.to_string())])?;
        let problems = next.problems(&loaded.origins);
        if !problems.is_empty() {
            return Err(problems); // fine after a restart, and not together with what is in force until then
        }
        self.apply(&next).await.map_err(|error| vec![Problem::new("routines.define", error)])?;
        self.source.settings = next;
        Ok(changes)
    }

    async fn apply(&self, next: &Settings) -> Result<(), String> {
        let Swaps { allow_lists, prices, llm, keys } = &self.swaps;
        self.source.log.replace(&next.telemetry);
        allow_lists.replace(&next.channels.telegram);
        prices.replace(&priced(llm, &next.llm), keys);
        let rules = Rules {
            stops: stop_rules(next),
            limits: next.limits.clone(),
            approvals: next.approvals.clone(),
            routines: next.routines.define.clone(),
        };
        self.agent.apply(rules).await.map_err(|error| {
            format!("the store does not take them: {error}. All other changes are in force; reload again")
        })
    }
}

/// Every secret that the settings name is there: a restart with them would not be refused.
fn check_secrets(loaded: &Loaded, env: &Environment) -> Result<(), Vec<Problem>> {
    let settings = &loaded.settings;
    let checks = [
        Secrets::find(loaded, env).err(),
        mcp_tokens(settings, env).err(),
        hook_tokens(settings, env).err(),
        skill_keys(settings, env).err(),
    ];
    let problems: Vec<_> = checks.into_iter().flatten().flatten().collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
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
