//! The judge: when to ask a model whether the work goes in circles, what to ask, and how to read its answer.

/// The wire name of this kind of loop.
pub const LLM_DETECTED_LOOP: &str = "LLM_DETECTED_LOOP";
