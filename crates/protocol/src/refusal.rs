//! The error of a model provider, for the record and for the operator.

/// The provider's own error for a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRefusal {
    /// The kind of error, derived from status and message.
    pub fault: ProviderFault,
    /// The HTTP status; `None`: the error came inside a successful response.
    pub status: Option<u16>,
    /// The provider's code or type of the error, such as `invalid_api_key`; empty if there is none.
    pub code: String,
    /// The message, on one line of at most 500 characters, without secrets and invisible characters.
    pub message: String,
    /// The source of the API key: an environment variable or a setting; empty if it is not known.
    pub key_from: String,
}

/// The kind of a provider's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderFault {
    /// The API key is missing, wrong, or not authorised.
    Key,
    /// The quota, credit or balance is used up. Waiting does not help.
    Quota,
    /// The provider does not know the model's name.
    UnknownModel,
    /// Too many requests.
    RateLimit,
    /// The provider is overloaded.
    Overloaded,
    /// The provider has an internal error.
    Server,
    /// The context is too long.
    ContextTooLong,
    /// The provider rejects the request for another reason.
    Request,
}

impl ProviderFault {
    /// The name in the evidence of a stop reason.
    pub fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Quota => "quota",
            Self::UnknownModel => "unknown_model",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Server => "server",
            Self::ContextTooLong => "context_too_long",
            Self::Request => "request",
        }
    }
}

impl ProviderFault {
    /// The description for a log line.
    pub(crate) fn log_words(self) -> &'static str {
        match self {
            Self::Key => "the model provider rejects the API key",
            Self::Quota => "the model provider's quota or credit is used up",
            Self::UnknownModel => "the model provider does not know the model",
            Self::RateLimit => "the model provider limits our rate",
            Self::Overloaded => "the model provider is overloaded",
            Self::Server => "the model provider reports an internal error",
            Self::ContextTooLong => "the conversation is longer than the model takes",
            Self::Request => "the model provider refuses the request",
        }
    }
}

impl ProviderRefusal {
    /// The line for an operator: the error with status and code, the remedy, and the provider's message.
    pub fn line(&self) -> String {
        let key = match self.key_from.as_str() {
            "" => "the API key in [llm]",
            name => name,
        };
        let (what, advice) = match self.fault {
            ProviderFault::Key => ("The provider rejected the API key", format!("Check {key}.")),
            ProviderFault::Quota => {
                ("The provider's quota or credit for this API key is used up", format!("Check the account of {key}."))
            }
            ProviderFault::UnknownModel => (
                "The provider does not know this model",
                "Check llm.model; /model lists the configured ones, and `belay check` checks them.".into(),
            ),
            ProviderFault::RateLimit => ("The provider limits the rate of requests", "Try again later.".into()),
            ProviderFault::Overloaded => ("The provider is overloaded", "Try again later.".into()),
            ProviderFault::Server => {
                ("The provider reports an internal error", "Try again later; if it stays, ask the provider.".into())
            }
            ProviderFault::ContextTooLong => (
                "The conversation is too long for the model",
                "Start a new one with /new, or check llm.context_tokens.".into(),
            ),
            ProviderFault::Request => {
                ("The provider refused the request", "Check llm.base_url, llm.model and llm.extra_body.".into())
            }
        };
        let status = self.status.map(|status| status.to_string());
        let code = Some(self.code.clone()).filter(|code| !code.is_empty());
        let facts = [status, code].into_iter().flatten().collect::<Vec<_>>().join(": ");
        let facts = if facts.is_empty() { facts } else { format!(" ({facts})") };
        let said = match self.message.as_str() {
            "" => String::new(),
            message => format!(" The provider said: {message}"),
        };
        format!("{what}{facts}. {advice}{said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_happened_why_and_what_to_do() {
        for (fault, status, code, message, key_from, line) in [
            (
                ProviderFault::Key,
                Some(401),
                "invalid_api_key",
                "",
                "OPENAI_API_KEY",
                "The provider rejected the API key (401: invalid_api_key). Check OPENAI_API_KEY.",
            ),
            (
                ProviderFault::Server,
                Some(500),
                "",
                "boom",
                "",
                "The provider reports an internal error (500). Try again later; if it stays, ask the provider. The provider \
                 said: boom",
            ),
            (
                ProviderFault::Quota,
                None,
                "insufficient_quota",
                "no credit",
                "",
                "The provider's quota or credit for this API key is used up (insufficient_quota). Check the account of the \
                 API key in [llm]. The provider said: no credit",
            ),
        ] {
            let refusal = ProviderRefusal {
                fault,
                status,
                code: code.into(),
                message: message.into(),
                key_from: key_from.into(),
            };
            assert_eq!(refusal.line(), line);
        }
    }
}
