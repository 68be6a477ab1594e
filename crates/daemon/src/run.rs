//! `belay run`: the daemon, in the foreground.

use std::io::IsTerminal;

use belay_channels::Enabled;
use tokio_util::sync::CancellationToken;

use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::paths::Paths;
use crate::settings::{Settings, SettingsArgs, load, refused};
use crate::signals::SignalWatch;
use crate::{systemd, telemetry, wiring};

/// Runs until a signal, an operator's `/quit`, or the end of every channel; then drains.
pub(crate) async fn run(args: &SettingsArgs, env: &Environment) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?;
    let loaded = load(args, env, &paths).map_err(|problems| refused(&problems))?;
    let settings = &loaded.settings;
    let quiet = at_a_prompt(settings) && !loaded.is_set("telemetry.log");
    telemetry::start(&if quiet { settings.telemetry.quiet() } else { settings.telemetry.clone() }, env);
    let signals = SignalWatch::install()
        .map_err(|error| Failure::new(Exit::Internal, format!("signals cannot be taken: {error}")))?;
    let root = CancellationToken::new();

    let parts = wiring::build(settings, env, &paths).await?;
    if let Some(notice) = parts.notice() {
        note(notice);
    }
    let running = parts.start(&root, signals).await?;

    let described = running.describe();
    note(&described);
    systemd::ready(&described);
    Ok(running.wait().await)
}

/// Whether a person types at the prompt of this terminal, between whose lines logs have no place.
fn at_a_prompt(settings: &Settings) -> bool {
    let terminals = [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
    settings.channels.stdin.enabled != Enabled::No && terminals == [true; 3]
}
