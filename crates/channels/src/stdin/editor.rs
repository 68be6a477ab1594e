//! Edits the typed text in the person's editor.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Pause between two looks at the editor. 20 ms: people do not notice it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The program that a person writes longer texts with.
#[derive(Clone, Debug)]
pub(super) struct Editor {
    /// The program and its arguments; empty: none is known.
    words: Vec<String>,
    /// The directory of the text while it is edited.
    directory: PathBuf,
}

impl Editor {
    /// The editor that this command line names. No shell reads it.
    pub(super) fn new(command: Option<&str>, directory: &Path) -> Self {
        let words = command.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Self { words, directory: directory.to_owned() }
    }

    /// Opens the editor with this text, and returns the text that it leaves. Blocks; `stop` ends the editor.
    ///
    /// # Errors
    /// The reason, for the person. The typed text is what it was.
    pub(super) fn edit(&self, text: &str, stop: &AtomicBool) -> Result<String, String> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err("Ctrl-O opens the editor that VISUAL or EDITOR names. Neither is set.".to_owned());
        };
        let cannot = |what: &str, error: &io::Error| format!("{what}: {error}. The text stays as it was.");
        let draft = Draft::new(&self.directory, text).map_err(|error| cannot("The text cannot be edited", &error))?;
        let started = Command::new(program).args(arguments).arg(&draft.path).spawn();
        let mut child = started.map_err(|error| cannot(&format!("{program} does not start"), &error))?;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if stop.load(Ordering::Relaxed) => {
                    let _ = child.kill(); // it may have ended
                    break child.wait().map_err(|error| cannot(program, &error))?;
                }
                Ok(None) => thread::sleep(LOOK_AGAIN),
                Err(error) => return Err(cannot(program, &error)),
            }
        };
        if !status.success() {
            return Err(format!("{program} ended with {status}. The text stays as it was."));
        }
        let edited =
            fs::read_to_string(&draft.path).map_err(|error| cannot("The edited text cannot be read", &error))?;
        Ok(belay_terminal::pasted(edited.trim_end()))
    }
}

/// The file of a text while it is edited. Dropping it deletes it.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(directory: &Path, text: &str) -> io::Result<Self> {
        let path = directory.join(format!("message-{}.md", process::id()));
        // A process with the same id may have left one.
        let _ = fs::remove_file(&path);
        let mut file = File::options().create_new(true).write(true).mode(0o600).open(&path)?;
        let draft = Self { path };
        file.write_all(text.as_bytes())?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // an editor may have moved it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_the_editor_takes_the_place_of_the_typed_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let edit = |command: Option<&str>, stop: bool| {
            let edited = Editor::new(command, directory.path()).edit("one", &AtomicBool::new(stop));
            assert_eq!(fs::read_dir(directory.path()).expect("the directory").count(), 0, "the draft is deleted");
            edited
        };
        assert_eq!(edit(Some("sed -i s/one/two/"), false).as_deref(), Ok("two"));
        assert!(edit(Some("false"), false).is_err_and(|why| why.contains("false ended with")));
        assert!(edit(Some("/no/such/editor"), false).is_err_and(|why| why.contains("does not start")));
        assert!(edit(None, false).is_err_and(|why| why.contains("VISUAL or EDITOR")));
        assert!(edit(Some("tail -f"), true).is_err(), "a stop ends it");
    }
}
