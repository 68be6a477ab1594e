//! The channel.
//!
//! Reading order: `error`, `tls`, `imap`, `fetched`, `commands` (the mailbox) → `head`, `authentication`, `mailbox`
//! (which mails are admitted) → `guard`, `hypertext`, `body`, `quotation`, `thread`, `inbound`, `read` (the text of a
//! mail) → `position`, `lease`, `failures`, `heads`, `page`, `intake` (the order, and how far it was read) →
//! `compose`, `smtp`, `sent`, `rate`, `deliver` (how an answer is sent), `given_up` → `servers`, `check`.

mod authentication;
mod body;
mod check;
mod commands;
mod compose;
mod deliver;
mod error;
mod failures;
mod fetched;
mod given_up;
mod guard;
mod head;
mod heads;
mod hypertext;
mod imap;
mod inbound;
mod intake;
mod lease;
mod mailbox;
mod page;
mod position;
mod quotation;
mod rate;
mod read;
mod sent;
mod servers;
mod smtp;
mod thread;
mod tls;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelError, ChannelHealth, ChannelId, ChannelProfile, Confirmation, DeliverError,
    DeliveryQuality, InboundStream, LookUp, Outbound, Quality, SentMessages, UnixMillis, provenance,
};
use futures_util::stream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::check::log_in;
use self::deliver::FILE_MAX_BYTES;
use self::error::ImapError;
use self::failures::Failures;
use self::intake::Intake;
use self::mailbox::Mailbox;
use self::page::Opened;
use self::rate::Rate;
use self::servers::{address, servers};
use crate::NAME;
use crate::config::{MailConfig, MailSecrets};
pub use crate::parts::MailParts;

/// Instruction to the model about the style of answers.
const STYLE: &str = "Answers are mails: write whole sentences in short paragraphs. There is one mail for each answer, \
                     at its end; nobody reads along while you work.";

/// Longest wait for the mailbox at the start. After it, the daemon starts without and keeps trying.
const START_DEADLINE: Duration = Duration::from_secs(5);

/// The promise of the channel about its deliveries.
pub const QUALITY: Quality = Quality { delivery: DeliveryQuality::OnceOrUnknown, confirmed_by: Confirmation::StandIn };

/// A mailbox as a channel.
struct Mail {
    id: ChannelId,
    mailbox: Arc<Mailbox>,
}

/// Opens the channel without a connection.
///
/// # Errors
/// The settings are not valid, or the system has no certificates for TLS.
pub fn open(config: &MailConfig, secrets: MailSecrets, parts: MailParts) -> Result<Arc<dyn Channel>, ChannelError> {
    let (account, smtp) = servers(config, secrets).map_err(cannot)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mailbox = Arc::new(Mailbox {
        address: address(config),
        authserv_id: config.authserv_id.clone(),
        account,
        smtp,
        parts,
        rate: Rate::default(),
        failures: Failures::default(),
        since_ms: since.as_millis() as i64,
        trouble: Mutex::default(),
        dropped: AtomicU64::new(0),
        noted: Mutex::default(),
    });
    Ok(Arc::new(Mail { id: NAME.into(), mailbox }))
}

#[async_trait]
impl Channel for Mail {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        if !self.mailbox.parts.people.has_anybody() {
            warn!("channels.mail.allow and operators are empty: Belay answers nobody there");
        }
        let opened = match timeout(START_DEADLINE, Opened::open(&self.mailbox)).await {
            Ok(Ok(opened)) => Some(opened),
            Ok(Err(error @ ImapError::Login(_))) => {
                let remedy = "Check the password, channels.mail.user and channels.mail.imap";
                return Err(cannot(format!("{error}. {remedy}")));
            }
            Ok(Err(error)) => {
                warn!(detail = %error, "the mailbox is out of reach; going on without, and trying again");
                None
            }
            Err(_elapsed) => None,
        };
        let intake = Intake::new(Arc::clone(&self.mailbox), opened, intake);
        Ok(Box::pin(stream::unfold(intake, |mut intake| async move {
            intake.next().await.map(|envelope| (envelope, intake))
        })))
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        deliver::deliver(&self.mailbox, message).await
    }

    fn sent(&self) -> Option<&dyn SentMessages> {
        Some(self)
    }

    fn profile(&self) -> ChannelProfile<'_> {
        static HINTS: LazyLock<String> = LazyLock::new(|| format!("{STYLE}\n\n{}", provenance::HINT));
        ChannelProfile {
            max_file_bytes: FILE_MAX_BYTES,
            hints: Some(HINTS.as_str()),
            quality: QUALITY,
            ..ChannelProfile::default()
        }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&self.mailbox.parts.people)
    }

    fn health(&self) -> ChannelHealth {
        let trouble = self.mailbox.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ChannelHealth { trouble, ..ChannelHealth::default() }
    }
}

#[async_trait]
impl SentMessages for Mail {
    async fn look_up(&self, message: &Outbound, since: UnixMillis) -> LookUp {
        deliver::look_up(&self.mailbox, message, since).await
    }
}

fn cannot(detail: impl Into<String>) -> ChannelError {
    ChannelError { channel: NAME.into(), detail: detail.into() }
}
