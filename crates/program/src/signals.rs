//! Signals. The first SIGINT or SIGTERM begins the drain, the second ends the process at once. SIGHUP reloads the
//! settings of a daemon without a terminal; with a terminal it begins the drain. SIGUSR1 and SIGUSR2 are ignored, and
//! so is SIGINT while another program has the terminal.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook_tokio::{Handle, Signals};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::exit::Exit;
use crate::output::note;

/// What SIGHUP means to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHangup {
    /// The end, like SIGTERM.
    End,
    /// Reload of the settings; with a controlling terminal, the end.
    Reload,
}

/// What SIGHUP does to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hangup {
    /// Nothing: the parent process has it ignored, like `nohup`.
    Ignored,
    /// Begins the drain: the terminal is closed.
    Drains,
    /// Reloads the settings.
    Reloads,
}

impl Hangup {
    fn of(wanted: OnHangup, ignored: bool, terminal: bool) -> Self {
        match (ignored, wanted, terminal) {
            (true, ..) => Self::Ignored,
            (false, OnHangup::Reload, false) => Self::Reloads,
            (false, ..) => Self::Drains,
        }
    }
}

/// The effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// A line in the log.
    Note,
    Reload,
    Drain,
    Exit,
}

impl Effect {
    /// `lent`: another program has the terminal, and a Ctrl-C is for that one. `draining`: the drain has begun.
    fn of(signal: i32, hangup: Hangup, lent: bool, draining: bool) -> Self {
        match signal {
            SIGUSR1 | SIGUSR2 => Self::Note,
            SIGINT if lent => Self::Nothing,
            SIGHUP if hangup == Hangup::Reloads => Self::Reload,
            // The kernel and the shell both send it when a terminal closes, so a second one does not end the process.
            SIGHUP if draining => Self::Nothing,
            _ if draining => Self::Exit,
            _ => Self::Drain,
        }
    }
}

/// The signals of this process.
pub struct SignalWatch {
    signals: Signals,
    handle: Handle,
    hangup: Hangup,
    /// Whether another program has the terminal.
    lent: Arc<AtomicBool>,
    /// Capacity 1: a reload reads the settings that exist when it begins.
    reloads: mpsc::Sender<()>,
    requests: Option<mpsc::Receiver<()>>,
}

impl SignalWatch {
    /// Handles the signals from now on. To be called before anything slow, so that no early Ctrl-C is lost.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn install(hangup: OnHangup) -> io::Result<Self> {
        survive_file_size_limit()?;
        let hangup = Hangup::of(hangup, is_ignored(SIGHUP), has_terminal());
        let mut taken = vec![SIGINT, SIGTERM, SIGUSR1, SIGUSR2];
        // A handler would replace the inherited setting.
        taken.extend((hangup != Hangup::Ignored).then_some(SIGHUP));
        let signals = Signals::new(taken)?;
        let handle = signals.handle();
        let (reloads, requests) = mpsc::channel(1);
        Ok(Self { signals, handle, hangup, lent: Arc::default(), reloads, requests: Some(requests) })
    }

    /// The handle whose closing ends [`SignalWatch::watch`].
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The flag that is set while another program has the terminal, such as a person's editor. Its Ctrl-C sends SIGINT
    /// to this process too.
    pub fn lent(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.lent)
    }

    /// The requests to reload the settings; the queue ends with [`SignalWatch::watch`]. `None`: they were taken before.
    pub fn reloads(&mut self) -> Option<mpsc::Receiver<()>> {
        self.requests.take()
    }

    /// Cancels `root` at the first signal that ends the process, and exits at the second. Ends when its [`Handle`] is
    /// closed.
    ///
    /// Exiting at once is safe: accepted messages are committed, and the next start resumes unfinished runs.
    pub async fn watch(mut self, root: CancellationToken) {
        let mut draining = false;
        while let Some(signal) = self.signals.next().await {
            match Effect::of(signal, self.hangup, self.lent.load(Ordering::Relaxed), draining) {
                Effect::Nothing => {}
                Effect::Note => {
                    info!(signal = if signal == SIGUSR1 { "SIGUSR1" } else { "SIGUSR2" }, "signal ignored");
                }
                Effect::Reload => {
                    // Full: a queued reload will read the current settings.
                    let _ = self.reloads.try_send(());
                }
                Effect::Exit => {
                    note("ended at once");
                    std::process::exit(Exit::Interrupted as i32);
                }
                Effect::Drain => {
                    draining = true;
                    info!(signal, "signal received, draining");
                    root.cancel();
                }
            }
        }
    }
}

/// Turns a write beyond the limit of file sizes (`RLIMIT_FSIZE`, `LimitFSIZE=`) into an error of that write, as on a
/// full disk. By default the kernel kills the process.
///
/// This is a handler that does nothing, not an ignored signal: child processes inherit ignored signals, while exec
/// resets handlers. Source: signal(7), "Signal dispositions"; setrlimit(2), `RLIMIT_FSIZE`.
fn survive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(|_| ())
}

/// Whether a terminal controls this process, so that the end of the terminal ends it. Source: Linux, tty(4).
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether a signal was ignored when this process started. Source: Linux, proc_pid_status(5), `SigIgn`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, signal)
}

fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (1..=64).contains(&signal) && mask & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_reloads_without_a_terminal_drains_with_one_and_an_inherited_ignore_stays() {
        for (wanted, ignored, terminal, hangup) in [
            (OnHangup::Reload, false, false, Hangup::Reloads),
            (OnHangup::Reload, false, true, Hangup::Drains),
            (OnHangup::Reload, true, false, Hangup::Ignored),
            (OnHangup::Reload, true, true, Hangup::Ignored),
            (OnHangup::End, false, false, Hangup::Drains),
            (OnHangup::End, true, true, Hangup::Ignored),
        ] {
            assert_eq!(Hangup::of(wanted, ignored, terminal), hangup, "{wanted:?} {ignored} {terminal}");
        }
    }

    #[test]
    fn the_second_signal_ends_the_process_but_no_ctrl_c_of_an_editor_does() {
        for (signal, lent, draining, effect) in [
            (SIGINT, false, false, Effect::Drain),
            (SIGINT, false, true, Effect::Exit),
            (SIGINT, true, false, Effect::Nothing),
            (SIGINT, true, true, Effect::Nothing),
            (SIGTERM, true, false, Effect::Drain),
            (SIGTERM, true, true, Effect::Exit),
            (SIGHUP, false, false, Effect::Drain),
            (SIGHUP, false, true, Effect::Nothing),
            (SIGUSR2, false, true, Effect::Note),
        ] {
            assert_eq!(Effect::of(signal, Hangup::Drains, lent, draining), effect, "{signal} {lent} {draining}");
        }
        assert_eq!(Effect::of(SIGHUP, Hangup::Reloads, false, true), Effect::Reload);
    }

    #[test]
    fn the_mask_of_ignored_signals_is_read_bit_by_bit() {
        let status = "Name:\tbelay\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n";
        for (signal, ignored) in [(1, true), (13, true), (2, false), (64, false), (0, false)] {
            assert_eq!(ignores(status, signal), ignored, "{signal}");
        }
        assert!(!ignores("", 1) && !ignores("SigIgn:\tnonsense", 1));
    }
}
