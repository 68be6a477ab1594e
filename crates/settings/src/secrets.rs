//! Finds secrets. Settings name them and never contain them.
//!
//! A secret has three possible sources, in this order: the file in a `…_file` setting, the environment variable in a
//! `…_env` setting, and a systemd credential with a fixed name (`LoadCredential=`, found in `$CREDENTIALS_DIRECTORY`).
//! A configured source without content is refused.

mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belay_adapter::AdapterConfig;
use belay_channels::{TelegramConfig, TelegramMode, TelegramSecrets};
use belay_gateway::GatewaySecrets;
use belay_mail::{MailConfig, MailSecrets, PASSWORD_ENV};
use belay_matrix::{MatrixConfig, MatrixSecrets, TOKEN_ENV};
use belay_models::{EnvKeys, FallbackConfig, LlmConfig, TranscriptionConfig};
use belay_program::environment::Environment;
use belay_protocol::Secret;
use belay_run::EmbeddingsConfig;
use belay_telemetry::{TelemetryConfig, parse_headers};
use secrecy::{ExposeSecret, SecretString};

use crate::settings::{Loaded, Problem, Settings};
use source::{Missing, Names, find};
pub use source::{UNSEEN, of_file, of_reader, of_text, unseen_words};

/// All secrets that the settings name and that exist.
pub struct Secrets {
    /// Keys of model providers.
    pub keys: EnvKeys,
    /// Tokens of the HTTP API.
    pub gateway: GatewaySecrets,
    /// The bot's token and its webhook's secret; `None` if there is no bot.
    pub telegram: Option<TelegramSecrets>,
    /// The tokens of adapters, by name.
    pub adapters: BTreeMap<String, SecretString>,
    /// The access token of the account at a homeserver; `None` if the channel is off.
    pub matrix: Option<MatrixSecrets>,
    /// The password of the mailbox; `None` if the channel is off.
    pub mail: Option<MailSecrets>,
    /// The key of the server that transcribes; `None` if it needs none.
    pub transcription: Option<SecretString>,
    /// The key of the server that makes embeddings; `None` if it needs none.
    pub embeddings: Option<SecretString>,
    /// The headers for the collector of OpenTelemetry; `None` if it needs none, or there is none.
    pub otlp_headers: Option<SecretString>,
}

impl Secrets {
    /// Finds all secrets.
    ///
    /// # Errors
    /// Every configured secret that cannot be read or is empty.
    pub fn find(loaded: &Loaded, env: &Environment) -> Result<Self, Vec<Problem>> {
        let mut search = Search { env, problems: Vec::new() };
        let settings = &loaded.settings;
        let gateway = &settings.gateway;
        // The default name of a variable requires nothing; a name that an operator has set does.
        let absent = |key: &str| if loaded.is_set(key) { Missing::Refused } else { Missing::Unset };
        let path = |text: &str| (!text.is_empty()).then(|| crate::settings::expand(Path::new(text), env));
        let secrets = Self {
            keys: search.provider_keys(&settings.llm),
            gateway: GatewaySecrets {
                token: search.one(
                    "gateway.token",
                    (&gateway.token_env, absent("gateway.token_env")),
                    path(&gateway.token_file),
                    "belay_token",
                ),
                operator_token: search.one(
                    "gateway.operator_token",
                    (&gateway.operator_token_env, absent("gateway.operator_token_env")),
                    path(&gateway.operator_token_file),
                    "belay_operator_token",
                ),
                webhook_secret: search.one(
                    "gateway.webhook_secret",
                    (&gateway.webhook_secret_env, absent("gateway.webhook_secret_env")),
                    path(&gateway.webhook_secret_file),
                    "belay_webhook_secret",
                ),
            },
            telegram: search.telegram(&settings.channels.telegram, &absent),
            adapters: search.adapters(&settings.channels.adapters),
            matrix: search.matrix(&settings.channels.matrix),
            mail: search.mail(&settings.channels.mail),
            transcription: search.service("transcription", &Route::of_transcription(&settings.transcription)),
            embeddings: search.service("memory.embeddings", &Route::of_embeddings(&settings.memory.embeddings)),
            otlp_headers: search.collector(&settings.telemetry),
        };
        search.problems.extend(shared_by_two(&secrets, &settings.channels.telegram));
        if search.problems.is_empty() { Ok(secrets) } else { Err(search.problems) }
    }
}

