//! Secrets: where they come from. Settings name them and never hold them.
//!
//! Three places, in this order: the file that a `…_file` setting names, the environment variable that a `…_env`
//! setting names, and a systemd credential of a fixed name (`LoadCredential=`, found in `$CREDENTIALS_DIRECTORY`).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use belay_channels::{TelegramConfig, TelegramMode, TelegramSecrets};
use belay_gateway::GatewaySecrets;
use belay_models::{EnvKeys, FallbackConfig, LlmConfig};
use belay_protocol::Secret;
use secrecy::{ExposeSecret, SecretString};

use crate::environment::Environment;
use crate::settings::{Problem, Settings};

/// Longest secret in bytes. 16 KiB: a signed token of a cloud provider has a few; a file that is longer is another file.
const SECRET_MAX_BYTES: u64 = 16 * 1024;

/// All secrets that the settings name, as far as they exist.
pub(crate) struct Secrets {
    /// Keys of model providers.
    pub(crate) keys: EnvKeys,
    /// Tokens of the HTTP API.
    pub(crate) gateway: GatewaySecrets,
    /// The bot's token and its webhook's secret; `None` when there is no bot.
    pub(crate) telegram: Option<TelegramSecrets>,
}

impl Secrets {
    /// Finds them all.
    ///
    /// # Errors
    /// Every one that is named and cannot be read.
    pub(crate) fn find(settings: &Settings, env: &Environment) -> Result<Self, Vec<Problem>> {
        let mut search = Search { env, problems: Vec::new() };
        let gateway = &settings.gateway;
        let path = |text: &str| (!text.is_empty()).then(|| crate::settings::expand(Path::new(text), env));
        let secrets = Self {
            keys: search.provider_keys(&settings.llm),
            gateway: GatewaySecrets {
                token: search.one("gateway.token", &gateway.token_env, path(&gateway.token_file), "belay_token"),
                operator_token: search.one(
                    "gateway.operator_token",
                    &gateway.operator_token_env,
                    path(&gateway.operator_token_file),
                    "belay_operator_token",
                ),
                webhook_secret: search.one(
                    "gateway.webhook_secret",
                    &gateway.webhook_secret_env,
                    path(&gateway.webhook_secret_file),
                    "belay_webhook_secret",
                ),
            },
            telegram: search.telegram(&settings.channels.telegram),
        };
        if search.problems.is_empty() { Ok(secrets) } else { Err(search.problems) }
    }
}

/// The bearer tokens of MCP servers behind addresses, by name, as far as they are named.
///
/// # Errors
/// Every one that is named and cannot be found.
pub(crate) fn mcp_tokens(settings: &Settings, env: &Environment) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let mut tokens = BTreeMap::new();
    for (name, server) in settings.tools.mcp.iter().filter(|(_, server)| server.enabled && server.url.is_some()) {
        let key = format!("tools.mcp.{name}.token");
        let file = server.token_file.as_deref().map(|path| crate::settings::expand(path, env));
        let (named, before) = (file.is_some() || !server.token_env.is_empty(), search.problems.len());
        match search.one(&key, &server.token_env, file, &format!("mcp_{name}_token")) {
            Some(token) => drop(tokens.insert(name.clone(), Secret::new(token.expose_secret().to_owned()))),
            None if named && search.problems.len() == before => {
                search.missing(&key, &server.token_env, "the server's token");
            }
            None => {}
        }
    }
    if search.problems.is_empty() { Ok(tokens) } else { Err(search.problems) }
}

/// The keys of skills, by the names of the skills, as far as they are named and there. One that is missing costs its skill,
/// which says so.
///
/// # Errors
/// Every one that is there and cannot be used.
pub(crate) fn skill_keys(settings: &Settings, env: &Environment) -> Result<BTreeMap<String, Secret>, Vec<Problem>> {
    let mut search = Search { env, problems: Vec::new() };
    let mut keys = BTreeMap::new();
    for (name, entry) in settings.skills.entries.iter().filter(|(_, entry)| !entry.api_key_env.is_empty()) {
        let found = search.one(
            &format!("skills.entries.{name}.api_key"),
            &entry.api_key_env,
            None,
            &format!("skill_{name}_key"),
        );
        keys.extend(found.map(|key| (name.clone(), Secret::new(key.expose_secret().to_owned()))));
    }
    if search.problems.is_empty() { Ok(keys) } else { Err(search.problems) }
}

/// Looks for one secret after another and keeps every problem.
struct Search<'a> {
    env: &'a Environment,
    problems: Vec<Problem>,
}

