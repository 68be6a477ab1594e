//! Errors while hooks are built from their settings.

/// Why a hook could not be built.
#[derive(Debug, thiserror::Error)]
pub enum HooksError {
    /// The settings are wrong; each problem starts with its key.
    #[error("{}", .0.join("; "))]
    Config(Vec<String>),
    /// The variable for the token is not set, or is empty.
    #[error("the hook {hook} sends the token in {variable}, which is not set; set it, or leave `token_env` away")]
    NoToken {
        /// The hook.
        hook: String,
        /// The variable.
        variable: String,
    },
    /// The HTTP client could not be made.
    #[error("the hook {hook} has no HTTP client")]
    Client {
        /// The hook.
        hook: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}
