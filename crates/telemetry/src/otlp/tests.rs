#![allow(clippy::unwrap_used)]

use self::stub::{OK, collector};
use super::*;

pub(crate) mod stub;

#[tokio::test]
async fn headers_that_are_no_settings_are_not_sent() {
    let (address, mut requests) = collector(OK).await;
    let headers = parse_headers(&SecretString::from("api-key=ours")).unwrap();
    let client = Client::new(&address, headers, REQUEST, Arc::default()).unwrap();
    let request = opentelemetry_http::Request::post(&address)
        .header("content-type", "application/x-protobuf")
        .header("user-agent", "exporter")
        .header("api-key", "of the environment")
        .header("x-other", "of the environment");
    let request = request.body(opentelemetry_http::Bytes::new()).unwrap();
    opentelemetry_http::HttpClient::send_bytes(&client, request).await.unwrap();
    let sent = requests.recv().await.unwrap().to_ascii_lowercase();
    for line in ["api-key: ours", "content-type: application/x-protobuf", "user-agent: exporter"] {
        assert!(sent.contains(line), "{line} in {sent}");
    }
    assert!(!sent.contains("of the environment"), "{sent}");
}

#[test]
fn malformed_headers_are_refused_by_the_name_of_the_setting() {
    let headers = SecretString::from("s3cret");
    let collector = Collector::new("http://127.0.0.1:4318", "belay", Some(&headers));
    assert_eq!(collector.err().unwrap(), "telemetry.otlp_headers: header 1 is not of the form name=value");
}

#[test]
fn headers_are_parsed_and_a_mistake_shows_no_value() {
    let parse = |text: &str| parse_headers(&SecretString::from(text));
    let headers = parse("api-key = s3cret, x-tenant=a=b,").unwrap();
    assert_eq!(headers.len(), 2);
    assert_eq!((&headers["api-key"], &headers["x-tenant"]), (&"s3cret".parse().unwrap(), &"a=b".parse().unwrap()));
    assert!(headers["api-key"].is_sensitive(), "no debug output shows it");
    assert!(parse("").unwrap().is_empty());
    for wrong in ["a=1,s3cret", "a=1,na me=s3cret", "a=1,b=s3\ncret", "a=1,=s3cret"] {
        assert_eq!(parse(wrong).unwrap_err(), "header 2 is not of the form name=value", "{wrong}");
    }
}

#[test]
fn a_refusal_is_told_from_a_fault_that_passes() {
    let status = LastStatus::default();
    assert!(!status.is_refusal(), "there was no answer");
    for (code, refused) in [
        (200, false),
        (302, true),
        (308, true),
        (400, true),
        (401, true),
        (408, false),
        (413, true),
        (429, false),
        (503, false),
    ] {
        status.set(code);
        assert_eq!(status.is_refusal(), refused, "{code}");
    }
    status.forget();
    assert!(!status.is_refusal());
}

#[test]
fn an_answer_that_rejects_nothing_or_is_malformed_counts_no_rejected_part() {
    let status = LastStatus::default();
    status.set_answer(b"\x0a\x03\x08\xac\x02");
    assert_eq!(status.rejected(), 300);
    for body in [&b""[..], b"\x0a", b"\x0a\x00", b"\x0a\x7f\x08", b"\x0a\x04\x12\x02no", &[0xff; 20]] {
        status.set_answer(body);
        assert_eq!(status.rejected(), 0, "{body:?}");
    }
}
