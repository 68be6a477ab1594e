//! Checks the paths that a start needs: data directory, store, workspace.

use std::path::Path;

use belay_parts::{postgres_limits, refuse_store};
use belay_program::causes::words;
use belay_program::disk::Space;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_settings::{Settings, store_place, workspace_of};
use belay_store::{Held, Inspection, OpenError, PostgresUrl, StoreUrl, check_integrity, inspect, inspect_server};
use belay_tools::ToolsConfig;

use super::{Finding, State};

/// Tests whether a directory, or its nearest existing ancestor, is writable, by writing a file.
pub(crate) fn writable(directory: &Path) -> Result<&Path, String> {
    let existing = directory.ancestors().find(|dir| dir.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    let probe = existing.join(format!(".belay-check-{}", std::process::id()));
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(&probe);
    match written.and_then(|_| std::fs::remove_file(&probe)) {
        Ok(()) => Ok(existing),
        Err(error) => Err(format!("{}: {error}", existing.display())),
    }
}

/// Checks whether the data directory is writable, or can be made.
pub(super) fn data(paths: &Paths) -> Finding {
    let shown = paths.data.display();
    let space = Space::of(&paths.data);
    match (space, writable(&paths.data)) {
        // A full disk still makes the empty file of the test.
        (Some(space), _) if space.is_full() => Finding::new("data", State::OutOfReach, space.words(&paths.data)),
        (_, Err(error)) => Finding::new("data", State::OutOfReach, error),
        (Some(space), Ok(_)) if space.is_low() => Finding::new("data", State::Note, space.words(&paths.data)),
        (space, Ok(existing)) => {
            let what = if existing == paths.data { "written" } else { "made" };
            let free = space.map(|space| format!("; {}", space.words(&paths.data))).unwrap_or_default();
            Finding::new("data", State::Ok, format!("{shown} can be {what}{free}"))
        }
    }
}

/// Reads the whole database, and says whether it is damaged. `shown`: what to say of a store that is not.
fn whole(path: &Path, state: State, shown: String) -> Finding {
    match check_integrity(path) {
        Ok(()) => Finding::new("store", state, format!("{shown}; it is not damaged")),
        Err(error) => Finding::failed("store", &refuse_store(&error)),
    }
}

/// Checks whether the store exists or can be made. It does not open the store, because that would migrate an old one.
pub(super) fn store(settings: &Settings, paths: &Paths, env: &Environment, running: bool) -> Finding {
    let finding = |state, detail| Finding::new("store", state, detail);
    let path = match store_place(settings, paths, env) {
        Err(failure) => return Finding::failed("store", &failure),
        Ok(StoreUrl::Memory) => return finding(State::Note, "memory: everything is gone at the end".into()),
        Ok(StoreUrl::Postgres(url)) => return server(&url, settings, running),
        Ok(StoreUrl::Sqlite(path)) => path,
    };
    let shown = path.display();
    let (schema, known) = match inspect(&path) {
        Err(error) => return Finding::failed("store", &refuse_store(&error)),
        Ok(Inspection { held: Held::By { pid }, .. }) if running => {
            let process = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            return whole(&path, State::Note, format!("{shown} is in use by the Belay that is running{process}"));
        }
        Ok(Inspection { held: Held::By { pid }, .. }) => {
            return Finding::failed("store", &refuse_store(&OpenError::Locked { pid }));
        }
        Ok(Inspection { lost: Some(lost), .. }) => return finding(State::Note, lost),
        Ok(Inspection { schema, known, .. }) => (schema, known),
    };
    // The lock and the log are files beside it.
    if let Err(error) = writable(path.parent().unwrap_or(Path::new("."))) {
        return finding(State::OutOfReach, format!("{shown} cannot be written: {error}"));
    }
    match schema {
        None => finding(State::Ok, format!("{shown} will be made")),
        Some(found) => match std::fs::OpenOptions::new().write(true).open(&path) {
            Err(error) => finding(State::OutOfReach, format!("{shown}: {error}")),
            Ok(_) if found < known => {
                let words = format!("{shown} is there; a start brings its schema from {found} to {known}");
                whole(&path, State::Ok, words)
            }
            Ok(_) => whole(&path, State::Ok, format!("{shown} is there, with schema {found}")),
        },
    }
}

/// Checks whether the server accepts Belay, and whether a start can use its schema or create it.
fn server(url: &PostgresUrl, settings: &Settings, running: bool) -> Finding {
    let finding = |state, detail| Finding::new("store", state, detail);
    let Inspection { schema, known, held, waits_for, .. } = match inspect_server(url, postgres_limits(settings)) {
        Ok(found) => found,
        Err(error) => return Finding::failed("store", &refuse_store(&error)),
    };
    let nodes = waits_for.join(", ");
    match (held, schema) {
        (Held::By { .. }, _) if running => {
            finding(State::Note, format!("{url} is in use by the Belay that is running"))
        }
        (Held::By { pid }, _) if !settings.cluster.enabled => {
            Finding::failed("store", &refuse_store(&OpenError::Locked { pid }))
        }
        (_, None) => finding(State::Ok, format!("{url}: the tables will be made")),
        (_, Some(_)) if !nodes.is_empty() => finding(
            State::Note,
            format!("{url} answers; a start waits for the end of the nodes {nodes}, which are too old"),
        ),
        (_, Some(found)) if found < known => {
            finding(State::Ok, format!("{url} answers; a start brings its schema from {found} to {known}"))
        }
        (Held::By { .. }, Some(found)) => {
            finding(State::Ok, format!("{url} answers, with schema {found}; other nodes use it"))
        }
        (Held::ByNobody, Some(found)) => finding(State::Ok, format!("{url} answers, with schema {found}")),
    }
}

/// Checks whether the tools can use the workspace, with the message of a start. Does not make the workspace.
pub(super) fn workspace(settings: &Settings, paths: &Paths, env: &Environment) -> Finding {
    let workspace = workspace_of(settings, env, paths);
    let shown = workspace.display().to_string();
    let finding = |state, detail: String| Finding::new("workspace", state, detail);
    let config = ToolsConfig { workspace: Some(workspace.clone()), ..settings.tools.clone() };
    if let Err(error) = belay_tools::check(&config) {
        return Finding::failed("workspace", &Failure::new(Exit::Refused, words(&error)));
    }
    match writable(&workspace) {
        Ok(existing) if existing == workspace => finding(State::Ok, format!("{shown} can be written")),
        Ok(_) => finding(State::Ok, format!("{shown} will be made")),
        // An existing workspace need not be writable: its files can be read.
        Err(error) if workspace.is_dir() => finding(State::Note, format!("only reading tools will work: {error}")),
        Err(error) => finding(State::Refused, format!("tools.workspace: {shown} cannot be made: {error}")),
    }
}

/// Refuses a workspace that a start would refuse.
///
/// # Errors
/// The finding of [`workspace`] (78).
pub(crate) fn refuse_workspace(settings: &Settings, paths: &Paths, env: &Environment) -> Result<(), Failure> {
    let finding = workspace(settings, paths, env);
    if finding.state < State::OutOfReach { Ok(()) } else { Err(Failure::new(Exit::Refused, finding.detail)) }
}
