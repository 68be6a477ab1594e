//! Settings of `[channels.stdin]` and `[channels.telegram]`.

mod groups;

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

pub use self::groups::{CONTEXT_MESSAGES_MAX, GroupAnswer, GroupOverrides, GroupsConfig};

/// Settings of `[channels.stdin]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StdinConfig {
    /// Whether messages are read from standard input.
    pub enabled: Enabled,
    /// Whether the terminal prompt keeps a history in a file.
    pub history: bool,
    /// File of the terminal prompt's history. Absent in the settings: `history` in the data directory. The channel itself
    /// keeps none without a file.
    #[serde(skip)]
    pub history_file: Option<PathBuf>,
    /// Whether the terminal prompt is coloured. Has no effect without a terminal. The daemon clears it when `NO_COLOR`
    /// is set.
    #[serde(skip)]
    pub colour: bool,
    /// Whether the terminal understands no escape sequences (`TERM=dumb`). It gets plain lines instead of a prompt. Not a
    /// setting: the daemon reads it from the environment.
    #[serde(skip)]
    pub dumb: bool,
    /// The command line of the editor that Ctrl-O opens. Not a setting: the daemon reads `VISUAL` or `EDITOR`.
    #[serde(skip)]
    pub editor: Option<String>,
}

impl Default for StdinConfig {
    fn default() -> Self {
        Self { enabled: Enabled::Auto, history: true, history_file: None, colour: true, dumb: false, editor: None }
    }
}

impl StdinConfig {
    /// Lists all problems, each starting with its key. Always empty: no value is wrong on its own.
    pub fn validate(&self) -> Vec<String> {
        Vec::new()
    }

    /// The settings for a node of a cluster, where the terminal is disabled unless it is asked for.
    ///
    /// # Errors
    /// The terminal is asked for: the reason and the remedy.
    pub fn in_cluster(self) -> Result<Self, String> {
        match self.enabled {
            Enabled::Yes => Err("channels.stdin.enabled: a terminal belongs to one process, so other nodes of the cluster \
                                 could neither show its replies nor take over its conversation. Set it to false, or remove \
                                 [cluster]"
                .to_owned()),
            Enabled::Auto | Enabled::No => Ok(Self { enabled: Enabled::No, ..self }),
        }
    }
}

/// Whether a channel is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    /// Enabled if standard input is a terminal, a pipe, a socket or a file.
    Auto,
    /// Always enabled.
    Yes,
    /// Disabled.
    No,
}

impl Serialize for Enabled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Yes => serializer.serialize_bool(true),
            Self::No => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for Enabled {
    /// Accepts `"auto"` or a boolean. Also accepts the boolean as a string, because environment variables are strings.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected \"auto\", true or false")]
        enum Written {
            Flag(bool),
            Word(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Flag(true) => Ok(Self::Yes),
            Written::Flag(false) => Ok(Self::No),
            Written::Word(word) => match word.to_ascii_lowercase().as_str() {
                "auto" => Ok(Self::Auto),
                "true" => Ok(Self::Yes),
                "false" => Ok(Self::No),
                other => Err(serde::de::Error::custom(format!("expected \"auto\", true or false, found {other:?}"))),
            },
        }
    }
}

/// How a channel shows an answer while the model writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Not at all: only the finished answer is sent.
    Off,
    /// As one message, edited until it is the complete answer.
    Preview,
    /// As finished pieces, each in a message of its own.
    Blocks,
    /// As such pieces, all of them when the model has ended its text.
    BlocksAtEnd,
}

/// Settings of `[channels.telegram]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelegramConfig {
    /// Whether the bot is enabled.
    pub enabled: bool,
    /// Name of the environment variable with the bot's token.
    pub token_env: String,
    /// File with the bot's token. Read instead of the variable.
    pub token_file: Option<PathBuf>,
    /// Base URL of the Bot API: Telegram's server or a local one.
    pub api_base: String,
    /// How updates arrive.
    pub mode: TelegramMode,
    /// Path of the webhook on the gateway's listener.
    pub webhook_path: String,
    /// URL by which Telegram reaches that path. Set: Belay registers it at the start. Absent: the operator registers
    /// it.
    pub webhook_url: Option<String>,
    /// Name of the environment variable with the webhook's secret token.
    pub secret_env: String,
    /// File with the webhook's secret token. Read instead of the variable.
    pub secret_file: Option<PathBuf>,
    /// How an answer is shown while the model writes it.
    pub stream: Stream,
    /// Greatest age of a message in seconds, at the start of the daemon. Older messages are not answered; each
    /// conversation gets one notice about that. 0: every message is answered.
    pub max_age_s: u64,
    /// Numeric user ids that may talk to the bot. Empty: only the operators may.
    pub allow: Vec<u64>,
    /// Numeric user ids of operators, who may do everything, `/shutdown` included. They may also talk to the bot.
    pub operators: Vec<u64>,
    /// Whether a stranger who writes in private gets a code, with which an operator can admit the stranger. Disabled:
    /// strangers get no code, and people who were admitted before stay so.
    pub pairing: bool,
    /// The answer to `/start`, and the greeting of a person whom pairing has admitted. Empty: `/start` lists the commands.
    pub greeting: String,
    /// Whether the bot tells Telegram its commands, which people then choose from a menu.
    pub register_commands: bool,
    /// Settings of `[channels.telegram.groups]`.
    pub groups: GroupsConfig,
}

