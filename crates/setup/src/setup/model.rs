//! The questions about the model: provider, key, model. The provider is asked for its models, which checks the key.

mod menu;
mod questions;

use belay_models::{EnvKeys, LlmConfig, Offer, ProviderInfo, has_key, lists_without_key, offered_models, provider};
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::net::{is_plain_loopback, plain_client};
use belay_settings::secrets::{UNSEEN, provider_keys};
use belay_text::near::nearest;
use secrecy::{ExposeSecret, SecretString};

use self::questions::{ask_key, ask_model, ask_provider, choices, known, listed};
use super::document::Change;
use super::person::{Person, Terminal};

/// The answers that flags have given.
#[derive(Default)]
pub(super) struct Given {
    /// `--provider`
    pub(super) provider: Option<String>,
    /// `--base-url`
    pub(super) base_url: Option<String>,
    /// `--key-file`, `--key-stdin` or `--no-key`
    pub(super) key: Option<Key>,
    /// `--model`
    pub(super) model: Option<String>,
}

/// The key of the provider.
#[derive(Clone)]
pub(super) enum Key {
    /// The key in force stays: the configured one, or the one in the provider's usual variable.
    Kept,
    /// A new key.
    New(SecretString),
    /// No key is sent.
    Without,
}

/// The answers about the model.
pub(super) struct Answer {
    /// The provider's name.
    pub(super) provider: String,
    /// The address of the server, if it is not the provider's own.
    pub(super) base_url: Option<String>,
    /// The model; `None`: the provider has only one.
    pub(super) model: Option<String>,
    /// The key.
    pub(super) key: Key,
    /// Whether the provider or the server has changed.
    pub(super) moved: bool,
    /// What the person should know.
    pub(super) notes: Vec<String>,
}

/// The settings that the answers start from.
pub(super) struct Asked<'a> {
    /// The settings in force.
    pub(super) now: &'a LlmConfig,
    /// Whether a provider is configured already.
    pub(super) is_configured: bool,
    /// Whether everything is asked, or only what the flags leave open.
    pub(super) all: bool,
    /// The environment with possible keys.
    pub(super) env: &'a Environment,
}

/// A provider with its address.
struct Server {
    llm: LlmConfig,
    info: ProviderInfo,
    moved: bool,
}

