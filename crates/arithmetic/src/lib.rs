//! Values of arithmetic expressions, exact where possible, and marked where they had to be rounded.
//!
//! The grammar is our own. The libraries that we compared read `-2^2` as 4 and `2^3^2` as 64, compute `0.1+0.2` as
//! 0.30000000000000004, and return infinity for 1/0. A model would trust such results.
//!
//! **Does not know**: tools, models, or who asks. It is pure, with bounded work.

mod functions;
mod number;
mod parser;
#[cfg(test)]
mod tests;

/// Longest expression, in bytes. Together with [`parser::MAX_DEPTH`] and the limit of exact numbers, it keeps the worst
/// case under 0.1 s and limits the depth of the stack.
const MAX_EXPRESSION_BYTES: usize = 1000;

/// Returns the value of an expression as text; one that had to be rounded begins with ≈.
///
/// # Errors
/// A sentence for the model: the problem and its position.
pub fn evaluate(expression: &str) -> Result<String, String> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(format!(
            "The expression has {} bytes; at most {MAX_EXPRESSION_BYTES} are calculated. Split it.",
            expression.len()
        ));
    }
    parser::evaluate(expression).map(|value| value.to_string())
}
