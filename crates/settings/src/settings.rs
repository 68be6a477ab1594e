//! The settings: their types, sources, and problems.
//!
//! Layers, in ascending priority: the built-in `config/default.toml`, `/etc/belay/belay.toml`, the user's `belay.toml`,
//! each `--config`, the environment (`BELAY__SECTION__KEY`), `--set`. All problems of all layers are reported at once.

mod changes;
mod described;
mod layers;
mod mask;
mod merge;
mod problem;
mod removed;
mod rules;
mod shared;
mod show;
mod variable_name;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belay_adapter::AdapterConfig;
use belay_agent::{QueueConfig, SessionsConfig};
use belay_agent_loop::policies::StopsSettings;
use belay_automation::routines::heartbeat::DeliverTo;
use belay_automation::{HeartbeatConfig, JobsConfig, RoutinesConfig};
use belay_channels::{Enabled, StdinConfig, Telegram, TelegramConfig};
use belay_delegates::WorkersConfig;
use belay_gateway::GatewayConfig;
use belay_hooks::HooksConfig;
use belay_mail::MailConfig;
use belay_matrix::MatrixConfig;
use belay_models::{DIMENSIONS_MAX, LlmConfig, ServiceSettings, TranscriptionConfig};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use belay_program::paths::Paths;
use belay_protocol::RESERVED_KEYS;
use belay_protocol::callback::CALLBACK_CHANNEL;
use belay_run::approvals::Fallback;
use belay_run::{AgentConfig, ApprovalsConfig, CompactionConfig, LimitsConfig, MemoryConfig, StreamingConfig};
use belay_store::StoreConfig;
use belay_telemetry::TelemetryConfig;
use belay_tools::ToolsConfig;
use belay_tools::attachments::AttachmentsConfig;
use belay_tools::context::{ContextConfig, SkillsConfig};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use changes::{Changes, reloaded};
pub use described::descriptions;
pub use layers::NOT_FINITE;
use layers::{BUILT_IN, Layer, Need};
pub use merge::Origins;
pub use problem::Problem;
pub use rules::problems as problems_of_rules;
pub use show::as_json;
use show::as_toml;

use crate::args::{CheckArgs, SettingsArgs};
use crate::backup_config::BackupConfig;
use crate::cluster_config::ClusterConfig;
pub(crate) use variable_name::is_variable_name;

/// Step limit of the planner, which no setting changes.
const PLANNER_STEPS: u32 = 3;

/// The channels for people, by their names in messages.
const CHANNELS: &[&str] = &["stdin", "http", "telegram", "matrix", "mail"];

/// All settings. Each section is the plain struct of the crate that it configures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The outer loop.
    pub agent: AgentConfig,
    /// The model.
    pub llm: LlmConfig,
    /// Budgets of money and of runs.
    pub limits: LimitsConfig,
    /// The rules that end a run without progress.
    pub stops: StopsSettings,
    /// The queues of waiting messages.
    pub queue: QueueConfig,
    /// The lifetime of sessions and conversations.
    pub sessions: SessionsConfig,
    /// Routines: work that starts by time or event.
    pub routines: RoutinesConfig,
    /// The heartbeat: a regular check of a list of tasks.
    pub heartbeat: HeartbeatConfig,
    /// The calls that need approval.
    pub approvals: ApprovalsConfig,
    /// How a context that is too long is shortened.
    pub compaction: CompactionConfig,
    /// Notes over conversations.
    pub memory: MemoryConfig,
    /// How an answer is shown while the model writes it: constants, and `channels.telegram.stream`.
    #[serde(skip)]
    pub streaming: StreamingConfig,
    /// The operator's programs that are asked at points of a run.
    pub hooks: HooksConfig,
    /// Message platforms.
    pub channels: ChannelsConfig,
    /// HTTP.
    pub gateway: GatewayConfig,
    /// Files that come with messages.
    pub attachments: AttachmentsConfig,
    /// The server that turns recordings into text.
    pub transcription: TranscriptionConfig,
    /// The built-in tools.
    pub tools: ToolsConfig,
    /// What runs are told about the workspace.
    pub context: ContextConfig,
    /// Instructions for kinds of tasks.
    pub skills: SkillsConfig,
    /// Jobs: work that outlives the turn that started it.
    pub jobs: JobsConfig,
    /// Workers: runs in processes of their own.
    pub workers: WorkersConfig,
    /// The store.
    pub store: StoreConfig,
    /// Several daemons over one database.
    pub cluster: ClusterConfig,
    /// Backups.
    pub backup: BackupConfig,
    /// Logging.
    pub telemetry: TelemetryConfig,
}

