//! A build without the feature `line-editor` has no prompt: lines are read from a terminal as from a pipe.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use belay_protocol::{LiveNews, LiveView, RunId};
use tokio::sync::mpsc;

use super::StdinChannel;
use super::complete::Completions;
use super::deliveries::Deliveries;
use super::lines::Line;
use crate::config::StdinConfig;

/// A prompt that cannot exist.
pub(super) enum Terminal {}

/// The end of a prompt that cannot exist.
#[derive(Clone)]
pub(super) enum PromptEnd {}

/// The display of a prompt that cannot exist.
#[derive(Clone)]
pub(super) enum Board {}

/// No channel.
pub(super) fn channel(
    _config: &StdinConfig,
    _completions: Option<Arc<dyn Completions>>,
) -> Option<io::Result<StdinChannel>> {
    None
}

impl Terminal {
    /// Sets this flag while another program has the terminal.
    pub(super) fn lend_by(&mut self, _lent: Arc<AtomicBool>) {
        match *self {}
    }

    /// Shows the prompt.
    pub(super) fn start(
        self,
        _lines: mpsc::Sender<Line>,
        _interrupts: mpsc::Sender<()>,
        _deliveries: Arc<Deliveries>,
    ) -> io::Result<()> {
        match self {}
    }
}

impl PromptEnd {
    /// Asks the prompt to end.
    pub(super) fn stop(&self) {
        match *self {}
    }

    /// Ends the prompt and waits for its end.
    pub(super) async fn stopped(&self) {
        match *self {}
    }
}

impl LiveView for Board {
    fn show(&self, _run: RunId, _news: LiveNews) {
        match *self {}
    }
}
