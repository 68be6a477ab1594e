//! `POST /v1/embeddings`: vectors of texts, by the server that the settings name for the search of notes by meaning.
//!
//! Source: the OpenAI API reference, "Create embeddings". Unused fields are ignored.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_protocol::{Ack, Control, Embedder, FreezeRequest, Principal};
use serde_json::Value;
use tokio::time::timeout;

use super::OUR_NAME;
use super::embedding_forms::{Embedding, Embeddings, EmbeddingsRequest, EmbeddingsUsage, Vector};
use super::error::OpenAiError;
use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody};
use crate::foreign::shown;
use crate::slots::EMBEDDING_MAX;

/// Most texts of a request. Source: the API reference.
const TEXTS_MAX: usize = 2048;

/// Texts of one request to the server: its answer is bounded.
const BATCH: usize = 64;

/// Most numbers of an answer. 4 Mi: 2048 vectors of 2048 dimensions take 16 MiB, and about 45 as JSON.
const NUMBERS_MAX: usize = 4 << 20;

/// Longest time for all batches of a request.
const LIMIT: Duration = Duration::from_secs(120);

/// Makes vectors of texts.
pub(crate) async fn embeddings(
    State(app): State<Shared>,
    Caller(principal): Caller,
    body: Result<JsonBody<EmbeddingsRequest>, ApiError>,
) -> Result<Json<Embeddings>, OpenAiError> {
    let Some(embedder) = app.models.embedder.clone() else {
        let message = "/v1/embeddings: Belay serves no embeddings here, since memory.embeddings.base_url names no \
                       server for them";
        return Err(OpenAiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message));
    };
    let _slot = app.slots.embedding.try_acquire().map_err(|_taken| {
        let message =
            format!("{EMBEDDING_MAX} requests for embeddings are being answered, as many as are at once; try again");
        ApiError::too_many(message)
    })?;
    let JsonBody(EmbeddingsRequest { model, input, encoding_format, dimensions }) = body?;
    let model = named(model, embedder.model())?;
    let texts = texts(input)?;
    let in_base64 = in_base64(encoding_format.as_ref())?;
    let tokens = texts.iter().map(|text| text.len().div_ceil(4) as u64).sum();
    let made = vectors(&app, &principal, &*embedder, texts, dimensions.filter(|wanted| !wanted.is_null()));
    let late = |_| {
        let message = format!("the server for embeddings took longer than {} s for all texts", LIMIT.as_secs());
        OpenAiError::new(StatusCode::BAD_GATEWAY, "server_error", "provider_error", message)
    };
    let vectors = timeout(LIMIT, made).await.map_err(late)??;
    let data = vectors.into_iter().enumerate().map(|(index, vector)| Embedding {
        object: "embedding",
        index,
        embedding: if in_base64 { Vector::Base64(base64_of(&vector)) } else { Vector::Numbers(vector) },
    });
    let usage = EmbeddingsUsage { prompt_tokens: tokens, total_tokens: tokens };
    Ok(Json(Embeddings { object: "list", data: data.collect(), model, usage }))
}

/// The name of the model for the answer. `known`: that of the server, perhaps with `/DIMENSIONS`.
fn named(model: Option<String>, known: &str) -> Result<String, OpenAiError> {
    let plain = known.rsplit_once('/').filter(|(_, end)| end.parse::<u32>().is_ok()).map_or(known, |(name, _)| name);
    match model {
        None => Ok(plain.to_owned()),
        Some(name) if [OUR_NAME, known, plain].contains(&&*name) => Ok(name),
        Some(name) => {
            let message = format!("the model \"{}\" makes no embeddings here; \"{plain}\" does", shown(&name));
            Err(OpenAiError::new(StatusCode::NOT_FOUND, "invalid_request_error", "model_not_found", message)
                .about("model"))
        }
    }
}

fn texts(input: Option<Value>) -> Result<Vec<String>, OpenAiError> {
    let invalid = |message: String| OpenAiError::invalid("input", "invalid_value", message);
    let list = match input {
        Some(Value::String(text)) => vec![Value::String(text)],
        Some(Value::Array(list)) if (1..=TEXTS_MAX).contains(&list.len()) => list,
        _ => return Err(invalid(format!("must be a text, or a list of 1 to {TEXTS_MAX} texts"))),
    };
    let text = |value: Value| match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::String(_) => Err(invalid("a text must not be empty".to_owned())),
        _ => Err(invalid(
            "tokens are not supported; send texts (check_embedding_ctx_length=False in LangChain)".to_owned(),
        )),
    };
    list.into_iter().map(text).collect()
}

fn in_base64(format: Option<&Value>) -> Result<bool, OpenAiError> {
    match format.map(|format| format.as_str()) {
        None | Some(Some("float")) => Ok(false),
        Some(Some("base64")) => Ok(true),
        Some(None) if format.is_some_and(Value::is_null) => Ok(false),
        _ => Err(OpenAiError::invalid("encoding_format", "invalid_value", "must be float or base64")),
    }
}

/// One vector for each text. A freeze of the work of the principal ends it before the next batch.
async fn vectors(
    app: &App,
    principal: &Principal,
    embedder: &dyn Embedder,
    texts: Vec<String>,
    dimensions: Option<Value>,
) -> Result<Vec<Vec<f32>>, OpenAiError> {
    let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
    for batch in texts.chunks(BATCH) {
        refuse_while_frozen(app, principal).await?;
        let made = embedder.embed(batch.to_vec()).await.map_err(|error| {
            let message = format!("the server for embeddings: {}", shown(&error.0));
            OpenAiError::new(StatusCode::BAD_GATEWAY, "server_error", "provider_error", message)
        })?;
        let length = made.first().map_or(0, Vec::len);
        if dimensions.as_ref().is_some_and(|wanted| wanted.as_u64() != Some(length as u64)) {
            let message = format!("the vectors of the configured model have {length} dimensions");
            return Err(OpenAiError::invalid("dimensions", "invalid_value", message));
        }
        if length * texts.len() > NUMBERS_MAX {
            let message = format!("at most {} texts of {length} dimensions are accepted", NUMBERS_MAX / length);
            return Err(OpenAiError::invalid("input", "invalid_value", message));
        }
        vectors.extend(made);
    }
    Ok(vectors)
}

/// # Errors
/// 503 `frozen`: an operator has frozen the work of the principal; or the agent does not answer.
async fn refuse_while_frozen(app: &App, principal: &Principal) -> Result<(), ApiError> {
    match app.control(principal.clone(), Control::Freeze(FreezeRequest::Check)).await? {
        Ack::Freezes(_) => Ok(()),
        other => Err(ApiError::unexpected(&other)),
    }
}

fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}