/// The default of [`TelegramConfig::greeting`].
const GREETING: &str = "I am an assistant, run by Belay. Write to me as you would to a person. /stop ends what I am doing, and \
/help lists commands.";

/// Longest greeting, in characters. Below the limit of one message of Telegram, 4096.
const GREETING_MAX_CHARS: usize = 2_000;

impl Default for TelegramConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            token_env: "TELEGRAM_BOT_TOKEN".into(),
            token_file: None,
            api_base: "https://api.telegram.org".into(),
            mode: TelegramMode::Webhook,
            webhook_path: "/telegram/webhook".into(),
            webhook_url: None,
            secret_env: "TELEGRAM_WEBHOOK_SECRET".into(),
            secret_file: None,
            stream: Stream::Preview,
            max_age_s: 24 * 3600,
            allow: Vec::new(),
            operators: Vec::new(),
            pairing: false,
            greeting: GREETING.into(),
            register_commands: true,
            groups: GroupsConfig::default(),
        }
    }
}

/// How Telegram's updates arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TelegramMode {
    /// Telegram sends updates to a webhook.
    Webhook,
    /// Belay polls Telegram (`getUpdates`).
    Polling,
}

impl TelegramConfig {
    /// Lists all problems, each starting with its key. Checks nothing if the channel is disabled.
    /// [`crate::Telegram::new`] checks the secrets.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut problem = |key: &str, what: &str| problems.push(format!("channels.telegram.{key}: {what}"));
        if !self.enabled {
            self.check_groups(&mut problem);
            return problems;
        }
        if !cfg!(feature = "telegram") {
            let absent = "this build of Belay has no Telegram bot (feature telegram); remove the setting, or use a build with it: \
                          `belay --version --long` lists the parts";
            problem("enabled", absent);
            return problems;
        }
        if self.token_env.is_empty() && self.token_file.is_none() {
            problem("token_env", "name the environment variable of the bot's token, or set token_file");
        }
        if let Err(what) = check_url(&self.api_base, &["http", "https"]) {
            problem("api_base", &what);
        }
        if self.mode == TelegramMode::Webhook {
            if self.secret_env.is_empty() && self.secret_file.is_none() {
                problem("secret_env", "a webhook needs a secret: name its environment variable, or set secret_file");
            }
            if !is_plain_path(&self.webhook_path) {
                problem("webhook_path", "must start with / and have no spaces, braces, ? or #");
            }
            // Telegram: setWebhook, `url`: "HTTPS URL". A local Bot API server accepts http as well.
            if let Some(Err(what)) = self.webhook_url.as_deref().map(|url| check_url(url, &["http", "https"])) {
                problem("webhook_url", &what);
            }
        } else if self.webhook_url.is_some() {
            problem("webhook_url", "is not used in polling mode: remove it, or set mode = \"webhook\"");
        }
        if self.allow.contains(&0) || self.operators.contains(&0) {
            problem("allow", "0 is nobody's id; ids are the numbers that @userinfobot and the log show");
        }
        self.check_groups(&mut problem);
        if self.greeting.chars().count() > GREETING_MAX_CHARS {
            problem("greeting", &format!("at most {GREETING_MAX_CHARS} characters"));
        }
        self.groups.validate(&mut problem);
        problems
    }
}

impl TelegramConfig {
    /// Whether Telegram calls a webhook.
    pub fn is_webhook(&self) -> bool {
        self.mode == TelegramMode::Webhook
    }

