use belay_protocol::Arguments;

use super::*;
use crate::policies::Totals;

/// Feeds observations, and compares the counter after each.
fn check(counter: Counter, seen: &[(Observation<'_>, u64)]) {
    let mut counters = Counters::default();
    for (at, (seen, count)) in seen.iter().enumerate() {
        counters.observe(&[], seen);
        assert_eq!(counters.count(counter), *count, "{counter:?} after {at}: {seen:?}");
    }
}

fn say(text: &str) -> Observation<'_> {
    Observation::Assistant { text, nudged: false }
}

fn result(name: &str, outcome: CallOutcome) -> Observation<'_> {
    Observation::ToolResult { name, outcome, text: "" }
}

#[test]
fn each_counter_has_the_row_at_its_place() {
    assert!(TABLE.iter().enumerate().all(|(at, row)| row.counter as usize == at));
    let words: std::collections::BTreeSet<_> = TABLE.iter().map(|row| row.word).collect();
    assert_eq!(words.len(), TABLE.len());
}

#[test]
fn used_things_are_counted_until_totals_rule_and_nothing_runs_backwards() {
    use Observation::{Other, Step, Text, Usage, User};
    let arguments = Arguments::parse("{}");
    let call = Observation::ToolCall { name: "t", arguments: &arguments, spec: None };
    let totals = |n| Totals { model_calls: n, tool_calls: n, tokens_in: n, output_bytes: n, ..Totals::default() };
    let (less, more) = (totals(2), totals(100));
    let (less, more) = (Observation::Totals(&less), Observation::Totals(&more));
    check(Counter::Steps, &[(Step, 1), (say("hello"), 1), (Other, 1), (Step, 2), (more, 2)]);
    check(
        Counter::ModelCalls,
        &[(Step, 1), (Other, 1), (Step, 2), (Step, 3), (less, 3), (Step, 3), (more, 100), (less, 100)],
    );
    check(
        Counter::ToolCalls,
        &[(call, 1), (result("t", CallOutcome::Success), 1), (call, 2), (more, 100), (call, 100)],
    );
    let (first, second) = (Usage { input: 10, output: 2 }, Usage { input: 20, output: 3 });
    check(Counter::TokensIn, &[(first, 10), (Step, 10), (second, 30), (more, 100), (first, 100)]);
    check(Counter::TokensOut, &[(first, 2), (second, 5), (more, 5), (first, 5)]);
    let full = Usage { input: u64::MAX, output: 1 };
    check(Counter::TokensTotal, &[(first, 12), (second, 35), (full, u64::MAX)]);
    check(
        Counter::OutputBytes,
        &[
            (Text("abc"), 3),
            (Text("de"), 5),
            (say("abcde"), 5),
            (Observation::Assistant { text: "stands alone", nudged: true }, 17),
            (User("not ours"), 17),
            (Observation::ToolResult { name: "t", outcome: CallOutcome::Failed, text: "é" }, 19),
            (Text("broken off"), 29),
            (Step, 29),
            (say("again"), 34),
            (more, 100),
            (Text("more"), 100),
        ],
    );
}

#[test]
fn money_follows_totals_alone_and_never_runs_backwards() {
    let totals = |run, session| Totals { run_micro_usd: run, session_micro_usd: session, ..Totals::default() };
    let (less, more) = (totals(3, 10), totals(5, 9));
    let (less, more) = (Observation::Totals(&less), Observation::Totals(&more));
    let usage = Observation::Usage { input: 1_000, output: 1_000 };
    check(Counter::RunMicroUsd, &[(usage, 0), (less, 3), (more, 5), (less, 5)]);
    check(Counter::SessionMicroUsd, &[(usage, 0), (less, 10), (more, 10)]);
}

#[test]
fn an_empty_answer_counts_when_the_loop_goes_on_without_a_call() {
    // s: a step begins; e: an empty answer; n: one that a guardrail has handled; t: a text; c: a call.
    for (events, count) in [
        ("seseses", 3),
        ("sesese", 2),
        ("eee", 2),
        ("secseses", 2),
        ("sestses", 1),
        ("sesesec", 0),
        ("snsnsns", 0),
        ("sesnses", 2),
        ("ssss", 0),
    ] {
        let arguments = Arguments::parse("{}");
        let mut counters = Counters::default();
        for event in events.chars() {
            let seen = match event {
                's' => Observation::Step,
                'e' => say(" \n"),
                'n' => Observation::Assistant { text: "", nudged: true },
                't' => say("Hello."),
                _ => Observation::ToolCall { name: "t", arguments: &arguments, spec: None },
            };
            counters.observe(&[], &seen);
        }
        assert_eq!(counters.count(Counter::EmptyReplies), count, "{events}");
    }
}

