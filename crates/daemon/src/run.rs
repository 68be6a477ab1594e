//! `belay run`: the daemon, in the foreground.

use std::io::IsTerminal;
use std::path::PathBuf;

use belay_channels::Enabled;
use tokio_util::sync::CancellationToken;

use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::paths::Paths;
use crate::reload::Source;
use crate::settings::{Loaded, Settings, SettingsArgs, load, refused};
use crate::signals::{OnHangup, SignalWatch};
use crate::telemetry::LogFilter;
use crate::{systemd, telemetry, wiring};

/// Runs until a signal, an operator's `/quit`, or the end of every channel; then drains.
pub(crate) async fn run(args: &SettingsArgs, env: &Environment) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?.with_named(&args.files);
    let loaded = load(args, env, &paths).map_err(|problems| refused(&problems))?;
    let (log_file, log) = telemetry_for(&loaded, &paths, env);
    for file in &loaded.hidden {
        tracing::info!(file, "a settings file of the service's user is not visible and was passed over");
    }
    let signals = SignalWatch::install(OnHangup::Reload)
        .map_err(|error| Failure::new(Exit::Internal, format!("signals cannot be taken: {error}")))?;
    let root = CancellationToken::new();

    let parts = wiring::build(&loaded, env, &paths).await?;
    if let Some(notice) = parts.notice() {
        note(notice);
    }
    let (args, env, settings) = (args.clone(), env.clone(), loaded.settings);
    let running = parts.start(&root, signals, Source { args, env, paths, settings, log }).await?;

    let described = running.describe();
    systemd::ready(&described);
    let logged = log_file.map(|path| format!("; logs are in {}", path.display())).unwrap_or_default();
    running.say(&format!("{described}{logged}")).await;
    Ok(running.wait().await)
}

/// Begins to log: to stderr; beside a prompt to a file, which is returned, unless the person has said what to log.
fn telemetry_for(loaded: &Loaded, paths: &Paths, env: &Environment) -> (Option<PathBuf>, LogFilter) {
    let config = &loaded.settings.telemetry;
    if !at_a_prompt(&loaded.settings) || loaded.is_set("telemetry.log") {
        return (None, telemetry::start(config, env));
    }
    match telemetry::log_file(&paths.data) {
        Ok((path, file)) => {
            let log = telemetry::start_in(config, file);
            (Some(path), log)
        }
        Err(error) => {
            note(&format!("there is no place for a log file, so that warnings appear here: {error}"));
            (None, telemetry::start(&config.quiet(), env))
        }
    }
}

/// Whether a person types at the prompt of this terminal, between whose lines logs have no place.
fn at_a_prompt(settings: &Settings) -> bool {
    let terminals = [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
    settings.channels.stdin.enabled != Enabled::No && terminals == [true; 3]
}
