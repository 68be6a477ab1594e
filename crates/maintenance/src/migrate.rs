//! `belay migrate SOURCE TARGET`: copies a store to another database while no daemon runs on either.

use std::path::{Path, PathBuf};

use belay_parts::{message_files, refuse_store};
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_program::paths::Paths;
use belay_settings::expand;
use belay_store::transfer::{Migrated, MigratedTable, Phase, Progress, TransferError, migrate};
use belay_store::{OpenError, StoreUrl, parse_url};
use clap::Args;
use serde_json::json;

/// The number of digits of a digest in a table for people.
const DIGITS: usize = 16;

/// `belay migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The store that is read: sqlite:///path/to/belay.db or postgres://USER@HOST/DATABASE. Other users of the machine see
    /// arguments: name a file with the password by ?passfile=/path
    source: String,
    /// The store that is written, without data: a new file, or a PostgreSQL database or schema
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Copies the store, verifies the copy, and says what is left to do.
///
/// # Errors
/// A daemon uses one of the stores (75), the target has data or an address is wrong (2), a row cannot be migrated (65), or a
/// database fails (69).
pub fn command(args: &MigrateArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?;
    let (source, target) = (address("SOURCE", &args.source, env)?, address("TARGET", &args.target, env)?);
    let mut shown = None;
    let migrated = migrate(&source, &target, &mut |progress| {
        let line = percent(&progress);
        if out.is_terminal() && !args.json && shown.as_ref() != Some(&line) {
            out.again(&line);
            shown = Some(line);
        }
    });
    if shown.is_some() {
        out.again("");
    }
    let migrated = migrated.map_err(|error| failure(&error))?;
    let files = (files_of(&source, &paths), files_of(&target, &paths));
    if args.json {
        out.json(&json!({
            "source": shown_address(&source),
            "target": shown_address(&target),
            "equal": migrated.is_equal(),
            "restarted": migrated.restarted,
            "tables": migrated.tables.iter().map(described).collect::<Vec<_>>(),
            "files": { "source": files.0, "target": files.1 },
        }));
    } else {
        report(&migrated, out);
        if migrated.is_equal() {
            out.lines(next_steps(&target, &paths, &files).into_iter());
        }
    }
    if migrated.is_equal() {
        return Ok(Exit::Fine);
    }
    Err(Failure::new(Exit::Failed, "the target differs from the source, so no daemon starts on it")
        .next("run the command again: it empties the target and copies everything anew"))
}

/// The address of an argument.
fn address(name: &str, text: &str, env: &Environment) -> Result<StoreUrl, Failure> {
    let wrong = |problem: String| Failure::new(Exit::WrongUsage, format!("{name}: {problem}"));
    match parse_url(text).map_err(wrong)? {
        StoreUrl::Sqlite(path) => {
            let path = std::path::absolute(expand(&path, env)).map_err(|error| wrong(error.to_string()))?;
            Ok(StoreUrl::Sqlite(path))
        }
        other => Ok(other),
    }
}

/// An address without its password.
fn shown_address(url: &StoreUrl) -> String {
    match url {
        StoreUrl::Sqlite(path) => format!("sqlite://{}", path.display()),
        StoreUrl::Postgres(url) => url.to_string(),
        StoreUrl::Memory => "memory:".to_owned(),
    }
}

/// The directory in which a daemon with this store keeps the files of messages.
fn files_of(url: &StoreUrl, paths: &Paths) -> PathBuf {
    match url {
        StoreUrl::Sqlite(database) => message_files(database),
        StoreUrl::Postgres(_) | StoreUrl::Memory => message_files(&paths.data.join("belay.db")),
    }
}

fn percent(progress: &Progress) -> String {
    let work = match progress.phase {
        Phase::Copy => "copying",
        Phase::Verify => "verifying",
    };
    let percent = progress.rows.saturating_mul(100) / progress.all.max(1);
    format!("{work} {}: {} %", progress.table, percent.min(100))
}

fn described(table: &MigratedTable) -> serde_json::Value {
    json!({
        "name": table.name,
        "rows": table.rows,
        "digest": table.digest,
        "target_rows": table.target_rows,
        "target_digest": table.target_digest,
        "replaced_nul": table.replaced_nul,
        "equal": table.is_equal(),
    })
}

