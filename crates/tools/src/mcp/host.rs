//! All configured servers: lists their tools, compares them with the pins, and makes tools of them.

use std::collections::HashSet;
use std::sync::Arc;

use belay_protocol::{Clock, Tool};
use belay_text::near::{did_you_mean, nearest_names};
use serde::Serialize;
use serde_json::Value;
use tracing::{info, warn};

use crate::mcp::asking::Asking;
use crate::mcp::config::Trust;
use crate::mcp::late::Late;
use crate::mcp::name::assign;
use crate::mcp::oauth::Logins;
use crate::mcp::offer::{LeftOut, Offer};
use crate::mcp::pins::{Comparison, PinSet, PinnedBy, Pins, PinsError};
use crate::mcp::remembered::Remembered;
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;
use crate::mcp::sessions::McpSessions;
use crate::mcp::tool::McpTool;
use crate::picture::Pictures;

/// Most bytes of all descriptions and schemas of one server. 128 KiB: they are part of every request, and more would be
/// over 30 000 tokens.
const MAX_DESCRIBED: usize = 128 * 1024;

/// All configured servers.
pub struct Mcp {
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) pins: Pins,
    clock: Arc<dyn Clock>,
    sessions: Arc<McpSessions>,
    pub(super) asking: Asking,
    pub(super) late: Late,
    /// The tools of earlier listings; `None`: nothing is remembered.
    pub(super) remembered: Option<Remembered>,
    /// The logins; `None`: no server can have one.
    pub(super) logins: Option<Arc<Logins>>,
}

/// Whether a survey may pin tools that it sees for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyMode {
    /// New tools are pinned if the server's `trust` allows it.
    ToUse,
    /// No pin is changed.
    Only,
}

/// The tools of all servers.
#[derive(Clone, Debug)]
pub struct Survey {
    /// One report per server, sorted by name.
    pub reports: Vec<ServerReport>,
    offers: Vec<(String, Arc<Server>, Offer)>,
}

/// The tools of one server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerReport {
    /// Name of the server in the settings.
    pub server: String,
    /// The revision of MCP that it speaks; `None`: it was not asked yet, or could not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why its tools could not be listed, as a text that follows the server's name.
    pub trouble: Option<String>,
    /// The last lines of its standard error in that case, at most ten. Only for the operator, because they may contain
    /// anything.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// The tools of the server.
    pub tools: Vec<ToolReport>,
}

/// The findings about one tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolReport {
    /// The name that the server gives it.
    pub tool: String,
    /// The name by which models call it; `None`: it has none.
    pub name: Option<String>,
    /// The server's description.
    pub description: String,
    /// The schema of its arguments.
    pub schema: Value,
    /// Whether it is offered.
    #[serde(flatten)]
    pub standing: Standing,
}

/// Whether a tool is offered, or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// Offered: its description is approved.
    Offered,
    /// Not offered: nobody has approved it yet.
    New,
    /// Not offered: it differs from the approved description.
    Changed {
        /// The parts that have changed: `description`, `arguments`, `hints`.
        what: Vec<&'static str>,
        /// The approved description.
        before: String,
    },
    /// Not offered: the settings do not select it.
    NotWanted,
    /// Not offered: it has a problem.
    LeftOut {
        /// The problem.
        why: String,
    },
}

/// The listing of one server: its tools, or the error and the last lines of standard error.
pub(super) type Listing = Result<Vec<Result<Offer, LeftOut>>, (ServerError, String)>;

impl Mcp {
    /// Creates the set of servers. `sessions` holds the connections of runs. Starts nothing.
    pub fn new(servers: Vec<Server>, pins: Pins, sessions: Arc<McpSessions>, clock: Arc<dyn Clock>) -> Self {
        let mut servers: Vec<_> = servers.into_iter().map(Arc::new).collect();
        servers.sort_by(|a, b| a.name().cmp(b.name()));
        let asking = Asking::new(sessions.clone());
        Self { servers, pins, clock, sessions, asking, late: Late::default(), remembered: None, logins: None }
    }

    /// The connections of runs.
    pub fn sessions(&self) -> &Arc<McpSessions> {
        &self.sessions
    }

    /// Lists the tools of all servers, four programs at a time, each over a separate connection that is closed
    /// afterwards. Each server has the time of its `start_timeout_s`, and 10 s to list. The failure of one server is part
    /// of its report and does not affect the others.
    ///
    /// # Errors
    /// The pins cannot be read or changed. Then no tool can be offered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the started servers are ended.
    pub async fn survey(&self, looking: SurveyMode) -> Result<Survey, PinsError> {
        let found = self.asking.all(self.servers.clone()).await;
        let survey = self.compared(found, looking, None).await?;
        survey.log();
        Ok(survey)
    }

