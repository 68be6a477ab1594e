//! Checks the names of models against the configured ones.

use belay_protocol::ModelProvider;

/// Maximum number of names listed in the answer to an unknown name.
const MOST_NAMES: usize = 20;

/// Checks whether a session or a message may name this model.
///
/// # Errors
/// A sentence that lists the known names, with the most similar one first if there is one.
pub(crate) fn check(name: &str, models: &dyn ModelProvider) -> Result<(), String> {
    known(name, &models.models())
}

fn known(name: &str, known: &[String]) -> Result<(), String> {
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    let distance = |known: &&String| strsim::levenshtein(&known.to_lowercase(), &name.to_lowercase());
    // Beyond a third of the name it would be a guess.
    let near = known.iter().min_by_key(distance).filter(|near| distance(near) <= name.chars().count() / 3);
    let meant = near.map(|near| format!(" Did you mean {near}?")).unwrap_or_default();
    let listed: Vec<&str> = known.iter().take(MOST_NAMES).map(String::as_str).collect();
    Err(format!("There is no model {name}.{meant} Available models: {}.", listed.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_one_of_the_configured_ones_and_another_is_told_which_there_are() {
        let models = ["gpt-4.1-mini", "claude-sonnet-4-6"].map(str::to_owned);
        let unknown = |meant: &str, name: &str| {
            Err(format!("There is no model {name}.{meant} Available models: gpt-4.1-mini, claude-sonnet-4-6."))
        };
        for (name, expected) in [
            ("gpt-4.1-mini", Ok(())),
            ("claude-sonnet-4-6", Ok(())),
            ("GPT-4.1-mini", unknown(" Did you mean gpt-4.1-mini?", "GPT-4.1-mini")),
            ("claude-sonet-4.6", unknown(" Did you mean claude-sonnet-4-6?", "claude-sonet-4.6")),
            ("llama", unknown("", "llama")),
            ("", unknown("", "")),
        ] {
            assert_eq!(known(name, &models), expected, "{name}");
        }
    }
}
