use serde_json::json;

use super::*;

#[test]
fn the_parts_of_a_run_stand_in_order_at_their_times() {
    let fact = |seq: u64, ms: u64, kind: &str, more: Json| {
        let mut fact =
            json!({ "seq": seq, "at": format!("2026-11-20T19:43:{:02}.{:03}Z", ms / 1000, ms % 1000), "type": kind });
        fact.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fact
    };
    let facts = [
        fact(1, 500, "run_accepted", json!({})),
        fact(2, 1500, "run_started", json!({ "attempt": 1 })),
        fact(3, 4500, "model_called", json!({ "step": 1, "input": 900, "output": 100, "took_ms": 3000 })),
        fact(4, 4500, "approval_requested", json!({ "approval": "a", "summary": "git push" })),
        fact(5, 9500, "approval_resolved", json!({ "approval": "a", "state": "approved" })),
        fact(6, 9500, "run_started", json!({ "attempt": 1 })),
        fact(7, 10_500, "tool_finished", json!({ "name": "run_command", "status": "error", "took_ms": 1000 })),
        fact(8, 10_500, "run_ended", json!({ "status": "completed" })),
    ];
    let spans = spans(&facts[..]);
    let found: Vec<_> = spans.iter().map(|span| (span.part, &*span.name, span.from, span.took)).collect();
    let expected = [
        ("waiting", "its turn", 0, 1000),
        ("model", "step 1", 1000, 3000),
        ("person", "git push", 4000, 5000),
        ("tool", "run_command", 9000, 1000),
    ];
    assert_eq!(found, expected);
    let bars: Vec<_> = spans.iter().map(|span| bar(span, 10_000)).collect();
    assert_eq!(bars, ["██", "  ██████", "        ██████████", "                  ██"]);
    assert!(spans[3].failed && !spans[1].failed);
}
