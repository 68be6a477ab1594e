//! `belay stops import`: recordings made of what other programs keep.

use std::path::{Path, PathBuf};

use belay_trajectory::TrajectoryEvent;
use belay_trajectory::import::{Format, Imported, import as import_text};

use super::ImportArgs;
use super::files::{text, unusable};
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};

/// Imports a file: one conversation to standard output or a file, or all into a directory.
pub(crate) fn import(args: &ImportArgs, out: Output<'_>) -> Result<Exit, Failure> {
    let format = args.format.as_deref().and_then(Format::from_word);
    let imported = import_text(&text(&args.file)?, format).map_err(|error| unusable(&args.file, error))?;
    match directory(args.output.as_deref()) {
        Some(directory) => into_directory(args, &imported, &directory)?,
        None => {
            let chosen = choose(args, &imported)?;
            match &args.output {
                None => out.lines(chosen.iter().map(TrajectoryEvent::to_line)),
                Some(path) => write(path, chosen)?,
            }
        }
    }
    Ok(Exit::Fine)
}

/// The output, if it is a directory: because it exists as one, or because it is written like one.
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
        None if count > 1 => return Err(many(format!("{}: holds {count} conversations", args.file.display()))),
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
        write(&directory.join(format!("{stem}-{index:04}.jsonl")), events)?;
        count += 1;
    }
    note(&format!("{count} recordings written to {} ({})", directory.display(), imported.format.word()));
    Ok(())
}

fn write(path: &Path, events: &[TrajectoryEvent]) -> Result<(), Failure> {
    let mut text = String::new();
    for event in events {
        text.push_str(&event.to_line());
        text.push('\n');
    }
    std::fs::write(path, text).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{} cannot be written: {error}", path.display()))
}
