//! Errors in the form of this API: `{"type":"error","error":{"type","message","details"},"request_id"}`.
//!
//! Source: Anthropic's API reference, "Errors"; `details.error_code` as the package `anthropic` reads it.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::models::VERSION_HEADER;
use crate::error::ApiError;
use crate::event_json::one_line;
use crate::routes::openai::OpenAiError;

/// The id of a request, in the answer. Clients of this API show it with an error.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The id of a request, as all of Belay has it.
const OUR_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The path of the API.
const PATH: &str = "/v1/messages";

/// An error of this API.
#[derive(Clone, Debug)]
pub(crate) struct AnthropicError(OpenAiError);

/// The body of an error.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AnthropicErrorBody {
    #[serde(rename = "type")]
    #[cfg_attr(test, schemars(extend("enum" = ["error"])))]
    form: &'static str,
    error: AnthropicErrorFields,
    /// The id of the header `request-id`; absent in a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AnthropicError"))]
struct AnthropicErrorFields {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Begins with the field that is wrong.
    message: String,
    details: Details,
}

#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AnthropicErrorDetails"))]
struct Details {
    /// The code of the error in the other APIs of Belay.
    error_code: &'static str,
}

impl AnthropicError {
    /// Whether errors of this path have this form.
    pub(crate) fn is_for(path: &str) -> bool {
        path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn kind(&self) -> &'static str {
        let (code, _) = self.0.parts();
        match (self.0.status, self.0.kind) {
            (StatusCode::UNAUTHORIZED, _) => "authentication_error",
            (StatusCode::PAYMENT_REQUIRED, _) => "billing_error",
            (StatusCode::FORBIDDEN, _) => "permission_error",
            (StatusCode::NOT_FOUND, _) => "not_found_error",
            (StatusCode::CONFLICT, _) => "conflict_error",
            (StatusCode::PAYLOAD_TOO_LARGE, _) => "request_too_large",
            (StatusCode::TOO_MANY_REQUESTS, _) | (_, "rate_limit_error") => "rate_limit_error",
            (_, "server_error") if matches!(code, "overloaded" | "busy") => "overloaded_error",
            (_, "server_error") => "api_error",
            _ => "invalid_request_error",
        }
    }

    fn body(&self) -> AnthropicErrorBody {
        let (error_code, message) = self.0.parts();
        // The API writes `messages.0.content`.
        let param = self.0.param.as_deref().map(|param| param.replace('[', ".").replace(']', ""));
        let message = match (param, self.0.param.as_deref()) {
            (Some(ours), Some(param)) => {
                let rest = message.strip_prefix(param).map_or(message, |rest| rest.trim_start_matches([':', ' ']));
                format!("{ours}: {rest}")
            }
            _ => message.to_owned(),
        };
        let error = AnthropicErrorFields { kind: self.kind(), message, details: Details { error_code } };
        AnthropicErrorBody { form: "error", error, request_id: None }
    }

    /// The data of the event that ends a stream.
    pub(super) fn data(&self) -> String {
        one_line(serde_json::to_string(&self.body()).unwrap_or_default()) // its fields are texts
    }
}

impl From<OpenAiError> for AnthropicError {
    fn from(error: OpenAiError) -> Self {
        Self(error)
    }
}

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for AnthropicError {
    /// The status, and when to try again, are those of the other faces. [`identified`] adds the id of the request.
    fn into_response(self) -> Response {
        let body = self.body();
        let mut response = self.0.into_response();
        *response.body_mut() = Body::from(serde_json::to_string(&body).unwrap_or_default());
        response.extensions_mut().insert(body);
        response
    }
}

/// Puts the id of the request into the answer, where clients of this API look for it.
pub(crate) async fn identified(request: Request, next: Next) -> Response {
    if !AnthropicError::is_for(request.uri().path()) && !request.headers().contains_key(VERSION_HEADER) {
        return next.run(request).await;
    }
    let id: Option<HeaderValue> = request.headers().get(OUR_REQUEST_ID).cloned();
    let mut response = next.run(request).await;
    let Some(id) = id else { return response };
    if let (Some(body), Ok(text)) = (response.extensions_mut().remove::<AnthropicErrorBody>(), id.to_str()) {
        let body = AnthropicErrorBody { request_id: Some(text.to_owned()), ..body };
        *response.body_mut() = Body::from(serde_json::to_string(&body).unwrap_or_default());
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}