    /// Compares listings with the pins. `arrived`: the only server whose new tools may be pinned.
    pub(super) async fn compared(
        &self,
        found: Vec<(Arc<Server>, Listing)>,
        looking: SurveyMode,
        arrived: Option<&Server>,
    ) -> Result<Survey, PinsError> {
        let pins = match looking {
            SurveyMode::Only => self.pins.read().await?,
            SurveyMode::ToUse => {
                let pin = |set: &mut PinSet| {
                    let may_pin = |server: &Server| arrived.is_none_or(|arrived| arrived.name() == server.name());
                    let found = found.iter().filter(|(server, _)| may_pin(server));
                    found.for_each(|(server, listing)| pin_first(server, listing, set, &*self.clock));
                    set.clone()
                };
                self.pins.change(pin).await?
            }
        };
        Ok(compare(found, &pins))
    }

    /// The offered tools of a survey, as tools for models.
    pub fn tools(&self, survey: &Survey) -> Vec<Arc<dyn Tool>> {
        let pictures = Pictures::new();
        let tool = |(name, server, offer): &(String, Arc<Server>, Offer)| {
            let tool = McpTool::new(name, server.clone(), offer.clone(), self.sessions.clone(), pictures.clone());
            Arc::new(tool) as Arc<dyn Tool>
        };
        survey.offers.iter().map(tool).collect()
    }

    /// Lists the tools of a server and approves one of them, or all, with their current description. Returns the tools
    /// that were not approved before, as models will see them.
    ///
    /// # Errors
    /// A sentence: the server or tool does not exist, the server cannot be asked, or the pins cannot be changed. Then
    /// nothing is approved.
    pub async fn approve(&self, server: &str, tool: Option<&str>) -> Result<Vec<ToolReport>, String> {
        let Some(server) = self.servers.iter().find(|known| known.name() == server) else {
            return Err(format!("the MCP server {server} is not enabled"));
        };
        let listing = self.asking.one(server).await.map_err(|(trouble, stderr)| {
            let stderr =
                if stderr.is_empty() { stderr } else { format!(". Its last lines on standard error:\n{stderr}") };
            format!("the MCP server {} {trouble}{stderr}", server.name())
        })?;
        // So that the next start knows the approved tool without asking.
        self.note(&[(server.clone(), Ok(listing.clone()))]).await;
        let chosen = chosen(server, listing, tool)?;
        let now = self.clock.now();
        let pin = |set: &mut PinSet| {
            let differs = |offer: &&Offer| set.compare(server.name(), offer) != Comparison::Same;
            let new: Vec<Offer> = chosen.iter().filter(differs).cloned().collect();
            for offer in &new {
                set.pin(server.name(), offer, now, PinnedBy::Operator);
            }
            new
        };
        let pinned = self.pins.change(pin).await.map_err(|error| error.to_string())?;
        Ok(pinned.into_iter().map(|offer| report_of(&offer, None, Standing::Offered)).collect())
    }
}

/// Rejects tools beyond the limit of [`MAX_DESCRIBED`], and repeated names.
pub(super) fn bounded(listing: Vec<Result<Offer, LeftOut>>) -> Vec<Result<Offer, LeftOut>> {
    let (mut described, mut names) = (0, HashSet::new());
    let mut keep = |offer: Offer| {
        let left_out = |why: String| LeftOut { tool: offer.tool.clone(), why };
        if !names.insert(offer.tool.clone()) {
            return Err(left_out("the server lists another tool of that name".into()));
        }
        let bytes = offer.description.len() + offer.schema.to_string().len();
        if described + bytes > MAX_DESCRIBED {
            return Err(left_out(format!(
                "all tools of the server together are described in more than {MAX_DESCRIBED} bytes"
            )));
        }
        described += bytes;
        Ok(offer)
    };
    listing.into_iter().map(|found| found.and_then(&mut keep)).collect()
}

/// The tool with this name, or all tools.
fn chosen(server: &Server, listing: Vec<Result<Offer, LeftOut>>, tool: Option<&str>) -> Result<Vec<Offer>, String> {
    let Some(tool) = tool else { return Ok(listing.into_iter().flatten().collect()) };
    let mut names = Vec::new();
    for found in listing {
        match found {
            Ok(offer) if offer.tool == tool => return Ok(vec![offer]),
            Err(left_out) if left_out.tool == tool => {
                return Err(format!("{tool} of the MCP server {} cannot be offered: {}", server.name(), left_out.why));
            }
            Ok(offer) => names.push(offer.tool),
            Err(_) => {}
        }
    }
    let near = nearest_names(tool, &names, 1);
    Err(format!("the MCP server {} offers no tool {tool}.{}", server.name(), did_you_mean(&near)))
}

