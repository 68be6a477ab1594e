use proptest::prelude::*;

use super::*;

/// Pieces of the shapes, and of texts that nearly have one.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "0", "1", "2", "7", "12", "24", "59", "2026", "1999", "20260102", "1767322222", "1767322222123", "030405", "550e8400",
    "e29b", "41d4a716", "0x", "0X7ffe12ab", "deadbeef", ":", "-", "/", ".", ",", " ", "  ", "#", "=", "(", "\"", "_", "T",
    "Z", "UTC", "+01", "PM", "Mon", "tuesday", "Wed", "THU", "friday", "sat", "Sunday", "jan", "February", "mar", "APR",
    "may", "june", "Jul", "aug", "sept", "Oct", "november", "dec", "attempts", "attempt", "retry", "retries", "try", "pid",
    "TID", "took", "elapsed", "time", "total", "duration", "latency", "uptime", "timestamp", "ts", "dur", "ela", "ms",
    "credits", "left", "remaining", "used", "quota", "rate", "limit", "reset", "x", "request", "req", "trace", "span",
    "correlation", "session", "transaction", "invocation", "idempotency", "token", "traceparent", "etag", "ref",
    "reference", "incident", "nonce", "id", "key", "s", "S", "us", "µs", "μs", "ns", "msec", "sec", "seconds", "mins",
    "minutes", "h", "hrs", "d", "days", "M", "millis", "bytes", "é", "value", "\n",
];

fn texts() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(PIECES), 1..9).prop_map(|pieces| pieces.concat())
}

/// The shapes that match at the beginning of a text, and whether the condition of each is fulfilled.
fn matches(text: &[u8]) -> Vec<(&'static str, bool)> {
    let end = word_end(text, 0);
    let word = &text[..end];
    let announced = [&NUMBER, &NAMED_ID, &ID].iter().any(|shape| shape.is_match(text));
    [
        ("date", DATE_TIME.is_match(text), begins::is_date_time(text, 0)),
        ("epoch", EPOCH.is_match(text), begins::is_epoch(text, 0)),
        ("duration", DURATION.is_match(text), begins::is_duration(text, 0)),
        ("id", end > 0 && RANDOM_ID.is_match(text), end > 0 && begins::is_random_id(text, 0, end)),
        ("announcing", ANNOUNCING.is_match(word), begins::is_announcing(word)),
        ("announced", announced, begins::is_announced(text, 0)),
    ]
    .into_iter()
    .filter_map(|(shape, matches, begins)| matches.then_some((shape, begins)))
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn no_shape_matches_a_text_that_cannot_begin_it(text in texts()) {
        let wrong: Vec<_> = matches(text.as_bytes()).into_iter().filter(|(_, begins)| !begins).collect();
        prop_assert_eq!(wrong, vec![], "{}", text);
    }
}

#[test]
fn each_name_of_a_shape_can_begin_it() {
    let names = NAMES.iter().filter(|(name, _)| matches!(*name, "{DAY}" | "{MONTH}" | "{NUMBER}" | "{ID}"));
    let mut count = 0;
    for (_, pattern) in names {
        // Each alternative with its optional parts, and without them.
        for name in pattern.split(['|', '(', ')']).filter(|part| part.starts_with(|c: char| c.is_ascii_lowercase())) {
            for text in [name.replace('?', ""), name.replace("_?", "").replace("y?", "").replace("x?", "")] {
                let text = format!("{} 7", text.replace("[a-z_]*", ""));
                count += matches(text.as_bytes()).len();
                let wrong: Vec<_> = matches(text.as_bytes()).into_iter().filter(|(_, begins)| !begins).collect();
                assert_eq!(wrong, [], "{text}");
            }
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn the_compared_texts_have_every_shape() {
    for (text, shape) in [
        ("Tue, 02 Jan 2026 03:04:05 GMT", "date"),
        ("2 jan 2026", "date"),
        ("20260102t030405", "date"),
        ("9:30 PM", "date"),
        ("1767322222", "epoch"),
        ("3.4s", "duration"),
        ("5 \u{b5}s", "duration"),
        ("550e8400-e29b-41d4-a716-446655440000", "id"),
        ("0X7ffe12ab", "id"),
        ("ts", "announcing"),
        ("took_x_ms", "announcing"),
        ("ts: 5", "announced"),
        ("_request_id=7", "announced"),
        ("nonce 7", "announced"),
    ] {
        assert!(matches(text.as_bytes()).contains(&(shape, true)), "{text}");
    }
}
