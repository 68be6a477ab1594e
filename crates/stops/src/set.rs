//! Reads a labelled set below a directory.
//!
//! A recording is a file `*.jsonl`, and so is a session of another program, also `*.json` and `*.traj`. Its label comes
//! from the first of these: its row in `labels.jsonl` in its directory or one above; its first line, `{"label":…}`; a
//! file beside it, `NAME.label.json`; the name of one of its directories. A recording without a label is reported and
//! left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belay_program::exit::{Exit, Failure};
use belay_program::output::note;
use belay_trajectory::TrajectoryEvent;
use belay_trajectory::eval::{Case, Labelled, label_of_directory, labelled, rows};

use super::files::{runs, text, unusable};

/// The file with the labels of other files.
const LABELS: &str = "labels.jsonl";

/// Reads the set below a directory, in the order of names.
///
/// # Errors
/// 65: it cannot be read, a label or a recording is invalid, or the set is empty.
pub(super) fn read(root: &Path) -> Result<Vec<Case>, Failure> {
    let mut found = Found::default();
    found.walk(root)?;
    let mut cases = Vec::new();
    for path in &found.recordings {
        let name = path.strip_prefix(root).unwrap_or(path);
        // Other JSON files may have another purpose: only those with a label are read.
        let is_other = path.extension().is_none_or(|extension| extension != "jsonl");
        if is_other && found.label(path, name, None)?.is_none() {
            note(&format!("{}: has no label and is left out", name.display()));
            continue;
        }
        let (events, header) = events(path)?;
        match found.label(path, name, header)? {
            None => note(&format!("{}: has no label and is left out", name.display())),
            Some(label) if label.onset.is_some_and(|onset| onset >= events.len()) => {
                return Err(unusable(path, format!("its onset is behind its last event ({})", events.len())));
            }
            Some(label) => cases.push(Case { name: name.display().to_string(), label, events }),
        }
    }
    if cases.is_empty() {
        Err(Failure::new(Exit::UnusableInput, format!("{}: no labelled recordings", root.display()))
            .next("a recording is a file *.jsonl; its label stands in labels.jsonl beside it: {\"file\":\"a.jsonl\",\"label\":\"healthy\"}"))
    } else {
        Ok(cases)
    }
}

/// The files of the set, before they are read.
#[derive(Default)]
struct Found {
    recordings: Vec<PathBuf>,
    rows: BTreeMap<PathBuf, Labelled>,
}

impl Found {
    fn walk(&mut self, directory: &Path) -> Result<(), Failure> {
        let entries = std::fs::read_dir(directory).map_err(|error| unusable(directory, error))?;
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| unusable(directory, error))?;
            // A link to a directory is not followed: it could lead to a cycle.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if !(is_link && entry.path().is_dir()) {
                paths.push(entry.path());
            }
        }
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.walk(&path)?;
            } else if path.file_name().is_some_and(|name| name == LABELS) {
                self.take_rows(&path, directory)?;
            } else if is_recording(&path) {
                self.recordings.push(path);
            }
        }
        Ok(())
    }

    fn take_rows(&mut self, path: &Path, directory: &Path) -> Result<(), Failure> {
        for row in rows(&text(path)?).map_err(|error| unusable(path, error))? {
            let file = directory.join(&row.file);
            if !file.is_file() {
                return Err(unusable(path, format!("there is no file {}", row.file)));
            }
            self.rows.insert(file, row.label);
        }
        Ok(())
    }

    fn label(&self, path: &Path, name: &Path, header: Option<serde_json::Value>) -> Result<Option<Labelled>, Failure> {
        if let Some(label) = self.rows.get(path) {
            return Ok(Some(label.clone()));
        }
        if let Some(header) = header {
            return labelled(&header).map(Some).map_err(|error| unusable(path, error));
        }
        let stem = path.with_extension("");
        let sidecars = [&stem, path].map(|path| PathBuf::from(format!("{}.label.json", path.display())));
        if let Some(sidecar) = sidecars.iter().find(|sidecar| sidecar.is_file()) {
            let value = serde_json::from_str(&text(sidecar)?).map_err(|error| unusable(sidecar, error))?;
            return labelled(&value).map(Some).map_err(|error| unusable(sidecar, error));
        }
        let directories = name.ancestors().skip(1).filter_map(|directory| directory.file_name());
        Ok(directories.filter_map(|name| label_of_directory(&name.to_string_lossy())).next().map(Labelled::new))
    }
}

/// Whether a file may be a recording or a session, by its name.
fn is_recording(path: &Path) -> bool {
    let is_label = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".label.json"));
    !is_label
        && path.extension().is_some_and(|extension| ["jsonl", "json", "traj"].iter().any(|known| extension == *known))
}

/// The events of the first run of a file: the conversation, not its subagents.
fn events(path: &Path) -> Result<(Vec<TrajectoryEvent>, Option<serde_json::Value>), Failure> {
    let mut events = Vec::new();
    let read = runs(path, None, &mut |run, event| {
        if run == 0 {
            events.push(event);
        }
    })?;
    if let Some(found) = &read.found {
        note(&format!("{}: {}", path.display(), found.summary()));
        if found.runs.len() > 1 {
            note(&format!("{}: only the first of {} runs is judged", path.display(), found.runs.len()));
        }
    }
    Ok((events, read.header))
}
