//! One error of each server, as it was quoted, and errors that are none.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::failure::{from_error_body, from_status};

/// The server, the status, and the body. No two rows are recognised by the same wording.
const FULL: &[(&str, u16, &str)] = &[
    (
        "vLLM",
        400,
        r#"{"object":"error","message":"This model's maximum context length is 16384 tokens. However, you requested 122946 tokens.","type":"BadRequestError","code":400}"#,
    ),
    (
        "OpenAI",
        400,
        r#"{"error":{"message":"x","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
    ("Groq", 400, r#"{"error":{"message":"Please reduce the length of the messages or completion."}}"#),
    (
        "vLLM",
        400,
        r#"{"object":"error","message":"The decoder prompt (length 10127) is longer than the maximum model length of 8192.","code":400}"#,
    ),
    (
        "SGLang",
        400,
        r#"{"object":"error","message":"The input (61709 tokens) is longer than the model's context length (40960 tokens).","type":"BadRequestError","code":400}"#,
    ),
    (
        "Together",
        422,
        r#"{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 603 `inputs tokens and 1024 `max_new_tokens"}}"#,
    ),
    (
        "Anthropic",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
    ),
    (
        "Anthropic",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 86888 + 119866 > 204648"}}"#,
    ),
    (
        "Anthropic",
        413,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
    ),
    ("Bedrock", 400, r#"{"message":"Input is too long for requested model."}"#),
    (
        "Gemini",
        400,
        r#"[{"error":{"code":400,"message":"The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        "xAI",
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 136973 tokens."}"#,
    ),
    (
        "Kimi",
        400,
        r#"{"error":{"message":"Your request exceeded model token limit: 262144 (requested: 300000)","type":"invalid_request_error"}}"#,
    ),
    ("Moonshot", 400, r#"{"error":{"message":"model max length exceeded, max length:8192"}}"#),
    ("GLM", 400, r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#),
    ("GLM", 400, r#"{"code":"1261","message":"Prompt too long"}"#),
    ("GLM", 400, r#"{"error":{"code":"1210","message":"tokens in request more than max tokens allowed"}}"#),
    (
        "GLM",
        400,
        r#"{"error":{"message":"Input length 877338 exceeds the maximum allowed input length of 639968 tokens","code":"400"}}"#,
    ),
    (
        "GitHub Copilot",
        400,
        r#"{"error":{"message":"prompt token count of 130000 exceeds the limit of 128000","code":"x"}}"#,
    ),
    ("GitHub Copilot", 400, r#"{"error":{"message":"x","code":"model_max_prompt_tokens_exceeded"}}"#),
    (
        "Cohere",
        400,
        r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 6354."}"#,
    ),
    (
        "Mistral",
        400,
        r#"{"object":"error","message":"Prompt contains 150000 tokens, too large for model with 131072 maximum context length","type":"invalid_request_error"}"#,
    ),
    (
        "llama.cpp",
        400,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it"}}"#,
    ),
    (
        "llama.cpp",
        400,
        r#"{"error":{"code":400,"message":"x","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}"#,
    ),
    ("Ollama", 400, r#"{"error":"prompt too long; exceeded max context length by 100 tokens"}"#),
    ("Ollama", 400, r#"{"error":"the input length exceeds the context length"}"#),
    (
        "LM Studio",
        400,
        r#"{"error":"Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"}"#,
    ),
    (
        "LM Studio",
        400,
        r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length."}"#,
    ),
    ("LM Studio", 400, r#"{"error":"Input length 6491 exceeds context length 1500"}"#),
    ("LM Studio", 500, r#"{"error":"Context size has been exceeded."}"#),
    ("LM Studio", 500, r#"{"error":"Reached context length of 4096 tokens with model (arch: qwen3vlmoe)"}"#),
    (
        "MiniMax",
        400,
        r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)"}}"#,
    ),
    (
        "DashScope",
        400,
        r#"{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 98304]"}}"#,
    ),
    ("a proxy", 400, r#"{"error":{"type":"context_window_exceeded_error","message":"x"}}"#),
];

#[test]
fn a_413_in_unknown_words_is_a_full_context_if_the_request_was_big() {
    for body in ["", "<html><head><title>413 Request Entity Too Large</title></head></html>"] {
        for (sent, context, full) in [
            (300_000, None, true),
            (300_000, Some(1_000_000), true),
            (20_000, Some(8_192), true),
            (10_000, Some(8_192), false),
            (100_000, None, false),
            (100_000, Some(200_000), false),
        ] {
            let error = by_size(from_status(413, None, body.as_bytes()), sent, context);
            assert_eq!(error.kind == ModelErrorKind::ContextTooLong, full, "{sent} {context:?}");
            let says = format!("the request had {sent} bytes; a server or a proxy on the way takes no larger ones");
            assert_eq!(error.detail.contains(&says), !full, "{}", error.detail);
            assert_eq!(error.refusal.expect("refused").message.contains(&says), !full);
        }
    }
    let other = by_size(from_status(400, None, b"bad"), 300_000, None);
    assert_eq!(other.kind, ModelErrorKind::BadRequest);
}

#[test]
fn a_full_context_is_recognised_by_the_words_of_each_server_also_inside_a_success() {
    for (server, status, body) in FULL {
        let error = from_status(*status, None, body.as_bytes());
        assert_eq!(error.kind, ModelErrorKind::ContextTooLong, "{server}: {body}");
        let error = from_error_body(body.as_bytes());
        assert_eq!(error.kind, ModelErrorKind::ContextTooLong, "{server}, in a stream: {body}");
    }
}

#[test]
fn each_wording_has_an_example_and_a_source() {
    for wording in WORDINGS.iter().filter(|wording| wording.server != "others") {
        let has = |(_, _, body): &&(&str, u16, &str)| contains(&body.to_lowercase(), wording.parts);
        assert!(FULL.iter().any(|row| has(&row)), "{}: {:?}", wording.server, wording.parts);
        assert!(!wording.source.is_empty(), "{}", wording.server);
    }
}

#[test]
fn the_table_for_readers_names_each_wording() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/model-servers.md");
    let page = std::fs::read_to_string(path).unwrap();
    for wording in WORDINGS {
        let said = wording.parts.join(" … ").replace('`', "'");
        let row = page.lines().find(|line| line.contains(&said) && line.contains(wording.source));
        assert!(row.is_some(), "{said}: no row with {}", wording.source);
    }
}

#[test]
fn other_errors_about_tokens_are_not_a_full_context() {
    for (status, body) in [
        (429, r#"{"error":{"message":"Rate limit reached: maximum context length of tokens per minute"}}"#),
        (429, r#"{"message":"Too many tokens, please wait before trying again."}"#),
        (401, r#"{"error":{"message":"token too long"}}"#),
        (400, r#"{"error":{"message":"max_tokens must be at least 1"}}"#),
        (400, r#"{"error":{"message":"Invalid token in JSON at position 512"}}"#),
        (400, r#"{"error":{"message":"max_tokens is no number (request id: 2026010203040506)"}}"#),
        (400, r#"{"error":{"message":"length of name is wrong","time":1767225600}}"#),
    ] {
        let error = by_numbers(from_status(status, None, body.as_bytes()), Some(8192));
        assert_ne!(error.kind, ModelErrorKind::ContextTooLong, "{body}");
    }
}

#[test]
fn unknown_words_with_a_number_above_the_context_are_a_full_context() {
    for (body, full) in [
        (r#"{"error":{"message":"the conversation has 9,001 tokens, which is more than we take"}}"#, true),
        (r#"{"error":{"message":"length 9001 is refused"}}"#, true),
        (r#"{"error":{"message":"length 8192 is refused"}}"#, false),
        (r#"{"error":{"message":"field 9001 is unknown"}}"#, false),
    ] {
        let error = by_numbers(from_status(400, None, body.as_bytes()), Some(8192));
        assert_eq!(error.kind == ModelErrorKind::ContextTooLong, full, "{body}");
        assert_eq!(
            by_numbers(from_status(400, None, body.as_bytes()), None).kind,
            ModelErrorKind::BadRequest,
            "{body}"
        );
    }
    let network = ModelError::new(ModelErrorKind::Network, "token 9001 broke");
    assert_eq!(by_numbers(network, Some(8192)).kind, ModelErrorKind::Network);
}
