//! `calculate`: arithmetic with exact results where possible, and marked results where it had to round
//! ([`belay_arithmetic`]).

use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments;

const DESCRIPTION: &str = "Calculates an arithmetic expression. Knows + - * / ^ and % (remainder, with the sign of the \
    divisor), n! and parentheses; the constants pi, e and tau; the functions sqrt, cbrt, abs, floor, ceil, trunc, round(x, digits), \
    min, max, gcd, lcm, pow, exp, ln, log(x, base), log2, log10 and, in radians, sin, cos, tan, asin, acos, atan, atan2. \
    Whole numbers, fractions and decimals are exact; a result that had to be rounded begins with ≈.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The expression, such as `(17*23 + 4) / 5` or `sqrt(2)^3`. At most 1000 bytes.
    expression: String,
}

/// The tool `calculate`.
pub(crate) struct Calculate {
    spec: ToolSpec,
}

impl Calculate {
    pub(crate) fn new() -> Self {
        Self { spec: arguments::spec::<Arguments>("calculate", DESCRIPTION, Effect::None, Duration::from_secs(5)) }
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
