//! Servers that are still starting when a start of the daemon goes on without them. Their tools are offered when they
//! come.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_protocol::Tool;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::error;

use crate::mcp::host::{Listing, Mcp, ServerReport, Survey, SurveyMode};
use crate::mcp::pins::PinsError;
use crate::mcp::server::Server;

/// How long a start waits for servers that it does not know. 10 s: messages wait for it.
const START_WAIT: Duration = Duration::from_secs(10);

/// The servers that are still starting.
pub(super) struct Late {
    /// How long a start waits.
    wait: Duration,
    state: Mutex<State>,
}

/// The questions that have no answer yet. Dropping it ends the servers.
type Questions = JoinSet<(Arc<Server>, Listing)>;

#[derive(Default)]
struct State {
    /// The names of these servers.
    starting: BTreeSet<String>,
    /// What the other servers have listed: a name depends on all names.
    found: Vec<(Arc<Server>, Listing)>,
    /// The questions, until [`Mcp::arrivals`] takes them.
    asking: Questions,
}

/// The servers that are late, as they come.
pub struct Arrivals<'a> {
    mcp: &'a Mcp,
    asking: Questions,
}

/// A server that has come late, or has failed.
pub struct Arrival {
    /// The findings about it.
    pub report: ServerReport,
    /// Its offered tools.
    pub tools: Vec<Arc<dyn Tool>>,
}

impl Default for Late {
    fn default() -> Self {
        Self { wait: START_WAIT, state: Mutex::default() }
    }
}

impl Late {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the other servers have listed, if a server is late.
    pub(super) fn keep(&self, found: &[(Arc<Server>, Listing)]) {
        let mut state = self.state();
        if !state.starting.is_empty() {
            state.found = found.to_vec();
        }
    }
}

impl Mcp {
    /// Replaces the 10 s for which a start waits for servers that it does not know.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.late.wait = wait;
        self
    }

    /// The names of the servers for which the start did not wait, and which have neither come nor failed since.
    pub fn starting(&self) -> Vec<String> {
        self.late.state().starting.iter().cloned().collect()
    }

    /// Asks servers for a start: returns the answers that come in time. [`Self::arrivals`] returns the others.
    pub(super) async fn in_time(&self, servers: Vec<Arc<Server>>) -> Vec<(Arc<Server>, Listing)> {
        let mut starting: BTreeSet<String> = servers.iter().map(|server| server.name().to_owned()).collect();
        let (mut asking, mut answered) = (JoinSet::new(), Vec::new());
        for server in servers {
            let asks = self.asking.clone();
            asking.spawn(async move {
                let listing = asks.one(&server).await;
                (server, listing)
            });
        }
        let mut wait = std::pin::pin!(sleep(self.late.wait));
        loop {
            let next = tokio::select! {
                biased;
                next = asking.join_next() => next,
                () = &mut wait => break,
            };
            match next {
                None => break,
                Some(Ok((server, listing))) => {
                    starting.remove(server.name());
                    answered.push((server, listing));
                }
                Some(Err(broken)) => error!(%broken, "the question for the tools of an mcp server broke"),
            }
        }
        if asking.is_empty() {
            starting.clear();
        }
        let mut state = self.late.state();
        (state.starting, state.asking) = (starting, asking);
        answered
    }

    /// The servers that are late, once; dropping the value ends them.
    pub fn arrivals(&self) -> Arrivals<'_> {
        Arrivals { mcp: self, asking: std::mem::take(&mut self.late.state().asking) }
    }
}

impl Arrival {
    /// The part of a survey about one server.
    pub(super) fn of(mcp: &Mcp, server: &Server, survey: Survey) -> Self {
        let mut survey = survey.of(server);
        survey.log();
        let tools = mcp.tools(&survey);
        Self { report: survey.reports.remove(0), tools }
    }
}

impl Arrivals<'_> {
    /// Waits for the next server that is late: its tools, or why it is left out. `None`: there is no other one.
    ///
    /// # Errors
    /// The pins cannot be read or changed. Then the tools of that server are not offered.
    ///
    /// # Cancel safety
    /// If the future is dropped, a server that has just come is missing until the next start.
    pub async fn next(&mut self) -> Option<Result<Arrival, PinsError>> {
        let mcp = self.mcp;
        let (server, listing) = loop {
            match self.asking.join_next().await {
                Some(Ok(answered)) => break answered,
                Some(Err(broken)) => error!(%broken, "the question for the tools of an mcp server broke"),
                None => {
                    *mcp.late.state() = State::default();
                    return None;
                }
            }
        };
        let answered = (server.clone(), listing);
        mcp.note(std::slice::from_ref(&answered)).await;
        let found = {
            let mut state = mcp.late.state();
            state.starting.remove(server.name());
            state.found.push(answered);
            state.found.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
            state.found.clone()
        };
        let compared = mcp.compared(found, SurveyMode::ToUse, Some(&server)).await;
        Some(compared.map(|survey| Arrival::of(mcp, &server, survey)))
    }
}
