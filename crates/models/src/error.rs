//! What can go wrong before the first call.

/// A provider that cannot be built. Nothing of this is cured by trying again: someone changes a setting.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// `llm.provider` names nothing we know.
    #[error("llm.provider: `{name}` is unknown{}; known are: auto, {known}", nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default())]
    UnknownProvider {
        /// The name given.
        name: String,
        /// The known name that resembles it, if one does.
        nearest: Option<String>,
        /// All known names.
        known: String,
    },
    /// The provider needs a key and there is none.
    #[error("the model provider `{provider}` needs a key: {hint}")]
    MissingKey {
        /// The provider.
        provider: String,
        /// Where to put one.
        hint: String,
    },
    /// The key has characters that cannot be sent.
    #[error("the key for the model provider cannot be sent in an HTTP header; does it contain a line break?")]
    BadKey,
    /// The provider has no model of its own to fall back on.
    #[error("llm.model: name the model to use with the provider `{provider}`")]
    MissingModel {
        /// The provider.
        provider: String,
    },
    /// `llm.base_url` is no address of a server.
    #[error("llm.base_url: `{url}` is not an http or https address: {reason}")]
    BadUrl {
        /// The address given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The HTTP client cannot be made, for instance because no root certificates are found.
    #[error("the HTTP client for the model provider cannot be made")]
    Client(#[source] reqwest::Error),
    /// The client of the library for other formats cannot be made.
    #[error("the client for the model provider cannot be made: {0}")]
    Library(String),
}
