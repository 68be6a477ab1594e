//! The questions about key and model, and the lists in them.

use belay_models::providers;
use belay_program::exit::Failure;

use super::menu::{self, Choice};
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
        terminal.say(&format!("Models:\n{}", menu::lines(&choices(models), "")));
    }
    let typed = terminal.text("Model by number or name, or a part of its name to list more", default).await?;
    Ok(menu::meant(&typed, &choices(models)))
}

/// The models as a list to choose from.
pub(super) fn choices(models: &[String]) -> Vec<Choice<'_>> {
    models.iter().map(|model| Choice::plain(model)).collect()
}

/// Asks for a provider. `found`: what was found of one, for those that can be used at once; they come first.
pub(super) async fn ask_provider(
    found: impl Fn(&str) -> Option<String>,
    now: Option<&str>,
    terminal: &mut Terminal,
) -> Result<String, Failure> {
    let choice = |provider: belay_models::ProviderInfo| match found(provider.name) {
        Some(note) => (true, Choice { name: provider.name, note }),
        None if Some(provider.name) == now => (true, Choice { name: provider.name, note: "in use".to_owned() }),
        None => (false, Choice::plain(provider.name)),
    };
    let (first, rest): (Vec<_>, Vec<_>) = providers().map(choice).partition(|(is_found, _)| *is_found);
    let default = now.or(first.first().map(|(_, choice)| choice.name)).map(str::to_owned);
    let choices: Vec<_> = first.into_iter().chain(rest).map(|(_, choice)| choice).collect();
    terminal.say(&format!("Providers:\n{}", menu::lines(&choices, "")));
    let question = "Provider by number or name, or the address of a server (http://…)";
    let typed = terminal.text(question, default.as_deref()).await?;
    Ok(menu::meant(&typed, &choices))
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