/// Secrets by which somebody comes in, and that are the same. Their holders have different rights, and each would have
/// those of both. Secrets that Belay only shows to others, such as keys of providers, are not among them.
fn shared_by_two(secrets: &Secrets, telegram: &TelegramConfig) -> Vec<Problem> {
    let GatewaySecrets { token, operator_token, webhook_secret } = &secrets.gateway;
    let by_webhook = secrets.telegram.as_ref().filter(|_| telegram.mode == TelegramMode::Webhook);
    let of_telegram = by_webhook.and_then(|telegram| telegram.webhook_secret.as_ref());
    let own = [
        ("gateway.operator_token", operator_token.as_ref()),
        ("gateway.token", token.as_ref()),
        ("gateway.webhook_secret", webhook_secret.as_ref()),
        ("channels.telegram.secret", of_telegram),
    ];
    let own = own.into_iter().filter_map(|(key, secret)| Some((key.to_owned(), secret?)));
    let adapters = secrets.adapters.iter().map(|(name, token)| (format!("channels.adapters.{name}.token"), token));
    let all = own.chain(adapters).map(|(key, secret)| (key, secret.expose_secret().trim()));
    let all: Vec<_> = all.filter(|(_, secret)| *secret != UNSEEN).collect(); // one placeholder for all credentials
    let pairs = all.iter().enumerate().flat_map(|(at, one)| all.iter().skip(at + 1).map(move |other| (one, other)));
    let shared = pairs.filter(|((_, one), (_, other))| one == other);
    let problem = |key: &str, other: &str| {
        let what = format!("is the same as {other}, whose holders would have the rights of both");
        Problem::new(key, what).hint(Some("choose another secret for one of them".to_owned()))
    };
    shared.map(|((key, _), (other, _))| problem(key, other)).collect()
}

/// Finds every secret that the settings name, including those of single parts. It finds every secret problem that a
/// start would refuse.
///
/// # Errors
/// Every configured secret that is missing, cannot be read, or is empty.
pub fn check_all(loaded: &Loaded, env: &Environment) -> Result<Secrets, Vec<Problem>> {
    let settings = &loaded.settings;
    let mut problems: Vec<_> = [
        mcp_tokens(settings, env).err(),
        mcp_clients(settings, env).err(),
        hook_tokens(settings, env).err(),
        skill_keys(settings, env).err(),
    ]
    .into_iter()
    .flatten()
    .flatten()
    .collect();
    match Secrets::find(loaded, env) {
        Ok(secrets) if problems.is_empty() => Ok(secrets),
        Ok(_) => Err(problems),
        Err(more) => {
            problems.splice(0..0, more);
            Err(problems)
        }
    }
}

/// The keys of the model providers that these settings of `[llm]` lead to.
///
/// # Errors
/// Every configured key that cannot be read.
pub fn provider_keys(llm: &LlmConfig, env: &Environment) -> Result<EnvKeys, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let keys = search.provider_keys(llm);
    if search.problems.is_empty() { Ok(keys) } else { Err(search.problems) }
}