impl Search<'_> {
    fn one(&mut self, key: &str, env: &str, file: Option<PathBuf>, credential: &str) -> Option<SecretString> {
        find(&Names { key, env, file: file.as_deref(), credential }, self.env).unwrap_or_else(|problem| {
            self.problems.push(problem);
            None
        })
    }

    /// What a bot needs; a missing token is a problem as soon as there is to be a bot.
    fn telegram(&mut self, config: &TelegramConfig) -> Option<TelegramSecrets> {
        if !config.enabled {
            return None;
        }
        let expand = |path: &Option<PathBuf>| path.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (token_file, secret_file) = (expand(&config.token_file), expand(&config.secret_file));
        let (token_key, secret_key) = ("channels.telegram.token", "channels.telegram.secret");
        let before = self.problems.len();
        let token = self.one(token_key, &config.token_env, token_file, "telegram_bot_token");
        let secret = self.one(secret_key, &config.secret_env, secret_file, "telegram_webhook_secret");
        if self.problems.len() > before {
            return None;
        }
        if token.is_none() {
            self.missing(token_key, &config.token_env, "the bot's token");
        }
        if secret.is_none() && config.mode == TelegramMode::Webhook {
            self.missing(secret_key, &config.secret_env, "the webhook's secret");
        }
        token.map(|token| TelegramSecrets { token, webhook_secret: secret })
    }

    fn missing(&mut self, key: &str, env: &str, what: &str) {
        let said =
            if env.is_empty() { "no variable is named".to_owned() } else { format!("the variable {env} is not set") };
        let hint = format!("put {what} into it, or into a file that {key}_file names");
        self.problems.push(Problem::new(format!("{key}_env"), said).hint(Some(hint)));
    }

    /// The keys of model providers. Once the settings say where the key is, no other one may be sent: it would go to a
    /// server it was not meant for. The usual names also say whose key it is, which `auto` goes by.
    fn provider_keys(&mut self, llm: &LlmConfig) -> EnvKeys {
        let file = llm.api_key_file.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (openai, anthropic, configured) = match (llm.api_key_env.as_deref(), &file) {
            (None, None) => (true, true, None),
            (Some(OPENAI), None) if llm.provider == "auto" => (true, false, None),
            (Some(ANTHROPIC), None) if llm.provider == "auto" => (false, true, None),
            (named, _) => (false, false, Some(named.unwrap_or_default())),
        };
        EnvKeys {
            openai: openai.then(|| self.one("llm.api_key", OPENAI, None, "openai_api_key")).flatten(),
            anthropic: anthropic.then(|| self.one("llm.api_key", ANTHROPIC, None, "anthropic_api_key")).flatten(),
            configured: configured.and_then(|named| self.one("llm.api_key", named, file, "llm_api_key")),
            further: self.further_keys(llm),
            fallbacks: llm.fallbacks.iter().enumerate().map(|(at, fallback)| self.fallback_key(at, fallback)).collect(),
        }
    }

    /// Further keys for the configured model. One that is not there is left out, so it is no problem here.
    fn further_keys(&mut self, llm: &LlmConfig) -> Vec<Option<SecretString>> {
        let mut keys: Vec<_> = llm.api_key_envs.iter().map(|env| self.one("llm.api_key", env, None, NOWHERE)).collect();
        for file in &llm.api_key_files {
            let file = crate::settings::expand(file, self.env);
            keys.push(self.one("llm.api_key", "", Some(file), NOWHERE));
        }
        keys
    }

    /// The key of a model that stands in: the one that is named for it, else its provider's usual one.
    fn fallback_key(&mut self, at: usize, fallback: &FallbackConfig) -> Option<SecretString> {
        let file = fallback.api_key_file.as_deref().map(|path| crate::settings::expand(path, self.env));
        let (usual, credential) = match fallback.provider.as_str() {
            "openai" | "openai-responses" => (OPENAI, "openai_api_key"),
            "anthropic" => (ANTHROPIC, "anthropic_api_key"),
            _ => ("", NOWHERE),
        };
        let key = format!("llm.fallbacks.{at}.api_key");
        match fallback.api_key_env.as_deref() {
            None if file.is_none() => self.one(&key, usual, None, credential),
            named => self.one(&key, named.unwrap_or_default(), file, NOWHERE),
        }
    }
}

/// Where OpenAI's key is found unless the settings say otherwise.
const OPENAI: &str = "OPENAI_API_KEY";

/// Where Anthropic's key is found unless the settings say otherwise.
const ANTHROPIC: &str = "ANTHROPIC_API_KEY";

/// No systemd credential has a name for it.
const NOWHERE: &str = "";

/// Where one secret may be.
struct Names<'a> {
    /// The settings key without its ending: `channels.telegram.token`.
    key: &'a str,
    /// The environment variable; empty: none.
    env: &'a str,
    /// The file.
    file: Option<&'a Path>,
    /// The name of the systemd credential; empty: none.
    credential: &'a str,
}

