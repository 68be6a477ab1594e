//! Sends requests with the token of a login.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::mcp::oauth::{Login, LoginTrouble, lacks_scope};

type Failure = StreamableHttpError<reqwest::Error>;

/// Sends a request with the token of a login. If the server refuses the token, it did not carry the request out: the request
/// is sent once more, with a newer token.
///
/// # Cancel safety
/// If the future is dropped, the request may have been carried out. A renewal that has begun goes on.
pub(super) async fn with_login<'a, T>(
    login: &Arc<Login>,
    send: impl Fn(Option<String>) -> BoxFuture<'a, Result<T, Failure>>,
) -> Result<T, Failure> {
    let used = login.token().await.map_err(failure)?;
    let refused = match send(used.as_ref().map(|token| token.expose().to_owned())).await {
        Err(error) => refusal(&error).ok_or(error)?,
        Ok(sent) => {
            if used.is_some() {
                login.worked();
            }
            return Ok(sent);
        }
    };
    let token = login.refused(used, &refused).await.map_err(failure)?;
    match send(Some(token.expose().to_owned())).await {
        Err(error) => match refusal(&error) {
            Some(header) => Err(failure(login.refused_again(&header))),
            None => Err(error),
        },
        Ok(sent) => {
            login.worked();
            Ok(sent)
        }
    }
}

/// The header with which the server refuses the token, or asks for one; empty: it has none.
fn refusal(error: &Failure) -> Option<String> {
    match error {
        StreamableHttpError::AuthRequired(asked) => Some(asked.www_authenticate_header.clone()),
        // With 403, only a lack of rights is about the token.
        StreamableHttpError::InsufficientScope(asked) => {
            let header = &asked.www_authenticate_header;
            lacks_scope(header).then(|| header.clone())
        }
        StreamableHttpError::UnexpectedServerResponse(words) => words.starts_with("HTTP 401").then(String::new),
        _ => None,
    }
}

/// The trouble, in the type of the SDK. It is unwrapped by [`crate::mcp::troubles`].
fn failure(trouble: LoginTrouble) -> Failure {
    StreamableHttpError::Io(io::Error::other(trouble))
}
