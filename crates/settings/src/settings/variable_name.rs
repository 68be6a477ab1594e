//! Names of environment variables in settings.

/// Whether a text can be the name of an environment variable. A `…_env` setting with another text most likely contains
/// the secret itself, so its value must not be shown.
pub(crate) fn is_variable_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_none_or(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= 64
}
