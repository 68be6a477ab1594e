//! Telegram as a channel: a bot, by webhook or by long polling.
//!
//! A list of numeric ids says who may talk. The webhook's secret proves that an update comes from Telegram. The bot
//! serves the listed groups, and handles the messages there that address it. The store knows each accepted message by
//! its `update_id`, so a repeated delivery changes nothing. A second tap on a button is answered with the result of the
//! first.
//!
//! Reading order: `parts` (what the daemon makes) → `wire` (the types of the Bot API) → `groups`, `people`, `moves` (groups with a new id), `facts`, `attached` and `shared` (metadata and attachments of a message), `marked` (its
//! text as Markdown), `unaddressed`
//! (messages that are not for the bot), `intake` (which updates are messages) → `fetch`, `repeated`, `arrivals` (their
//! files) → `offers` (their order) → `webhook`, `polling` (how updates arrive) → `format`, `split` (how an answer is
//! written) → `target`, `deliver`, `files`, `multipart` (how it is sent) → `preview` (what is shown before) → `callback_buttons` (the buttons under an
//! approval request) → `api`. `menu` registers the commands with Telegram. `first_contact` checks a token and finds a
//! person's id, for the set-up, without a channel.

mod api;
mod arrivals;
mod attached;
mod callback_buttons;
mod conversation;
mod deliver;
mod facts;
mod fetch;
mod files;
mod first_contact;
mod format;
mod groups;
mod intake;
mod marked;
mod menu;
mod moves;
mod multipart;
mod offers;
mod parts;
mod people;
mod polling;
mod preview;
mod repeated;
mod router;
mod setup;
mod shared;
mod split;
mod styled;
mod target;
mod unaddressed;
mod unreached;
mod webhook;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use axum::Router;
use belay_protocol::{
    AckSender, BlobStore, Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelHealth, ChannelId,
    ChannelProfile, CommandInfo, Confirmation, DeliverError, DeliveryQuality, Envelope, InboundStream, Outbound,
    Quality, ReplyRoute, Streaming, WorkIndicator, provenance,
};
use futures_util::future::{OptionFuture, ready};
use futures_util::{Stream, StreamExt, stream};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::api::BotApi;
use self::arrivals::{Arrival, Arrivals};
use self::conversation::Conversation;
use self::fetch::Fetcher;
pub use self::first_contact::{FirstContact, FirstContactError, Sender};
use self::intake::{AcceptedGroupMessages, Rules};
pub use self::parts::{TelegramParts, TelegramSecrets};
pub use self::people::AllowLists;
use self::polling::{Conflicts, Poller};
use self::router::UpdateRouter;
use self::unaddressed::UnaddressedMessages;
use self::unreached::Unreached;
use self::webhook::Webhook;
use crate::config::{Stream as Shown, TelegramConfig, TelegramMode};

/// The channel's id, and the prefix of its session keys.
const NAME: &str = "telegram";

/// Instruction to the model about the style of answers for Telegram.
const STYLE: &str = "Answers are read on a phone, in Telegram: write short paragraphs and short lists, no tables and no headings; \
put code into fenced blocks.";

/// Capacity of the queue between the webhook and the agent. When it is full, Telegram's calls wait and are finally
/// answered 503.
const INBOX: usize = 64;

/// Longest wait for Telegram at the start. After it, the daemon starts without Telegram and keeps trying.
const START_DEADLINE: Duration = Duration::from_secs(3);

/// A Telegram bot as a channel.
pub struct Telegram {
    id: ChannelId,
    config: TelegramConfig,
    /// The commands for the menu. Empty: Telegram keeps the menu that it has.
    commands: Vec<CommandInfo>,
    router: Arc<UpdateRouter>,
    /// `None` in polling mode.
    webhook: Option<Arc<Webhook>>,
    /// Messages from the webhook; taken by `start`.
    inbox: Mutex<Option<mpsc::Receiver<Arrival>>>,
    /// The reaction to a conflict in polling mode.
    conflicts: Conflicts,
    /// The stored files that are sent; `None`: the bot sends no files.
    files: Option<Arc<dyn BlobStore>>,
    /// The places of groups that took no answer.
    unreached: Unreached,
}

