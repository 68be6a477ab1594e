//! The sampling fields of a chat request. They are passed on within the operator's bounds, or refused by name. The
//! penalties are ignored: no interface but OpenAI's has them, and front ends send them with each request.

use belay_protocol::Sampling;
use belay_protocol::options::STOP_TEXTS_MAX;
use serde::Deserialize;
use serde_json::Value;

use super::error::OpenAiError;

/// Longest stop sequence, in bytes.
const STOP_TEXT_MAX_BYTES: usize = 200;

/// The values of `stop`.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema matters")]
enum StopTexts {
    One(String),
    Some(Vec<String>),
}

/// The fields, as a client sends them.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SamplingFields {
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    max_tokens: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    max_completion_tokens: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    temperature: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    top_p: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<i64>"))]
    seed: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<StopTexts>"))]
    stop: Option<Value>,
    // Known but not supported.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Map<String, Value>>"))]
    logit_bias: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<bool>"))]
    logprobs: Option<Value>,
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    top_logprobs: Option<Value>,
}

impl SamplingFields {
    /// The requested sampling; `None`: the request has none.
    ///
    /// # Errors
    /// The name of a field whose value is out of range, or that is not supported.
    pub(super) fn read(&self) -> Result<Option<Sampling>, OpenAiError> {
        self.refuse_unsupported()?;
        let max_tokens = match (said(&self.max_completion_tokens), said(&self.max_tokens)) {
            (Some(value), _) => count("max_completion_tokens", value)?,
            (None, Some(value)) => count("max_tokens", value)?,
            (None, None) => None,
        };
        let sampling = Sampling {
            max_tokens,
            temperature_milli: said(&self.temperature).map(|value| milli("temperature", value, 2.0)).transpose()?,
            top_p_milli: said(&self.top_p).map(|value| milli("top_p", value, 1.0)).transpose()?,
            seed: said(&self.seed).map(seed).transpose()?,
            stop: said(&self.stop).map(stop).transpose()?.unwrap_or_default(),
        };
        Ok((sampling != Sampling::default()).then_some(sampling))
    }

    /// Refuses fields that would change the answer and cannot be passed on. A neutral value is accepted.
    fn refuse_unsupported(&self) -> Result<(), OpenAiError> {
        let neutral = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        for (param, value) in
            [("logit_bias", &self.logit_bias), ("logprobs", &self.logprobs), ("top_logprobs", &self.top_logprobs)]
        {
            if value.as_ref().is_some_and(|value| !neutral(value)) {
                let message = format!("{param} is not supported; leave it out");
                return Err(OpenAiError::invalid(param, "unsupported_parameter", message));
            }
        }
        Ok(())
    }
}

fn said(value: &Option<Value>) -> Option<&Value> {
    value.as_ref().filter(|value| !value.is_null())
}

fn invalid(param: &'static str, must_be: impl Into<String>) -> OpenAiError {
    OpenAiError::invalid(param, "invalid_value", format!("{param} must be {}", must_be.into()))
}

/// A limit of tokens; `None`: 0 or a negative number, by which some clients mean "no limit".
fn count(param: &'static str, value: &Value) -> Result<Option<u32>, OpenAiError> {
    match value.as_i64() {
        Some(..=0) => Ok(None),
        // A larger value acts like no bound: the operator's own bound applies.
        Some(count) => Ok(Some(u32::try_from(count).unwrap_or(u32::MAX))),
        None => Err(invalid(param, "a whole number")),
    }
}

fn milli(param: &'static str, value: &Value, max: f64) -> Result<u16, OpenAiError> {
    let number = value.as_f64().filter(|number| (0.0..=max).contains(number));
    let number = number.ok_or_else(|| invalid(param, format!("a number from 0 to {max}")))?;
    // Within the range of `u16`: at most 2000.
    Ok((number * 1000.0).round() as u16)
}

fn seed(value: &Value) -> Result<i64, OpenAiError> {
    value.as_i64().ok_or_else(|| invalid("seed", "a whole number"))
}

fn stop(value: &Value) -> Result<Vec<String>, OpenAiError> {
    let texts = match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(texts) => texts.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let fits = |texts: &Vec<String>| {
        texts.len() <= STOP_TEXTS_MAX && texts.iter().all(|text| (1..=STOP_TEXT_MAX_BYTES).contains(&text.len()))
    };
    let must_be = format!("a text or at most {STOP_TEXTS_MAX} texts, of 1 to {STOP_TEXT_MAX_BYTES} bytes each");
    texts.filter(fits).ok_or_else(|| invalid("stop", must_be))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_client_asks_for_is_passed_on_within_bounds_or_refused_by_name() {
        let nothing = Sampling::default();
        for (body, expected) in [
            (json!({}), Ok(None)),
            (json!({"temperature": null, "logprobs": false, "frequency_penalty": 0, "logit_bias": {}}), Ok(None)),
            (json!({"max_tokens": 7}), Ok(Some(Sampling { max_tokens: Some(7), ..nothing.clone() }))),
            (
                json!({"max_tokens": 7, "max_completion_tokens": 9}),
                Ok(Some(Sampling { max_tokens: Some(9), ..nothing.clone() })),
            ),
            (
                json!({"temperature": 0.25, "top_p": 1, "seed": -3, "stop": "END"}),
                Ok(Some(Sampling {
                    temperature_milli: Some(250),
                    top_p_milli: Some(1000),
                    seed: Some(-3),
                    stop: vec!["END".into()],
                    ..nothing.clone()
                })),
            ),
            (json!({"stop": ["a", "b"]}), Ok(Some(Sampling { stop: vec!["a".into(), "b".into()], ..nothing }))),
            (json!({"max_tokens": 0}), Ok(None)),
            (json!({"max_completion_tokens": -1}), Ok(None)),
            (json!({"max_completion_tokens": 1.5}), Err("max_completion_tokens")),
            (json!({"temperature": 2.01}), Err("temperature")),
            (json!({"temperature": "hot"}), Err("temperature")),
            (json!({"top_p": -0.1}), Err("top_p")),
            (json!({"seed": "x"}), Err("seed")),
            (json!({"stop": ["a", "b", "c", "d", "e"]}), Err("stop")),
            (json!({"stop": [""]}), Err("stop")),
            (json!({"presence_penalty": 0.5, "frequency_penalty": 1}), Ok(None)),
            (json!({"logprobs": true}), Err("logprobs")),
        ] {
            let fields: SamplingFields = serde_json::from_value(body.clone()).expect("any JSON is read");
            let read = fields.read().map_err(|error| error.body()["error"]["param"].clone());
            assert_eq!(read, expected.map_err(Into::into), "{body}");
        }
    }
}
