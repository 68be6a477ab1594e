//! `belay upgrade check`: what this version would change in the data and settings. Run by the new program before it
//! replaces the old one. It changes nothing.

use belay_parts::{postgres_limits, refuse_store};
use belay_program::VERSION;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use belay_program::paths::Paths;
use belay_settings::{CheckArgs, Settings, load, store_place};
use belay_store::{Held, OpenError, StoreUrl, inspect, inspect_server};
use clap::Subcommand;
use serde_json::json;

/// `belay upgrade …`
#[derive(Debug, Subcommand)]
pub enum UpgradeCommand {
    /// Compare the data and the settings with what this version expects; exit code 78 if it would not start
    Check(CheckArgs),
}

/// Prints the report.
///
/// # Errors
/// The store cannot be read. A newer store and unknown settings are a part of the report.
pub fn check(args: &CheckArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let (settings, problems) = match load(&args.settings, env, &paths) {
        Ok(loaded) => (loaded.settings, Vec::new()),
        Err(problems) => (Settings::default(), problems.iter().map(ToString::to_string).collect::<Vec<_>>()),
    };
    let place = store_place(&settings, &paths, env)?;
    let (shown, inspected) = match &place {
        StoreUrl::Sqlite(path) => (path.display().to_string(), inspect(path)),
        StoreUrl::Postgres(url) => (url.to_string(), inspect_server(url, postgres_limits(&settings))),
        StoreUrl::Memory => {
            let nothing = "the store is in memory (store.url): there is nothing to upgrade";
            return Err(Failure::new(Exit::WrongUsage, nothing));
        }
    };
    let mut waits_for = Vec::new();
    let (found, known, in_use, refusal) = match inspected {
        Ok(found) => {
            waits_for = found.waits_for;
            (found.schema, Some(found.known), found.held != Held::ByNobody, None)
        }
        Err(error @ (OpenError::Newer { found, known, .. } | OpenError::TooOld { found, known, .. })) => {
            (Some(found), Some(known), false, Some(error.to_string()))
        }
        Err(
            error @ (OpenError::Unreleased
            | OpenError::PostgresUnreleased { .. }
            | OpenError::Unfinished
            | OpenError::InterruptedRestore { .. }),
        ) => (None, None, false, Some(error.to_string())),
        Err(error) => return Err(refuse_store(&error)),
    };
    let migrates = refusal.is_none() && found.zip(known).is_some_and(|(found, known)| (1..known).contains(&found));
    // The snapshot from before the migration, and the log of the migration itself.
    let size = match &place {
        StoreUrl::Sqlite(path) => std::fs::metadata(path).map_or(0, |found| found.len()),
        _ => 0,
    };
    let needed = if migrates { size.saturating_mul(2) } else { 0 };
    let exit = if refusal.is_none() && problems.is_empty() { Exit::Fine } else { Exit::Refused };
    if args.json {
        out.json(&json!({
            "version": VERSION,
            "database": shown,
            "schema": found,
            "new_schema": known,
            "migrates": migrates,
            "in_use": in_use,
            "waits_for": waits_for,
            "needed_bytes": needed,
            "refusal": refusal,
            "settings_problems": problems,
            "ok": exit == Exit::Fine,
        }));
        return Ok(exit);
    }
    out.line(&format!("belay {VERSION} on {}", shown));
    match (&refusal, found, known) {
        (Some(refusal), ..) => out.line(&format!("database: {refusal}")),
        (None, Some(found), Some(known)) if migrates && needed == 0 => {
            out.line(&format!("database: schema {found} would be migrated to {known}; make a backup before"));
        }
        (None, Some(found), Some(known)) if migrates => {
            out.line(&format!("database: schema {found} would be migrated to {known}; a snapshot is made before"));
            out.line(&format!("space: {needed} bytes are needed beside the database"));
        }
        (None, Some(found), Some(known)) if found > known => out.line(&format!(
            "database: schema {found} of a newer version; this version (schema {known}) can use it; no change"
        )),
        (None, Some(found @ 1..), _) => {
            out.line(&format!("database: schema {found}, as this version expects; no change"))
        }
        _ => out.line("database: there is none; the first start makes it"),
    }
    if !waits_for.is_empty() {
        let nodes = waits_for.join(", ");
        out.line(&format!(
            "in use: the start would wait for the end of the nodes {nodes}, which are too old for the new schema"
        ));
    } else if in_use && settings.cluster.enabled {
        out.line("in use: other nodes run on it, and this version can run beside them");
    } else if in_use {
        out.line("in use: a daemon runs on it; stop that one before the upgrade");
    }
    match problems.as_slice() {
        [] => out.line("settings: understood by this version"),
        problems => out.lines(problems.iter().map(|problem| format!("settings: {problem}"))),
    }
    Ok(exit)
}