/// The section `[channels]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelsConfig {
    /// Standard input.
    pub stdin: StdinConfig,
    /// Telegram.
    pub telegram: TelegramConfig,
    /// Matrix.
    pub matrix: MatrixConfig,
    /// E-mail.
    pub mail: MailConfig,
    /// Programs that bring the messages of other platforms, by name.
    pub adapters: BTreeMap<String, AdapterConfig>,
}

impl ChannelsConfig {
    /// The names of the channels for people.
    fn names(&self) -> Vec<&str> {
        CHANNELS.iter().copied().chain(self.adapters.keys().map(String::as_str)).collect()
    }
}

impl Settings {
    /// Lists all invalid values, each as `section.key: what is wrong`.
    fn validate(&self) -> Vec<String> {
        [
            self.agent.validate(),
            self.llm.validate(),
            self.limits.validate(),
            self.stops_problems(),
            self.queue.validate(),
            self.sessions.validate(),
            self.shared_problems(),
            self.unknown_channels(),
            self.taken_paths(),
            self.routines.validate(),
            self.heartbeat.validate(),
            self.heartbeat_needs(),
            self.fallback_needs(),
            self.second_needs(),
            self.approvals.validate(),
            self.memory.validate(&self.channels.names()),
            self.adapter_problems(),
            self.embeddings_problems(),
            self.hooks.validate(),
            self.channels.stdin.validate(),
            self.channels.telegram.validate(),
            self.channels.matrix.validate(),
            self.channels.mail.validate(),
            self.gateway.validate(),
            self.attachments.validate(),
            self.transcription.validate(),
            self.tools.validate(),
            belay_run::tool_health::problems(&self.tools.health),
            self.context.validate(),
            self.skills.validate(),
            self.jobs.validate(),
            self.workers.validate(),
            self.store.validate(),
            self.cluster.validate(&self.store, &self.channels.stdin),
            self.backup.validate(),
            self.telemetry.validate(),
        ]
        .concat()
    }

    /// Lists all invalid values with their origins.
    pub fn problems(&self, origins: &Origins) -> Vec<Problem> {
        self.validate().iter().map(|text| of_text(text, origins)).collect()
    }

    /// Problems of the stop rules, alone and with the limits.
    fn stops_problems(&self) -> Vec<String> {
        let stops = self.stops.config();
        [stops.validate(), stops.problems(&self.limits.run, Some(self.max_steps()))].concat()
    }

    /// The last step that a run of any kind can reach. The stop rules are the same for all kinds; the step limits are
    /// not.
    fn max_steps(&self) -> u64 {
        let agent = &self.agent;
        // After its limit, a conversation has one more step, without tools.
        let conversation = u64::from(agent.max_tool_iterations) + 1;
        let subagent = agent.subagents.enabled().then_some(agent.subagents.max_turns);
        let executors = agent.executors.values().filter_map(|executor| executor.max_steps);
        let others =
            executors.chain(subagent).chain([agent.plan.max_steps_per_execution, PLANNER_STEPS, self.jobs.max_steps]);
        others.map(u64::from).fold(conversation, u64::max)
    }

