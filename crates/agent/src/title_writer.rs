//! The task that writes titles of idle conversations, one after the other.
//!
//! No title is written without a limit of money for a day, and while something is frozen. A stop, a freeze and the drain end
//! a model call, and nothing of it is kept.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Lease, Purpose, RunId, RunOptions, SessionKey, StopReason, StoreError, Untitled, Work};
use belay_run::core::{OwnTime, RunCore, RunStart};
use belay_run::deadlines::Deadline;
use belay_run::live::{LiveRun, RunOrigin, StopCause};
use belay_run::request::RunRequest;
use belay_run::tally::Tally;
use belay_run::titles::{Titled, title};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent_services::AgentServices;
use crate::titles::Titles;

/// Most titles for a session each time that it is idle. Earlier conversations without a title follow the next time.
const AT_ONCE: u32 = 4;
/// Time limit of one title.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Writes the titles of idle sessions.
pub(crate) struct TitleWriter {
    services: Arc<AgentServices>,
    stop: CancellationToken,
}

impl TitleWriter {
    pub(crate) fn new(services: Arc<AgentServices>, stop: CancellationToken) -> Self {
        Self { services, stop }
    }

    /// Writes titles until the daemon shuts down.
    pub(crate) async fn run(self) {
        let Some(titles) = &self.services.titles else { return self.stop.cancelled().await };
        loop {
            let session = tokio::select! {
                biased; // nothing begins after the drain has begun
                () = self.stop.cancelled() => return,
                session = titles.next() => session,
            };
            if let Err(error) = self.write(titles, &session).await {
                tracing::debug!(%session, detail = %error, "the titles of a session were not written");
            }
        }
    }

    async fn write(&self, titles: &Titles, session: &SessionKey) -> Result<(), StoreError> {
        if !self.may_ask() {
            return Ok(());
        }
        let store = &self.services.store.titles;
        for untitled in store.untitled(session, AT_ONCE).await? {
            if self.stop.is_cancelled() || !self.may_ask() {
                return Ok(());
            }
            match self.ask(titles, session, &untitled).await {
                Titled::Title(title) => store.keep_title(&untitled, Some(title)).await?,
                Titled::Failed => store.keep_title(&untitled, None).await?,
                Titled::NotAsked => return Ok(()),
            }
        }
        Ok(())
    }

    /// Whether there is a budget with money left, and nothing is frozen.
    fn may_ask(&self) -> bool {
        let run = &self.services.run;
        let limits = run.cost.limits();
        let has_budget = limits.all.is_some() || limits.of.contains_key(&Purpose::Title);
        has_budget && run.cost.has_price() && run.cost.has_room(Purpose::Title) && !run.freezer.holds_anything()
    }

    /// Asks the model. A stop, a freeze and the drain end the call.
    async fn ask(&self, titles: &Titles, session: &SessionKey, untitled: &Untitled) -> Titled {
        let origin =
            RunOrigin { work: Work::Chat, source: None, channel: Purpose::Title.channel(), principal: "belay".into() };
        let run = LiveRun::new(RunId::new(), session.clone(), origin, false);
        titles.begins(Some(run.clone()));
        let mut core = self.core(run.clone());
        let asked = {
            let mut asking = std::pin::pin!(title(&mut core, &untitled.messages, titles.model()));
            let ended = async {
                tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = self.services.run.freezer.frozen() => {}
                }
            };
            tokio::select! {
                asked = &mut asking => asked,
                () = ended => {
                    run.control.stop(StopCause::of(StopReason::Shutdown));
                    asking.await // settles the money
                }
            }
        };
        titles.begins(None);
        asked
    }

    /// The core of a call that is no run in the store. It is metered, guarded and stopped like any other.
    fn core(&self, live: Arc<LiveRun>) -> RunCore {
        let services = &self.services;
        let request = RunRequest::without_message(&live, RunOptions::default(), services.clock.now());
        // Nothing is written under this lease.
        let lease = Lease { session: live.session.clone(), owner: services.boot, epoch: 0 };
        let start = RunStart { lease, stored: 0, tally: Tally::default(), spawned: 0 };
        let core = RunCore::root(services.run.clone(), live, Arc::new(request), start);
        let until = Instant::now().checked_add(CALL_LIMIT).map(|until| Deadline::at(until, &core.waits));
        RunCore {
            journal: core.journal.of_no_run(),
            purpose: Purpose::Title,
            own: until.map(|until| OwnTime { work: until.clone(), until, time: CALL_LIMIT }),
            ..core
        }
    }
}