    /// Reports ids that are no ids of groups. They are checked while the channel is off too.
    fn check_groups(&self, problem: &mut impl FnMut(&str, &str)) {
        if self.groups.allow.iter().any(|id| *id >= 0) {
            problem("groups.allow", "the id of a group is negative; the log shows it when the bot is addressed in it");
        }
    }
}

fn check_url(text: &str, schemes: &[&str]) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    if !schemes.contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
        return Err("must begin with http:// or https:// and name a host".into());
    }
    Ok(())
}

fn is_plain_path(path: &str) -> bool {
    path.len() > 1 && path.starts_with('/') && !path.contains(|c: char| c.is_whitespace() || "{}?#*".contains(c))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stdin_is_switched_by_auto_or_a_boolean_or_its_word() {
        for (written, expected) in [
            ("enabled = \"auto\"", Some(Enabled::Auto)),
            ("enabled = true", Some(Enabled::Yes)),
            ("enabled = false", Some(Enabled::No)),
            ("enabled = \"TRUE\"", Some(Enabled::Yes)),
            ("", Some(Enabled::Auto)),
            ("enabled = \"maybe\"", None),
            ("enabled = 3", None),
            ("enable = true", None),
        ] {
            let read = toml::from_str::<StdinConfig>(written).ok().map(|config| config.enabled);
            assert_eq!(read, expected, "{written}");
        }
    }

    #[test]
    fn the_defaults_survive_being_written_and_read() {
        let config = TelegramConfig::default();
        assert_eq!(toml::from_str::<TelegramConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        let config = StdinConfig::default();
        assert_eq!(toml::from_str::<StdinConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn a_config_with_several_mistakes_names_all_of_them_by_key() {
        let config: TelegramConfig = toml::from_str(
            r#"
            enabled = true
            token_env = ""
            secret_env = ""
            api_base = "telegram"
            webhook_path = "hook me"
            webhook_url = "ftp://example.org/x"
            allow = [0]
            [groups]
            allow = [42, -1]
            context_messages = 51
            [groups.overrides."-1"]
            persona = " "
            tools = ["read_file", "no such tool"]
            context_messages = 51
            [groups.overrides."-2:7"]
            [groups.overrides."42"]
            "#,
        )
        .unwrap();
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(
            keys,
            [
                "channels.telegram.token_env",
                "channels.telegram.api_base",
                "channels.telegram.secret_env",
                "channels.telegram.webhook_path",
                "channels.telegram.webhook_url",
                "channels.telegram.allow",
                "channels.telegram.groups.allow",
                "channels.telegram.groups.context_messages",
                "channels.telegram.groups.overrides.\"-1\".context_messages",
                "channels.telegram.groups.overrides.\"-1\".persona",
                "channels.telegram.groups.overrides.\"-1\".tools",
                "channels.telegram.groups.overrides.\"-2",
                "channels.telegram.groups.overrides.\"42\"",
            ]
        );
    }

    #[test]
    fn a_channel_that_is_off_or_well_described_has_no_problems() {
        let off = TelegramConfig { api_base: "nonsense".into(), ..TelegramConfig::default() };
        let on = TelegramConfig { enabled: true, allow: vec![42], ..TelegramConfig::default() };
        let polling = TelegramConfig {
            enabled: true,
            mode: TelegramMode::Polling,
            secret_env: String::new(),
            ..TelegramConfig::default()
        };
        for config in [off, on, polling] {
            assert_eq!(config.validate(), Vec::<String>::new());
        }
    }

    #[test]
    fn ids_of_people_are_no_ids_of_groups_also_while_the_channel_is_off() {
        for enabled in [false, true] {
            for (allow, is_wrong) in [(vec![-1], false), (vec![-1, 42], true), (vec![0], true)] {
                let groups = GroupsConfig { allow: allow.clone(), ..GroupsConfig::default() };
                let config = TelegramConfig { enabled, groups, ..TelegramConfig::default() };
                let problems = config.validate().concat();
                assert_eq!(problems.contains("channels.telegram.groups.allow: "), is_wrong, "{allow:?}: {problems}");
            }
        }
    }

    #[test]
    fn user_names_and_group_ids_are_no_user_ids() {
        for written in [
            "allow = [\"alice\"]",
            "allow = [-100123]",
            "operators = [1.5]",
            "groups = { allow = [\"@club\"] }",
            "groups = { answer = \"sometimes\" }",
            "groups = { overrides = { \"-1\" = { tool = [] } } }",
        ] {
            assert!(toml::from_str::<TelegramConfig>(written).is_err(), "{written}");
        }
    }
}
