//! `/api/v1/freeze` and `/api/v1/thaw`: stopping all work or a part of it until the thaw.

use axum::Json;
use axum::extract::State;
use belay_protocol::{Ack, ChannelId, Control, Freeze, FreezeRequest, FreezeScope, Principal};
use serde::{Deserialize, Serialize};

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::extract::{Operator, OptionalBody, Params};

/// Longest reason, in characters.
const DETAIL_MAX_CHARS: usize = 500;

/// Longest name of a person, a channel or a routine, in bytes.
const NAME_MAX_BYTES: usize = 256;

/// Freezes: those in force, and perhaps those that have ended.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FreezeList {
    freezes: Vec<Freeze>,
}

/// What to freeze or to thaw. Without a part: everything.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "FreezePart"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// `ID` or `CHANNEL:ID`.
    person: Option<String>,
    channel: Option<String>,
    routine: Option<String>,
    /// The reason of a freeze.
    detail: Option<String>,
}

impl Part {
    /// The field that names the part.
    fn named(&self) -> &'static str {
        match self {
            Self { person: Some(_), .. } => "person",
            Self { channel: Some(_), .. } => "channel",
            _ => "routine",
        }
    }

    fn scope(&self) -> Result<FreezeScope, ApiError> {
        let named = [("person", &self.person), ("channel", &self.channel), ("routine", &self.routine)];
        for (field, name) in named.iter().filter_map(|(field, name)| Some((field, name.as_ref()?))) {
            if name.trim().is_empty() || name.len() > NAME_MAX_BYTES {
                return Err(ApiError::invalid(format!("{field}: 1 to {NAME_MAX_BYTES} bytes")));
            }
        }
        match (&self.person, &self.channel, &self.routine) {
            (None, None, None) => Ok(FreezeScope::All),
            (Some(person), None, None) => Ok(FreezeScope::person(person)),
            (None, Some(channel), None) => Ok(FreezeScope::Channel { channel: ChannelId::new(channel) }),
            (None, None, Some(name)) => Ok(FreezeScope::Routine { name: name.clone() }),
            _ => {
                let last = if self.routine.is_some() { "routine" } else { "channel" };
                Err(ApiError::invalid(format!("{last}: give one of person, channel and routine, or none of them")))
            }
        }
    }
}

/// The query of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct FreezeParams {
    /// Also the freezes that have ended: the last 100, the newest first.
    #[serde(default)]
    all: bool,
}

/// Lists the freezes in force, or also those that have ended.
pub(crate) async fn show(
    State(app): State<Shared>,
    Operator(by): Operator,
    Params(FreezeParams { all }): Params<FreezeParams>,
) -> Result<Json<FreezeList>, ApiError> {
    ask_agent(&app, by, if all { FreezeRequest::ListAll } else { FreezeRequest::List }).await
}

/// Freezes. Answered when the freeze is durable and the runs have ended, or after 100 ms.
pub(crate) async fn begin(
    State(app): State<Shared>,
    Operator(by): Operator,
    OptionalBody(part): OptionalBody<Part>,
) -> Result<Json<FreezeList>, ApiError> {
    let scope = part.scope()?;
    let field = part.named();
    if part.detail.as_ref().is_some_and(|detail| detail.chars().count() > DETAIL_MAX_CHARS) {
        return Err(ApiError::invalid(format!("detail: at most {DETAIL_MAX_CHARS} characters")));
    }
    let frozen = ask_agent(&app, by, FreezeRequest::Freeze { scope, detail: part.detail }).await;
    frozen.map_err(|error| error.about(field))
}

/// Ends a freeze.
pub(crate) async fn thaw(
    State(app): State<Shared>,
    Operator(by): Operator,
    OptionalBody(part): OptionalBody<Part>,
) -> Result<Json<FreezeList>, ApiError> {
    if part.detail.is_some() {
        return Err(ApiError::invalid("detail: belongs to a freeze"));
    }
    ask_agent(&app, by, FreezeRequest::Thaw(part.scope()?)).await
}

async fn ask_agent(app: &App, by: Principal, request: FreezeRequest) -> Result<Json<FreezeList>, ApiError> {
    match app.control(by, Control::Freeze(request)).await? {
        Ack::Freezes(freezes) => Ok(Json(FreezeList { freezes })),
        other => Err(ApiError::unexpected(&other)),
    }
}
