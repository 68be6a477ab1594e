//! Errors before the first call.

/// Why a provider cannot be built. A retry does not help: a person must change a setting.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// `llm.provider` is not a known name.
    #[error("llm.provider: `{name}` is unknown{}; known are: auto, {known}", nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default())]
    UnknownProvider {
        /// The name given.
        name: String,
        /// The most similar known name, if one is similar.
        nearest: Option<String>,
        /// All known names.
        known: String,
    },
    /// The provider is known, and this build has no client for its format.
    #[error(
        "llm.provider: this build of Belay has no client for `{name}` (feature more-providers); remove the setting, or \
         use a build with it: `belay --version --long` lists the parts"
    )]
    AbsentProvider {
        /// The provider.
        name: String,
    },
    /// The provider needs a key, and none is configured.
    #[error("the model provider `{provider}` needs a key: {hint}")]
    MissingKey {
        /// The provider.
        provider: String,
        /// How to configure one.
        hint: String,
    },
    /// The key contains characters that cannot be sent.
    #[error("the key for the model provider cannot be sent in an HTTP header; does it contain a line break?")]
    BadKey,
    /// The provider has no default model.
    #[error("llm.model: name the model to use with the provider `{provider}`")]
    MissingModel {
        /// The provider.
        provider: String,
    },
    /// `llm.base_url` is not the address of a server.
    #[error("llm.base_url: `{url}` is not an http or https address: {reason}")]
    BadUrl {
        /// The address given.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The HTTP client cannot be made, for instance because no root certificates were found.
    #[error("the HTTP client for the model provider cannot be made")]
    Client(#[source] reqwest::Error),
    /// The client of the library for other formats cannot be made.
    #[error("the client for the model provider cannot be made: {0}")]
    Library(String),
}