    /// Unknown channels in the settings of sessions and queues.
    fn unknown_channels(&self) -> Vec<String> {
        let sessions = self.sessions.by_channel.keys().map(|name| ("sessions", name.as_str()));
        let queue = self.queue.by_channel.keys().map(|name| ("queue", name.as_str()));
        let known = self.channels.names();
        let unknown = sessions.chain(queue).filter(|(_, name)| !known.contains(name));
        unknown
            .map(|(section, name)| {
                format!("{section}.by_channel.{name}: there is no such channel: {}", known.join(", "))
            })
            .collect()
    }

    /// Problems of adapters.
    fn adapter_problems(&self) -> Vec<String> {
        let taken: Vec<&str> =
            RESERVED_KEYS.into_iter().chain(CHANNELS.iter().copied()).chain([CALLBACK_CHANNEL]).collect();
        let adapters = &self.channels.adapters;
        let in_cluster = self.cluster.enabled && !adapters.is_empty();
        let what = "channels.adapters: an adapter is connected to one daemon, so other nodes of the cluster could not deliver \
                    its replies. Remove the section, or [cluster]";
        let own = adapters.iter().flat_map(|(name, config)| config.validate(name, &taken));
        own.chain(in_cluster.then(|| what.to_owned())).collect()
    }

    /// A path for Telegram's webhook that the gateway serves itself, which would get every request.
    fn taken_paths(&self) -> Vec<String> {
        let telegram = &self.channels.telegram;
        let is_taken = telegram.enabled && telegram.is_webhook() && belay_gateway::serves(&telegram.webhook_path);
        let what = "is a route of Belay, so no message would arrive; choose another, such as /telegram/webhook";
        is_taken.then(|| format!("channels.telegram.webhook_path: {what}")).into_iter().collect()
    }

    /// Problems of the server of the search by meaning.
    fn embeddings_problems(&self) -> Vec<String> {
        let config = &self.memory.embeddings;
        let mut problems = ServiceSettings {
            section: "memory.embeddings",
            base_url: config.base_url.as_deref(),
            model: &config.model,
            api_key_env: config.api_key_env.as_deref(),
            api_key_file: config.api_key_file.as_ref(),
        }
        .problems();
        if !config.dimensions.is_none_or(|dimensions| (1..=DIMENSIONS_MAX).contains(&dimensions)) {
            problems.push(format!("memory.embeddings.dimensions: must be 1 to {DIMENSIONS_MAX}"));
        }
        problems
    }

    /// Problems of the heartbeat with other sections.
    fn heartbeat_needs(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.heartbeat.enabled {
            return problems;
        }
        if !self.routines.enabled {
            problems.push("heartbeat.enabled: it is a routine, and routines.enabled is false".to_owned());
        }
        if let Some(to) = &self.heartbeat.deliver_to
            && let Err(why) = self.can_be_told(to)
        {
            problems.push(format!("heartbeat.deliver_to: {why}"));
        }
        problems
    }

    /// Problems of the fallback of approvals with other sections.
    fn fallback_needs(&self) -> Vec<String> {
        self.approvals.fallback.iter().filter_map(|to| self.cannot_be_asked("approvals.fallback", to)).collect()
    }

    /// Problems of the persons for second approvals.
    fn second_needs(&self) -> Vec<String> {
        let persons = self.approvals.second.iter().enumerate();
        persons.filter_map(|(at, to)| self.cannot_be_asked(&format!("approvals.second[{at}]"), to)).collect()
    }

    /// Why a person cannot be asked for an approval; `None`: they can.
    fn cannot_be_asked(&self, key: &str, to: &Fallback) -> Option<String> {
        if !["telegram", "matrix", "mail"].contains(&to.channel.as_str()) {
            return Some(format!("{key}.channel: {:?} cannot be asked: use telegram, matrix or mail", to.channel));
        }
        let to = DeliverTo { channel: to.channel.clone(), conversation: to.to.clone() };
        self.can_be_told(&to).err().map(|why| format!("{key}: {why}"))
    }

