//! `belay run`: the daemon, in the foreground.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use belay_channels::Enabled;
use tokio_util::sync::CancellationToken;

use crate::args::SettingsArgs;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::paths::Paths;
use crate::reload::Source;
use crate::settings::{Loaded, Settings, load, refused};
use crate::signals::{OnHangup, SignalWatch};
use crate::telemetry::{LineForm, LogFilter};
use crate::{systemd, telemetry, wiring};

/// Runs until a signal, an operator's `/quit`, or the end of every channel; then drains.
pub(crate) async fn run(args: &SettingsArgs, env: &Environment) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?.with_named(&args.files);
    let loaded = Arc::new(load(args, env, &paths).map_err(|problems| refused(&problems))?);
    let workspace = wiring::workspace_of(&loaded.settings, env, &paths);
    let (logging, log) = telemetry_for(&loaded, &paths, env);
    for line in loaded.hidden_notices() {
        logging.announce(&line);
    }
    let signals = SignalWatch::install(OnHangup::Reload)
        .map_err(|error| Failure::new(Exit::Internal, format!("signal handlers cannot be installed: {error}")))?;
    let root = CancellationToken::new();

    let parts = wiring::build(&loaded, args, env, &paths).await?;
    if let Some(notice) = parts.notice() {
        logging.announce(notice);
    }
    let (args, env, settings) = (args.clone(), env.clone(), loaded.settings.clone());
    let running = Box::pin(parts.start(&root, signals, Source { args, env, paths, settings, log })).await?;

    let described = format!("{}; workspace {}", running.describe(), workspace.display());
    systemd::ready(&described);
    let logged = logging.file.as_deref().map(|path| format!("; logs are in {}", path.display())).unwrap_or_default();
    let described = format!("{described}{logged}");
    if !running.say_above_prompt(&described).await {
        logging.announce(&described);
    }
    Ok(running.wait().await)
}

/// Where the log goes, and the form of the start messages.
struct Logging {
    /// The log file, if there is a prompt.
    file: Option<PathBuf>,
    /// The form of lines on stderr: only JSON lines, or lines for people.
    stderr: LineForm,
}

impl Logging {
    /// Writes a start message to stderr, in the form of the log lines there.
    fn announce(&self, text: &str) {
        match self.stderr {
            LineForm::Json => telemetry::json_line(text),
            LineForm::Human => note(text),
        }
    }
}

/// Starts logging: to stderr, or to a file if there is a prompt and the person has not set what to log.
fn telemetry_for(loaded: &Loaded, paths: &Paths, env: &Environment) -> (Logging, LogFilter) {
    let config = &loaded.settings.telemetry;
    let on_stderr = |config| {
        let (log, stderr) = telemetry::start(config, env);
        (Logging { file: None, stderr }, log)
    };
    if !at_a_prompt(&loaded.settings) || loaded.is_set("telemetry.log") {
        return on_stderr(config);
    }
    match telemetry::log_file(&paths.data) {
        Ok((path, file)) => {
            let log = telemetry::start_in(config, file);
            (Logging { file: Some(path), stderr: LineForm::Human }, log)
        }
        Err(error) => {
            note(&format!("no log file can be written, so that warnings appear here: {error}"));
            on_stderr(&config.quiet())
        }
    }
}

/// Whether a person types at a prompt on this terminal, where log lines would disturb.
fn at_a_prompt(settings: &Settings) -> bool {
    let terminals = [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
    settings.channels.stdin.enabled != Enabled::No && terminals == [true; 3]
}