impl Telegram {
    /// Whether a text is a conversation in the form of this channel's messages: `42`, `-1001234567890:7`.
    pub fn is_conversation(text: &str) -> bool {
        text.parse::<Conversation>().is_ok_and(|conversation| conversation.to_string() == text)
    }

    /// Creates a bot without calling Telegram. `http` stays [`on_one_host`](crate::on_one_host), with a connect timeout,
    /// and without an idle timeout below 40 s, because polling waits that long. All other limits are set here, per call. `intake` takes the
    /// files of messages.
    ///
    /// # Errors
    /// The token does not have the form of a token; or the webhook has no secret, or one that Telegram would refuse.
    pub fn new(
        config: TelegramConfig,
        secrets: TelegramSecrets,
        http: reqwest::Client,
        parts: TelegramParts,
    ) -> Result<Self, ChannelError> {
        let bot_id = bot_id(secrets.token.expose_secret()).map_err(cannot)?;
        let rules = Rules {
            bot_id,
            username: OnceLock::new(),
            people: parts.lists,
            max_age_s: config.max_age_s,
            since: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            accepted: AcceptedGroupMessages::default(),
            unaddressed: UnaddressedMessages::default(),
            takes_files: parts.attachments.max_count() > 0,
        };
        let api = BotApi::new(http, &config.api_base, secrets.token);
        let fetcher = Fetcher::new(parts.attachments);
        let router = Arc::new(UpdateRouter::new(api, rules, fetcher, parts.codes, parts.texts, parts.moves));
        let (sender, inbox) = mpsc::channel(INBOX);
        let webhook = match config.mode {
            TelegramMode::Polling => None,
            TelegramMode::Webhook => {
                let secret = usable_secret(secrets.webhook_secret).map_err(cannot)?;
                Some(Arc::new(Webhook { router: Arc::clone(&router), secret, inbox: sender }))
            }
        };
        let commands = if config.register_commands { parts.commands } else { Vec::new() };
        let (id, inbox) = (ChannelId::new(NAME), Mutex::new(Some(inbox)));
        let conflicts = Conflicts::Wait;
        let unreached = Unreached::default();
        Ok(Self { id, config, commands, router, webhook, inbox, conflicts, files: None, unreached })
    }

    /// The same bot, which also sends the files of messages.
    #[must_use]
    pub fn with_files(self, files: Arc<dyn BlobStore>) -> Self {
        Self { files: Some(files), ..self }
    }

    /// The same bot, as the polling of one node of a cluster: its stream of messages ends at a conflict (HTTP 409), since
    /// another node may poll now. It can be started again.
    #[must_use]
    pub fn under_lease(self) -> Self {
        Self { conflicts: Conflicts::End(Arc::default()), ..self }
    }

    /// Whether it asks Telegram for messages, which one node of a cluster may do at a time. A webhook's calls may reach
    /// every node.
    pub fn polls(&self) -> bool {
        self.webhook.is_none()
    }

    /// The webhook's route at `webhook_path`, for the owner of the listener; `None` in polling mode.
    pub fn router(&self) -> Option<Router> {
        self.webhook.as_ref().map(|webhook| webhook::router(&self.config.webhook_path, Arc::clone(webhook)))
    }

    /// Registers the menu of commands beside the messages, until intake ends. A stream without messages.
    fn menu(&self, intake: CancellationToken) -> impl Stream<Item = Envelope> + Send + use<> {
        let (router, commands) = (Arc::clone(&self.router), self.commands.clone());
        let work = async move {
            if !commands.is_empty() {
                intake.run_until_cancelled(menu::register(&router.api, &router.rules.people, &commands)).await;
            }
        };
        stream::once(work).filter_map(|()| ready(None))
    }

    /// Asks Telegram for the bot's identity. Returns `false` if Telegram cannot be reached; a wrong token is an error.
    async fn introduce(&self) -> Result<bool, ChannelError> {
        match setup::introduce(&self.router, START_DEADLINE).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_auth() => Err(cannot(format!(
                "the Bot API at {} refuses the token ({error}). Check the token and channels.telegram.api_base",
                self.config.api_base
            ))),
            Err(error) => {
                warn!(detail = %error, "telegram is out of reach; going on without, and trying again");
                Ok(false)
            }
        }
    }
}

/// What Telegram promises: it has no key by which it would recognise a repetition.
pub const QUALITY: Quality = Quality { delivery: DeliveryQuality::OnceOrUnknown, confirmed_by: Confirmation::StandIn };

