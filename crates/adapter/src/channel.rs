//! An adapter as a channel.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use axum::Router;
use axum::extract::ws::WebSocket;
use belay_protocol::{
    Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelHealth, ChannelId, Cursors, DeliverError, Envelope,
    InboundStream, LookUp, Outbound, ReplyRoute, SentMessages, UnixMillis, WorkIndicator,
};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::access::AdapterAccess;
use crate::config::{AdapterConfig, TOKEN_MIN};
use crate::connection::{self, CLOSE_LIMIT, Served};
use crate::deliver::{self, TextLimit};
use crate::frames::ToAdapter;
use crate::link::Link;
use crate::route::{self, Door};

/// Capacity of the queue between the connection and the agent.
const INBOX: usize = 64;

/// Capacity of the queue of new connections. An adapter has one; more wait only while it connects again and again.
const SOCKETS: usize = 4;

/// The channel of one adapter.
pub struct Adapter {
    access: AdapterAccess,
    text: TextLimit,
    token: SecretString,
    link: Arc<Link>,
    cursors: Arc<dyn Cursors>,
    /// New connections, for [`Self::serve`].
    sockets: (mpsc::Sender<WebSocket>, Mutex<Option<mpsc::Receiver<WebSocket>>>),
    inbox: (mpsc::Sender<Envelope>, Mutex<Option<mpsc::Receiver<Envelope>>>),
}

fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Adapter {
    /// The adapter with this name, these settings and this token.
    ///
    /// # Errors
    /// The token is shorter than 16 bytes.
    pub fn new(
        name: &str,
        config: &AdapterConfig,
        token: SecretString,
        cursors: Arc<dyn Cursors>,
    ) -> Result<Self, ChannelError> {
        let (access, text) = (AdapterAccess::of(name, config), TextLimit::of(config));
        if token.expose_secret().len() < TOKEN_MIN {
            let detail = format!("its token is shorter than {TOKEN_MIN} bytes; `openssl rand -hex 24` makes one");
            return Err(ChannelError { channel: access.channel().clone(), detail });
        }
        let ((sockets, new), (inbox, messages)) = (mpsc::channel(SOCKETS), mpsc::channel(INBOX));
        let (sockets, inbox) = ((sockets, Mutex::new(Some(new))), (inbox, Mutex::new(Some(messages))));
        Ok(Self { access, text, token, link: Arc::default(), cursors, sockets, inbox })
    }

    /// The route `/adapters/NAME`, for the owner of the listener.
    pub fn router(&self) -> Router {
        let (sockets, token) = (self.sockets.0.clone(), self.token.clone());
        route::router(self.access.channel(), Door { token, sockets })
    }

    /// Serves the connections until `stop`. Then each of them gets a close frame with the code 1001, and this returns
    /// when the adapter has answered it, after 2 s at the latest. Called once.
    ///
    /// # Cancel safety
    /// If the future is dropped, all connections end without a close frame; the adapter connects again, or the daemon
    /// ends.
    pub async fn serve(self: Arc<Self>, stop: CancellationToken) {
        let Some(mut sockets) = taken(&self.sockets.1) else { return };
        let served = Served {
            access: self.access.clone(),
            link: self.link.clone(),
            cursors: self.cursors.clone(),
            inbox: self.inbox.0.clone(),
            stop: stop.clone(),
        };
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(socket) = sockets.recv() => open.push(connection::serve(socket, &served)),
                Some(()) = open.next() => {}
            }
        }
        sockets.close();
        while let Ok(socket) = sockets.try_recv() {
            open.push(connection::serve(socket, &served)); // for its close frame
        }
        let ended = async { while open.next().await.is_some() {} };
        let _ = timeout(CLOSE_LIMIT, ended).await; // an adapter that is gone is not waited for
    }
}

#[async_trait]
impl Channel for Adapter {
    fn id(&self) -> &ChannelId {
        self.access.channel()
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let inbox = taken(&self.inbox.1);
        let cannot = || ChannelError { channel: self.id().clone(), detail: "it was started before".to_owned() };
        let inbox = inbox.ok_or_else(cannot)?;
        if !self.access.has_anybody() {
            tracing::warn!(channel = %self.id(), "its lists allow and operators are empty: nobody may write");
        }
        Ok(Box::pin(stream::unfold((inbox, intake), |(mut inbox, intake)| async move {
            let envelope = intake.run_until_cancelled(inbox.recv()).await.flatten()?;
            Some((envelope, (inbox, intake)))
        })))
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        deliver::deliver(&self.link, self.text, message).await
    }

    fn sent(&self) -> Option<&dyn SentMessages> {
        Some(self)
    }

    fn display(&self) -> ChannelDisplay<'_> {
        ChannelDisplay { indicator: Some(self), ..ChannelDisplay::default() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&self.access)
    }

    fn health(&self) -> ChannelHealth {
        let can_deliver = self.link.ready().is_some();
        let trouble = || format!("no adapter is connected at /adapters/{}", self.access.channel());
        ChannelHealth { trouble: (!can_deliver).then(trouble), can_deliver }
    }
}

#[async_trait]
impl SentMessages for Adapter {
    async fn look_up(&self, message: &Outbound, _since: UnixMillis) -> LookUp {
        deliver::look_up(&self.link, self.text, message).await
    }
}

#[async_trait]
impl WorkIndicator for Adapter {
    async fn working(&self, route: &ReplyRoute, run: CancellationToken) {
        let frame = |on| ToAdapter::Working { conversation: route.conversation.to_string(), on };
        self.link.offer(&frame(true));
        run.cancelled().await;
        self.link.offer(&frame(false));
    }
}

#[cfg(test)]
mod tests;