/// The bearer tokens of remote MCP servers by server name, if they have one.
///
/// # Errors
/// Every configured token that cannot be found.
pub fn mcp_tokens(settings: &Settings, env: &Environment) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let mut tokens = BTreeMap::new();
    for (name, server) in settings.tools.mcp.iter().filter(|(_, server)| server.enabled && server.url.is_some()) {
        let key = format!("tools.mcp.{name}.token");
        let file = server.token_file.as_deref().map(|path| crate::settings::expand(path, env));
        let token = search.one(&key, (&server.token_env, Missing::Refused), file, &format!("mcp_{name}_token"));
        tokens.extend(token.map(|token| (name.clone(), Secret::new(token.expose_secret().to_owned()))));
    }
    if search.problems.is_empty() { Ok(tokens) } else { Err(search.problems) }
}

/// The secrets of the clients for logins at MCP servers by server name, if they have one.
///
/// # Errors
/// Every configured secret that cannot be found.
pub fn mcp_clients(settings: &Settings, env: &Environment) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let mut secrets = BTreeMap::new();
    for (name, server) in settings.tools.mcp.iter().filter(|(_, server)| server.enabled) {
        let Some(file) = server.oauth.as_ref().and_then(|oauth| oauth.client_secret_file.as_deref()) else { continue };
        let (key, file) = (format!("tools.mcp.{name}.oauth.client_secret"), crate::settings::expand(file, env));
        let secret = search.one(&key, ("", Missing::NoKey), Some(file), NOWHERE);
        secrets.extend(secret.map(|secret| (name.clone(), Secret::new(secret.expose_secret().to_owned()))));
    }
    if search.problems.is_empty() { Ok(secrets) } else { Err(search.problems) }
}

/// The existing keys of skills, by skill name. A skill without its key is unavailable and reports that itself.
///
/// # Errors
/// Every existing key that is unusable.
pub fn skill_keys(settings: &Settings, env: &Environment) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let mut keys = BTreeMap::new();
    for (name, entry) in settings.skills.entries.iter().filter(|(_, entry)| !entry.api_key_env.is_empty()) {
        let found = search.one(
            &format!("skills.entries.{name}.api_key"),
            (&entry.api_key_env, Missing::NoKey),
            None,
            &format!("skill_{name}_key"),
        );
        keys.extend(found.map(|key| (name.clone(), Secret::new(key.expose_secret().to_owned()))));
    }
    if search.problems.is_empty() { Ok(keys) } else { Err(search.problems) }
}

/// The bearer tokens of HTTP hooks, by the names of their variables.
///
/// # Errors
/// Every variable that is not set, is empty, or has unusable content.
pub fn hook_tokens(settings: &Settings, env: &Environment) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let mut tokens = BTreeMap::new();
    for (at, hook) in settings.hooks.0.iter().enumerate() {
        let Some(variable) = hook.token_env.as_deref().filter(|name| !name.is_empty()) else { continue };
        let token = search.one(&format!("hooks[{at}].token"), (variable, Missing::Refused), None, NOWHERE);
        tokens.extend(token.map(|token| (variable.to_owned(), Secret::new(token.expose_secret().to_owned()))));
    }
    if search.problems.is_empty() { Ok(tokens) } else { Err(search.problems) }
}

/// Searches secrets one after another and collects all problems.
struct Search<'a> {
    env: &'a Environment,
    problems: Vec<Problem>,
}

