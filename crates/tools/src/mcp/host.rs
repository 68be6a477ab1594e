//! All configured servers: asked for their tools, compared with the pins, made into tools of ours.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Clock, Generation, RunId, Tool};
use belay_text::near::{did_you_mean, nearest_names};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::mcp::config::Trust;
use crate::mcp::connection::Connection;
use crate::mcp::name::assign;
use crate::mcp::offer::{LeftOut, Offer, look};
use crate::mcp::pins::{Comparison, PinSet, PinnedBy, Pins, PinsError};
use crate::mcp::server::Server;
use crate::mcp::sessions::McpSessions;
use crate::mcp::tool::McpTool;
use crate::mcp::trouble::Trouble;
use crate::mcp::wire::Watch;
use crate::picture::Pictures;

/// Most bytes of all descriptions and schemas of one server. 128 KiB: 30 000 tokens in every request are too many.
const MAX_DESCRIBED: usize = 128 * 1024;

/// Longest time in which one server is started and lists its tools, when all are asked. 10 s: the start of the daemon waits
/// for it.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// All configured servers.
pub struct Mcp {
    servers: Vec<Arc<Server>>,
    pins: Pins,
    clock: Arc<dyn Clock>,
    sessions: Arc<McpSessions>,
}

/// What becomes of tools that are seen for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looking {
    /// They are pinned where the server's `trust` says so.
    ToUse,
    /// Nothing is changed.
    Only,
}

/// What all servers offer.
#[derive(Clone, Debug)]
pub struct Survey {
    /// One for each server, in the order of their names.
    pub reports: Vec<ServerReport>,
    offers: Vec<(String, Arc<Server>, Offer)>,
}

/// What one server offers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerReport {
    /// Its name in the settings.
    pub server: String,
    /// Why it could not be asked, in words that follow its name.
    pub trouble: Option<String>,
    /// The last lines that it wrote to its standard error then, at most ten. For the operator: they may hold anything.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// Its tools.
    pub tools: Vec<ToolReport>,
}

/// What was found of one tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolReport {
    /// The name the server gives it.
    pub tool: String,
    /// The name under which models call it; `None`: it has none.
    pub name: Option<String>,
    /// What the server says of it.
    pub description: String,
    /// Its arguments.
    pub schema: Value,
    /// Where it stands.
    #[serde(flatten)]
    pub standing: Standing,
}

/// Where a tool stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It is what was approved: models may call it.
    Offered,
    /// Nobody has approved it yet.
    New,
    /// It is not what was approved: not offered.
    Changed {
        /// What has changed: `description`, `arguments`, `hints`.
        what: Vec<&'static str>,
        /// The description that was approved.
        before: String,
    },
    /// It is not among those that the settings want.
    NotWanted,
    /// It cannot be offered.
    LeftOut {
        /// Why.
        why: String,
    },
}

/// What one server said: its tools, or why not.
type Looked = Result<Vec<Result<Offer, LeftOut>>, (Trouble, String)>;

impl Mcp {
    /// All servers; `sessions` are the connections of runs that call their tools. Nothing is started yet.
    pub fn new(servers: Vec<Server>, pins: Pins, sessions: Arc<McpSessions>, clock: Arc<dyn Clock>) -> Self {
        let mut servers: Vec<_> = servers.into_iter().map(Arc::new).collect();
        servers.sort_by(|a, b| a.name().cmp(b.name()));
        Self { servers, pins, clock, sessions }
    }

    /// The connections of runs.
    pub fn sessions(&self) -> &Arc<McpSessions> {
        &self.sessions
    }

    /// Asks each server for its tools, side by side, each over a connection of its own that is ended again. Takes at most
    /// 10 s, and what ending a server takes; a server that fails is reported, and the others are not.
    ///
    /// # Errors
    /// The pins cannot be read or changed: then nothing can be offered.
    ///
    /// # Cancel safety
    /// Dropped, servers that were started are ended.
    pub async fn survey(&self, looking: Looking) -> Result<Survey, PinsError> {
        let looked = join_all(self.servers.iter().map(|server| self.look_at(server))).await;
        let found: Vec<_> = self.servers.iter().cloned().zip(looked).collect();
        let (pins, clock) = (self.pins.clone(), self.clock.clone());
        let compared = tokio::task::spawn_blocking(move || match looking {
            Looking::Only => pins.read().map(|set| compare(found, set)),
            Looking::ToUse => pins.change(|set| {
                pin_first(&found, set, &*clock);
                compare(found, set.clone())
            }),
        });
        let survey = compared.await.expect("comparing does not panic, and is not cancelled")?;
        survey.log();
        Ok(survey)
    }

    /// What a survey found to be offered, as tools for models.
    pub fn tools(&self, survey: &Survey) -> Vec<Arc<dyn Tool>> {
        let pictures = Pictures::new();
        let tool = |(name, server, offer): &(String, Arc<Server>, Offer)| {
            let tool = McpTool::new(name, server.clone(), offer.clone(), self.sessions.clone(), pictures.clone());
            Arc::new(tool) as Arc<dyn Tool>
        };
        survey.offers.iter().map(tool).collect()
    }