#[async_trait]
impl Channel for Telegram {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    fn health(&self) -> ChannelHealth {
        let lines: Vec<String> = self.router.trouble().into_iter().chain(self.unreached.line()).collect();
        ChannelHealth { trouble: (!lines.is_empty()).then(|| lines.join("; ")), ..ChannelHealth::default() }
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let inbox = match self.webhook {
            Some(_) => self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take(),
            None => None,
        };
        if self.webhook.is_some() && inbox.is_none() {
            return Err(cannot("it was started before"));
        }
        if !self.router.rules.people.has_anybody() {
            warn!("channels.telegram.allow and operators are empty: the bot answers nobody");
        }
        let moves = self.router.moves.load().await;
        moves.map_err(|error| cannot(format!("the store does not tell which groups have moved: {error}")))?;
        let is_introduced = self.introduce().await?;
        info!(mode = ?self.config.mode, "telegram intake begins");
        let menu_intake = intake.child_token();
        let menu = self.menu(menu_intake.clone());
        let Some((webhook, inbox)) = self.webhook.as_ref().zip(inbox) else {
            let conflicts = self.conflicts.clone();
            let poller = Poller::new(Arc::clone(&self.router), is_introduced, conflicts, intake);
            let messages = stream::unfold((poller, menu_intake), |(mut poller, menu)| async move {
                let Some(envelope) = poller.next().await else {
                    menu.cancel(); // the stream ends with the polling
                    return None;
                };
                Some((envelope, (poller, menu)))
            });
            return Ok(Box::pin(stream::select(messages, menu)));
        };
        let (webhook, url) = (Arc::clone(webhook), self.config.webhook_url.clone());
        let setup = Box::pin(async move {
            let registration = url.as_deref().map(|url| (url, &webhook.secret));
            setup::until_reachable(&webhook.router, is_introduced, registration).await;
        });
        let arrivals = Arrivals::new(Arc::clone(&self.router));
        let open = Open { inbox, arrivals, setup: Some(setup), intake };
        let messages =
            stream::unfold(open, |mut open| async move { open.next().await.map(|envelope| (envelope, open)) });
        Ok(Box::pin(stream::select(messages, menu)))
    }

    fn profile(&self) -> ChannelProfile<'_> {
        static HINTS: LazyLock<String> = LazyLock::new(|| format!("{STYLE}\n\n{}", provenance::HINT));
        let max_file_bytes = if self.files.is_some() { files::FILE_MAX_BYTES } else { 0 };
        ChannelProfile { max_file_bytes, hints: Some(HINTS.as_str()), quality: QUALITY, ..ChannelProfile::default() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&self.router.rules.people)
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let result = deliver::deliver(self.router.sending(), self.files.as_deref(), message).await;
        self.unreached.note(message, &result);
        result
    }

    fn display(&self) -> ChannelDisplay<'_> {
        let streaming = match self.config.stream {
            Shown::Off => Streaming::Off,
            Shown::Preview => Streaming::Preview(&*self.router),
            Shown::Blocks | Shown::BlocksAtEnd => Streaming::Blocks { max_chars: split::PIECE_MAX_UNITS },
        };
        ChannelDisplay { streaming, indicator: Some(self) }
    }
}

#[async_trait]
impl WorkIndicator for Telegram {
    async fn working(&self, route: &ReplyRoute, run: CancellationToken) {
        if let Ok(conversation) = route.conversation.parse::<Conversation>() {
            deliver::typing(self.router.sending(), conversation, run).await;
        }
    }
}

/// The intake of a started webhook.
struct Open {
    inbox: mpsc::Receiver<Arrival>,
    /// Messages whose files are being fetched, and those behind them.
    arrivals: Arrivals,
    /// Runs beside the messages until the bot is introduced and the webhook registered.
    setup: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    intake: CancellationToken,
}

impl Open {
    async fn next(&mut self) -> Option<Envelope> {
        loop {
            tokio::select! {
                biased; // the end of intake first: remaining messages are answered 503 and come again
                () = self.intake.cancelled() => {
                    self.arrivals.close().await;
                    return None;
                }
                arrival = self.inbox.recv() => {
                    if let Some(arrival) = self.arrivals.admit(arrival?) {
                        return Some(envelope(arrival));
                    }
                }
                arrival = self.arrivals.next() => return Some(envelope(arrival)),
                Some(()) = OptionFuture::from(self.setup.as_mut()) => {
                    self.setup = None;
                }
            }
        }
    }
}