impl Asked<'_> {
    /// Asks until the provider has answered and has the model.
    ///
    /// # Errors
    /// Without a person, the first answer that is missing or wrong.
    pub(super) async fn model(mut self, mut given: Given, person: &mut Person) -> Result<Answer, Failure> {
        loop {
            match self.attempt(&mut given, person).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => match person {
                    Person::Present(terminal) if failure.exit != Exit::Interrupted => {
                        terminal.say(&failure.to_string());
                        // The next attempt asks for everything again.
                        (given, self.all) = (Given::default(), true);
                    }
                    _ => return Err(failure),
                },
            }
        }
    }

    /// The flags that are needed without a person.
    pub(super) fn missing_flags(&self, given: &Given) -> Vec<&'static str> {
        const KEY: &str = "--key-file FILE or --key-stdin";
        let named = given.provider.as_deref().or(Some(&*self.now.provider).filter(|_| self.is_configured));
        let moved =
            given.provider.as_ref().is_some_and(|name| *name != self.now.provider || self.now.base_url.is_some());
        let needs_key = |name: &str| {
            let llm = match moved {
                true => LlmConfig { provider: name.to_owned(), ..LlmConfig::default() },
                false => self.now.clone(),
            };
            let keys = provider_keys(&llm, self.env).unwrap_or_default();
            llm.base_url.is_none() && provider(name).is_ok_and(|info| info.needs_key) && !has_key(&llm, &keys)
        };
        match named {
            _ if given.base_url.is_some() || given.key.is_some() && named.is_some() => Vec::new(),
            None => [Some("--provider NAME"), given.key.is_none().then_some(KEY)].into_iter().flatten().collect(),
            Some(name) if needs_key(name) => vec![KEY],
            Some(_) => Vec::new(),
        }
    }

    async fn attempt(&self, given: &mut Given, person: &mut Person) -> Result<Answer, Failure> {
        let server = self.server(given, person).await?;
        let mut notes = Vec::new();
        if server.info.default_model == Some(server.info.name) {
            // The rehearsal has neither a key nor a choice of models.
            return Ok(server.answer(None, Key::Without, notes));
        }
        let (key, offer) = self.key(&server, given, person, &mut notes).await?;
        let models = match offer {
            Offer::Models(models) if models.is_empty() => {
                return Err(Failure::new(Exit::OutOfReach, format!("{} offers no models", server.name()))
                    .next("load or pull a model there, or choose another provider; nothing was changed"));
            }
            Offer::Models(models) => Some(models),
            Offer::Unlisted { reason } => {
                notes.push(format!(
                    "{} answers but lists no models ({reason}); the key and the model are not checked",
                    server.name()
                ));
                None
            }
            _ => {
                notes.push(format!(
                    "the key and the model of {} are not checked; the first message shows whether they work",
                    server.name()
                ));
                None
            }
        };
        let model = self.choose(&server, models.as_deref(), given.model.take(), person).await?;
        let old = self.now.model.as_deref() != Some(&model);
        if old && !server.moved && (self.now.price_usd.is_some() || self.now.context_tokens.is_some()) {
            notes.push("llm.price_usd and llm.context_tokens were set for the model before: check them".to_owned());
        }
        Ok(server.answer(Some(model), key, notes))
    }

    /// The provider and the address of its server. A provider that is named without an address means its own server.
    async fn server(&self, given: &mut Given, person: &mut Person) -> Result<Server, Failure> {
        let now = self.is_configured.then_some(self.now.provider.as_str());
        let (mut name, mut base_url) = (given.provider.take(), given.base_url.take());
        if name.is_none() && base_url.is_none() {
            match person {
                Person::Present(terminal) if self.all || now.is_none() => {
                    name = Some(self.ask_provider(terminal, now).await?);
                }
                _ => base_url = self.now.base_url.clone(),
            }
        }
        if let Some(address) = name.take_if(|name| name.contains("://")) {
            base_url = Some(address);
        }
        let kept = now.filter(|_| base_url == self.now.base_url);
        let name = name.or_else(|| kept.map(str::to_owned)).or_else(|| base_url.as_ref().map(|_| "openai".to_owned()));
        let Some(name) = name else { return Err(missing("--provider NAME")) };
        if name == "auto" {
            return Err(Failure::new(Exit::Refused, "a provider is chosen by its name, not by `auto`").next(known()));
        }
        let info = provider(&name).map_err(|error| Failure::new(Exit::Refused, error).next(known()))?;
        let moved = now != Some(info.name) || base_url != self.now.base_url;
        let llm = match moved {
            true => LlmConfig { provider: info.name.to_owned(), base_url, ..LlmConfig::default() },
            false => self.now.clone(),
        };
        match llm.validate().first() {
            None => Ok(Server { llm, info, moved }),
            Some(problem) => Err(Failure::new(Exit::Refused, problem).next("nothing was changed")),
        }
    }

    async fn ask_provider(&self, terminal: &mut Terminal, now: Option<&str>) -> Result<String, Failure> {
        let found = |name: &str| {
            let llm = LlmConfig { provider: name.to_owned(), ..LlmConfig::default() };
            let needs_key = provider(name).is_ok_and(|info| info.needs_key);
            let keys = provider_keys(&llm, self.env).ok().filter(|_| needs_key)?;
            has_key(&llm, &keys).then(|| "its key is in the environment".to_owned())
        };
        ask_provider(found, now.map(|now| self.now.base_url.as_deref().unwrap_or(now)), terminal).await
    }

    /// The key, and the models that the server offers with it.
    async fn key(
        &self,
        server: &Server,
        given: &mut Given,
        person: &mut Person,
        notes: &mut Vec<String>,
    ) -> Result<(Key, Offer), Failure> {
        let (kept, broken) = match provider_keys(&server.llm, self.env) {
            Ok(keys) => (keys, None),
            Err(problems) => (EnvKeys::default(), problems.first().map(ToString::to_string)),
        };
        let has_one = has_key(&server.llm, &kept);
        loop {
            let key = match (given.key.take(), &mut *person) {
                (Some(key), _) => key,
                (None, Person::Present(terminal)) if self.all || server.moved || (server.needs_key() && !has_one) => {
                    if let Some(broken) = &broken {
                        terminal.say(broken);
                    }
                    ask_key(server, has_one, terminal).await?
                }
                (None, _) if has_one => Key::Kept,
                (None, _) if server.needs_key() => {
                    let failure = missing("--key-file FILE or --key-stdin");
                    return Err(broken.map_or(failure.clone(), |broken| Failure { what: broken, ..failure }));
                }
                (None, _) => Key::Without,
            };
            match (server.offer(&key, &kept, notes).await?, &mut *person) {
                (Offer::KeyRefused { status }, person) => {
                    let what = format!("{} refuses the key (HTTP {status})", server.name());
                    let failure = Failure::new(Exit::Refused, what)
                        .next("check the key at the provider, and give it again; nothing was changed");
                    let Person::Present(terminal) = person else { return Err(failure) };
                    terminal.say(&failure.to_string());
                }
                (Offer::Unreachable { reason }, _) => {
                    return Err(Failure::new(
                        Exit::OutOfReach,
                        format!("{} cannot be reached: {reason}", server.name()),
                    )
                    .next(
                        "check the network, --base-url and the proxy, or choose another provider; nothing was changed",
                    ));
                }
                (offer, _) => return Ok((key, offer)),
            }
        }
    }

    /// The model: one that the server offers, if it lists them.
    async fn choose(
        &self,
        server: &Server,
        models: Option<&[String]>,
        given: Option<String>,
        person: &mut Person,
    ) -> Result<String, Failure> {
        let offers =
            |name: &str| models.is_none_or(|models| models.len() == 1 || models.iter().any(|model| model == name));
        let kept = self.now.model.as_deref().filter(|_| !server.moved);
        let only = models.and_then(|models| if let [only] = models { Some(only.as_str()) } else { None });
        let default = [kept, server.info.default_model.filter(|_| server.llm.base_url.is_none()), only]
            .into_iter()
            .flatten()
            .find(|name| offers(name));
        let unknown = |name: &str| {
            let models = models.unwrap_or_default();
            let near = nearest(name, models.iter().map(String::as_str)).map(|near| format!("; did you mean {near}?"));
            let what =
                format!("{} has no model {name} among its {}{}", server.name(), models.len(), near.unwrap_or_default());
            Failure::new(Exit::Refused, what).next(format!("it offers {}; nothing was changed", listed(models, "")))
        };
        let mut given = given;
        loop {
            let name = match (given.take(), &mut *person) {
                (Some(name), _) => name,
                (None, Person::Present(terminal)) if self.all || kept.is_none() => {
                    ask_model(models.unwrap_or_default(), default, terminal).await?
                }
                // A kept model is not judged here: nobody has asked for a change of it.
                (None, _) => match kept.or(default) {
                    Some(name) => return Ok(name.to_owned()),
                    None => {
                        return Err(missing("--model NAME")
                            .next(format!("it offers {}", listed(models.unwrap_or_default(), ""))));
                    }
                },
            };
            match (offers(&name), &mut *person) {
                (true, _) => return Ok(name),
                (false, Person::Absent) => return Err(unknown(&name)),
                (false, Person::Present(terminal)) => {
                    let models = models.unwrap_or_default();
                    let found = models.iter().any(|model| model.contains(&name));
                    terminal.say(&if found { menu::lines(&choices(models), &name) } else { unknown(&name).what });
                }
            }
        }
    }
}

