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
    let goal_check = json!({ "name": "run_command", "status": "success", "took_ms": 200, "run_id": "0198-7f3a-a1b2",
        "call_id": "goal-a1b2-0" });
    let facts = [
        fact(1, 500, "run_accepted", json!({})),
        fact(2, 1500, "run_started", json!({ "attempt": 1 })),
        fact(3, 4500, "model_called", json!({ "step": 1, "input": 900, "output": 100, "took_ms": 3000 })),
        fact(4, 4500, "approval_requested", json!({ "approval": "a", "summary": "git push" })),
        fact(5, 9500, "approval_resolved", json!({ "approval": "a", "state": "approved" })),
        fact(6, 9500, "run_started", json!({ "attempt": 1 })),
        fact(7, 10_500, "tool_finished", json!({ "name": "run_command", "status": "error", "took_ms": 1000 })),
        fact(8, 10_700, "tool_finished", goal_check),
        fact(9, 10_900, "model_called", json!({ "step": 1, "took_ms": 200, "purpose": "goal" })),
        fact(10, 11_000, "model_called", json!({ "step": 1, "took_ms": 100, "purpose": "judge" })),
        fact(11, 11_000, "run_ended", json!({ "status": "completed" })),
    ];
    let spans = spans(&facts[..]);
    let found: Vec<_> = spans.iter().map(|span| (span.part, &*span.name, span.from, span.took)).collect();
    let expected = [
        ("waiting", "its turn", 0, 1000),
        ("model", "step 1", 1000, 3000),
        ("person", "git push", 4000, 5000),
        ("tool", "run_command", 9000, 1000),
        ("tool", "check: run_command", 10_000, 200),
        ("model", "judge of the goal", 10_200, 200),
        ("model", "judge of the stop rules", 10_400, 100),
    ];
    assert_eq!(found, expected);
    let bars: Vec<_> = spans.iter().take(4).map(|span| bar(span, 10_000)).collect();
    assert_eq!(bars, ["██", "  ██████", "        ██████████", "                  ██"]);
    assert!(spans[3].failed && !spans[1].failed);
}