fn envelope(mut arrival: Arrival) -> Envelope {
    let ack = arrival.acks.pop().unwrap_or_else(AckSender::nobody); // always present: each call has one
    Envelope { inbound: arrival.message.inbound, ack }
}

fn cannot(detail: impl Into<String>) -> ChannelError {
    ChannelError { channel: ChannelId::new(NAME), detail: detail.into() }
}

/// The bot's id: the number at the start of the token.
fn bot_id(token: &str) -> Result<u64, &'static str> {
    let wrong = "the token is not of the form 123456:ABC-DEF; ask @BotFather for it";
    let (id, secret) = token.split_once(':').ok_or(wrong)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if secret.is_empty() || !secret.chars().all(is_plain) {
        return Err(wrong);
    }
    id.parse().map_err(|_| wrong)
}

/// Bot API, setWebhook, `secret_token`: "1-256 characters. Only characters A-Z, a-z, 0-9, _ and - are allowed."
fn usable_secret(secret: Option<SecretString>) -> Result<SecretString, &'static str> {
    let secret = secret.filter(|secret| !secret.expose_secret().is_empty()).ok_or(
        "webhook mode needs a secret token: set the variable that channels.telegram.secret_env names, or use mode = \"polling\"",
    )?;
    let text = secret.expose_secret();
    if text.len() > 256 || !text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Err("the webhook's secret must have 1 to 256 characters out of A-Z, a-z, 0-9, _ and -");
    }
    Ok(secret)
}

/// A store of moves that keeps none.
#[cfg(test)]
struct NoMoves;

#[cfg(test)]
#[async_trait]
impl belay_protocol::MoveStore for NoMoves {
    async fn moves(
        &self,
        _channel: ChannelId,
    ) -> Result<Vec<belay_protocol::MovedConversation>, belay_protocol::StoreError> {
        Ok(Vec::new())
    }

    async fn put_move(&self, _moved: belay_protocol::MovedConversation) -> Result<(), belay_protocol::StoreError> {
        Ok(())
    }
}

/// A router whose Bot API cannot be reached.
#[cfg(test)]
fn unreachable_router() -> UpdateRouter {
    use crate::config::GroupsConfig;

    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // fails if another test has installed it
    let rules = Rules {
        bot_id: 777,
        username: OnceLock::from("Belay_Bot".to_owned()),
        people: AllowLists::of(&TelegramConfig {
            allow: vec![42],
            operators: vec![7],
            groups: GroupsConfig { allow: vec![-100], ..GroupsConfig::default() },
            ..TelegramConfig::default()
        }),
        max_age_s: 0,
        since: 0,
        accepted: AcceptedGroupMessages::default(),
        unaddressed: UnaddressedMessages::default(),
        takes_files: false,
    };
    UpdateRouter::new(
        BotApi::new(
            reqwest::Client::builder().build().expect("a client"),
            "http://127.0.0.1:9",
            SecretString::from("777:x"),
        ),
        rules,
        Fetcher::new(Arc::new(belay_protocol::NoAttachments)),
        None,
        Arc::new(belay_protocol::UncheckedTexts),
        Arc::new(NoMoves),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_must_look_like_one() {
        for (token, id) in [
            ("123456:ABC-def_9", Some(123_456)),
            ("123456", None),
            ("123456:", None),
            (":abc", None),
            ("bot1:abc", None),
            ("1:a/b", None),
            ("1:a b", None),
            ("", None),
        ] {
            assert_eq!(bot_id(token).ok(), id, "{token:?}");
        }
    }

    #[test]
    fn a_webhook_secret_must_be_there_and_be_one_that_telegram_takes() {
        let long = "x".repeat(257);
        for (secret, ok) in [
            (None, false),
            (Some(""), false),
            (Some("a-b_C9"), true),
            (Some("with space"), false),
            (Some("ключ"), false),
            (Some(&long[..256]), true),
            (Some(&long[..]), false),
        ] {
            assert_eq!(usable_secret(secret.map(SecretString::from)).is_ok(), ok, "{secret:?}");
        }
    }
}
