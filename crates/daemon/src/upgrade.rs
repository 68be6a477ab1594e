//! `belay upgrade check`: what this version would change in the data and settings. Run by the new program before it
//! replaces the old one. It changes nothing.

use belay_store::{Held, OpenError, StoreUrl, inspect};
use clap::Subcommand;
use serde_json::json;

use crate::args::CheckArgs;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::paths::Paths;
use crate::settings::{Settings, load};
use crate::wiring::{Store, VERSION, refuse_store};

/// `belay upgrade …`
#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Compare the data and the settings with what this version expects; exit code 78 if it would not start
    Check(CheckArgs),
}

/// Prints the report.
///
/// # Errors
/// The store cannot be read. A newer store and unknown settings are a part of the report.
pub(crate) fn check(args: &CheckArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let (settings, problems) = match load(&args.settings, env, &paths) {
        Ok(loaded) => (loaded.settings, Vec::new()),
        Err(problems) => (Settings::default(), problems.iter().map(ToString::to_string).collect::<Vec<_>>()),
    };
    let StoreUrl::Sqlite(database) = Store::place(&settings, &paths, env)? else {
        return Err(Failure::new(Exit::WrongUsage, "the store is in memory (store.url): there is nothing to upgrade"));
    };
    let (found, known, in_use, refusal) = match inspect(&database) {
        Ok(found) => (found.schema, Some(found.known), found.held != Held::ByNobody, None),
        Err(error @ OpenError::Newer { found, known }) => (Some(found), Some(known), false, Some(error.to_string())),
        Err(error @ (OpenError::Unreleased | OpenError::InterruptedRestore { .. })) => {
            (None, None, false, Some(error.to_string()))
        }
        Err(error) => return Err(refuse_store(&error)),
    };
    let migrates = refusal.is_none() && found.zip(known).is_some_and(|(found, known)| (1..known).contains(&found));
    // The snapshot from before the migration, and the log of the migration itself.
    let size = std::fs::metadata(&database).map_or(0, |found| found.len());
    let needed = if migrates { size.saturating_mul(2) } else { 0 };
    let exit = if refusal.is_none() && problems.is_empty() { Exit::Fine } else { Exit::Refused };
    if args.json {
        out.json(&json!({
            "version": VERSION,
            "database": database,
            "schema": found,
            "new_schema": known,
            "migrates": migrates,
            "in_use": in_use,
            "needed_bytes": needed,
            "refusal": refusal,
            "settings_problems": problems,
            "ok": exit == Exit::Fine,
        }));
        return Ok(exit);
    }
    out.line(&format!("belay {VERSION} on {}", database.display()));
    match (&refusal, found, known) {
        (Some(refusal), ..) => out.line(&format!("database: {refusal}")),
        (None, Some(found), Some(known)) if migrates => {
            out.line(&format!("database: schema {found} would be migrated to {known}; a snapshot is made before"));
            out.line(&format!("space: {needed} bytes are needed beside the database"));
        }
        (None, Some(found @ 1..), _) => {
            out.line(&format!("database: schema {found}, as this version expects; no change"))
        }
        _ => out.line("database: there is none; the first start makes it"),
    }
    if in_use {
        out.line("in use: a daemon runs on it; stop that one before the upgrade");
    }
    match problems.as_slice() {
        [] => out.line("settings: understood by this version"),
        problems => out.lines(problems.iter().map(|problem| format!("settings: {problem}"))),
    }
    Ok(exit)
}
