//! `calculate`: arithmetic with exact results where possible, and marked results where it had to round
//! ([`belay_arithmetic`]).

use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments;

const DESCRIPTION: &str = "Calculates exactly: + - * / ^ % n! pi e tau, sqrt, round(x, digits), gcd, log(x, base), sin \
    (radians) and more. ≈ means rounded.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Such as `(17*23 + 4) / 5`.
    expression: String,
}

/// The tool `calculate`.
pub(crate) struct Calculate {
    spec: ToolSpec,
}

impl Calculate {
    pub(crate) fn new() -> Self {
        let spec = arguments::spec::<Arguments>("calculate", DESCRIPTION, Effect::None, Duration::from_secs(5));
        Self { spec: ToolSpec { deferred: true, ..spec } }
    }
}

#[async_trait]
impl Tool for Calculate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        let Arguments { expression } = arguments::read(arguments)?;
        belay_arithmetic::evaluate(&expression).map(Into::into).map_err(ToolFailure::Failed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{call, failure};

    #[tokio::test]
    async fn the_tool_answers_and_refuses() {
        let tool = Calculate::new();
        assert_eq!(call(&tool, json!({"expression": "17*23"})).await, Ok("391".to_owned()));
        for arguments in [json!({}), json!({"expression": 1}), json!({"expression": "1", "x": 1})] {
            assert!(failure(call(&tool, arguments).await).contains("do not match"));
        }
    }
}