    /// Checks whether a conversation can receive unrequested messages.
    fn can_be_told(&self, DeliverTo { channel, conversation }: &DeliverTo) -> Result<(), String> {
        let (enabled, named, how) = match channel.as_str() {
            "stdin" => {
                (self.channels.stdin.enabled != Enabled::No, conversation == "stdin", "its conversation is \"stdin\"")
            }
            "telegram" => (
                self.channels.telegram.enabled,
                Telegram::is_conversation(conversation),
                "a conversation is the number of a chat, such as \"42\", or with a topic \"-1001234567890:7\"",
            ),
            "matrix" => (
                self.channels.matrix.is_on(),
                belay_matrix::is_room(conversation),
                "a conversation is the id of a room, such as \"!abc:example.org\"",
            ),
            "mail" => (
                self.channels.mail.is_on(),
                belay_mail::is_conversation(conversation),
                "a conversation is the address of a person in lower case, such as \"ann@example.org\"",
            ),
            other => return Err(format!("{other:?} cannot send notices: use stdin, telegram, matrix or mail")),
        };
        match (enabled, named) {
            (true, true) => Ok(()),
            (false, _) if channel == "matrix" => {
                Err("the channel matrix is off (channels.matrix.homeserver)".to_owned())
            }
            (false, _) if channel == "mail" => Err("the channel mail is off (channels.mail.address)".to_owned()),
            (false, _) => Err(format!("the channel {channel} is off (channels.{channel}.enabled)")),
            (true, false) => Err(format!("{channel} has no conversation {conversation:?}: {how}")),
        }
    }

    /// All keys, including those without a value.
    fn known_keys() -> Vec<String> {
        let mut keys = Vec::new();
        collect_keys(&serde_json::to_value(Self::default()).unwrap_or_default(), "", &mut keys);
        keys
    }
}

/// The loaded settings: the values and their origins.
#[derive(Debug)]
pub struct Loaded {
    /// The values.
    pub settings: Settings,
    /// The origins of the values.
    pub origins: Origins,
    /// Settings files of the user that the service may not see, each with the reason.
    pub hidden: Vec<String>,
}

impl Loaded {
    /// Whether anybody has set that key.
    pub fn is_set(&self, key: &str) -> bool {
        self.origins.of(key).is_some_and(|origin| origin != BUILT_IN)
    }

    /// One line for each file that was skipped.
    pub fn hidden_notices(&self) -> impl Iterator<Item = String> {
        let line = |file| format!("the settings file of the service's user is not visible and was passed over: {file}");
        self.hidden.iter().map(line)
    }
}

/// Loads the settings.
///
/// # Errors
/// All problems of all layers and values.
pub fn load(args: &SettingsArgs, env: &Environment, paths: &Paths) -> Result<Loaded, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut layers = Vec::new();
    let mut keep = |read: Result<Option<Layer>, Vec<Problem>>| match read {
        Ok(layer) => layers.extend(layer),
        Err(found) => problems.extend(found),
    };
    keep(Layer::built_in().map(Some));
    let mut hidden = Vec::new();
    for (path, need) in layers::files(&paths.settings, &args.files, in_service(env)) {
        match layers::hidden(path).filter(|_| need == Need::IfVisible) {
            Some(why) => hidden.push(format!("{}: {why}", path.display())),
            None => keep(Layer::file(path, need)),
        }
    }
    keep(Layer::environment(env).map(Some));
    keep(Layer::command_line(&args.assignments).map(Some));
    keep(args.workspace.as_deref().map(Layer::workspace).transpose());

    let whole_files = problems.len();
    let mut merged = merge::merge(layers, &mut problems)?;
    problems.extend(merge::remove_lists_for_sections::<Settings>(&mut merged));
    problems.extend(rules::remove_invalid(&mut merged));
    let (mut settings, found) = merge::read::<Settings>(&mut merged, &Settings::known_keys());
    problems.extend(found);
    settings.share();
    let named: Vec<String> = problems.iter().map(|problem| problem.key.clone()).collect();
    let origins = merged.origins;
    // An unreadable value has been replaced by its default, which needs no further check.
    problems.extend(settings.problems(&origins).into_iter().filter(|problem| !named.contains(&problem.key)));
    problems.extend(misplaced_secrets(&settings, &origins));
    problems[whole_files..].sort_by(|a, b| (&a.origin, &a.key).cmp(&(&b.origin, &b.key)));
    if problems.is_empty() { Ok(Loaded { settings, origins, hidden }) } else { Err(problems) }
}

