//! A build without the feature `adapters` has none: settings that name one are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use belay_program::exit::Failure;
use belay_protocol::{Channel, ChannelAccess, ChannelId, Cursors};
use belay_settings::Settings;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

/// No adapters.
pub(crate) struct Adapters;

impl Adapters {
    pub(super) fn new(
        _settings: &Settings,
        _tokens: BTreeMap<String, SecretString>,
        _cursors: &Arc<dyn Cursors>,
    ) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(super) fn access(_settings: &Settings) -> impl Iterator<Item = (ChannelId, Arc<dyn ChannelAccess>)> {
        std::iter::empty()
    }

    pub(super) fn routers<T>(&self) -> impl Iterator<Item = T> {
        std::iter::empty()
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = Arc<dyn Channel>> {
        std::iter::empty()
    }

    pub(super) async fn serve(self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}
