use std::sync::OnceLock;

use serde_json::json;

use super::*;

fn fact(seq: u64, ms: u64, kind: &str, more: Json) -> Json {
    let mut fact =
        json!({ "seq": seq, "at": format!("2026-11-20T19:43:{:02}.{:03}Z", ms / 1000, ms % 1000), "type": kind });
    fact.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fact
}

#[test]
fn the_parts_of_a_run_stand_in_order_at_their_times() {
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
    let timeline = Timeline::of(&facts, 0);
    let spans = &timeline.spans;
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
    let bars: Vec<_> = spans.iter().take(4).map(|span| bar(span, 10_000, 20)).collect();
    assert_eq!(bars, ["██", "  ██████", "        ██████████", "                  ██"]);
    assert!(spans[3].failed && !spans[1].failed);
}

/// A run that waits, asks a person, and has a subagent that calls a tool.
fn tree() -> Timeline {
    let facts = [
        fact(1, 0, "run_accepted", json!({})),
        fact(2, 400, "run_started", json!({ "attempt": 1 })),
        fact(3, 2400, "model_called", json!({ "step": 1, "input": 900, "output": 100, "took_ms": 2000 })),
        fact(4, 2400, "tool_started", json!({ "call_id": "c1", "name": "spawn_subagent" })),
        fact(
            5,
            2500,
            "subagent_started",
            json!({ "call_id": "c1", "task": "count the words of all reports of this year" }),
        ),
        fact(6, 4500, "model_called", json!({ "step": 1, "input": 400, "output": 100, "took_ms": 2000 })),
        fact(7, 4500, "approval_requested", json!({ "approval": "a", "summary": "wc -w reports/2026-01.md" })),
        fact(8, 8500, "approval_resolved", json!({ "approval": "a", "state": "approved" })),
        fact(
            9,
            9500,
            "tool_finished",
            json!({ "call_id": "x", "name": "run_command", "status": "error", "took_ms": 900 }),
        ),
        fact(10, 9600, "subagent_ended", json!({ "call_id": "c1", "termination": "GOAL" })),
        fact(
            11,
            9600,
            "tool_finished",
            json!({ "call_id": "c1", "name": "spawn_subagent", "status": "success", "took_ms": 7200 }),
        ),
        fact(12, 10_000, "model_called", json!({ "step": 2, "input": 480, "output": 20, "took_ms": 400 })),
        fact(13, 10_000, "run_ended", json!({ "status": "completed" })),
    ];
    Timeline::of(&facts, 20_000)
}

#[test]
fn the_picture_fits_80_and_120_columns_with_the_tree_tokens_and_costs() {
    let (timeline, error) = (tree(), OnceLock::new());
    let shown = |width| {
        let lines = Output::plain(&error).aligned(&timeline.rows(width));
        lines.into_iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(Some(80)),
        [
            "PART      WHAT                  TOOK    TOKENS     COST     0               10 s",
            "waiting   its turn              400 ms                      █",
            "model     step 1                2.0 s   900 + 100  $0.0100  ████",
            "subagent  count the words of …  7.1 s   400 + 100  $0.0050       ░░░░░░░░░░░░░░░",
            "model     └ step 1              2.0 s   400 + 100  $0.0050       ████",
            "person    └ wc -w reports/202…  4.0 s                                ████████",
            "tool      └ run_command         900 ms                                       ██",
            "model     step 2                400 ms  480 + 20   $0.0050                     █",
        ]
    );
    assert_eq!(
        shown(Some(120)),
        [
            "BEGAN    PART      WHAT                             TOOK    TOKENS     COST     0                                   10 s",
            "+0 ms    waiting   its turn                         400 ms                      ██",
            "+400 ms  model     step 1                           2.0 s   900 + 100  $0.0100   ████████",
            "+2.5 s   subagent  count the words of all reports…  7.1 s   400 + 100  $0.0050            ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░",
            "+2.5 s   model     └ step 1                         2.0 s   400 + 100  $0.0050            ████████",
            "+4.5 s   person    └ wc -w reports/2026-01.md       4.0 s                                         ████████████████",
            "+8.6 s   tool      └ run_command                    900 ms                                                        ████",
            "+9.6 s   model     step 2                           400 ms  480 + 20   $0.0050                                        ██",
        ]
    );
    for width in [40, 80, 120, 200] {
        assert!(shown(Some(width)).iter().all(|line| line.chars().count() <= width), "{width}");
    }
    assert!(shown(None).iter().any(|line| line.contains("count the words of all reports of this year")));
}

#[test]
fn programs_get_the_levels_and_the_shares_of_the_cost() {
    let spans = tree().json();
    let of = |at: usize, field: &str| spans.pointer(&format!("/{at}/{field}")).cloned().unwrap_or_default();
    let parts: Vec<_> = (0..6).map(|at| (of(at, "part"), of(at, "level"))).collect();
    let expected = [("waiting", 0), ("model", 0), ("subagent", 0), ("model", 1), ("person", 1), ("tool", 1)];
    assert_eq!(parts, expected.map(|(part, level)| (json!(part), json!(level))));
    assert_eq!((of(2, "input"), of(2, "cost_share_micro_usd")), (json!(400), json!(5000)));
    assert_eq!((of(5, "failed"), of(4, "took_ms")), (json!(true), json!(4000)));
}
