//! A channel whose messages come from the test and whose deliveries go to it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelId, ChannelProfile, DeliverError, Envelope,
    InboundStream, Outbound, Preview, ReplyRoute, Streaming,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// A channel whose messages come from the test and whose deliveries go to it.
pub(crate) struct ProbeChannel {
    id: ChannelId,
    keeps_alive: bool,
    inbound: Mutex<Option<mpsc::Receiver<Envelope>>>,
    delivered: mpsc::Sender<Outbound>,
    refusals: Mutex<Vec<DeliverError>>,
    open_in_drain: Arc<AtomicBool>,
    shows: Shows,
    lists: Option<Arc<dyn ChannelAccess>>,
    max_file_bytes: u64,
    /// The calls of its preview, one line each.
    previews: Mutex<Vec<String>>,
    /// The failures of the next changes of its preview.
    troubles: Mutex<VecDeque<Trouble>>,
}

/// How a channel shows an unfinished answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shows {
    #[default]
    Nothing,
    Blocks,
    Preview,
}

/// A failure of the platform at a change of a preview.
pub(crate) enum Trouble {
    Error(DeliverError),
    Silence,
}

#[async_trait]
impl Preview for ProbeChannel {
    async fn begin(&self, _route: &ReplyRoute, text: &str) -> Result<Arc<str>, DeliverError> {
        self.preview(format!("begin {text}")).await.map(|()| "p1".into())
    }

    async fn change(&self, _route: &ReplyRoute, message: &str, text: &str) -> Result<(), DeliverError> {
        self.preview(format!("{message} {text}")).await
    }

    async fn discard(&self, _route: &ReplyRoute, message: &str) {
        let _ = self.preview(format!("discard {message}")).await; // it has no answer
    }

    fn pace(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn max_chars(&self) -> usize {
        4000
    }
}

impl ProbeChannel {
    /// A channel, the end through which messages come, and the one through which its deliveries go.
    pub(super) fn new(
        name: &str,
        keeps_alive: bool,
        shows: Shows,
        lists: Option<Arc<dyn ChannelAccess>>,
        max_file_bytes: u64,
    ) -> (Arc<Self>, mpsc::Sender<Envelope>, mpsc::Receiver<Outbound>) {
        let (tx, inbound) = mpsc::channel(256);
        let (delivered_tx, delivered) = mpsc::channel(256);
        let probe = Self {
            id: name.into(),
            keeps_alive,
            inbound: Mutex::new(Some(inbound)),
            delivered: delivered_tx,
            refusals: Mutex::default(),
            open_in_drain: Arc::default(),
            shows,
            lists,
            max_file_bytes,
            previews: Mutex::default(),
            troubles: Mutex::default(),
        };
        (Arc::new(probe), tx, delivered)
    }

    /// Lets it go on yielding while the agent drains, as a channel does that can still take control.
    pub(super) fn keep_open(&self) {
        self.open_in_drain.store(true, Ordering::SeqCst);
    }

    async fn preview(&self, asked: String) -> Result<(), DeliverError> {
        self.previews.lock().expect("no test panics with it").push(asked);
        let trouble = self.troubles.lock().expect("no test panics with it").pop_front();
        match trouble {
            Some(Trouble::Error(error)) => Err(error),
            Some(Trouble::Silence) => std::future::pending().await,
            None => Ok(()),
        }
    }

    /// The calls of its preview.
    pub(crate) fn previews(&self) -> Vec<String> {
        self.previews.lock().expect("no test panics with it").clone()
    }

    /// Sets the failure of the next change of its preview.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.troubles.lock().expect("no test panics with it").push_back(trouble);
    }

    /// What the next deliveries answer.
    pub(crate) fn fail_next(&self, errors: Vec<DeliverError>) {
        *self.refusals.lock().expect("no test panics with it") = errors;
    }
}

#[async_trait]
impl Channel for ProbeChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    /// Only injects what timers say, where the daemon does not live for it.
    fn profile(&self) -> ChannelProfile<'_> {
        let alive = self.keeps_alive;
        ChannelProfile {
            keeps_alive: alive,
            carries_people: alive,
            max_file_bytes: self.max_file_bytes,
            ..ChannelProfile::default()
        }
    }

    fn display(&self) -> ChannelDisplay<'_> {
        let streaming = match self.shows {
            Shows::Nothing => Streaming::Off,
            Shows::Blocks => Streaming::Blocks { max_chars: 4000 },
            Shows::Preview => Streaming::Preview(self),
        };
        ChannelDisplay { streaming, ..ChannelDisplay::default() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        self.lists.as_deref()
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        use futures_util::StreamExt;
        let receiver = self.inbound.lock().expect("no test panics with it").take().expect("started once");
        let open_in_drain = self.open_in_drain.clone();
        let closed = async move {
            intake.cancelled().await;
            if open_in_drain.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
        };
        Ok(ReceiverStream::new(receiver).take_until(Box::pin(closed)).boxed())
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        let refusal = {
            let mut refusals = self.refusals.lock().expect("no test panics with it");
            if refusals.is_empty() { None } else { Some(refusals.remove(0)) }
        };
        match refusal {
            Some(error) => Err(error),
            None => {
                self.delivered.send(message.clone()).await.expect("the test listens");
                Ok(())
            }
        }
    }
}
