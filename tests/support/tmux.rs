//! The binary in a real terminal: tmux, which sends keys and pastes as terminals do, and shows its screen as text.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::daemon::{Home, PATIENCE};

/// Pause between two looks at the screen.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A terminal with a server of its own, which ends with it.
pub struct Tmux {
    socket: String,
}

impl Tmux {
    /// Starts `belay` with these arguments in a terminal of that size. `None`: tmux is not installed, and the variable `CI`
    /// is not `true`.
    ///
    /// # Errors
    /// The terminal does not start.
    pub fn start(home: &Home, args: &[&str], columns: u16, rows: u16) -> Result<Option<Self>> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            ensure!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "tmux is not installed (package tmux)");
            eprintln!("skipped: tmux is not installed (package tmux)");
            return Ok(None);
        }
        let tmux = Self { socket: home.path().join("tmux").display().to_string() };
        let belay = home.command(args);
        let belay = belay.as_std();
        let size = [columns, rows].map(|n| n.to_string());
        let mut start = tmux.command(&["new-session", "-d", "-x", &size[0], "-y", &size[1], "env", "-i"]);
        start.args(["TERM=tmux-256color", "LANG=C.UTF-8"]);
        for (key, value) in belay.get_envs().filter_map(|(key, value)| Some((key, value?))) {
            let mut pair = key.to_owned();
            pair.push("=");
            pair.push(value);
            start.arg(pair);
        }
        // A shell that started these tests in the background has them ignore Ctrl-C, and so would the program.
        start.args(["env", "--default-signal=INT"]).arg(belay.get_program()).args(belay.get_args());
        // The last screen stays after the end of the program.
        start.args([";", "set-option", "remain-on-exit", "on"]);
        done(&start.output()?)?;
        Ok(Some(tmux))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-f", "/dev/null", "-u", "-S", &self.socket]).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        done(&self.command(args).output()?)
    }

    /// Types a text, without Enter.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn types(&self, text: &str) -> Result<()> {
        self.run(&["send-keys", "-l", text]).map(drop)
    }

    /// Presses a key by its name: `Enter`, `M-Enter`, `C-o`.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn key(&self, name: &str) -> Result<()> {
        self.run(&["send-keys", name]).map(drop)
    }

    /// Pastes a text, with the marks of a paste if the program has asked for them.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn paste(&self, text: &str) -> Result<()> {
        let mut load = self.command(&["load-buffer", "-"]).stdin(Stdio::piped()).spawn()?;
        load.stdin.take().expect("it is piped").write_all(text.as_bytes())?;
        ensure!(load.wait()?.success(), "the text is not taken");
        self.run(&["paste-buffer", "-p", "-d"]).map(drop)
    }

    /// The lines on the screen, without the empty ones below.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn screen(&self) -> Result<Vec<String>> {
        let shown = self.run(&["capture-pane", "-p"])?;
        Ok(shown.trim_end().lines().map(|line| line.trim_end().to_owned()).collect())
    }

    /// The title of the terminal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn title(&self) -> Result<String> {
        self.run(&["display-message", "-p", "#{pane_title}"])
    }

    /// Waits for a screen.
    ///
    /// # Errors
    /// It does not come.
    pub async fn until(&self, what: &str, is: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen()?;
            if is(&screen) {
                return Ok(screen);
            }
            if Instant::now() > deadline {
                bail!("{what} is not on the screen:\n{}", screen.join("\n"));
            }
            tokio::time::sleep(LOOK_AGAIN).await; // a real program: there is no clock to pause
        }
    }

    /// Waits for a line that is this text.
    ///
    /// # Errors
    /// It does not come.
    pub async fn line(&self, text: &str) -> Result<Vec<String>> {
        self.until(text, |screen| screen.iter().any(|line| line == text)).await
    }

    /// Waits until the last line is an empty prompt.
    ///
    /// # Errors
    /// It does not come.
    pub async fn prompt(&self) -> Result<Vec<String>> {
        self.until("an empty prompt", |screen| screen.last().is_some_and(|line| line == "belay>")).await
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]); // it ends with its last program
    }
}

fn done(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
