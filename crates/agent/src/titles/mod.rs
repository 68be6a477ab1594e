//! Titles of conversations: the settings, and the sessions that wait for titles. The dispatcher offers a session when it
//! retires the lane; `title_writer` writes the titles.
//!
//! **Does not know** how a title is written.

mod config;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::{ModelProvider, SessionKey, SessionOwner, StopReason, StopTarget};
use belay_run::live::{LiveRun, StopCause};
use tokio::sync::Notify;

pub use self::config::TitlesConfig;
use crate::model_choice;

/// Maximum number of sessions that wait for titles. 64: at some seconds for each, a few minutes.
const CAPACITY: usize = 64;

/// The settings of titles, and the sessions that wait for them.
pub(crate) struct Titles {
    config: TitlesConfig,
    queue: TitleQueue,
}

impl Titles {
    /// `None`: titles are disabled, or the model is the rehearsal.
    ///
    /// # Errors
    /// The settings name an unknown model. The text starts with the setting.
    pub(crate) fn of(config: &TitlesConfig, model: &dyn ModelProvider) -> Result<Option<Self>, String> {
        if config.after_s == 0 || model.info().rehearsal {
            return Ok(None);
        }
        if let Some(name) = &config.model {
            model_choice::check(name, model).map_err(|why| format!("llm.small_model: {why}"))?;
        }
        Ok(Some(Self { config: config.clone(), queue: TitleQueue::default() }))
    }

    /// Time without a message after which a session is offered.
    pub(crate) fn after(&self) -> Duration {
        Duration::from_secs(self.config.after_s)
    }

    /// Offers an idle session. Never waits. Sessions of jobs and routine runs get no titles.
    pub(crate) fn offer(&self, session: &SessionKey) {
        if SessionOwner::of(session).is_none() {
            self.queue.push(session);
        }
    }

    /// The name of the model; `None`: the configured one.
    pub(crate) fn model(&self) -> Option<&str> {
        self.config.model.as_deref()
    }

    /// The session that has waited longest. Waits for one.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(crate) async fn next(&self) -> SessionKey {
        loop {
            if let Some(session) = self.queue.lock().sessions.pop_front() {
                return session;
            }
            self.queue.wake.notified().await;
        }
    }

    /// Notes the model call in progress, so that a stop finds it; `None`: it has ended.
    pub(crate) fn begins(&self, call: Option<Arc<LiveRun>>) {
        self.queue.lock().call = call;
    }

    /// Stops the model call for a session that a stop is meant for.
    pub(crate) fn stop(&self, target: &StopTarget) {
        let writing = self.queue.lock();
        let Some(run) = &writing.call else { return };
        let is_meant = match target {
            StopTarget::All => true,
            StopTarget::Session(session) => run.session == *session,
            StopTarget::Run(_) | StopTarget::RunOfGoneClient(_) => false, // nobody knows its id
        };
        if is_meant {
            run.control.stop(StopCause::of(StopReason::UserStop));
        }
    }
}

/// The sessions that wait for titles. The lock is held for a look-up.
#[derive(Default)]
struct TitleQueue {
    state: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Default)]
struct Waiting {
    sessions: VecDeque<SessionKey>,
    /// The model call in progress.
    call: Option<Arc<LiveRun>>,
}

impl TitleQueue {
    fn push(&self, session: &SessionKey) {
        let mut waiting = self.lock();
        if waiting.sessions.len() < CAPACITY && !waiting.sessions.contains(session) {
            waiting.sessions.push_back(session.clone());
            drop(waiting);
            self.wake.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
