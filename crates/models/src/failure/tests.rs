//! Tables of statuses and bodies from many servers.

#![allow(clippy::unwrap_used)]

use super::*;

const NONE: Option<Duration> = None;

#[test]
fn statuses_and_bodies_become_kinds() {
    use ModelErrorKind::*;
    let overflow = r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":8192}}"#;
    for (status, body, kind) in [
        (429, r#"{"error":{"message":"slow down","type":"requests"}}"#, RateLimited { retry_after: NONE }),
        (429, r#"{"error":{"message":"no credit","code":"insufficient_quota"}}"#, Auth),
        (429, "too many requests: maximum context length", RateLimited { retry_after: NONE }),
        (401, "", Auth),
        (402, r#"{"error":"pay"}"#, Auth),
        (403, "<html>no</html>", Auth),
        (400, r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#, Auth),
        (400, overflow, ContextTooLong),
        (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, ContextTooLong),
        (400, r#"{"type":"error","error":{"type":"x","message":"prompt is too long: 9 > 8"}}"#, ContextTooLong),
        (400, r#"{"object":"error","message":"This model's maximum context length is 8"}"#, ContextTooLong),
        (400, r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#, BadRequest),
        (404, r#"{"error":"model 'x' not found"}"#, BadRequest),
        (413, "", BadRequest),
        (413, r#"{"error":{"type":"request_too_large","message":"x"}}"#, ContextTooLong),
        (422, r#"{"detail":[{"msg":"x"}]}"#, BadRequest),
        (307, "", BadRequest),
        (408, "", Overloaded { retry_after: NONE }),
        (409, "", Overloaded { retry_after: NONE }),
        (500, "", Overloaded { retry_after: NONE }),
        (503, r#"{"error":{"code":503,"message":"Loading model"}}"#, Overloaded { retry_after: NONE }),
        (529, r#"{"error":{"type":"overloaded_error"}}"#, Overloaded { retry_after: NONE }),
    ] {
        assert_eq!(from_status(status, None, body.as_bytes()).kind, kind, "{status} {body}");
    }
}

#[test]
fn errors_inside_a_success_are_told_by_their_words() {
    use ModelErrorKind::*;
    for (body, kind) in [
        (r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded { retry_after: NONE }),
        (r#"{"error":{"type":"rate_limit_error","message":"x"}}"#, RateLimited { retry_after: NONE }),
        (r#"{"error":{"code":"rate_limit_exceeded","message":"x"}}"#, RateLimited { retry_after: NONE }),
        (r#"{"error":{"type":"authentication_error","message":"x"}}"#, Auth),
        (r#"{"error":{"type":"invalid_request_error","message":"x"}}"#, BadRequest),
        (r#"{"error":{"code":400,"message":"x","type":"invalid_request_error"}}"#, BadRequest),
        (r#"{"error":{"code":500,"message":"x","type":"server_error"}}"#, Overloaded { retry_after: NONE }),
        (r#"{"error":{"code":400,"type":"exceed_context_size_error"}}"#, ContextTooLong),
        (r#"{"error":"something"}"#, Overloaded { retry_after: NONE }),
        (r#"{"error":7}"#, Overloaded { retry_after: NONE }),
        (r#"{"code":500,"message":"x","type":"server_error"}"#, Overloaded { retry_after: NONE }),
        ("\u{0}\u{1}not json", Overloaded { retry_after: NONE }),
    ] {
        assert_eq!(from_error_body(body.as_bytes()).kind, kind, "{body}");
    }
}

/// Bodies of OpenAI, Anthropic, DeepSeek, Gemini, llama.cpp, Ollama, Mistral, plain servers and proxies.
#[test]
fn faults_are_told_apart_with_the_providers_own_words() {
    use ProviderFault::*;
    for (status, body, fault, code, message) in [
        (
            401,
            r#"{"error":{"message":"Incorrect API key provided: sk-abcdefghijklmnop1234.","code":"invalid_api_key"}}"#,
            Key,
            "invalid_api_key",
            "Incorrect API key provided: [key].",
        ),
        (
            401,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
            Key,
            "authentication_error",
            "invalid x-api-key",
        ),
        (429, r#"{"error":{"message":"quota","code":"insufficient_quota"}}"#, Quota, "insufficient_quota", "quota"),
        (
            400,
            r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
            Quota,
            "invalid_request_error",
            "Your credit balance is too low",
        ),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Quota, "", "Insufficient Balance"),
        (
            404,
            r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#,
            UnknownModel,
            "model_not_found",
            "The model `x` does not exist",
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"}}"#,
            UnknownModel,
            "not_found_error",
            "model: x",
        ),
        (404, r#"{"error":"model 'x' not found"}"#, UnknownModel, "", "model 'x' not found"),
        (
            400,
            r#"{"message":"Invalid model: x","type":"invalid_model"}"#,
            UnknownModel,
            "invalid_model",
            "Invalid model: x",
        ),
        (404, "404 page not found", Request, "", "404 page not found"),
        (
            400,
            r#"{"error":{"message":"Invalid schema: tool 'x' does not exist in this model's template","type":"invalid_request_error"}}"#,
            Request,
            "invalid_request_error",
            "Invalid schema: tool 'x' does not exist in this model's template",
        ),
        (400, r#"{"error":{"message":"Model Not Exist"}}"#, UnknownModel, "", "Model Not Exist"),
        (
            400,
            r#"{"error":{"message":"models/x is not found for API version v1beta","status":"INVALID_ARGUMENT"}}"#,
            UnknownModel,
            "INVALID_ARGUMENT",
            "models/x is not found for API version v1beta",
        ),
        (400, r#"{"error":"x is not a valid model ID"}"#, UnknownModel, "", "x is not a valid model ID"),
        (
            400,
            r#"[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]"#,
            Request,
            "INVALID_ARGUMENT",
            "bad",
        ),
        (429, r#"{"error":{"message":"slow\u202e down","type":"requests"}}"#, RateLimit, "requests", "slow down"),
        (500, r#"{"error":{"code":500,"message":"boom","type":"server_error"}}"#, Server, "server_error", "boom"),
        (
            502,
            "<html><head><title>502 Bad Gateway</title><style>b{}</style></head><body>nginx</body></html>",
            Server,
            "",
            "502 Bad Gateway nginx",
        ),
        (
            503,
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            Overloaded,
            "unavailable_error",
            "Loading model",
        ),
        (
            529,
            r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Overloaded,
            "overloaded_error",
            "Overloaded",
        ),
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            ContextTooLong,
            "context_length_exceeded",
            "x",
        ),
    ] {
        let refusal = from_status(status, None, body.as_bytes()).refusal.unwrap();
        let (code, message) = (code.to_owned(), message.to_owned());
        let expected = ProviderRefusal { fault, status: Some(status), code, message, key_from: String::new() };
        assert_eq!(*refusal, expected, "{body}");
    }
    let keyed = from_status(401, None, b"{\"error\":\"the key sk-abcdefghijklmnop1234 is wrong\"}");
    assert_eq!(keyed.detail, "HTTP 401: the key [key] is wrong", "the log has it neither");
    let long = from_status(500, None, "x".repeat(9000).as_bytes()).refusal.unwrap();
    assert_eq!(long.message.chars().count(), DETAIL_MAX_CHARS);
    let inside = from_error_body(br#"{"error":{"code":500,"message":"x","type":"server_error"}}"#).refusal.unwrap();
    assert_eq!((inside.status, inside.fault), (Some(500), Server));
}

#[test]
fn a_delay_is_read_in_each_of_its_forms() {
    let read = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        retry_after(&headers)
    };
    assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
    assert_eq!(read("retry-after", "0.5"), Some(Duration::from_millis(500)));
    assert_eq!(read("retry-after-ms", "250"), Some(Duration::from_millis(250)));
    assert_eq!(read("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
    for nonsense in ["-1", "soon", "", "NaN", "1e400"] {
        assert_eq!(read("retry-after", nonsense), None, "{nonsense}");
    }
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(30);
    let date = jiff::fmt::rfc2822::to_string(&soon.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
    let delay = read("retry-after", &date).unwrap();
    assert!((28..=30).contains(&delay.as_secs()), "{date} is {delay:?} away");
}

#[test]
fn details_are_one_bounded_line() {
    assert_eq!(bounded("a\r\n\tb   c\u{7}d"), "a b c d");
    let long = bounded(&"é".repeat(9000));
    assert_eq!(long.chars().count(), DETAIL_MAX_CHARS);
    assert!(long.ends_with('…'));
}

#[test]
fn a_provider_that_quotes_marks_of_untrusted_content_is_told_without_them() {
    let quoted = r#"bad: <untrusted source=\"page\" id=\"0123456789ab\">noon</untrusted id=\"0123456789ab\">"#;
    for body in [format!(r#"{{"error":{{"message":"{quoted}"}}}}"#), quoted.to_owned()] {
        for error in [from_status(400, None, body.as_bytes()), from_error_body(body.as_bytes())] {
            let refusal = error.refusal.expect("refused");
            assert_eq!(refusal.message, "bad: noon", "{body}");
            assert!(error.detail.ends_with("bad: noon"), "{}", error.detail);
        }
    }
}
