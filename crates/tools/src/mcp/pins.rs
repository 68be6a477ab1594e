//! Pins: a file with the approved description of each tool of the servers.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use belay_protocol::UnixMillis;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::mcp::offer::Offer;

/// Largest pin file in bytes. 16 MiB: 64 servers with 128 tools each need a quarter of it.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// Longest wait for another process that changes the pins. 5 s: a change takes milliseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Version of the file format.
const VERSION: u32 = 1;

/// The pin file. The daemon and `belay mcp approve` may change it at the same time: a lock file serialises the changes,
/// and a reader always sees a complete state.
#[derive(Clone, Debug)]
pub struct Pins {
    path: PathBuf,
}

/// The pins could not be read or changed. Then no tool of a server is offered.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct PinsError {
    path: PathBuf,
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
        Self { path: path.into() }
    }

    /// Reads all pins. Blocks on disk IO.
    ///
    /// # Errors
    /// The file cannot be read, or is not a pin file. Then nothing counts as approved.
    pub(super) fn read(&self) -> Result<PinSet, PinsError> {
        let mut text = String::new();
        match File::open(&self.path) {
            Ok(file) => file.take(MAX_FILE).read_to_string(&mut text).map_err(|error| self.error(error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PinSet::default()),
            Err(error) => return Err(self.error(error)),
        };
        let broken = |what: String| {
            self.error(format!("is no file of pins ({what}). Restore it, or remove it: then every tool counts as new"))
        };
        let pins: PinSet = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        match pins.version {
            VERSION => Ok(pins),
            newer => Err(broken(format!("its form is {newer}, this Belay knows {VERSION}"))),
        }
    }

    /// Changes the pins: locks, reads, changes, and replaces the file atomically. Does not write if nothing has
    /// changed. Blocks on disk IO, and up to [`LOCK_LIMIT`] for the lock.
    ///
    /// # Errors
    /// The errors of [`Self::read`]; or the file cannot be written, and the pins are unchanged.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut PinSet) -> T) -> Result<T, PinsError> {
        let _lock = self.lock()?;
        let before = self.read()?;
        let mut after = before.clone();
        let result = change(&mut after);
        if after != before {
            self.write(&after).map_err(|error| self.error(error))?;
        }
        Ok(result)
    }

    /// Gets the lock, which is held while the returned file is open.
    fn lock(&self) -> Result<File, PinsError> {
        let path = self.beside("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|error| self.error(error))?;
        let end = Instant::now() + LOCK_LIMIT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(self.error("is being changed by another process; try again"));
                }
                Err(error) => return Err(self.error(io::Error::from(error))),
            }
        }
    }

    /// Writes a new file and renames it, so that a concurrent reader sees the old pins or the new ones.
    fn write(&self, pins: &PinSet) -> io::Result<()> {
        let beside = self.beside("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(&serde_json::to_vec_pretty(pins)?)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        // The rename is durable after its directory is synced.
        File::open(self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(ending);
        name.into()
    }

    fn error(&self, what: impl ToString) -> PinsError {
        PinsError { path: self.path.clone(), what: what.to_string() }
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

    #[test]
    fn pins_are_kept_in_a_file_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-pins.json");
        let pins = Pins::new(&path);
        assert_eq!(pins.read().unwrap(), PinSet::default());
        let first = offer("d", "a", false);
        pins.change(|pins| pins.pin("s", &first, UnixMillis(1), PinnedBy::FirstUse)).unwrap();
        assert_eq!(Pins::new(&path).read().unwrap().compare("s", &first), Comparison::Same);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn changes_of_many_at_once_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let pins = Pins::new(dir.path().join("pins"));
        let first = offer("d", "a", false);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (pins, first) = (&pins, &first);
                scope.spawn(move || {
                    pins.change(|pins| pins.pin(&format!("s{n}"), first, UnixMillis(1), PinnedBy::Operator)).unwrap();
                });
            }
        });
        assert_eq!(pins.read().unwrap().servers.len(), 8);
    }

    #[test]
    fn a_broken_file_approves_nothing_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        for text in
            ["", "{", "[]", r#"{"version":1}"#, r#"{"version":2,"servers":{}}"#, r#"{"version":1,"servers":{},"x":1}"#]
        {
            std::fs::write(&path, text).unwrap();
            let pins = Pins::new(&path);
            let error = pins.read().unwrap_err().to_string();
            assert!(error.contains("is no file of pins") && error.contains("every tool counts as new"), "{error}");
            assert!(pins.change(|_| ()).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
