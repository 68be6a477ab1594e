//! Parses `llm.base_url`.

use url::Url;

use crate::error::ModelsError;

/// Parses `llm.base_url`. A trailing slash is removed. An address without a path gets `/v1`, because people who give
/// only host and port mean that.
///
/// # Errors
/// [`ModelsError::BadUrl`].
pub(crate) fn parse_base_url(text: &str) -> Result<Url, ModelsError> {
    // The faulty part may be secret, so the address is quoted without its user and its query.
    let shown = text.rsplit('@').next().and_then(|rest| rest.split(['?', '#']).next()).unwrap_or_default();
    let bad = |reason: &str| ModelsError::BadUrl { url: shown.to_owned(), reason: reason.to_owned() };
    let mut url = Url::parse(text.trim()).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("it must not hold a key or password; use llm.api_key_env"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(bad("it must not have a query or a fragment"));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(if path.is_empty() { "/v1" } else { &path });
    Ok(url)
}
