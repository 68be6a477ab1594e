//! Waiting for a line of a background command, and its standard input.

use belay_tools::sandbox::Policy;
use serde_json::json;

use super::support::fixture;

#[tokio::test]
async fn a_pattern_that_would_cost_much_for_each_byte_is_refused_and_usual_ones_are_not() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    let id = fixture.start("echo 'Server läuft: http://localhost:5173/'; sleep 1000", &context).await;
    let costly = json!({"action": "wait", "id": id, "pattern": "[ab]*a[ab]{15000}x"});
    let refused = fixture.refused(costly, &context).await;
    assert!(refused.contains("is not a regular expression that can be used here"), "{refused}");
    for usual in [r"(?i)listening|https?://\S+:\d+", r"^\w+ \w+:\s+\w+://\w+", "läuft|ready in [0-9.]+ m?s"] {
        let found = fixture.process(json!({"action": "wait", "id": id, "pattern": usual}), &context).await;
        assert!(found.contains("found in the line at byte 0"), "{usual}: {found}");
    }
}

#[tokio::test]
async fn a_line_of_any_length_is_looked_at_in_parts_and_the_answer_says_where_to_go_on() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    // A line of a megabyte without an end, and a word in the middle of it.
    let script = "head -c 500000 /dev/zero | tr '\\0' a; printf compiled; head -c 500000 /dev/zero | tr '\\0' b; \
        printf '\\ncompiled\\n'; sleep 1000";
    let id = fixture.start(script, &context).await;
    let wait =
        |offset: u64| json!({"action": "wait", "id": id, "pattern": "compiled", "offset": offset, "timeout_s": 300});
    let found = fixture.process(wait(0), &context).await;
    let next = |found: &str| -> u64 {
        let (_, rest) = found.split_once("the next offset is ").unwrap();
        rest.split(']').next().unwrap().parse().unwrap()
    };
    assert!((500_008..510_000).contains(&next(&found)), "{found:.200}");
    let found = fixture.process(wait(next(&found)), &context).await;
    assert!(
        found.ends_with("[p1 runs; found in the line at byte 1000009, the next offset is 1000018]\ncompiled"),
        "{found:.200}"
    );
}

#[tokio::test]
async fn what_is_given_as_standard_input_is_all_of_it_and_without_it_the_input_stays_open() {
    let fixture = fixture(Policy::Off);
    let context = fixture.context();
    let sort = json!({"argv": ["sort"], "stdin": "b\na\n", "background": true});
    fixture.call("run_command", sort, &context).await.unwrap();
    let over = fixture.process(json!({"action": "wait", "id": "p1", "timeout_s": 300}), &context).await;
    assert_eq!(over, "[p1 ended with exit code 0]");
    let read = fixture.process(json!({"action": "read", "id": "p1"}), &context).await;
    assert!(read.ends_with("\na\nb\n"), "{read}");
    fixture.call("run_command", json!({"argv": ["cat"], "background": true}), &context).await.unwrap();
    fixture.process(json!({"action": "write", "id": "p2", "text": "a line\n", "end": true}), &context).await;
    let found = json!({"action": "wait", "id": "p2", "pattern": "a line", "timeout_s": 300});
    assert!(fixture.process(found, &context).await.ends_with("\na line"));
}