/// Finds a secret. `None`: it is in none of the places, or is empty there.
///
/// # Errors
/// It is named and cannot be read, or holds what no secret holds; the problem never shows the value.
fn find(names: &Names<'_>, env: &Environment) -> Result<Option<SecretString>, Problem> {
    if let Some(file) = names.file {
        return read(file).map_err(|what| Problem::new(format!("{}_file", names.key), what));
    }
    if let Some(value) = (!names.env.is_empty()).then(|| env.raw(names.env)).flatten() {
        let refuse = |what| Problem::new(format!("{}_env", names.key), format!("the variable {} {what}", names.env));
        let value = value.to_str().ok_or_else(|| refuse("is not UTF-8".to_owned()))?;
        return check(value).map_err(refuse);
    }
    let named = !names.credential.is_empty();
    let credential = env.directory("CREDENTIALS_DIRECTORY").filter(|_| named).map(|dir| dir.join(names.credential));
    match credential.filter(|path| path.exists()) {
        Some(path) => read(&path).map_err(|what| Problem::new(names.key, format!("systemd credential: {what}"))),
        None => Ok(None),
    }
}

/// Whether a name can be that of an environment variable. A `…_env` setting that cannot has most likely got the secret
/// itself, so its value must not be shown.
pub(crate) fn is_variable_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_none_or(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 64
}

fn read(path: &Path) -> Result<Option<SecretString>, String> {
    let shown = path.display();
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let bytes = file.take(SECRET_MAX_BYTES + 1).read_to_string(&mut text);
    if bytes.map_err(|error| format!("cannot read {shown}: {error}"))? as u64 > SECRET_MAX_BYTES {
        return Err(format!("{shown} is longer than {SECRET_MAX_BYTES} bytes: this is no secret"));
    }
    check(&text).map_err(|what| format!("{shown} {what}"))
}