/// Whether a service manager has started this process. Such a process takes its settings from the machine's file.
///
/// Source: systemd.exec(5), "Environment variables in spawned processes".
fn in_service(env: &Environment) -> bool {
    ["STATE_DIRECTORY", "NOTIFY_SOCKET"].into_iter().any(|name| env.text(name).is_some())
}

/// `belay config show`: prints the settings in force with their origins, the data directory and the control socket.
pub fn show(args: &CheckArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?;
    let loaded = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?;
    if args.json {
        out.json(&as_json(&loaded));
    } else {
        out.line(&format!("# data directory: {}", paths.data.display()));
        out.line(&format!("# control socket: {}\n", paths.control_socket.display()));
        out.line(as_toml(&loaded).trim_end());
    }
    Ok(Exit::Fine)
}

/// The failure that reports these problems.
pub fn refused(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(|problem| format!("  {problem}")).collect();
    let count = match problems.len() {
        1 => "a problem".to_owned(),
        n => format!("{n} problems"),
    };
    Failure::new(Exit::Refused, format!("the settings have {count}:\n{}", lines.join("\n")))
        .next("`belay config show` prints the settings in force; config/default.toml explains each")
}

/// Converts a crate's message, `section.key: what`, to a problem with its origin.
pub(crate) fn of_text(text: &str, origins: &Origins) -> Problem {
    match text.split_once(": ") {
        Some((key, what)) => {
            Problem::new(key, mask::masked_text(what)).from(origins.around(key).filter(|origin| *origin != BUILT_IN))
        }
        None => Problem::new("settings", text),
    }
}

/// Settings that should name an environment variable and contain an impossible name: most likely the secret itself.
fn misplaced_secrets(settings: &Settings, origins: &Origins) -> Vec<Problem> {
    let tree = serde_json::to_value(settings).unwrap_or_default();
    let mut misplaced = Vec::new();
    collect_misplaced(&tree, "", &mut misplaced);
    let what = "expected the name of an environment variable, and this is none";
    let hint = "if it is the secret itself, put it into a variable or a file and name that".to_owned();
    let problem = |key: String| Problem::new(&key, what).from(origins.of(&key)).hint(Some(hint.clone()));
    misplaced.into_iter().map(problem).collect()
}

/// Collects the keys with impossible variable names, in tables and lists.
fn collect_misplaced(value: &Json, key: &str, misplaced: &mut Vec<String>) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match value {
        Json::Object(table) => {
            table.iter().for_each(|(name, value)| collect_misplaced(value, &below(name), misplaced));
        }
        Json::Array(items) if key.ends_with("_envs") => {
            let names = items.iter().map(|item| item.as_str().unwrap_or_default());
            if !names.into_iter().all(is_variable_name) {
                misplaced.push(key.to_owned());
            }
        }
        Json::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| collect_misplaced(item, &below(&index.to_string()), misplaced));
        }
        Json::String(name) if key.ends_with("_env") && !is_variable_name(name) => {
            misplaced.push(key.to_owned());
        }
        _ => {}
    }
}

fn collect_keys(value: &Json, key: &str, keys: &mut Vec<String>) {
    match value {
        // An empty table is a value: it has no entries.
        Json::Object(table) if !table.is_empty() => {
            for (name, value) in table {
                let full = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect_keys(value, &full, keys);
            }
        }
        _ => keys.push(key.to_owned()),
    }
}

/// Expands a path of the settings. `~/` is the home directory; a relative path is relative to the working directory.
pub fn expand(path: &Path, env: &Environment) -> PathBuf {
    match (path.strip_prefix("~"), env.directory("HOME")) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests;
