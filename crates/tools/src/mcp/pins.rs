//! Pins: the approved description of each tool of the servers. One daemon keeps them in a file, a cluster in its
//! database: both implement [`PinStore`].

mod file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use belay_protocol::{PinStore, StoreError, UnixMillis};
use serde::{Deserialize, Serialize};

use self::file::PinFile;
use crate::mcp::offer::Offer;

/// Largest size of the pins in bytes. 16 MiB: 64 servers with 128 tools each need a quarter of it.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Most attempts to change the pins while others change them. Of several that change them at once, one succeeds.
const ATTEMPTS: u32 = 64;

/// Version of the format.
const VERSION: u32 = 1;

/// The pins. Daemons and `belay mcp approve` may change them at the same time: each change compares and sets, so that none
/// is lost, and a reader always sees a complete state.
#[derive(Clone)]
pub struct Pins {
    store: Arc<dyn PinStore>,
    /// Whether other nodes change them too.
    pub(super) are_shared: bool,
}

/// The pins could not be read or changed. Then no tool of a server is offered.
#[derive(Debug, thiserror::Error)]
#[error("{location}: {what}")]
pub struct PinsError {
    location: String,
    what: String,
}

/// All pins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PinSet {
    version: u32,
    /// By server, then by the name that the server gives the tool.
    servers: BTreeMap<String, BTreeMap<String, Pin>>,
}

/// The approved description of one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pin {
    /// Digest of description, arguments and hints.
    digest: String,
    description_digest: String,
    schema_digest: String,
    /// The description as it was shown, for comparison by people.
    pub(super) description: String,
    /// Time of the approval, in RFC 3339.
    at: String,
    /// How it was approved.
    by: PinnedBy,
}

/// How a tool was approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PinnedBy {
    /// By its first use, without a person.
    FirstUse,
    /// By `belay mcp approve`.
    Operator,
}

/// The comparison of a tool with its pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The tool has no pin.
    New,
    /// The tool matches its pin.
    Same,
    /// The tool differs from its pin.
    Changed {
        /// The parts that have changed: `description`, `arguments`, `hints`.
        what: Vec<&'static str>,
        /// The approved description.
        before: String,
    },
}

impl Default for PinSet {
    fn default() -> Self {
        Self { version: VERSION, servers: BTreeMap::new() }
    }
}

impl PinSet {
    /// Compares a tool with its pin.
    pub(super) fn compare(&self, server: &str, offer: &Offer) -> Comparison {
        let Some(pin) = self.servers.get(server).and_then(|tools| tools.get(&offer.tool)) else {
            return Comparison::New;
        };
        let digests = &offer.digests;
        if pin.digest == digests.whole {
            return Comparison::Same;
        }
        let parts = [
            ("description", pin.description_digest != digests.description),
            ("arguments", pin.schema_digest != digests.schema),
        ];
        let mut what: Vec<_> = parts.iter().filter(|(_, changed)| *changed).map(|(part, _)| *part).collect();
        if what.is_empty() {
            what.push("hints");
        }
        Comparison::Changed { what, before: pin.description.clone() }
    }

    /// Pins the current description of a tool.
    pub(super) fn pin(&mut self, server: &str, offer: &Offer, at: UnixMillis, by: PinnedBy) {
        let pin = Pin {
            digest: offer.digests.whole.clone(),
            description_digest: offer.digests.description.clone(),
            schema_digest: offer.digests.schema.clone(),
            description: offer.description.clone(),
            at: at.to_rfc3339(),
            by,
        };
        self.servers.entry(server.to_owned()).or_default().insert(offer.tool.clone(), pin);
    }
}