    /// Asks a server for its tools and approves one of them, or all, as they describe themselves now. Gives the names of
    /// those that were not approved before, and what the model will be told of them.
    ///
    /// # Errors
    /// A sentence: there is no such server or tool, the server cannot be asked, or the pins cannot be changed. Nothing is
    /// approved then.
    pub async fn approve(&self, server: &str, tool: Option<&str>) -> Result<Vec<ToolReport>, String> {
        let Some(server) = self.servers.iter().find(|known| known.name() == server) else {
            return Err(format!("the MCP server {server} is not enabled"));
        };
        let looked = self.look_at(server).await.map_err(|(trouble, said)| {
            let said = if said.is_empty() { said } else { format!(". Its last lines on standard error:\n{said}") };
            format!("the MCP server {} {trouble}{said}", server.name())
        })?;
        let chosen = chosen(server, looked, tool)?;
        let (pins, now, server) = (self.pins.clone(), self.clock.now(), server.clone());
        let pinned = tokio::task::spawn_blocking(move || {
            pins.change(|set| {
                let new: Vec<Offer> =
                    chosen.into_iter().filter(|offer| set.compare(server.name(), offer) != Comparison::Same).collect();
                for offer in &new {
                    set.pin(server.name(), offer, now, PinnedBy::Operator);
                }
                new
            })
        });
        let pinned =
            pinned.await.expect("pinning does not panic, and is not cancelled").map_err(|error| error.to_string())?;
        Ok(pinned.into_iter().map(|offer| report_of(&offer, None, Standing::Offered)).collect())
    }

    /// One server's tools, over a connection for that alone.
    async fn look_at(&self, server: &Server) -> Looked {
        let starter = self.sessions.starter();
        // A run that nobody else knows: whoever lists what is running shows the server all the same.
        let (watch, generation) = (Arc::new(Watch::default()), Generation::default());
        let looked = timeout(LOOK_LIMIT, async {
            let opening = Connection::open(server, starter, RunId::new(), &generation, watch.clone());
            let connection = Box::pin(opening).await?;
            let listed = connection.tools().await;
            Ok((connection, listed?))
        });
        let looked = looked.await.unwrap_or_else(|_| {
            let what = "the question for its tools";
            Err(server.explain(Trouble::Silent { what, limit: LOOK_LIMIT, noise: watch.noise() }))
        });
        let (connection, tools) = looked.map_err(|trouble| (trouble, watch.last_words()))?;
        connection.end().await;
        Ok(bounded(tools.into_iter().map(|tool| tool.and_then(|tool| look(&tool))).collect()))
    }
}

/// Leaves out tools beyond what one server may describe, and those whose name was there before.
fn bounded(looked: Vec<Result<Offer, LeftOut>>) -> Vec<Result<Offer, LeftOut>> {
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
    looked.into_iter().map(|found| found.and_then(&mut keep)).collect()
}

/// The tool of that name, or all.
fn chosen(server: &Server, looked: Vec<Result<Offer, LeftOut>>, tool: Option<&str>) -> Result<Vec<Offer>, String> {
    let Some(tool) = tool else { return Ok(looked.into_iter().flatten().collect()) };
    let mut names = Vec::new();
    for found in looked {
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

/// Pins what is seen for the first time, where nobody wants to be asked.
fn pin_first(found: &[(Arc<Server>, Looked)], pins: &mut PinSet, clock: &dyn Clock) {
    for (server, looked) in found {
        if server.config().trust != Trust::FirstUse {
            continue;
        }
        for offer in looked.iter().flatten().flatten().filter(|offer| server.wants(&offer.tool)) {
            if pins.compare(server.name(), offer) == Comparison::New {
                pins.pin(server.name(), offer, clock.now(), PinnedBy::FirstUse);
            }
        }
    }
}

/// Compares everything with the pins, and gives names to what is offered.
fn compare(found: Vec<(Arc<Server>, Looked)>, pins: PinSet) -> Survey {
    let wanted =
        |server: &Server, found: &Result<Offer, LeftOut>| matches!(found, Ok(offer) if server.wants(&offer.tool));
    // Names are given to all that are wanted, approved or not: an approval changes no other tool's name.
    let pairs: Vec<(&str, &str)> = found
        .iter()
        .flat_map(|(server, looked)| {
            let tools = looked.iter().flatten().filter(|tool| wanted(server, tool)).flatten();
            tools.map(|offer| (server.name(), offer.tool.as_str()))
        })
        .collect();
    let mut names = assign(&pairs).into_iter();

    let (mut reports, mut offers) = (Vec::new(), Vec::new());
    for (server, looked) in &found {
        let mut report = ServerReport {
            server: server.name().to_owned(),
            trouble: None,
            last_words: String::new(),
            tools: Vec::new(),
        };
        match looked {
            Err((trouble, said)) => {
                report.trouble = Some(trouble.to_string());
                report.last_words.clone_from(said);
            }
            Ok(tools) => {
                for tool in tools {
                    report.tools.push(match tool {
                        Err(left_out) => report_of_left_out(left_out),
                        Ok(offer) if !server.wants(&offer.tool) => report_of(offer, None, Standing::NotWanted),
                        Ok(offer) => {
                            let name = names.next().expect("a name for each wanted tool, in their order");
                            let standing = standing(&pins, server, offer, name.as_deref());
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
        return Standing::LeftOut { why: "no name tells it apart from another tool".into() };
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
    fn log(&self) {
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
                    Standing::LeftOut { why } => warn!(server, tool = name, why, "mcp tool left out"),
                }
            }
        }
    }
}
