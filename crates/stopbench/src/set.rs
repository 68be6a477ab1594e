//! Reads a labelled set: recordings in directories, each with its row in the file `labels.jsonl` beside it.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use belay_trajectory::Reader;
use belay_trajectory::eval::{Case, rows};

/// Reads the set. The name of a case is its path relative to the directory.
///
/// # Errors
/// A file cannot be read, or there is no row.
pub(crate) fn read(directory: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    walk(directory, "", &mut cases)?;
    ensure!(!cases.is_empty(), "{}: no labels.jsonl that names a recording", directory.display());
    Ok(cases)
}

fn walk(directory: &Path, prefix: &str, cases: &mut Vec<Case>) -> Result<()> {
    let mut entries =
        fs::read_dir(directory).with_context(|| directory.display().to_string())?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            walk(&path, &format!("{prefix}{name}/"), cases)?;
        } else if name == "labels.jsonl" {
            for row in rows(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())? {
                let file = directory.join(&row.file);
                let in_file = || file.display().to_string();
                let reader = Reader::new(BufReader::new(File::open(&file).with_context(in_file)?));
                let events = reader.collect::<Result<Vec<_>, _>>().with_context(in_file)?;
                cases.push(Case { name: format!("{prefix}{}", row.file), label: row.label, events });
            }
        }
    }
    Ok(())
}