impl Search<'_> {
    fn one(
        &mut self,
        key: &str,
        (env, absent): (&str, Missing),
        file: Option<PathBuf>,
        credential: &str,
    ) -> Option<SecretString> {
        find(&Names { key, env, absent, file: file.as_deref(), credential }, self.env).unwrap_or_else(|problem| {
            self.problems.push(problem);
            None
        })
    }

    /// The headers for the collector. They are not read while no collector is set.
    fn collector(&mut self, config: &TelemetryConfig) -> Option<SecretString> {
        config.has_collector().then_some(())?;
        let key = "telemetry.otlp_headers";
        let headers = self.one(key, (&config.otlp_headers_env, Missing::Refused), None, "otlp_headers")?;
        let problem = Some(&headers)
            .filter(|headers| headers.expose_secret() != UNSEEN)
            .and_then(|headers| parse_headers(headers).err());
        self.problems.extend(problem.map(|what| Problem::new(key, what)));
        Some(headers)
    }

    /// The tokens of adapters.
    fn adapters(&mut self, adapters: &BTreeMap<String, AdapterConfig>) -> BTreeMap<String, SecretString> {
        let mut tokens = BTreeMap::new();
        for (name, config) in adapters {
            let file = config.token_file.as_deref().map(|path| crate::settings::expand(path, self.env));
            let (key, env) = (format!("channels.adapters.{name}.token"), (&*config.token_env, Missing::Refused));
            let token = self.one(&key, env, file, &format!("adapter_{name}_token"));
            tokens.extend(token.map(|token| (name.clone(), token)));
        }
        tokens
    }

    /// The secrets of the bot. If the bot is enabled, a missing token is a problem.
    fn telegram(&mut self, config: &TelegramConfig, absent: &dyn Fn(&str) -> Missing) -> Option<TelegramSecrets> {
        if !config.enabled {
            return None;
        }
        let expand = |path: &Option<PathBuf>| path.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (token_file, secret_file) = (expand(&config.token_file), expand(&config.secret_file));
        let (token_key, secret_key) = ("channels.telegram.token", "channels.telegram.secret");
        let before = self.problems.len();
        let token_env = (&*config.token_env, absent("channels.telegram.token_env"));
        let secret_env = (&*config.secret_env, absent("channels.telegram.secret_env"));
        let token = self.one(token_key, token_env, token_file, "telegram_bot_token");
        let secret = self.one(secret_key, secret_env, secret_file, "telegram_webhook_secret");
        if self.problems.len() > before {
            return None;
        }
        if token.is_none() {
            self.missing(token_key, &config.token_env, "the bot's token", "telegram_bot_token");
        }
        if secret.is_none() && config.mode == TelegramMode::Webhook {
            self.missing(secret_key, &config.secret_env, "the webhook's secret", "telegram_webhook_secret");
        }
        token.map(|token| TelegramSecrets { token, webhook_secret: secret })
    }

    /// The access token of the account. If the channel is on, a missing token is a problem.
    fn matrix(&mut self, config: &MatrixConfig) -> Option<MatrixSecrets> {
        config.is_on().then_some(())?;
        let file = config.token_file.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (key, credential, before) = ("channels.matrix.token", "matrix_access_token", self.problems.len());
        let token = self.one(key, (TOKEN_ENV, Missing::Unset), file, credential);
        if token.is_none() && self.problems.len() == before {
            self.missing(key, TOKEN_ENV, "the access token of the account", credential);
        }
        token.map(|token| MatrixSecrets { token })
    }

    /// The password of the mailbox. If the channel is on, a missing password is a problem.
    fn mail(&mut self, config: &MailConfig) -> Option<MailSecrets> {
        config.is_on().then_some(())?;
        let file = config.password_file.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (key, credential, before) = ("channels.mail.password", "mail_password", self.problems.len());
        let password = self.one(key, (PASSWORD_ENV, Missing::Unset), file, credential);
        if password.is_none() && self.problems.len() == before {
            self.missing(key, PASSWORD_ENV, "the password of the mailbox", credential);
        }
        password.map(|password| MailSecrets { password })
    }

    fn missing(&mut self, key: &str, env: &str, what: &str, credential: &str) {
        let said =
            if env.is_empty() { "no variable is named".to_owned() } else { format!("the variable {env} is not set") };
        let unseen = unseen_words(credential, self.env);
        let hint = format!("put {what} into it, or into a file that {key}_file names{unseen}");
        self.problems.push(Problem::new(format!("{key}_env"), said).hint(Some(hint)));
    }

    /// The keys of model providers. If the settings name a key, no other key may be sent, because it would go to a
    /// server that it was not meant for. The usual variable names also identify the provider, which `auto` uses.
    fn provider_keys(&mut self, llm: &LlmConfig) -> EnvKeys {
        let file = llm.api_key_file.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (openai, anthropic, configured) = match (llm.api_key_env.as_deref(), &file) {
            (None, None) => (true, true, None),
            (Some(OPENAI), None) if llm.provider == "auto" => (true, false, None),
            (Some(ANTHROPIC), None) if llm.provider == "auto" => (false, true, None),
            (named, _) => (false, false, Some(named.unwrap_or_default())),
        };
        EnvKeys {
            openai: openai.then(|| self.key("llm.api_key", OPENAI, None, "openai_api_key")).flatten(),
            anthropic: anthropic.then(|| self.key("llm.api_key", ANTHROPIC, None, "anthropic_api_key")).flatten(),
            configured: configured.and_then(|named| self.key("llm.api_key", named, file, "llm_api_key")),
            further: self.further_keys(llm),
            fallbacks: llm.fallbacks.iter().enumerate().map(|(at, fallback)| self.fallback_key(at, fallback)).collect(),
        }
    }

    /// An optional key of a provider: without it, none is sent.
    fn key(&mut self, key: &str, env: &str, file: Option<PathBuf>, credential: &str) -> Option<SecretString> {
        self.one(key, (env, Missing::NoKey), file, credential)
    }

    /// The key of a further server. A key that the settings name must exist. Without a server, nothing is read.
    fn service(&mut self, section: &str, route: &Route<'_>) -> Option<SecretString> {
        route.base_url.as_ref()?;
        let file = route.api_key_file.map(|path| crate::settings::expand(path, self.env));
        let env = (route.api_key_env.unwrap_or_default(), Missing::Refused);
        self.one(&format!("{section}.api_key"), env, file, &format!("{}_api_key", section.replace('.', "_")))
    }

    /// Further keys for the configured model. A missing one is left out, so it is no problem here.
    fn further_keys(&mut self, llm: &LlmConfig) -> Vec<Option<SecretString>> {
        llm.api_key_envs.iter().map(|env| self.key("llm.api_key", env, None, NOWHERE)).collect()
    }

    /// The key of a fallback model: its configured key, or else the usual one of its provider.
    fn fallback_key(&mut self, at: usize, fallback: &FallbackConfig) -> Option<SecretString> {
        let file = fallback.api_key_file.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (usual, credential) = match fallback.provider.as_str() {
            "openai" | "openai-responses" => (OPENAI, "openai_api_key"),
            "anthropic" => (ANTHROPIC, "anthropic_api_key"),
            _ => ("", NOWHERE),
        };
        let key = format!("llm.fallbacks.{at}.api_key");
        match fallback.api_key_env.as_deref() {
            None if file.is_none() => self.key(&key, usual, None, credential),
            named => self.key(&key, named.unwrap_or_default(), file, NOWHERE),
        }
    }
}

/// The server of a section and the source of its key.
struct Route<'a> {
    base_url: Option<&'a str>,
    api_key_env: Option<&'a str>,
    api_key_file: Option<&'a Path>,
}

impl<'a> Route<'a> {
    fn of_transcription(config: &'a TranscriptionConfig) -> Self {
        Self {
            base_url: config.base_url.as_deref(),
            api_key_env: config.api_key_env.as_deref(),
            api_key_file: config.api_key_file.as_deref(),
        }
    }

    fn of_embeddings(config: &'a EmbeddingsConfig) -> Self {
        Self {
            base_url: config.base_url.as_deref(),
            api_key_env: config.api_key_env.as_deref(),
            api_key_file: config.api_key_file.as_deref(),
        }
    }
}

/// The default variable of OpenAI's key.
const OPENAI: &str = "OPENAI_API_KEY";

/// The default variable of Anthropic's key.
const ANTHROPIC: &str = "ANTHROPIC_API_KEY";

/// For secrets without a systemd credential.
const NOWHERE: &str = "";

#[cfg(test)]
mod tests;
