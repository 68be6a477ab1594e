//! The channels, from the settings.

use std::sync::Arc;
use std::time::Duration;

use belay_agent::submission::{self, menu};
use belay_agent::{Pairing, StorePorts};
use belay_channels::{
    AllowLists, LeasedChannel, Operators, StdinChannel, StdinConfig, Telegram, TelegramParts, TelegramSecrets,
    on_one_host,
};
use belay_cli::completion::Completion;
use belay_mail::{MailParts, MailPeople, MailSecrets};
use belay_matrix::{MatrixParts, MatrixPeople, MatrixSecrets};
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::net::{is_plain_loopback, plain_client};
use belay_program::paths::Paths;
use belay_protocol::callback::{CALLBACK_CHANNEL, CallbackClient};
use belay_protocol::{
    AttachmentIntake, BlobStore, Channel, ChannelAccess, ChannelId, ChannelPeople, Clock, Cursors, HeldLeases,
    LeasedWork, MoveStore, PairingCodes, TextChecker,
};
use belay_run::DisabledChannels;
use belay_settings::Settings;
use belay_tools::web::CallbackPoster;

use super::completion::StoreLists;
use crate::platform_people::PlatformPeople;

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

/// What the channels of message platforms use.
#[derive(Clone)]
pub(super) struct PlatformServices {
    pub(super) attachments: Arc<dyn AttachmentIntake>,
    pub(super) texts: Arc<dyn TextChecker>,
    pub(super) moves: Arc<dyn MoveStore>,
    pub(super) blobs: Arc<dyn BlobStore>,
}

impl PlatformServices {
    pub(super) fn new(
        attachments: Arc<dyn AttachmentIntake>,
        texts: Arc<dyn TextChecker>,
        moves: Arc<dyn MoveStore>,
        blobs: Arc<dyn BlobStore>,
    ) -> Self {
        Self { attachments, texts, moves, blobs }
    }
}

/// The channels of which one node of a cluster takes or sends messages at a time.
pub(super) fn leased_channels(telegram: Option<&Telegram>, further: &[Arc<dyn Channel>]) -> Vec<LeasedWork> {
    let names = ["http", CALLBACK_CHANNEL].into_iter().chain(telegram.map(|_| "telegram")).map(ChannelId::from);
    names.chain(further.iter().map(|channel| channel.id().clone())).map(LeasedWork::Channel).collect()
}

/// The channel Telegram. On a node of a cluster it polls only while the node has the lease.
fn on_node(telegram: Telegram, held: Option<&HeldLeases>) -> Arc<dyn Channel> {
    match held.filter(|_| telegram.polls()) {
        Some(held) => leased(Arc::new(telegram.under_lease()), Some(held)),
        None => Arc::new(telegram),
    }
}

/// A channel that asks for its messages, which it does on one node of a cluster: the one with the lease.
fn leased(channel: Arc<dyn Channel>, held: Option<&HeldLeases>) -> Arc<dyn Channel> {
    match held {
        Some(held) => Arc::new(LeasedChannel::new(channel, held.clone())),
        None => channel,
    }
}

/// The channels of message platforms. `further`: those that ask for their messages on one node alone.
pub(super) fn platforms(
    telegram: Option<Telegram>,
    further: Vec<Arc<dyn Channel>>,
    held: Option<&HeldLeases>,
) -> impl Iterator<Item = Arc<dyn Channel>> {
    let telegram = telegram.map(|telegram| on_node(telegram, held));
    telegram.into_iter().chain(further.into_iter().map(move |channel| leased(channel, held)))
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
pub(super) fn absent(
    people: PlatformPeople,
    adapters: impl Iterator<Item = (ChannelId, Arc<dyn ChannelAccess>)>,
) -> DisabledChannels {
    let own: [(ChannelId, Arc<dyn ChannelAccess>); 4] = [
        ("stdin".into(), Arc::new(Operators)),
        ("telegram".into(), Arc::new(people.telegram)),
        ("matrix".into(), Arc::new(people.matrix)),
        ("mail".into(), Arc::new(people.mail)),
    ];
    own.into_iter().chain(adapters).collect()
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

/// A client for a message platform at this address. It stays on that host.
fn platform_client(address: &str) -> Result<reqwest::Client, Failure> {
    let is_plain = is_plain_loopback(address);
    let builder = if is_plain { plain_client().no_proxy() } else { reqwest::Client::builder() };
    let client = on_one_host(builder.connect_timeout(PLATFORM_CONNECT_LIMIT).tcp_nodelay(true)).build();
    client.map_err(|error| Failure::new(Exit::Internal, words(&error)))
}

/// The channels that ask for their messages on one node of a cluster alone.
pub(super) fn further(
    settings: &Settings,
    secrets: (Option<MatrixSecrets>, Option<MailSecrets>),
    people: &PlatformPeople,
    services: &PlatformServices,
    cursors: &Arc<dyn Cursors>,
) -> Result<Vec<Arc<dyn Channel>>, Failure> {
    let matrix = matrix(settings, secrets.0, people.matrix.clone(), services, Arc::clone(cursors))?;
    let mail = mail(settings, secrets.1, people.mail.clone(), services, Arc::clone(cursors))?;
    Ok(matrix.into_iter().chain(mail).collect())
}

/// The channel Matrix, if it has a token.
fn matrix(
    settings: &Settings,
    secrets: Option<MatrixSecrets>,
    people: MatrixPeople,
    services: &PlatformServices,
    cursors: Arc<dyn Cursors>,
) -> Result<Option<Arc<dyn Channel>>, Failure> {
    let Some(secrets) = secrets else { return Ok(None) };
    let PlatformServices { attachments, texts, moves, blobs } = services.clone();
    let parts = MatrixParts { people, commands: menu(), attachments, blobs, texts, moves, cursors };
    let config = &settings.channels.matrix;
    let http = platform_client(config.homeserver.as_deref().unwrap_or_default())?;
    belay_matrix::open(config, secrets, http, parts).map(Some).map_err(|error| Failure::new(Exit::Refused, error))
}

/// The channel e-mail, if it has a password.
fn mail(
    settings: &Settings,
    secrets: Option<MailSecrets>,
    people: MailPeople,
    services: &PlatformServices,
    cursors: Arc<dyn Cursors>,
) -> Result<Option<Arc<dyn Channel>>, Failure> {
    let Some(secrets) = secrets else { return Ok(None) };
    let PlatformServices { attachments, texts, blobs, .. } = services.clone();
    let parts = MailParts { people, commands: menu(), attachments, blobs, texts, cursors };
    let opened = belay_mail::open(&settings.channels.mail, secrets, parts);
    opened.map(Some).map_err(|error| Failure::new(Exit::Refused, error))
}

/// The channel Telegram, if it has a token.
pub(super) fn telegram(
    settings: &Settings,
    secrets: Option<TelegramSecrets>,
    lists: &AllowLists,
    pairing: Option<Arc<Pairing>>,
    services: PlatformServices,
) -> Result<Option<Telegram>, Failure> {
    let Some(secrets) = secrets else { return Ok(None) };
    let http = platform_client(&settings.channels.telegram.api_base)?;
    let codes = pairing.map(|pairing| pairing as Arc<dyn PairingCodes>);
    let PlatformServices { attachments, texts, moves, blobs } = services;
    let parts = TelegramParts { lists: lists.clone(), codes, commands: menu(), attachments, texts, moves };
    let telegram = Telegram::new(settings.channels.telegram.clone(), secrets, http, parts);
    telegram.map(|telegram| Some(telegram.with_files(blobs))).map_err(|error| Failure::new(Exit::Refused, error))
}