#[test]
fn only_calls_in_a_row_count_and_what_was_not_executed_is_passed_over() {
    use CallOutcome::{Denied, Failed, InvalidArguments, NotExecuted, Success, UnknownTool};
    for (counter, counted, other) in [
        (Counter::UnknownTools, UnknownTool, InvalidArguments),
        (Counter::InvalidArguments, InvalidArguments, UnknownTool),
    ] {
        let table: &[(&[CallOutcome], u64)] = &[
            (&[counted, counted, counted], 3),
            (&[counted, NotExecuted, counted], 2),
            (&[counted, Success, counted], 1),
            (&[counted, counted, Failed], 0),
            (&[counted, other], 0),
            (&[counted, Denied], 0),
            (&[], 0),
        ];
        for (outcomes, count) in table {
            let mut counters = Counters::default();
            for outcome in *outcomes {
                counters.observe(&[], &result("tool", *outcome));
                counters.observe(&[], &Observation::Step);
            }
            let told = (counters.count(counter), counters.tool(counter));
            assert_eq!(told, (*count, if *count > 0 { "tool" } else { "" }), "{outcomes:?}");
        }
    }
}

#[test]
fn denials_of_the_same_call_add_up_whatever_comes_between() {
    use CallOutcome::{Denied, Failed, Success};
    let push = ("push", r#"{"to":"main","force":true}"#, Denied);
    let shuffled = ("push", r#"{"force":true,"to":"main"}"#, Denied);
    let elsewhere = ("push", r#"{"to":"dev","force":true}"#, Denied);
    let other = ("mail", r#"{"to":"main","force":true}"#, Denied);
    type Events<'a> = &'a [(&'a str, &'a str, CallOutcome)];
    let table: &[(Events<'_>, u64, &str)] = &[
        (&[push, shuffled, push], 3, "push"),
        (&[push, ("read", "{}", Success), other, push], 2, "push"),
        (&[push, push, other], 2, "push"),
        (&[push, elsewhere, other], 1, "push"),
        (&[("push", "{}", Failed), ("push", "{}", Success)], 0, ""),
        (&[], 0, ""),
    ];
    for (events, count, tool) in table {
        let mut counters = Counters::default();
        for (name, raw, outcome) in *events {
            counters.observe(&[], &Observation::Step);
            counters.observe(&[], &Observation::ToolCall { name, arguments: &Arguments::parse(raw), spec: None });
            counters.observe(&[], &result(name, *outcome));
        }
        let told = (counters.count(Counter::ApprovalReasks), counters.tool(Counter::ApprovalReasks));
        assert_eq!(told, (*count, *tool), "{events:?}");
    }
}

#[test]
fn a_result_belongs_to_the_oldest_open_call_of_its_tool() {
    let arguments = [Arguments::parse(r#"{"n":1}"#), Arguments::parse(r#"{"n":2}"#)];
    let mut counters = Counters::default();
    for denied_at in [0, 1, 0] {
        counters.observe(&[], &Observation::Step);
        for arguments in &arguments {
            counters.observe(&[], &Observation::ToolCall { name: "t", arguments, spec: None });
        }
        for at in 0..2 {
            let outcome = if at == denied_at { CallOutcome::Denied } else { CallOutcome::Success };
            counters.observe(&[], &result("t", outcome));
        }
    }
    assert_eq!(counters.count(Counter::ApprovalReasks), 2, "the first call twice, the second once");
}

#[test]
fn a_compaction_that_wins_a_tenth_resets_the_count() {
    let table: &[(&[(u64, u64)], u64)] = &[
        (&[(1_000, 950), (950, 900), (900, 899)], 3),
        (&[(1_000, 901)], 1),
        (&[(1_000, 900)], 0),
        (&[(1_000, 950), (1_000, 100), (1_000, 1_200)], 1),
        (&[(0, 0)], 0),
        (&[(u64::MAX, u64::MAX)], 1),
    ];
    for (pairs, count) in table {
        let mut counters = Counters::default();
        for &(before, after) in *pairs {
            counters.observe(&[], &Observation::Compacted { before, after });
            counters.observe(&[], &Observation::Step);
        }
        assert_eq!(counters.count(Counter::Compactions), *count, "{pairs:?}");
    }
}

#[test]
fn a_recovery_lets_behaviour_begin_again_and_keeps_what_was_used_up() {
    let mut counters = Counters::default();
    for seen in [Observation::Step, result("x", CallOutcome::UnknownTool), result("x", CallOutcome::UnknownTool)] {
        counters.observe(&[], &seen);
    }
    counters.clear(Touched::UNKNOWN_TOOLS.and(Touched::STEPS));
    let told = (counters.count(Counter::UnknownTools), counters.tool(Counter::UnknownTools));
    assert_eq!((told, counters.count(Counter::Steps)), ((0, ""), 1));
}
