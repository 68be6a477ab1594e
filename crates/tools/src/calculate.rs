//! `calculate`: arithmetic with exact results where possible, and marked results where it had to round.
//!
//! The grammar is our own. The libraries that we compared read `-2^2` as 4 and `2^3^2` as 64, compute `0.1+0.2` as
//! 0.30000000000000004, and return infinity for 1/0. A model would trust such results.

mod functions;
mod number;
mod parser;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments;

/// Longest expression, in bytes. Together with [`parser::MAX_DEPTH`] and the limit of exact numbers, it keeps the worst
/// case under 0.1 s and limits the depth of the stack.
const MAX_EXPRESSION_BYTES: usize = 1000;

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
        evaluate(&expression).map(Into::into).map_err(ToolFailure::Failed)
    }
}

/// Returns the value of an expression as text, or a description of the error. Pure, with bounded work.
fn evaluate(expression: &str) -> Result<String, String> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(format!(
            "The expression has {} bytes; at most {MAX_EXPRESSION_BYTES} are calculated. Split it.",
            expression.len()
        ));
    }
    parser::evaluate(expression).map(|value| value.to_string())
}
