//! `belay stops import`: converts recordings of other programs.

use std::fs::{Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note};
use belay_trajectory::TrajectoryEvent;
use belay_trajectory::import::{Format, Imported, import as import_source};

use super::ImportArgs;
use super::files::{not_read, open};

/// Imports a file: one conversation to standard output or a file, or all conversations into a directory.
pub fn import(args: &ImportArgs, out: Output<'_>) -> Result<Exit, Failure> {
    let format = args.format.as_deref().and_then(Format::from_word);
    let imported = import_source(open(&args.file)?, format).map_err(|error| not_read(&args.file, &error))?;
    note(&imported.found.summary());
    match directory(args.output.as_deref()) {
        Some(directory) => into_directory(args, &imported, &directory)?,
        None => {
            let chosen = choose(args, &imported)?;
            match &args.output {
                None => out.lines(chosen.iter().map(TrajectoryEvent::to_line)),
                Some(path) => write(&args.file, path, chosen)?,
            }
        }
    }
    Ok(Exit::Fine)
}

/// The output, if it is a directory: an existing one, or a path that ends with a slash.
fn directory(output: Option<&Path>) -> Option<PathBuf> {
    let output = output?;
    let written_so = output.as_os_str().to_string_lossy().ends_with('/');
    (written_so || output.is_dir()).then(|| output.to_owned())
}

fn choose<'a>(args: &ImportArgs, imported: &'a Imported) -> Result<&'a [TrajectoryEvent], Failure> {
    let count = imported.trajectories.len();
    let many = |what: String| {
        Failure::new(Exit::WrongUsage, what)
            .next(format!("choose one with --index 0 to {}, or all with -o DIRECTORY/", count - 1))
    };
    let chosen = match args.index {
        // A session holds one conversation; its subagents are further runs behind it.
        None if count > 1 && imported.found.runs[1].is_empty() => {
            return Err(many(format!("{}: holds {count} conversations", args.file.display())));
        }
        None if count > 1 => {
            note(&format!("the run 0 of {count} is written: --index N chooses another, -o DIRECTORY/ all"));
            imported.trajectories.first()
        }
        index => imported.trajectories.get(index.unwrap_or(0)),
    };
    let nth = args.index.unwrap_or(0);
    chosen.map(Vec::as_slice).ok_or_else(|| many(format!("{}: has no conversation {nth}", args.file.display())))
}

fn into_directory(args: &ImportArgs, imported: &Imported, directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| unwritable(directory, &error))?;
    let stem = args.file.file_stem().map_or("conversation".into(), |stem| stem.to_string_lossy().replace('-', "_"));
    let wanted = |index: &usize| args.index.is_none_or(|only| only == *index);
    let mut count = 0;
    for (index, events) in imported.trajectories.iter().enumerate().filter(|(index, _)| wanted(index)) {
        write(&args.file, &directory.join(format!("{stem}-{index:04}.jsonl")), events)?;
        count += 1;
    }
    note(&format!("{count} recordings written to {}", directory.display()));
    Ok(())
}

/// Writes a recording atomically: an existing file stays until the new one is complete.
fn write(input: &Path, path: &Path, events: &[TrajectoryEvent]) -> Result<(), Failure> {
    let before = std::fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| is_same(input, before)) {
        let what = format!("{}: is what is being imported, and would be overwritten", path.display());
        return Err(Failure::new(Exit::WrongUsage, what).next("name another file with -o"));
    }
    let mut text = String::new();
    for event in events {
        text.push_str(&event.to_line());
        text.push('\n');
    }
    let written = match &before {
        // A pipe or a device can only be written to, not replaced.
        Some(before) if !before.is_file() => std::fs::write(path, text),
        _ => replace(path, &text, before),
    };
    written.map_err(|error| unwritable(path, &error))
}

/// Whether both are the same file, under any names.
fn is_same(input: &Path, output: &Metadata) -> bool {
    std::fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (output.dev(), output.ino()))
}

/// Writes a new file beside the old one, then renames it over the old one, whose permissions it keeps.
fn replace(path: &Path, text: &str, before: Option<Metadata>) -> std::io::Result<()> {
    // A symbolic link stays a link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.belay-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        if let Some(before) = before {
            file.set_permissions(before.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&beside); // the first error is reported
    })
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
}
