//! `belay run`: the daemon, in the foreground.

use tokio_util::sync::CancellationToken;

use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output::note;
use crate::paths::Paths;
use crate::settings::{SettingsArgs, load, refused};
use crate::signals::SignalWatch;
use crate::{systemd, telemetry, wiring};

/// Runs until a signal, an operator's `/quit`, or the end of every channel; then drains.
pub(crate) async fn run(args: &SettingsArgs, env: &Environment) -> Result<Exit, Failure> {
    let paths = Paths::find(env)?;
    let settings = load(args, env, &paths).map_err(|problems| refused(&problems))?.settings;
    telemetry::start(&settings.telemetry, env);
    let signals = SignalWatch::install()
        .map_err(|error| Failure::new(Exit::Internal, format!("signals cannot be taken: {error}")))?;
    let root = CancellationToken::new();

    let parts = wiring::build(&settings, env, &paths).await?;
    if let Some(notice) = parts.notice() {
        note(notice);
    }
    let running = parts.start(&root, signals).await?;

    let described = running.describe();
    note(&described);
    systemd::ready(&described);
    Ok(running.wait().await)
}