fn report(migrated: &Migrated, out: Output<'_>) {
    if migrated.restarted {
        out.line("An earlier migration into the target was not finished: the target was emptied first.");
    }
    let head = ["table", "rows", "digest", "target"].map(|title| Cell::new(title, Tone::Dim)).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(migrated.tables.iter().map(row)).collect();
    out.table(&rows);
    let replaced: u64 = migrated.tables.iter().map(|table| table.replaced_nul).sum();
    if replaced > 0 {
        out.line(&format!(
            "{replaced} texts had the character NUL, which PostgreSQL does not store: U+FFFD replaces it there."
        ));
    }
}

fn row(table: &MigratedTable) -> Vec<Cell> {
    let short = |digest: &Option<String>| match digest {
        Some(digest) => digest.chars().take(DIGITS).collect::<String>(),
        None => "built anew".to_owned(),
    };
    let target = if table.is_equal() {
        Cell::new("equal", Tone::Good)
    } else {
        Cell::new(format!("differs: {} rows, {}", table.target_rows, short(&table.target_digest)), Tone::Bad)
    };
    vec![Cell::from(table.name), Cell::from(table.rows.to_string()), Cell::from(short(&table.digest)), target]
}

/// The next steps of the operator, and the files that a migration leaves in place.
fn next_steps(target: &StoreUrl, paths: &Paths, (from, to): &(PathBuf, PathBuf)) -> Vec<String> {
    let key = paths.data.join("secret.key");
    vec![
        format!(
            "The source is unchanged. Set store.url to the target ({}) before the next start of the daemon. A daemon on each \
             of the two stores would send the waiting replies twice.",
            shown_address(target)
        ),
        files_line(from, to),
        format!(
            "Secrets are migrated sealed. Their key is in no database: a daemon of this user reads {} with either store. \
             Workspaces and settings stay where they are.",
            key.display()
        ),
    ]
}

fn files_line(from: &Path, to: &Path) -> String {
    if from == to {
        return format!(
            "The files of messages stay in {}: the daemon reads them there with either store.",
            from.display()
        );
    }
    if !from.exists() {
        return format!("There are no files of messages ({} does not exist).", from.display());
    }
    format!(
        "The files of messages are not copied: copy {} to {}, where the daemon reads them with the target.",
        from.display(),
        to.display()
    )
}

/// The failure of a command by the error.
fn failure(error: &TransferError) -> Failure {
    let exit = match error {
        TransferError::Source(OpenError::Locked { .. }) | TransferError::Target(OpenError::Locked { .. }) => {
            return Failure::new(Exit::Busy, error).next("`belay shutdown` ends the daemon that uses it");
        }
        TransferError::Source(cause) | TransferError::Target(cause) => refuse_store(cause).exit,
        TransferError::Outdated { .. } => Exit::Refused,
        TransferError::NoSource(_) | TransferError::Memory | TransferError::Same | TransferError::NotEmpty(_) => {
            Exit::WrongUsage
        }
        TransferError::Row { .. } => Exit::UnusableInput,
        TransferError::Read { .. } | TransferError::Write { .. } | TransferError::Database(_) => Exit::OutOfReach,
    };
    Failure::new(exit, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_exit_code() {
        for (error, exit) in [
            (TransferError::Source(OpenError::Locked { pid: Some(7) }), Exit::Busy),
            (TransferError::Target(OpenError::Locked { pid: None }), Exit::Busy),
            (TransferError::Source(OpenError::Unfinished), Exit::Refused),
            (TransferError::Outdated { found: 1, known: 2 }, Exit::Refused),
            (TransferError::NotEmpty(vec!["runs: 1 rows".into()]), Exit::WrongUsage),
            (TransferError::NoSource("x".into()), Exit::WrongUsage),
            (TransferError::Row { table: "runs", key: "1".into(), detail: "d".into() }, Exit::UnusableInput),
            (TransferError::Database("d".into()), Exit::OutOfReach),
        ] {
            assert_eq!(failure(&error).exit, exit, "{error}");
        }
    }

    #[test]
    fn files_are_to_be_copied_only_to_another_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let (here, there) = (folder.path().to_owned(), folder.path().join("other"));
        assert!(files_line(&here, &here).contains("stay in"));
        assert!(files_line(&there, &here).contains("no files"));
        assert!(files_line(&here, &there).starts_with("The files of messages are not copied: copy "));
    }
}
