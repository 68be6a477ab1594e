//! `belay backup …`. `create` and `list` ask a running daemon; without one they work on the data themselves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_cli::args::ClientArgs;
use belay_cli::client::Client;
use belay_parts::refuse_store;
use belay_program::VERSION;
use belay_program::causes::words;
use belay_program::clock::SystemClock;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_program::paths::Paths;
use belay_protocol::Clock;
use belay_settings::{SettingsArgs, load, refused, store_place};
use belay_store::backup::{self, BackupError, Label, Place, Reason, Stop, StoreLock};
use belay_store::{OpenError, StoreUrl};
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use crate::backups::{OF_THE_SERVER, described, directory, listed, sources, target, with_or_without_key};

/// Longest time of a backup that the daemon makes.
const CREATE_LIMIT: Duration = Duration::from_secs(3600);

/// `belay backup …`
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Make a backup and verify it; the daemon may run
    Create(CreateArgs),
    /// Check a whole backup: its digests and the database in it
    Verify {
        /// The backup
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Restore a backup to a data directory; the copy starts frozen
    Restore(RestoreArgs),
    /// List the backups in the directory of backups
    List(ListArgs),
}

/// `belay backup create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The daemon.
    #[command(flatten)]
    client: ClientArgs,
    /// The settings, for a backup without a daemon.
    #[command(flatten)]
    settings: SettingsArgs,
    /// A directory, or a new file that ends in .tar.gz [default: the setting backup.dir]
    #[arg(long, value_name = "DIR|FILE")]
    to: Option<PathBuf>,
    /// Put the key of the vault into the backup; with it, all secrets can be read
    #[arg(long)]
    with_key: bool,
}

/// `belay backup list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The daemon.
    #[command(flatten)]
    client: ClientArgs,
    /// The settings, for a list without a daemon.
    #[command(flatten)]
    settings: SettingsArgs,
}

/// `belay backup restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup
    #[arg(required_unless_present_any = ["before_migration", "roll_back"], conflicts_with_all = ["before_migration", "roll_back"])]
    file: Option<PathBuf>,
    /// The settings, for the place of the store.
    #[command(flatten)]
    settings: SettingsArgs,
    /// The data directory to restore to [default: the store of the settings]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Accept a directory with data; the former data is kept in a new directory in it
    #[arg(long)]
    force: bool,
    /// Go back to the newest snapshot from before a migration of the database
    #[arg(long)]
    before_migration: bool,
    /// Put the former data back after a restore that was interrupted
    #[arg(long, conflicts_with_all = ["before_migration", "force"])]
    roll_back: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries out the command.
pub async fn command(command: &BackupCommand, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match command {
        BackupCommand::Create(args) => create(args, env, out).await,
        BackupCommand::Verify { file, json } => verify(file, *json, out),
        BackupCommand::Restore(args) => restore(args, env, out),
        BackupCommand::List(args) => list(args, env, out).await,
    }
}

async fn create(args: &CreateArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let to = args.to.as_deref().map(std::path::absolute).transpose();
    let to = to.map_err(|error| Failure::new(Exit::WrongUsage, format!("--to: {error}")))?;
    let made = match daemon(&args.client, env)? {
        Some(client) => {
            let body = json!({ "to": to, "with_key": args.with_key });
            client.post(&["api", "v1", "backups"], Some(&body), CREATE_LIMIT).await?
        }
        None => create_alone(args, to.as_deref(), env, out)?,
    };
    if args.client.json {
        out.json(&made);
    } else {
        let (file, bytes) = (made["file"].as_str().unwrap_or_default(), made["bytes"].as_u64().unwrap_or_default());
        out.line(&format!("{file}: {bytes} bytes, verified"));
        out.lines(damaged(&made).into_iter());
        if args.with_key {
            out.line("It contains the key of the vault: everybody who has this file can read all secrets.");
        } else {
            out.line("It does not contain the key of the vault: keep secret.key, or use --with-key; without it, people must give their secrets again.");
        }
    }
    Ok(Exit::Fine)
}

/// Warnings of the files of messages that a backup does not contain.
fn damaged(summary: &Json) -> Vec<String> {
    let digests = summary["damaged"].as_array().map(Vec::as_slice).unwrap_or_default();
    digests.iter().filter_map(Json::as_str).map(damaged_line).collect()
}

fn damaged_line(digest: &str) -> String {
    format!(
        "warning: attachments/{digest} was damaged on the disk; the backup does not contain it. An older backup may."
    )
}

