//! The tools that servers have listed before, in a file: a start offers them without waiting for the servers.
//!
//! The file decides only what a start knows about. Whether a tool is offered is decided by the pins, and each run
//! compares the server's description with the approved one before its first call.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::mcp::host::{Listing, Mcp, Survey, SurveyMode};
use crate::mcp::offer::Offer;
use crate::mcp::pins::{Comparison, PinSet, PinsError};
use crate::mcp::server::Server;
use crate::mcp::server_error::ServerError;

/// Version of the file format. A file of another version is ignored.
const VERSION: u32 = 1;

/// The file with the tools that servers have listed.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    path: PathBuf,
}

/// The contents of the file, by server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listings {
    version: u32,
    servers: BTreeMap<String, KnownServer>,
}

/// The tools of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownServer {
    /// The settings with which the server was asked. With other settings it may list other tools.
    settings: String,
    offers: Vec<Offer>,
}

impl Default for Listings {
    fn default() -> Self {
        Self { version: VERSION, servers: BTreeMap::new() }
    }
}

impl Listings {
    pub(super) fn of(&self, server: &Server) -> Option<Vec<Offer>> {
        let known = self.servers.get(server.name()).filter(|known| known.settings == settings_of(server))?;
        Some(known.offers.clone())
    }

    /// Replaces the tools of a server by a new listing. A server that could not be asked is forgotten.
    fn note(&mut self, server: &Server, listing: &Listing) {
        let name = server.name().to_owned();
        match listing {
            Ok(tools) => {
                let offers = tools.iter().flatten().cloned().collect();
                self.servers.insert(name, KnownServer { settings: settings_of(server), offers });
            }
            // Its tools are offered again after the login.
            Err((ServerError::Login(_), _)) => {}
            Err(_) => {
                self.servers.remove(&name);
            }
        }
    }
}

impl Remembered {
    /// Uses this file. It may be missing, but its directory must exist, and only the daemon may write to it.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file. An unusable file counts as empty: then the servers are asked.
    fn read(&self) -> Listings {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Listings::default(),
            Err(error) => {
                warn!(%error, file = %self.path.display(), "the remembered mcp tools cannot be read");
                return Listings::default();
            }
        };
        let read = serde_json::from_slice::<Listings>(&text).ok();
        read.filter(|listings| listings.version == VERSION).unwrap_or_default()
    }

    /// Replaces the file as a whole, if the listings have changed. It is not synchronised: if a crash loses it, the
    /// next start asks the servers.
    fn change(&self, change: impl FnOnce(&mut Listings)) {
        let before = self.read();
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return;
        }
        let write = || -> io::Result<()> {
            let new = self.path.with_extension(format!("{}.new", std::process::id()));
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(&after)?)?;
            fs::rename(new, &self.path)
        };
        if let Err(error) = write() {
            warn!(%error, file = %self.path.display(), "the mcp tools are not remembered for the next start");
        }
    }
}

/// The settings of a server, as a text to compare.
fn settings_of(server: &Server) -> String {
    // Plain data: it always serialises. The text contains no secret, because settings only name them.
    let settings = serde_json::to_vec(server.config()).unwrap_or_default();
    blake3::hash(&settings).to_hex().to_string()
}

impl Mcp {
    /// Remembers the tools of servers in this file.
    #[must_use]
    pub fn remembering(mut self, path: PathBuf) -> Self {
        self.remembered = Some(Remembered::new(path));
        self
    }

    /// The tools of all servers for a start: those of known servers as they listed them before, without asking; those
    /// of other servers by asking them, for 10 s at most. A server is known if it was asked successfully with the
    /// same settings. After the start, [`Self::refresh`] asks the known ones, and [`Self::arrivals`] waits for those that
    /// are late. In a cluster, a server whose tools differ from
    /// their pins is asked too: another node may have asked later.
    ///
    /// # Errors
    /// The pins cannot be read or changed. Then no tool can be offered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the started servers are ended.
    pub async fn recall(&self) -> Result<(Survey, KnownServers), PinsError> {
        let listings = self.listings().await;
        let (mut found, mut asked, mut known) = (Vec::new(), Vec::new(), KnownServers::default());
        let shared = if self.pins.are_shared { Some(self.pins.read().await?) } else { None };
        // A description that another node has approved since this one asked.
        let is_stale = |server: &Server, offers: &[Offer]| {
            let differs =
                |offer: &Offer, pins: &PinSet| matches!(pins.compare(server.name(), offer), Comparison::Changed { .. });
            shared.as_ref().is_some_and(|pins| offers.iter().any(|offer| differs(offer, pins)))
        };
        for server in &self.servers {
            match listings.of(server).filter(|offers| !is_stale(server, offers)) {
                Some(offers) => {
                    found.push((server.clone(), Ok(offers.into_iter().map(Ok).collect())));
                    known.0.push(server.clone());
                }
                None => asked.push(server.clone()),
            }
        }
        if !known.0.is_empty() {
            info!(servers = known.0.len(), "mcp tools are offered as their servers listed them before");
        }
        let asked = self.in_time(asked).await;
        self.note(&asked).await;
        found.extend(asked);
        found.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
        self.late.keep(&found);
        let survey = self.compared(found, SurveyMode::ToUse, None).await?;
        survey.log();
        Ok((survey, known))
    }

    /// Asks known servers again and remembers their tools for the next start. What has changed since is only logged:
    /// the tools of a running daemon stay the same, and a call of a changed tool is refused.
    ///
    /// # Errors
    /// The pins cannot be read or changed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the started servers are ended, and nothing is remembered.
    pub async fn refresh(&self, known: KnownServers) -> Result<(), PinsError> {
        if known.0.is_empty() {
            return Ok(());
        }
        let before = self.listings().await;
        let found = self.asking.all(known.0).await;
        self.note(&found).await;
        for (server, listing) in &found {
            let name = server.name();
            match listing {
                Err((trouble, said)) => {
                    warn!(server = name, %trouble, said, "mcp server does not answer; its tools are offered until the next start");
                }
                Ok(tools) => {
                    let now: Vec<&Offer> = tools.iter().flatten().collect();
                    if !before.of(server).is_some_and(|before| before.iter().eq(now)) {
                        info!(
                            server = name,
                            "mcp server lists other tools than before; they are offered from the next start on"
                        );
                    }
                }
            }
        }
        // A server that did not answer was reported above.
        let answered = found.into_iter().filter(|(_, listing)| listing.is_ok()).collect();
        self.compared(answered, SurveyMode::ToUse, None).await?.log();
        Ok(())
    }

    /// Remembers one listing, for a tool that a person has approved.
    pub(super) async fn note(&self, found: &[(Arc<Server>, Listing)]) {
        let Some(remembered) = self.remembered.clone().filter(|_| !found.is_empty()) else { return };
        let found = found.to_vec();
        let noted = tokio::task::spawn_blocking(move || {
            remembered.change(|listings| found.iter().for_each(|(server, listing)| listings.note(server, listing)));
        });
        if let Err(error) = noted.await {
            warn!(%error, "the mcp tools are not remembered for the next start");
        }
    }

    pub(super) async fn listings(&self) -> Listings {
        let Some(remembered) = self.remembered.clone() else { return Listings::default() };
        tokio::task::spawn_blocking(move || remembered.read()).await.unwrap_or_default()
    }
}

/// The servers whose tools are offered as they listed them before.
#[derive(Clone, Debug, Default)]
pub struct KnownServers(Vec<Arc<Server>>);
