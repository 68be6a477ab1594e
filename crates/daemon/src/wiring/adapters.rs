//! Channels in any language: one for each adapter of the settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use belay_adapter::{Adapter, AdapterAccess, Router};
use belay_program::exit::{Exit, Failure};
use belay_protocol::{Channel, ChannelAccess, ChannelId, Cursors};
use belay_settings::Settings;
use futures_util::future::join_all;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

/// The adapters of the settings.
pub(crate) struct Adapters(Vec<Arc<Adapter>>);

impl Adapters {
    /// Builds them. Nothing is served yet.
    ///
    /// # Errors
    /// A token is too short.
    pub(super) fn new(
        settings: &Settings,
        mut tokens: BTreeMap<String, SecretString>,
        cursors: &Arc<dyn Cursors>,
    ) -> Result<Self, Failure> {
        let mut adapters = Vec::new();
        for (name, config) in &settings.channels.adapters {
            let Some(token) = tokens.remove(name) else { continue }; // the settings were checked: there is one
            let adapter = Adapter::new(name, config, token, cursors.clone());
            adapters.push(Arc::new(adapter.map_err(|error| Failure::new(Exit::Refused, error))?));
        }
        Ok(Self(adapters))
    }

    /// The access rules, which also hold while a channel is disabled.
    pub(super) fn access(settings: &Settings) -> impl Iterator<Item = (ChannelId, Arc<dyn ChannelAccess>)> {
        let adapters = settings.channels.adapters.iter();
        adapters.map(|(name, config)| {
            (name.as_str().into(), Arc::new(AdapterAccess::of(name, config)) as Arc<dyn ChannelAccess>)
        })
    }

    /// Their routes.
    pub(super) fn routers(&self) -> impl Iterator<Item = Router> {
        self.0.iter().map(|adapter| adapter.router())
    }

    /// Their channels.
    pub(super) fn channels(&self) -> impl Iterator<Item = Arc<dyn Channel>> {
        self.0.iter().map(|adapter| adapter.clone() as Arc<dyn Channel>)
    }

    /// Serves their connections until `stop`.
    pub(super) async fn serve(self, stop: CancellationToken) {
        join_all(self.0.into_iter().map(|adapter| adapter.serve(stop.clone()))).await;
    }
}