/// The running daemon; `None`: none answers at the control sockets, and no address was given.
fn daemon(args: &ClientArgs, env: &Environment) -> Result<Option<Client>, Failure> {
    match Client::find(args, env) {
        Ok(client) => Ok(Some(client)),
        Err(failure) if args.url.is_none() && failure.exit == Exit::OutOfReach => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn create_alone(args: &CreateArgs, to: Option<&Path>, env: &Environment, out: Output<'_>) -> Result<Json, Failure> {
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let settings = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?.settings;
    let wrong = |problem: String| Failure::new(Exit::WrongUsage, problem);
    let sources = sources(&settings, env, &paths)?.map_err(|why| wrong(why.into()))?;
    let sources = with_or_without_key(sources, args.with_key).map_err(wrong)?;
    let now = SystemClock.now();
    let target = target(to, &directory(&settings, env, &paths), now).map_err(wrong)?;
    if !sources.database.exists() {
        return Err(failure(&BackupError::NoDatabase(sources.database)));
    }
    let _lock = StoreLock::take(&sources.database).map_err(|error| refuse_store(&error))?;
    let mut shown = 0;
    let label = Label { program: VERSION, reason: Reason::Request, now };
    let made = backup::create(&sources, &target, label, &Stop::default(), &mut |done, all| {
        let percent = done.saturating_mul(100) / all.max(1);
        if out.is_terminal() && !args.client.json && percent > shown {
            shown = percent;
            out.again(&format!("{percent} %"));
        }
    });
    if shown > 0 {
        out.again("");
    }
    Ok(described(&made.map_err(|error| failure(&error))?))
}

fn verify(file: &Path, json: bool, out: Output<'_>) -> Result<Exit, Failure> {
    let manifest = backup::verify(file).map_err(|error| failure(&error))?;
    let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
    let summary = described(&backup::Created { path: file.to_owned(), bytes, manifest });
    if json {
        out.json(&summary);
    } else {
        out.line(&format!(
            "{} is whole: made {} by belay {}, schema {}, {} entries",
            file.display(),
            summary["created"].as_str().unwrap_or_default(),
            summary["program"].as_str().unwrap_or_default(),
            summary["schema"],
            summary["entries"]
        ));
        out.lines(damaged(&summary).into_iter());
    }
    Ok(Exit::Fine)
}

fn restore(args: &RestoreArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let place = place(args, env)?;
    if args.roll_back {
        return roll_back(&place, args.json, out);
    }
    let now = SystemClock.now();
    let Some(file) = &args.file else {
        let restored = backup::restore_before_migration(&place, now).map_err(|error| failure(&error))?;
        if args.json {
            out.json(&json!({
                "snapshot": restored.snapshot,
                "former": restored.former,
                "undelivered": restored.undelivered,
                "frozen": true,
            }));
        } else {
            out.line(&format!(
                "{} is the database again. Start the older belay: this one would migrate it.",
                restored.snapshot.display()
            ));
            out.line("It starts frozen: start it, and run `belay thaw`.");
            out.lines(undelivered(restored.undelivered));
            out.lines(restored.former.iter().map(|former| format!("The former data is in {}.", former.display())));
        }
        return Ok(Exit::Fine);
    };
    let restored = backup::restore(file, &place, args.force, now).map_err(|error| failure(&error))?;
    if args.json {
        out.json(&json!({
            "data": place.database.parent(),
            "database": place.database,
            "created": restored.manifest.created,
            "with_key": restored.manifest.has_key(),
            "former": restored.former,
            "settings": restored.settings,
            "undelivered": restored.undelivered,
            "damaged": restored.manifest.damaged,
            "frozen": true,
        }));
        return Ok(Exit::Fine);
    }
    out.line(&format!("{} has the backup of {}.", place.database.display(), restored.manifest.created.to_rfc3339()));
    out.line("It starts frozen: make sure that the original has ended, start this one, and run `belay thaw`.");
    out.lines(args.data.iter().flat_map(|_| exports(&place)));
    out.lines(undelivered(restored.undelivered));
    if !restored.manifest.has_key() {
        out.line("The backup has no key of the vault: put secret.key back, or people must give their secrets again.");
    }
    out.lines(restored.manifest.damaged.iter().map(|digest| damaged_line(digest.as_str())));
    out.lines(restored.settings.iter().map(|settings| format!("Its settings files are in {}.", settings.display())));
    out.lines(restored.former.iter().map(|former| format!("The former data is in {}.", former.display())));
    Ok(Exit::Fine)
}

/// How a shell names the copy in another directory, for its daemon and its commands.
fn exports(place: &Place) -> Vec<String> {
    let Some(data) = place.database.parent() else { return Vec::new() };
    let data = format!("'{}'", data.display().to_string().replace('\'', r"'\''"));
    vec![
        "Its daemon and its commands need these variables:".to_owned(),
        format!("  export STATE_DIRECTORY={data}"),
        format!("  export RUNTIME_DIRECTORY={data}"),
    ]
}

/// The line about replies that are not sent.
fn undelivered(count: u64) -> impl Iterator<Item = String> {
    let line = format!("{count} waiting replies are marked ambiguous and are not sent by it.");
    (count > 0).then_some(line).into_iter()
}

/// The store that is restored: the one of the settings, or the one of the named data directory.
fn place(args: &RestoreArgs, env: &Environment) -> Result<Place, Failure> {
    let wrong = |problem: String| Failure::new(Exit::WrongUsage, problem);
    let paths = Paths::find(env)?.with_named(&args.settings.files);
    let named = args.data.as_deref().map(std::path::absolute).transpose();
    let named = named.map_err(|error| wrong(format!("--data: {error}")))?;
    // These settings may be of another machine than the data of another directory.
    if let Some(data) = named.as_deref().filter(|data| *data != paths.data) {
        return Ok(Place::in_directory(data));
    }
    let settings = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?.settings;
    let default = Place::in_directory(&paths.data);
    let database = match store_place(&settings, &paths, env)? {
        StoreUrl::Sqlite(database) => database,
        StoreUrl::Memory => {
            return Err(wrong("the store is in memory (store.url): name a data directory with --data".into()));
        }
        StoreUrl::Postgres(_) => return Err(wrong(OF_THE_SERVER.into())),
    };
    let database = std::path::absolute(database).map_err(|error| wrong(format!("store.url: {error}")))?;
    if named.is_some() && database != default.database {
        let (data, database) = (paths.data.display(), database.display());
        return Err(wrong(format!(
            "store.url names {database}, so no daemon of these settings would use a database in {data}: leave --data out, \
             and the backup is restored to {database}"
        )));
    }
    Ok(Place { database, ..default })
}

/// Puts the former data back after a restore that was interrupted.
fn roll_back(place: &Place, json: bool, out: Output<'_>) -> Result<Exit, Failure> {
    let rolled_back = backup::roll_back(&place.database).map_err(|error| failure(&error))?;
    if json {
        out.json(&json!({ "database": place.database, "rolled_back": rolled_back }));
    } else if rolled_back {
        out.line(&format!("{} and its files are as they were before the restore.", place.database.display()));
    } else {
        out.line(&format!("No restore of {} was interrupted; nothing is changed.", place.database.display()));
    }
    Ok(Exit::Fine)
}

async fn list(args: &ListArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = match daemon(&args.client, env)? {
        Some(client) => client.get(&["api", "v1", "backups"], &[]).await?,
        None => {
            let paths = Paths::find(env)?.with_named(&args.settings.files);
            let settings = load(&args.settings, env, &paths).map_err(|problems| refused(&problems))?.settings;
            let backups = listed(&directory(&settings, env, &paths));
            json!({ "backups": backups.map_err(|problem| Failure::new(Exit::OutOfReach, problem))?, "next": null })
        }
    };
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    let backups = answer["backups"].as_array().map(Vec::as_slice).unwrap_or_default();
    if backups.is_empty() {
        out.line("there are no backups; `belay backup create` makes one");
    }
    let rows: Vec<_> = backups.iter().map(row).collect();
    out.table(&rows);
    out.lines(answer["next"].as_str().iter().map(|next| format!("next: {next}")));
    if let Some(detail) = answer["last_failure"]["detail"].as_str() {
        out.line(&format!("the last backup failed: {detail}"));
    }
    Ok(Exit::Fine)
}

fn row(backup: &Json) -> Vec<Cell> {
    let text = |key: &str| backup[key].as_str().unwrap_or_default().to_owned();
    let state = match backup["problem"].as_str() {
        Some(problem) => Cell::new(problem, Tone::Bad),
        None if backup["with_key"] == true => Cell::new("verified, with the key", Tone::Warn),
        None => Cell::new("verified", Tone::Good),
    };
    vec![Cell::from(text("created")), Cell::from(format!("{} bytes", backup["bytes"])), Cell::from(text("file")), state]
}

/// The failure of a command by the error.
fn failure(error: &BackupError) -> Failure {
    let exit = match error {
        BackupError::Damaged { .. } => Exit::UnusableInput,
        BackupError::Newer { .. } => Exit::Refused,
        BackupError::NotEmpty(_)
        | BackupError::Link(_)
        | BackupError::Exists(_)
        | BackupError::NoDatabase(_)
        | BackupError::NoSnapshot(_) => Exit::WrongUsage,
        BackupError::Io { .. } | BackupError::NoSpace { .. } | BackupError::Interrupted { .. } => Exit::OutOfReach,
        BackupError::Stopped => Exit::Interrupted,
        BackupError::Open(OpenError::Locked { .. }) => {
            return Failure::new(Exit::Busy, error).next("`belay shutdown` ends the daemon that uses it");
        }
        BackupError::Open(error) => return refuse_store(error),
    };
    Failure::new(exit, words(error))
}
