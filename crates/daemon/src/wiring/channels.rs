//! The channels, from the settings.

use std::sync::Arc;
use std::time::Duration;

use belay_agent::submission::{self, menu};
use belay_agent::{Pairing, StorePorts};
use belay_channels::{
    AllowLists, LeasedChannel, Operators, StdinChannel, StdinConfig, Telegram, TelegramParts, TelegramSecrets,
    bot_api_client,
};
use belay_cli::completion::Completion;
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::net::{is_plain_loopback, plain_client};
use belay_program::paths::Paths;
use belay_protocol::callback::{CALLBACK_CHANNEL, CallbackClient};
use belay_protocol::{
    AttachmentIntake, Channel, ChannelAccess, ChannelPeople, Clock, HeldLeases, LeasedWork, MoveStore, PairingCodes,
    TextChecker,
};
use belay_run::DisabledChannels;
use belay_settings::Settings;
use belay_tools::web::CallbackPoster;

use super::completion::StoreLists;

/// Longest time to connect to a message platform.
const PLATFORM_CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The client of callbacks, if there is a secret to sign them with.
pub(super) fn callback_client(
    settings: &Settings,
    is_signed: bool,
) -> Result<Option<Arc<dyn CallbackClient>>, Failure> {
    if !is_signed {
        return Ok(None);
    }
    let client = CallbackPoster::new(&settings.tools.web).map_err(|problem| Failure::new(Exit::Refused, problem))?;
    Ok(Some(Arc::new(client)))
}

/// The channels of which one node of a cluster takes or sends messages at a time.
pub(super) fn leased_channels(telegram: bool) -> Vec<LeasedWork> {
    let names = ["http", CALLBACK_CHANNEL].into_iter().chain(telegram.then_some("telegram"));
    names.map(|name| LeasedWork::Channel(name.into())).collect()
}

/// The channel Telegram. On a node of a cluster it polls only while the node has the lease.
pub(super) fn on_node(telegram: Telegram, held: Option<&HeldLeases>) -> Arc<dyn Channel> {
    match held.filter(|_| telegram.polls()) {
        Some(held) => Arc::new(LeasedChannel::new(Arc::new(telegram.under_lease()), held.clone())),
        None => Arc::new(telegram),
    }
}

/// The terminal, if it is enabled.
pub(super) fn stdin(settings: &Settings, env: &Environment, paths: &Paths, ports: StorePorts) -> Option<StdinChannel> {
    let configured = &settings.channels.stdin;
    let llm = &settings.llm;
    let models =
        std::iter::once(&llm.model).chain(llm.fallbacks.iter().map(|it| &it.model)).flatten().cloned().collect();
    let completions = Completion::over(StoreLists { ports, models }, submission::words().collect());
    let config = StdinConfig {
        colour: env.has_colour(),
        dumb: env.has_dumb_terminal(),
        editor: env.editor(),
        history_file: configured.history.then(|| paths.history()),
        ..configured.clone()
    };
    let config = if settings.cluster.enabled { config.in_cluster().ok()? } else { config };
    StdinChannel::open(&config, Some(completions))
}

/// The access rules of channels, by their settings. They also hold while a channel is disabled.
pub(super) fn absent(telegram: AllowLists) -> DisabledChannels {
    DisabledChannels::from([
        ("stdin".into(), Arc::new(Operators) as Arc<dyn ChannelAccess>),
        ("telegram".into(), Arc::new(telegram)),
    ])
}

/// Pairing, with the people whom earlier starts have admitted. `None`: no channel admits people by pairing.
pub(super) async fn pairing(
    settings: &Settings,
    lists: &AllowLists,
    ports: &StorePorts,
    clock: Arc<dyn Clock>,
) -> Result<Option<Arc<Pairing>>, Failure> {
    let config = &settings.channels.telegram;
    if !config.enabled && !config.pairing {
        return Ok(None);
    }
    let people = vec![("telegram".into(), Arc::new(lists.clone()) as Arc<dyn ChannelPeople>)];
    let pairing = Pairing::load(ports.people.clone(), clock, people).await;
    pairing.map(|pairing| Some(Arc::new(pairing))).map_err(|error| Failure::new(Exit::OutOfReach, words(&error)))
}

/// The channel Telegram, if it has a token.
pub(super) fn telegram(
    settings: &Settings,
    secrets: Option<TelegramSecrets>,
    lists: &AllowLists,
    pairing: Option<Arc<Pairing>>,
    attachments: Arc<dyn AttachmentIntake>,
    texts: Arc<dyn TextChecker>,
    moves: Arc<dyn MoveStore>,
) -> Result<Option<Telegram>, Failure> {
    let Some(secrets) = secrets else { return Ok(None) };
    let builder = if is_plain_loopback(&settings.channels.telegram.api_base) {
        plain_client().no_proxy()
    } else {
        reqwest::Client::builder()
    };
    let http = bot_api_client(builder.connect_timeout(PLATFORM_CONNECT_LIMIT).tcp_nodelay(true));
    let http = http.map_err(|error| Failure::new(Exit::Internal, words(&error)))?;
    let codes = pairing.map(|pairing| pairing as Arc<dyn PairingCodes>);
    let parts = TelegramParts { lists: lists.clone(), codes, commands: menu(), attachments, texts, moves };
    let telegram = Telegram::new(settings.channels.telegram.clone(), secrets, http, parts);
    telegram.map(Some).map_err(|error| Failure::new(Exit::Refused, error))
}