impl Pins {
    /// Uses the pins in this file. The file may be missing, but its directory must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { store: Arc::new(PinFile::new(path.into())), are_shared: false }
    }

    /// Uses the pins that the nodes of a cluster share.
    pub fn shared(store: Arc<dyn PinStore>) -> Self {
        Self { store, are_shared: true }
    }

    /// Reads all pins.
    ///
    /// # Errors
    /// They cannot be read, or are no pins. Then nothing counts as approved.
    pub(super) async fn read(&self) -> Result<PinSet, PinsError> {
        let text = self.text().await?;
        self.parsed(text.as_deref())
    }

    /// Changes the pins, and writes them durably if they have changed. `change` is called again if somebody else has changed
    /// them meanwhile.
    ///
    /// # Errors
    /// The errors of [`Self::read`]; or they cannot be written, and are unchanged.
    ///
    /// # Cancel safety
    /// If the future is dropped, the pins are either unchanged or changed as a whole.
    pub(super) async fn change<T>(&self, change: impl Fn(&mut PinSet) -> T) -> Result<T, PinsError> {
        for _ in 0..ATTEMPTS {
            let text = self.text().await?;
            let before = self.parsed(text.as_deref())?;
            let mut after = before.clone();
            let result = change(&mut after);
            if after == before {
                return Ok(result);
            }
            let new = serde_json::to_string_pretty(&after).map_err(|error| self.error(error))?;
            if new.len() > MAX_BYTES {
                return Err(self.error(format!(
                    "the pins would have more than {MAX_BYTES} bytes. Set trust = \"approved\" for a server that keeps \
                     adding tools, and remove its pins"
                )));
            }
            if self.store.replace_pins(text.as_deref(), &new).await.map_err(|error| self.failed(error))? {
                return Ok(result);
            }
        }
        Err(self.error("others change the pins all the time; try again"))
    }

    async fn text(&self) -> Result<Option<String>, PinsError> {
        self.store.pins().await.map_err(|error| self.failed(error))
    }

    fn parsed(&self, text: Option<&str>) -> Result<PinSet, PinsError> {
        let Some(text) = text else { return Ok(PinSet::default()) };
        let broken = |what: String| {
            self.error(format!(
                "these are no pins ({what}). Restore them, or remove them: then every tool counts as new"
            ))
        };
        let pins: PinSet = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
        match pins.version {
            VERSION => Ok(pins),
            newer => Err(broken(format!("their form is {newer}, this Belay knows {VERSION}"))),
        }
    }

    fn failed(&self, error: StoreError) -> PinsError {
        match error {
            StoreError::Unavailable(what) => self.error(what),
            other => self.error(other),
        }
    }

    fn error(&self, what: impl ToString) -> PinsError {
        PinsError { location: self.store.location(), what: what.to_string() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;
    use crate::mcp::offer::check;

    fn offer(description: &str, argument: &str, read_only: bool) -> Offer {
        let schema = json!({ "type": "object", "properties": { argument: {} } });
        let hints = json!({ "readOnlyHint": read_only });
        let tool = json!({ "name": "t", "description": description, "inputSchema": schema, "annotations": hints });
        check(&serde_json::from_value(tool).unwrap()).unwrap()
    }

    #[test]
    fn a_pin_covers_the_whole_description() {
        let mut pins = PinSet::default();
        let first = offer("d", "a", false);
        assert_eq!(pins.compare("s", &first), Comparison::New);
        pins.pin("s", &first, UnixMillis(1), PinnedBy::FirstUse);
        assert_eq!(pins.compare("s", &first), Comparison::Same);
        assert_eq!(pins.compare("other", &first), Comparison::New);
        for (now, what) in [
            (offer("D", "a", false), vec!["description"]),
            (offer("d", "b", false), vec!["arguments"]),
            (offer("d", "a", true), vec!["hints"]),
            (offer("D", "b", true), vec!["description", "arguments"]),
        ] {
            assert_eq!(pins.compare("s", &now), Comparison::Changed { what, before: "d".into() });
            let mut approved = pins.clone();
            approved.pin("s", &now, UnixMillis(2), PinnedBy::Operator);
            assert_eq!(approved.compare("s", &now), Comparison::Same);
        }
    }

    #[tokio::test]
    async fn pins_are_kept_in_a_file_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-pins.json");
        let pins = Pins::new(&path);
        assert_eq!(pins.read().await.unwrap(), PinSet::default());
        let first = offer("d", "a", false);
        pins.change(|pins| pins.pin("s", &first, UnixMillis(1), PinnedBy::FirstUse)).await.unwrap();
        assert_eq!(Pins::new(&path).read().await.unwrap().compare("s", &first), Comparison::Same);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn changes_of_many_at_once_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Pins::new(dir.path().join("pins"));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..8 {
            let (pins, first) = (pins.clone(), offer("d", "a", false));
            tasks.spawn(async move {
                let server = format!("s{n}");
                pins.change(|pins| pins.pin(&server, &first, UnixMillis(1), PinnedBy::Operator)).await.unwrap();
            });
        }
        tasks.join_all().await;
        assert_eq!(pins.read().await.unwrap().servers.len(), 8);
    }

    #[tokio::test]
    async fn pins_beyond_their_size_are_refused_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Pins::new(dir.path().join("pins"));
        let long = Offer { description: "x".repeat(MAX_BYTES), ..offer("d", "a", false) };
        let pinned = pins.change(|pins| pins.pin("s", &long, UnixMillis(1), PinnedBy::FirstUse)).await;
        assert!(pinned.unwrap_err().to_string().contains("more than 16777216 bytes"));
        assert_eq!(pins.read().await.unwrap(), PinSet::default());
    }

    #[tokio::test]
    async fn a_broken_file_approves_nothing_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        for text in
            ["", "{", "[]", r#"{"version":1}"#, r#"{"version":2,"servers":{}}"#, r#"{"version":1,"servers":{},"x":1}"#]
        {
            std::fs::write(&path, text).unwrap();
            let pins = Pins::new(&path);
            let error = pins.read().await.unwrap_err().to_string();
            assert!(error.contains("these are no pins") && error.contains("every tool counts as new"), "{error}");
            assert!(pins.change(|_| ()).await.is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