/// Editors and `echo` leave a newline at the end; anything else that no header can carry is a mistake.
fn check(text: &str) -> Result<Option<SecretString>, String> {
    let secret = text.trim();
    match secret.chars().any(char::is_control) {
        true => Err("holds a line break or another control character within the secret".into()),
        false => Ok((!secret.is_empty()).then(|| SecretString::from(secret))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NAMES: Names<'static> = Names { key: "llm.api_key", env: "MY_KEY", file: None, credential: "openai_api_key" };

    fn found(names: &Names<'_>, env: &Environment) -> Option<String> {
        find(names, env).unwrap().map(|secret| secret.expose_secret().to_owned())
    }

    #[test]
    fn a_secret_comes_from_its_file_then_the_environment_then_systemd() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "from-file\n").unwrap();
        std::fs::write(dir.path().join("openai_api_key"), "from-systemd\n").unwrap();
        let credentials = ("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap());

        let all = Environment::from([("MY_KEY", "from-env"), credentials]);
        assert_eq!(found(&Names { file: Some(&file), ..NAMES }, &all).as_deref(), Some("from-file"));
        assert_eq!(found(&NAMES, &all).as_deref(), Some("from-env"));
        assert_eq!(found(&NAMES, &Environment::from([credentials])).as_deref(), Some("from-systemd"));
        assert_eq!(found(&Names { env: "", ..NAMES }, &all).as_deref(), Some("from-systemd"));
        assert_eq!(found(&NAMES, &Environment::default()), None);
        assert_eq!(found(&NAMES, &Environment::from([("MY_KEY", "  ")])), None);
    }

    #[test]
    fn a_secret_that_cannot_be_used_is_a_problem_that_does_not_show_it() {
        let broken = Environment::from([("MY_KEY", "hush\nhush")]);
        let problem = find(&NAMES, &broken).unwrap_err().to_string();
        assert!(
            problem.contains("llm.api_key_env") && problem.contains("MY_KEY") && !problem.contains("hush"),
            "{problem}"
        );

        let missing = find(&Names { file: Some(Path::new("/nowhere/key")), ..NAMES }, &broken).unwrap_err().to_string();
        assert!(missing.contains("llm.api_key_file") && missing.contains("/nowhere/key"), "{missing}");
    }

    #[test]
    fn once_the_settings_name_a_key_no_other_one_is_sent() {
        let env = Environment::from([("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("MINE", "m")]);
        for (provider, named, keys) in [
            ("auto", None, [Some("o"), Some("a"), None]),
            ("auto", Some(""), [None; 3]),
            ("auto", Some("MINE"), [None, None, Some("m")]),
            ("auto", Some("NOT_SET"), [None; 3]),
            ("auto", Some("OPENAI_API_KEY"), [Some("o"), None, None]),
            ("auto", Some("ANTHROPIC_API_KEY"), [None, Some("a"), None]),
            ("openai", Some("ANTHROPIC_API_KEY"), [None, None, Some("a")]),
        ] {
            let mut settings = Settings::default();
            settings.llm.provider = provider.into();
            settings.llm.api_key_env = named.map(str::to_owned);
            let found = Secrets::find(&settings, &env).unwrap().keys;
            let shown = [found.openai, found.anthropic, found.configured];
            let shown: Vec<_> = shown.iter().map(|key| key.as_ref().map(|key| key.expose_secret())).collect();
            assert_eq!(shown, keys, "{named:?}");
        }
    }

    #[test]
    fn further_keys_and_those_of_fallbacks_are_found_each_in_its_own_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "from-file\n").unwrap();
        let env =
            Environment::from([("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("SECOND", "2"), ("MINE", "m")]);
        let mut settings = Settings::default();
        settings.llm.provider = "openai".into();
        settings.llm.api_key_envs = vec!["SECOND".into(), "NOT_SET".into()];
        settings.llm.api_key_files = vec![file];
        let fallback = |provider: &str, env: Option<&str>| FallbackConfig {
            provider: provider.into(),
            api_key_env: env.map(str::to_owned),
            ..FallbackConfig::default()
        };
        settings.llm.fallbacks = vec![
            fallback("anthropic", None),
            fallback("groq", None),
            fallback("groq", Some("MINE")),
            fallback("anthropic", Some("")),
        ];
        let keys = Secrets::find(&settings, &env).unwrap().keys;
        let shown = |keys: &[Option<SecretString>]| -> Vec<Option<String>> {
            keys.iter().map(|key| key.as_ref().map(|key| key.expose_secret().to_owned())).collect()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&keys.further), [some("2"), None, some("from-file")]);
        assert_eq!(shown(&keys.fallbacks), [some("a"), None, some("m"), None]);
        assert_eq!(shown(&[keys.openai, keys.configured]), [some("o"), None]);
    }

    #[test]
    fn a_bot_without_its_secrets_is_refused_with_every_one_that_is_missing() {
        let mut settings = Settings::default();
        assert!(Secrets::find(&settings, &Environment::default()).unwrap().telegram.is_none());
        settings.channels.telegram.enabled = true;
        let problems = Secrets::find(&settings, &Environment::default()).err().unwrap();
        let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["channels.telegram.token_env", "channels.telegram.secret_env"]);
        let env = Environment::from([("TELEGRAM_BOT_TOKEN", "1:t"), ("TELEGRAM_WEBHOOK_SECRET", "s")]);
        assert!(Secrets::find(&settings, &env).unwrap().telegram.is_some());
    }

    #[test]
    fn a_token_of_an_mcp_server_is_found_or_told_to_be_missing() {
        let mut settings = Settings::default();
        let server = r#"{"url":"https://example.org/mcp","token_env":"THEIR_TOKEN"}"#;
        settings.tools.mcp.insert("there".into(), serde_json::from_str(server).unwrap());
        let found = mcp_tokens(&settings, &Environment::from([("THEIR_TOKEN", "hush")])).unwrap();
        assert_eq!(found["there"].expose(), "hush");
        let problems = mcp_tokens(&settings, &Environment::default()).unwrap_err();
        let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["tools.mcp.there.token_env"]);
    }

    #[test]
    fn a_key_of_a_skill_is_taken_where_it_is_there() {
        let mut settings = Settings::default();
        for (name, entry) in [("weather", r#"{"api_key_env":"WEATHER"}"#), ("taxes", r#"{"api_key_env":"NOT_SET"}"#)] {
            settings.skills.entries.insert(name.into(), serde_json::from_str(entry).unwrap());
        }
        let env = Environment::from([("WEATHER", "hush"), ("CREDENTIALS_DIRECTORY", "/nowhere")]);
        let keys = skill_keys(&settings, &env).unwrap();
        assert_eq!((keys.len(), keys["weather"].expose()), (1, "hush"));
        assert!(skill_keys(&settings, &Environment::from([("WEATHER", "a\nb")])).is_err());
    }

    #[test]
    fn a_secret_in_place_of_a_variable_name_is_recognised() {
        for (name, ok) in [
            ("", true),
            ("OPENAI_API_KEY", true),
            ("_x1", true),
            ("sk-abcdef", false),
            ("1234:AAbb", false),
            ("a b", false),
            (&"A".repeat(65), false),
        ] {
            assert_eq!(is_variable_name(name), ok, "{name}");
        }
    }
}
