//! The MCP servers of a daemon, or of a command that runs an agent.

use std::sync::Arc;
use std::time::Duration;

use belay_agent::Reloader;
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_protocol::{PinStore, ServerLogins, Tool};
use belay_settings::Settings;
use belay_tools::mcp::{Arrival, KnownServers, LoginChange, Mcp, McpSessions, Pins, PinsError};
use tokio_util::sync::CancellationToken;

use crate::mcp::{own_pins, servers};
use crate::process_needs::ProcessNeeds;

/// All enabled servers.
#[derive(Clone)]
pub(crate) struct Servers {
    mcp: Arc<Mcp>,
    /// The servers whose tools are offered without asking them at this start.
    known: KnownServers,
    /// The servers that are left out, each with the reason, which follows its name.
    left_out: Vec<(String, String)>,
}

impl Servers {
    /// Builds all enabled servers. Starts nothing. `shared`: the approved descriptions of a cluster; `None`: those of this
    /// machine. With `patient`, servers that start slowly are waited for.
    ///
    /// # Errors
    /// All named secrets of servers that are missing, and all unusable URLs.
    pub(crate) fn build(
        needs: &ProcessNeeds,
        settings: &Settings,
        env: &Environment,
        paths: &Paths,
        (shared, patient): (Option<Arc<dyn PinStore>>, bool),
    ) -> Result<Self, Failure> {
        let pins = shared.map_or_else(|| own_pins(paths), Pins::shared);
        let mut mcp = servers(needs, settings, env, paths, pins)?;
        if patient {
            mcp = mcp.waiting(Duration::MAX);
        }
        Ok(Self { mcp: Arc::new(mcp), known: KnownServers::default(), left_out: Vec::new() })
    }

    /// Asks the servers that are new, or have new settings, for their tools. Returns the tools of all servers.
    ///
    /// # Errors
    /// The approved descriptions cannot be used (69).
    pub(crate) async fn recall(&mut self, settings: &Settings) -> Result<Vec<Arc<dyn Tool>>, Failure> {
        if !settings.tools.mcp.values().any(|server| server.enabled) {
            return Ok(Vec::new());
        }
        let recalled = self.mcp.recall().await;
        let (survey, known) = recalled.map_err(|error| Failure::new(Exit::OutOfReach, words(&error)))?;
        let tools = self.mcp.tools(&survey);
        self.left_out.extend(survey.reports.into_iter().filter_map(|report| Some((report.server, report.trouble?))));
        self.known = known;
        Ok(tools)
    }

    /// The connections of runs.
    pub(crate) fn sessions(&self) -> Arc<McpSessions> {
        self.mcp.sessions().clone()
    }

    /// The logins at servers; `None`: no server can have one.
    pub(crate) fn logins(&self) -> Option<Arc<dyn ServerLogins>> {
        self.mcp.logins()
    }

    /// Asks known servers again.
    pub(crate) async fn refresh(&self) {
        if let Err(error) = self.mcp.refresh(self.known.clone()).await {
            tracing::warn!(%error, "mcp tools of the next start are not known");
        }
    }

    /// Closes unused connections until it is stopped, and then all of them.
    pub(crate) async fn keep(&self, stop: CancellationToken) {
        self.mcp.sessions().keep(stop).await;
    }

    /// Shows the servers that are left out, offers the tools of those that are late as they come, and follows the logins.
    /// Returns when it is stopped.
    pub(crate) fn offer_late(
        &self,
        agent: Reloader,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        for name in self.mcp.starting() {
            agent.show_server(&name, None);
        }
        for (name, why) in &self.left_out {
            agent.show_server(name, Some(why.clone()));
        }
        let mcp = self.mcp.clone();
        async move {
            let late = async {
                let mut arrivals = mcp.arrivals();
                while let Some(arrival) = arrivals.next().await {
                    offer(arrival, &agent).await;
                }
                std::future::pending::<()>().await;
            };
            let logins = async {
                loop {
                    let LoginChange { server, needed, is_new } = mcp.login_change().await;
                    if let Some(why) = needed {
                        agent.need_login(&server, why, is_new).await;
                    } else if let Some(arrival) = mcp.listed_again(&server).await {
                        offer(arrival, &agent).await;
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = late => {}
                () = logins => {}
            }
        }
    }

    /// Waits for renewals of logins, for 2 s at most.
    pub(crate) async fn settle_logins(&self) {
        self.mcp.settle_logins().await;
    }
}

/// Offers the tools of an MCP server that has come late, or shows why it is left out.
async fn offer(arrival: Result<Arrival, PinsError>, agent: &Reloader) {
    match arrival {
        Ok(Arrival { report, tools }) => {
            let server = &report.server;
            if let Some(why) = report.trouble {
                agent.show_server(server, Some(why));
            } else {
                agent.add_server(server, &tools).await;
            }
        }
        Err(error) => tracing::warn!(%error, "the tools of an mcp server that came late are not offered"),
    }
}
