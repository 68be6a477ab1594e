//! The binary in a terminal of its own: a pseudo-terminal whose screen is rendered, so that a test compares what a person
//! sees.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::daemon::{Home, PATIENCE};

/// A program in a terminal.
pub struct Terminal {
    child: Child,
    keys: File,
    seen: Arc<Mutex<Seen>>,
    /// Reads until the last program has let go of the terminal.
    reader: JoinHandle<()>,
}

/// What the program has written.
struct Seen {
    screen: vt100::Parser,
    bytes: Vec<u8>,
    /// The number of bytes after each read, and its time.
    arrivals: Vec<(usize, Instant)>,
}

impl Terminal {
    /// Starts `belay` with these arguments in a terminal of that size.
    ///
    /// # Errors
    /// There is no pseudo-terminal, or the program does not start.
    pub fn start(home: &Home, args: &[&str], columns: u16, rows: u16) -> Result<Self> {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        tcsetwinsize(&terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        let name = ptsname(&terminal, Vec::new())?.into_string()?;
        let side: OwnedFd = File::options().read(true).write(true).open(name)?.into();
        let belay = home.command(args);
        let belay = belay.as_std();
        // The program gets the terminal as its own: otherwise it would ask that of the test for its size.
        // A shell that started these tests in the background has them ignore Ctrl-C, and so would the program.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", "setsid", "--ctty", "--wait"])
            .arg(belay.get_program())
            .args(belay.get_args())
            .env_clear();
        command.env("TERM", "xterm-256color");
        command.envs(belay.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let child = command.stdin(side.try_clone()?).stdout(side.try_clone()?).stderr(side).spawn()?;
        let keys = File::from(terminal);
        // The library for the screen needs two of each; the program sees the real size.
        let seen = Seen {
            screen: vt100::Parser::new(rows.max(2), columns.max(2), 10_000),
            bytes: Vec::new(),
            arrivals: Vec::new(),
        };
        let seen = Arc::new(Mutex::new(seen));
        let (from, to) = (keys.try_clone()?, seen.clone());
        let reader = std::thread::spawn(move || show(from, &to));
        Ok(Self { child, keys, seen, reader })
    }

    /// Starts `belay run` and waits for its prompt.
    ///
    /// # Errors
    /// As [`Self::start`], or the prompt does not appear.
    pub async fn run(home: &Home, columns: u16, rows: u16) -> Result<Self> {
        let args = home.run_args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let terminal = Self::start(home, &args, columns, rows)?;
        let is_ready = |screen: &[String]| {
            let ready = screen.iter().any(|line| line.starts_with("belay: ready"));
            ready && screen.last().is_some_and(|line| line == "belay>")
        };
        terminal.until("the prompt of a ready daemon", is_ready).await?;
        Ok(terminal)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Presses keys.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }

    /// Changes the size of the window.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        self.seen().screen.screen_mut().set_size(rows, columns);
        Ok(tcsetwinsize(self.keys.as_fd(), Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?)
    }

    /// The lines on the screen, without the empty ones below.
    pub fn screen(&self) -> Vec<String> {
        let seen = self.seen();
        let (_, columns) = seen.screen.screen().size();
        let mut lines: Vec<String> =
            seen.screen.screen().rows(0, columns).map(|line| line.trim_end().to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// The lines below this one, which is the newest of its kind.
    pub fn below(&self, line: &str) -> Vec<String> {
        let screen = self.screen();
        let at = screen.iter().rposition(|shown| shown == line).map_or(0, |at| at + 1);
        screen[at..].to_vec()
    }

    /// Everything that the program has written.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.seen().bytes).into_owned()
    }

    /// When the last byte of the text was written for the first time, if it was.
    pub fn written_at(&self, text: &str) -> Option<Instant> {
        let seen = self.seen();
        let at = seen.bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
        let end = at + text.len();
        seen.arrivals.iter().find(|(bytes, _)| *bytes >= end).map(|(_, instant)| *instant)
    }

    /// Waits for a screen.
    ///
    /// # Errors
    /// It does not come.
    pub async fn until(&self, what: &str, is: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is(&screen) {
                return Ok(screen);
            }
            if Instant::now() > deadline {
                bail!("{what} is not on the screen:\n{}\nOutput: {:?}", screen.join("\n"), self.output());
            }
            tokio::time::sleep(Duration::from_millis(5)).await; // a real program: there is no clock to pause
        }
    }

    /// Waits for this text, which may go on in the next line where the screen ends.
    ///
    /// # Errors
    /// It does not come.
    pub async fn shows(&self, text: &str) -> Result<Vec<String>> {
        self.until(text, |screen| screen.concat().contains(text)).await
    }

    /// Waits until the last line is an empty prompt.
    ///
    /// # Errors
    /// It does not come.
    pub async fn prompt(&self) -> Result<Vec<String>> {
        self.until("an empty prompt", |screen| screen.last().is_some_and(|line| line == "belay>")).await
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// It does not end.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.child.try_wait().context("its status")?;
            // The end of a program may be known before its last words.
            if let Some(status) = status.filter(|_| self.reader.is_finished()) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("it does not end; the screen:\n{}", self.screen().join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await; // as above
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The end of the terminal's leader hangs its programs up. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn show(mut terminal: File, seen: &Mutex<Seen>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = terminal.read(&mut buffer) {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.bytes.extend_from_slice(&buffer[..n]);
        let arrived = (seen.bytes.len(), Instant::now());
        seen.arrivals.push(arrived);
        // ECMA-48, "Device Status Report": 6 asks for the cursor's position, as it is after the bytes before it.
        let mut rest = &buffer[..n];
        while let Some(at) = rest.windows(4).position(|four| four == b"\x1b[6n") {
            seen.screen.process(&rest[..at]);
            let (row, column) = seen.screen.screen().cursor_position();
            let _ = terminal.write_all(format!("\x1b[{};{}R", row + 1, column + 1).as_bytes()); // it may have ended
            rest = &rest[at + 4..];
        }
        seen.screen.process(rest);
    }
}
