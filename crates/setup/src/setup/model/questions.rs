//! The questions about key and model, and the lists in them.

use belay_models::providers;
use belay_program::exit::Failure;

use super::{Key, Server};
use crate::setup::person::Terminal;

/// Most names of models in one answer.
const SHOWN_MAX: usize = 15;

/// Asks for the key of a server.
pub(super) async fn ask_key(server: &Server, has_one: bool, terminal: &mut Terminal) -> Result<Key, Failure> {
    let name = server.name();
    loop {
        let enter = match (has_one, server.needs_key()) {
            (true, _) => "; Enter keeps the present one",
            (false, false) => "; Enter: none",
            (false, true) => "",
        };
        match terminal.secret(&format!("Key of {name} (not shown{enter})")).await? {
            Some(key) => return Ok(Key::New(key)),
            None if has_one => return Ok(Key::Kept),
            None if !server.needs_key() => return Ok(Key::Without),
            None => {}
        }
    }
}

/// Asks for a model.
pub(super) async fn ask_model(
    models: &[String],
    default: Option<&str>,
    terminal: &mut Terminal,
) -> Result<String, Failure> {
    if !models.is_empty() {
        terminal.say(&format!("Models: {}", listed(models, "")));
    }
    terminal.text("Model, or a part of its name to list more", default).await
}

/// The first names that contain `part`, and how many more there are.
pub(super) fn listed(models: &[String], part: &str) -> String {
    let found: Vec<&str> = models.iter().map(String::as_str).filter(|model| model.contains(part)).collect();
    let shown = found[..found.len().min(SHOWN_MAX)].join(", ");
    match found.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A line with the names of all providers.
pub(super) fn known() -> String {
    format!("Providers: {}", providers().map(|provider| provider.name).collect::<Vec<_>>().join(", "))
}