impl Server {
    /// The server's name for a person.
    fn name(&self) -> String {
        self.llm.base_url.clone().unwrap_or_else(|| self.info.name.to_owned())
    }

    fn needs_key(&self) -> bool {
        self.info.needs_key && self.llm.base_url.is_none()
    }

    fn answer(self, model: Option<String>, key: Key, notes: Vec<String>) -> Answer {
        Answer { provider: self.llm.provider, base_url: self.llm.base_url, model, key, moved: self.moved, notes }
    }

    /// Asks the server for its models.
    async fn offer(&self, key: &Key, kept: &EnvKeys, notes: &mut Vec<String>) -> Result<Offer, Failure> {
        let internal = |error: &dyn std::error::Error| Failure::new(Exit::Internal, words(error));
        let http = match self.llm.base_url.as_deref() {
            Some(address) if is_plain_loopback(address) => plain_client().build().map_err(|error| internal(&error))?,
            _ => belay_models::http_client(&self.llm).map_err(|error| internal(&error))?,
        };
        let keys = match key {
            Key::Kept => kept.clone(),
            Key::New(key) => EnvKeys { configured: Some(key.clone()), ..EnvKeys::default() },
            Key::Without => EnvKeys::default(),
        };
        if [&keys.openai, &keys.anthropic, &keys.configured]
            .into_iter()
            .flatten()
            .any(|key| key.expose_secret() == UNSEEN)
        {
            return Ok(Offer::NotAsked);
        }
        let offer = offered_models(&self.llm, &keys, &http).await;
        let offer = offer.map_err(|error| Failure::new(Exit::Refused, words(&error)).next("nothing was changed"))?;
        let has_list = matches!(offer, Offer::Models(_));
        if has_list && matches!(key, Key::New(_)) && lists_without_key(&self.llm, &http).await {
            notes.push(format!("{} lists its models to everybody, so the key is not checked", self.name()));
        }
        Ok(offer)
    }
}

impl Answer {
    /// The changes of the settings. The key is written by its owner.
    pub(super) fn changes(&self) -> Vec<Change> {
        let text = |key, value: Option<&str>| value.map_or(Change::without(key), |value| Change::text(key, value));
        vec![
            text("llm.provider", Some(&self.provider)),
            text("llm.base_url", self.base_url.as_deref()),
            text("llm.model", self.model.as_deref()),
        ]
    }
}

/// The failure of an answer that nobody can give.
pub(super) fn missing(flags: &str) -> Failure {
    Failure::new(Exit::WrongUsage, format!("an answer is missing: {flags}"))
        .next("start `belay setup` in a terminal to be asked; nothing was changed")
}
