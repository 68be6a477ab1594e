//! The HTTP client of the SDK, with the refusals of servers that do not know a session any more.
//!
//! The specification has 404 for them, which the SDK recognises. Other servers answer 400, with an error that has no id:
//! the SDK drops such an error, and the request waits for its time limit. Here an error without an id belongs to the
//! request to which it is the answer. The words of an error count with these two statuses only: with another one the
//! request may have run, and a tool may speak of sessions of its own.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcError, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::mcp::http_echo::Echo;
use crate::mcp::http_listing::{list, loses_parts, readable_event};
use crate::mcp::http_login::with_login;
use crate::mcp::http_request::{Answer, prepared, send};
use crate::mcp::oauth::Login;
use crate::mcp::wire::MAX_LINE;

type Headers = HashMap<HeaderName, HeaderValue>;
type Failure = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The client.
#[derive(Clone, Debug)]
pub(super) struct SessionClient {
    pub(super) http: reqwest::Client,
    pub(super) login: Option<Arc<Login>>,
}

impl StreamableHttpClient for SessionClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, MAX_LINE).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let Some(login) = &self.login else { return self.post(uri, message, session, token, headers, most).await };
        let post = |token| {
            let (message, headers) = (message.clone(), headers.clone());
            self.post(uri.clone(), message, session.clone(), token, headers, most).boxed()
        };
        with_login(login, post).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        let delete = |token: Option<String>| {
            let echo = self.echo(token.as_deref());
            let deleted = self.http.delete_session(uri.clone(), session.clone(), token, headers.clone());
            deleted.map(move |deleted| deleted.map_err(|failure| echo.failure(failure))).boxed()
        };
        let Some(login) = &self.login else { return delete(token).await };
        with_login(login, delete).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        self.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, MAX_LINE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<Events, Failure> {
        let get = |token: Option<String>| {
            let (uri, session, last_event) = (uri.clone(), session.clone(), last_event.clone());
            let echo = self.echo(token.as_deref());
            let opened =
                self.http.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers.clone(), most);
            let opened = opened.map(move |opened| match opened {
                Ok(events) => Ok(echo.events(events.map(|event| event.map(readable_event)).boxed())),
                Err(failure) => Err(echo.failure(failure)),
            });
            opened.boxed()
        };
        let Some(login) = &self.login else { return get(token).await };
        with_login(login, get).await
    }
}

impl SessionClient {
    fn echo(&self, token: Option<&str>) -> Echo {
        Echo::new(token, self.login.as_ref())
    }

    /// Sends a message with this token.
    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let echo = self.echo(token.as_deref());
        echo.answer(self.answered(uri, message, session, token, headers, most).await)
    }

    async fn answered(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let id = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if loses_parts(&message) {
            let post = self.http.post(&*uri);
            let listed = list(post, &message, session.as_deref(), token.as_deref(), &headers, most).await;
            if let Some(answer) = listed {
                return Ok(answer);
            }
        }
        let posted = match &session {
            Some(session) if id.is_some() => {
                let request = prepared(self.http.post(&*uri), Some(&**session), token.as_deref(), &headers);
                taken(send(request, &message, most).await?, id.as_ref())?
            }
            _ => {
                match self.http.post_message_with_max_sse_event_size(uri, message, session, token, headers, most).await
                {
                    // A notification has no answer: the next request meets the same refusal.
                    Err(StreamableHttpError::SessionExpired) if id.is_none() => StreamableHttpPostResponse::Accepted,
                    posted => posted?,
                }
            }
        };
        Ok(match posted {
            StreamableHttpPostResponse::Sse(events, session) => {
                let events = events.map(|event| event.map(readable_event));
                StreamableHttpPostResponse::Sse(events.boxed(), session)
            }
            StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(mut error), session) => {
                error.id = id.or(error.id);
                StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)
            }
            other => other,
        })
    }
}

/// The answer to the request with this id, if the server does not say that it knows its session no more.
fn taken(answer: Answer, id: Option<&RequestId>) -> Result<StreamableHttpPostResponse, Failure> {
    match answer {
        Answer::Taken(answer) => Ok(*answer),
        Answer::Refused(_, Some(error)) if !refuses_session(&error, error.id.is_some() && error.id.as_ref() == id) => {
            Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), None))
        }
        Answer::Refused(words, None) if !speaks_of_lost_session(&words) => {
            Err(StreamableHttpError::UnexpectedServerResponse(words.into()))
        }
        Answer::Refused(..) => Err(StreamableHttpError::SessionExpired),
    }
}

/// Whether the error says that the server does not know the session, so that the request did not run. `ours`: it has the
/// id of the request, so that it may also be an error of the tool, whose words must be exactly those of a server.
fn refuses_session(error: &JsonRpcError, ours: bool) -> bool {
    let words = &*error.error.message;
    if !ours {
        return speaks_of_lost_session(words);
    }
    let words = words.rsplit(": ").next().unwrap_or_default().trim_end_matches('.').to_lowercase();
    [
        "session not found",
        "no valid session id provided",
        "no valid session id",
        "invalid session",
        "invalid session id",
        "invalid or expired session id",
        "invalid or missing session id",
        "unknown session",
        "session expired",
    ]
    .contains(&&*words)
}

/// Whether these words of a server, which refuses a request as a whole, say that it does not know the session. A server
/// that ends a session while a call runs says "terminated", which does not count: the call has run.
fn speaks_of_lost_session(words: &str) -> bool {
    let words = words.to_lowercase();
    let lost = ["not found", "no valid", "invalid", "missing", "unknown", "expired", "required", "does not exist"];
    (words.contains("session") && lost.iter().any(|word| words.contains(word)))
        || words.contains("server not initialized")
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ErrorCode, ErrorData};

    use super::*;

    #[test]
    fn lost_sessions_are_told_from_errors_of_tools_and_from_calls_that_ran() {
        for (words, foreign, ours) in [
            ("Session not found", true, true),
            ("Bad Request: No valid session ID provided", true, true),
            ("Bad Request: Server not initialized", true, false),
            ("Bad Request: Mcp-Session-Id header is required", true, false),
            ("Not Found: Invalid or expired session ID", true, true),
            ("Session not found: tab 7 of the browser", true, false),
            ("Session terminated before the request completed", false, false),
            ("Bad Request: Unsupported protocol version", false, false),
            ("user not found", false, false),
        ] {
            let error = ErrorData::new(ErrorCode::INVALID_REQUEST, words.to_owned(), None);
            let error = JsonRpcError::new(None, error);
            assert_eq!((refuses_session(&error, false), refuses_session(&error, true)), (foreign, ours), "{words}");
        }
    }
}
