//! Schemas of types whose JSON form differs from their Rust form. Only with the feature `schema`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::attachment::BlobDigest;
use crate::run::AgentState;
use crate::run_status::RunStatus;
use crate::time::UnixMillis;

/// A UUID as text.
pub(crate) struct UuidText;

impl JsonSchema for UuidText {
    fn schema_name() -> Cow<'static, str> {
        "Uuid".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
}

/// The two fields that a status is written as.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "only its schema matters")]
pub(crate) struct StatusFields {
    /// The status of the run.
    status: RunStatus,
    /// The same in the terms of agent frameworks.
    agent_state: AgentState,
}

impl JsonSchema for UnixMillis {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "examples": ["2026-11-20T19:43:00.123Z"] })
    }
}

impl JsonSchema for BlobDigest {
    fn schema_name() -> Cow<'static, str> {
        "Sha256".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}
