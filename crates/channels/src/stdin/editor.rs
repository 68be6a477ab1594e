//! Edits the typed text in the person's editor.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Pause between two looks at the editor. 20 ms: people do not notice it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Longest wait for an editor that was asked to end. 2 s: it completes a file that it writes, and the end of the prompt
/// is waited for a little longer.
const END_MAX: Duration = Duration::from_secs(2);

/// How long the terminal counts as lent after the editor has ended. 50 ms: the task that reads signals may be behind.
const SIGNAL_LAG: Duration = Duration::from_millis(50);

/// Most drafts of one process id in a directory.
const DRAFTS_MAX: u32 = 1000;

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

    /// Opens the editor with this text, and returns the text that it leaves. Blocks; `stop` ends the editor. `lent` is
    /// set while the editor has the terminal: its Ctrl-C reaches this process too.
    ///
    /// # Errors
    /// The reason, for the person. The typed text is what it was.
    pub(super) fn edit(&self, text: &str, stop: &AtomicBool, lent: &AtomicBool) -> Result<String, String> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err("Ctrl-O opens the editor that VISUAL or EDITOR names. Neither is set.".to_owned());
        };
        let cannot = |what: &str, error: &io::Error| format!("{what}: {error}. The text stays as it was.");
        let draft = Draft::new(&self.directory, text).map_err(|error| cannot("The text cannot be edited", &error))?;
        let lent = Lent::begin(lent);
        let started = Command::new(program).args(arguments).arg(&draft.path).spawn();
        let mut child = started.map_err(|error| cannot(&format!("{program} does not start"), &error))?;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if stop.load(Ordering::Relaxed) => {
                    let _ = end(&mut child); // whatever becomes of it, the file is kept
                    return Err(format!("The prompt ended while {program} was open. Its text is in {}.", draft.keep()));
                }
                Ok(None) => thread::sleep(LOOK_AGAIN),
                Err(error) => return Err(cannot(program, &error)),
            }
        };
        drop(lent);
        if !status.success() {
            return Err(format!("{program} ended with {status}. The text stays as it was."));
        }
        match fs::read_to_string(&draft.path) {
            Ok(edited) => Ok(belay_terminal::pasted(edited.trim_end())),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(cannot("The edited text cannot be read", &error)),
            Err(error) => {
                let why = cannot("The edited text cannot be read", &error);
                Err(format!("{why} The edited text is in {}.", draft.keep()))
            }
        }
    }
}

/// Asks the editor to end, and kills it after [`END_MAX`].
fn end(child: &mut Child) -> io::Result<()> {
    let _ = kill_process(Pid::from_child(child), Signal::TERM); // it may have ended
    let asked = Instant::now();
    while child.try_wait()?.is_none() {
        if asked.elapsed() > END_MAX {
            let _ = child.kill(); // as above
            return child.wait().map(|_| ());
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// The terminal while another program has it. Dropping it takes the terminal back.
struct Lent<'a>(&'a AtomicBool);

impl<'a> Lent<'a> {
    fn begin(lent: &'a AtomicBool) -> Self {
        lent.store(true, Ordering::Relaxed);
        Self(lent)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        thread::sleep(SIGNAL_LAG);
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The file of a text while it is edited. Dropping it deletes the file, unless it is kept.
struct Draft {
    path: PathBuf,
    is_kept: bool,
}

impl Draft {
    /// Makes the file under a free name: an earlier one may have been kept.
    fn new(directory: &Path, text: &str) -> io::Result<Self> {
        for number in 1..=DRAFTS_MAX {
            let path = directory.join(format!("message-{}-{number}.md", process::id()));
            let mut file = match File::options().create_new(true).write(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            let draft = Self { path, is_kept: false };
            file.write_all(text.as_bytes())?;
            return Ok(draft);
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Leaves the file, and returns its place.
    fn keep(mut self) -> String {
        self.is_kept = true;
        self.path.display().to_string()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.path); // an editor may have moved it
        }
    }
}

#[cfg(test)]
mod tests;