/// Pins new tools of a server if its `trust` is [`Trust::FirstUse`].
fn pin_first(server: &Server, listing: &Listing, pins: &mut PinSet, clock: &dyn Clock) {
    if server.config().trust != Trust::FirstUse {
        return;
    }
    for offer in listing.iter().flatten().flatten().filter(|offer| server.wants(&offer.tool)) {
        if pins.compare(server.name(), offer) == Comparison::New {
            pins.pin(server.name(), offer, clock.now(), PinnedBy::FirstUse);
        }
    }
}

/// Compares all tools with the pins, and assigns names to the offered ones.
fn compare(found: Vec<(Arc<Server>, Listing)>, pins: &PinSet) -> Survey {
    let wanted =
        |server: &Server, found: &Result<Offer, LeftOut>| matches!(found, Ok(offer) if server.wants(&offer.tool));
    // All selected tools get a name, approved or not, so that an approval does not change the name of another tool.
    let pairs: Vec<(&str, &str)> = found
        .iter()
        .flat_map(|(server, listing)| {
            let tools = listing.iter().flatten().filter(|tool| wanted(server, tool)).flatten();
            tools.map(|offer| (server.name(), offer.tool.as_str()))
        })
        .collect();
    let mut names = assign(&pairs).into_iter();

    let (mut reports, mut offers) = (Vec::new(), Vec::new());
    for (server, listing) in &found {
        let mut report = ServerReport {
            server: server.name().to_owned(),
            revision: server.spoken().get().map(|revision| revision.to_string()),
            trouble: None,
            last_words: String::new(),
            tools: Vec::new(),
        };
        match listing {
            Err((trouble, stderr)) => {
                report.trouble = Some(trouble.to_string());
                report.last_words.clone_from(stderr);
            }
            Ok(tools) => {
                for tool in tools {
                    report.tools.push(match tool {
                        Err(left_out) => report_of_left_out(left_out),
                        Ok(offer) if !server.wants(&offer.tool) => report_of(offer, None, Standing::NotWanted),
                        Ok(offer) => {
                            let name = names.next().expect("a name for each wanted tool, in their order");
                            let standing = standing(pins, server, offer, name.as_deref());
                            if let (Standing::Offered, Some(name)) = (&standing, &name) {
                                offers.push((name.clone(), server.clone(), offer.clone()));
                            }
                            report_of(offer, name, standing)
                        }
                    });
                }
            }
        }
        reports.push(report);
    }
    Survey { reports, offers }
}

fn standing(pins: &PinSet, server: &Server, offer: &Offer, name: Option<&str>) -> Standing {
    if name.is_none() {
        return Standing::LeftOut { why: "its name collides with another tool".into() };
    }
    match pins.compare(server.name(), offer) {
        Comparison::Same => Standing::Offered,
        Comparison::New => Standing::New,
        Comparison::Changed { what, before } => Standing::Changed { what, before },
    }
}

fn report_of(offer: &Offer, name: Option<String>, standing: Standing) -> ToolReport {
    let (tool, description, schema) = (offer.tool.clone(), offer.description.clone(), offer.schema.clone());
    ToolReport { tool, name, description, schema, standing }
}

fn report_of_left_out(left_out: &LeftOut) -> ToolReport {
    ToolReport {
        tool: left_out.tool.clone(),
        name: None,
        description: String::new(),
        schema: Value::Null,
        standing: Standing::LeftOut { why: left_out.why.clone() },
    }
}

impl Survey {
    /// The part of it about one server.
    pub(super) fn of(mut self, server: &Server) -> Self {
        self.reports.retain(|report| report.server == server.name());
        self.offers.retain(|(_, of, _)| of.name() == server.name());
        self
    }

    pub(super) fn log(&self) {
        for report in &self.reports {
            let server = &report.server;
            if let Some(trouble) = &report.trouble {
                warn!(server, trouble, said = report.last_words, "mcp server left out");
                continue;
            }
            let offered = report.tools.iter().filter(|tool| tool.standing == Standing::Offered).count();
            info!(server, offered, listed = report.tools.len(), "mcp server asked");
            for tool in &report.tools {
                let name = &tool.tool;
                match &tool.standing {
                    Standing::Offered | Standing::NotWanted => {}
                    Standing::New => warn!(server, tool = name, "mcp tool not offered: nobody has approved it"),
                    Standing::Changed { what, .. } => {
                        warn!(server, tool = name, ?what, "mcp tool not offered: changed since it was approved");
                    }
                    Standing::LeftOut { why } => warn!(server, tool = name, detail = why, "mcp tool left out"),
                }
            }
        }
    }
}
