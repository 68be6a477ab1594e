//! `belay run`: the daemon, in the foreground.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use belay_channels::Enabled;
use belay_crash_point::crash_point;
use belay_parts::NotStarted;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::note;
use belay_program::paths::Paths;
use belay_program::signals::{OnHangup, SignalWatch};
use belay_program::systemd;
use belay_settings::{Loaded, Settings, SettingsArgs, load, refused, workspace_of};
use belay_telemetry::{LineForm, LogFilter, LogLayer, LogQueue, TelemetryConfig, log_layer};
use tracing::info;

use crate::reload::Source;
use crate::wiring;
use crate::wiring::Starting;

/// Runs until a signal, an operator's `/quit`, or the end of every channel; then drains.
pub(crate) async fn run(args: &SettingsArgs, env: &Environment) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?.with_named(&args.files);
    let loaded = Arc::new(load(args, env, &paths).map_err(|problems| refused(&problems))?);
    let workspace = workspace_of(&loaded.settings, env, &paths);
    let (logging, log, log_queue) = telemetry_for(&loaded, &paths, env);
    for line in loaded.hidden_notices() {
        logging.announce(&line);
    }
    let signals = SignalWatch::install(OnHangup::Reload)
        .map_err(|error| Failure::new(Exit::Internal, format!("signal handlers cannot be installed: {error}")))?;
    let starting = Starting::begin(signals, logging.file.is_some());
    let started = async {
        let parts = Box::pin(wiring::build(&starting, &loaded, args, env, &paths, log_queue)).await?;
        if let Some(notice) = parts.notice() {
            logging.announce(notice);
        }
        let (args, env, settings) = (args.clone(), env.clone(), loaded.settings.clone());
        Box::pin(parts.start(starting, Source { args, env, paths, settings, log })).await
    };
    let running = match started.await {
        Ok(running) => running,
        Err(NotStarted::Failed(failure)) => return Err(failure),
        Err(NotStarted::Lost(lost)) => return Err(Failure::new(Exit::Busy, lost.words())),
        Err(NotStarted::Stopped) => {
            info!("stopped before it was ready");
            return Ok(Exit::Fine);
        }
    };

    let described = format!("{}; workspace {}", running.describe(), workspace.display());
    systemd::ready(&described);
    let logged = logging.file.as_deref().map(|path| format!("; logs are in {}", path.display())).unwrap_or_default();
    let described = format!("{described}{logged}");
    if !running.say_above_prompt(&described).await {
        logging.announce(&described);
    }
    crash_point!("recovery.ready");
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
            LineForm::Json => belay_telemetry::json_line(text),
            LineForm::Human => note(text),
        }
    }
}

/// Starts logging: to stderr, or to a file if there is a prompt and the person has not set what to log. Also to the
/// collector, if it gets log lines: they wait in the queue until its exporter starts.
fn telemetry_for(loaded: &Loaded, paths: &Paths, env: &Environment) -> (Logging, LogFilter, Option<LogQueue>) {
    let config = &loaded.settings.telemetry;
    let (layer, queue) = log_layer(config.logs_content());
    let (logging, log) = if !at_a_prompt(&loaded.settings) || loaded.is_set("telemetry.log") {
        on_stderr(config, env, layer)
    } else {
        in_file(config, paths, env, layer)
    };
    (logging, log, queue)
}

fn on_stderr(config: &TelemetryConfig, env: &Environment, layer: Option<LogLayer>) -> (Logging, LogFilter) {
    let (log, stderr) = belay_telemetry::start(config, env, layer);
    (Logging { file: None, stderr }, log)
}

/// Starts logging to a file, or to stderr with warnings alone if the file cannot be written.
fn in_file(
    config: &TelemetryConfig,
    paths: &Paths,
    env: &Environment,
    layer: Option<LogLayer>,
) -> (Logging, LogFilter) {
    match belay_telemetry::log_file(&paths.data) {
        Ok((path, file)) => {
            let log = belay_telemetry::start_in(config, file, layer);
            (Logging { file: Some(path), stderr: LineForm::Human }, log)
        }
        Err(error) => {
            note(&format!("no log file can be written, so that warnings appear here: {error}"));
            on_stderr(&config.quiet(), env, layer)
        }
    }
}

/// Whether a person types at a prompt on this terminal, where log lines would disturb.
fn at_a_prompt(settings: &Settings) -> bool {
    let terminals = [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
    settings.channels.stdin.enabled != Enabled::No && terminals == [true; 3]
}
