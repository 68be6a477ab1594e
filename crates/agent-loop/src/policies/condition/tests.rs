use serde::Deserialize;

use super::read::words;
use super::*;
use crate::policies::{Observation, Rule, StopRules, StopState, Then, ToolCount};

#[derive(Deserialize)]
struct Written {
    when: Condition,
}

fn read(text: &str) -> Result<Condition, String> {
    toml::from_str::<Written>(&format!("when = {text}"))
        .map(|written| written.when)
        .map_err(|error| error.message().to_owned())
}

#[test]
fn conditions_are_read_as_a_person_writes_them() {
    let of = |tool: &str, count| Condition::ToolCallsOf(ToolCount { tool: tool.into(), count });
    for (text, expected) in [
        ("{ steps = 50 }", Condition::AtLeast(Counter::Steps, 50)),
        ("{ wall_clock_s = 600 }", Condition::AtLeast(Counter::WallMs, 600_000)),
        ("{ active_s = 600 }", Condition::AtLeast(Counter::ActiveMs, 600_000)),
        ("{ model_calls = 60 }", Condition::AtLeast(Counter::ModelCalls, 60)),
        ("{ tool_calls = 100 }", Condition::AtLeast(Counter::ToolCalls, 100)),
        ("{ tool_calls_of = { tool = \"fetch_url\", count = 20 } }", of("fetch_url", 20)),
        ("{ tokens_in = 1 }", Condition::AtLeast(Counter::TokensIn, 1)),
        ("{ tokens_out = 2 }", Condition::AtLeast(Counter::TokensOut, 2)),
        ("{ tokens_total = 3 }", Condition::AtLeast(Counter::TokensTotal, 3)),
        ("{ run_usd = 0.5 }", Condition::AtLeast(Counter::RunMicroUsd, 500_000)),
        ("{ session_usd = 5 }", Condition::AtLeast(Counter::SessionMicroUsd, 5_000_000)),
        ("{ output_bytes = 1_000_000 }", Condition::AtLeast(Counter::OutputBytes, 1_000_000)),
        ("{ consecutive_errors = 5 }", Condition::AtLeast(Counter::Errors, 5)),
        ("{ empty_replies = 3 }", Condition::AtLeast(Counter::EmptyReplies, 3)),
        ("{ repeated_replies = true }", Condition::RepeatedReplies(true)),
        ("{ unknown_tools = 5 }", Condition::AtLeast(Counter::UnknownTools, 5)),
        ("{ invalid_arguments = 5 }", Condition::AtLeast(Counter::InvalidArguments, 5)),
        ("{ approval_reasks = 3 }", Condition::AtLeast(Counter::ApprovalReasks, 3)),
        ("{ compactions_without_gain = 3 }", Condition::AtLeast(Counter::Compactions, 3)),
        ("{ tool_loop = true }", Condition::ToolLoop(true)),
        ("{ chanting = true }", Condition::Chanting(true)),
        ("{ says = \"DONE\" }", Condition::Says("DONE".into())),
        ("{ calls = \"push\" }", Condition::Calls("push".into())),
        ("{ any = [] }", Condition::Any(vec![])),
        ("{ not = { steps = 3 } }", Condition::Not(Box::new(Condition::AtLeast(Counter::Steps, 3)))),
        (
            "{ all = [ { steps = 3 }, { any = [ { says = \"x\" }, { calls = \"y\" } ] } ] }",
            Condition::All(vec![
                Condition::AtLeast(Counter::Steps, 3),
                Condition::Any(vec![Condition::Says("x".into()), Condition::Calls("y".into())]),
            ]),
        ),
    ] {
        let condition = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(condition, expected, "{text}");
        let json = serde_json::to_string(&condition).expect("serialises");
        assert_eq!(serde_json::from_str::<Condition>(&json).expect("reads back"), expected, "{json}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_in_words_that_help() {
    for (text, words) in [
        ("{ stpes = 50 }", "did you mean `steps`?"),
        ("{ tool_loops = true }", "did you mean `tool_loop`?"),
        ("{ token_total = 50 }", "did you mean `tokens_total`?"),
        ("{ qqq = 50 }", "there are any, all, not, steps,"),
        ("{ steps = 0 }", "at least 1"),
        ("{ steps = -5 }", "at least 1"),
        ("{ steps = 1.5 }", "floating point"),
        ("{ steps = \"many\" }", "string"),
        ("{ run_usd = 0 }", "above 0"),
        ("{ run_usd = nan }", "above 0"),
        ("{ tool_loop = false }", "write { not = { tool_loop = true } }"),
        ("{ says = \"\" }", "must not be empty"),
        ("{ steps = 5, says = \"x\" }", "and `steps`; join them"),
        ("{}", "an empty condition"),
        ("5", "a condition such as { steps = 50 }"),
        ("{ tool_calls_of = { tool = \"x\", count = 0 } }", "at least 1"),
        ("{ tool_calls_of = { tool = \"x\" } }", "missing field `count`"),
        ("{ tool_calls_of = { tool = \"x\", cuont = 1 } }", "unknown field `cuont`"),
        ("{ any = { steps = 3 } }", "expected a sequence"),
        ("{ not = [ { steps = 3 } ] }", "a condition such as"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn every_word_can_be_read_and_has_the_same_name_in_evidence() {
    for word in words() {
        let values = ["1", "true", "\"x\"", "{ tool = \"x\", count = 1 }", "[]", "{ steps = 1 }"];
        let condition = values.iter().find_map(|value| read(&format!("{{ {word} = {value} }}")).ok());
        let condition = condition.unwrap_or_else(|| panic!("{word} cannot be read"));
        condition.each_leaf(&mut |leaf| {
            let told = match leaf {
                Leaf::AtLeast(count, _) => count.word(),
                Leaf::Seen(observed) => observed.word(),
                Leaf::Never => "never",
            };
            assert!(word == told || matches!(word, "not" | "any" | "all"), "{word} tells {told}");
        });
    }
}

/// Feeds events to a rule with this condition. Returns the index of the event that made it true, and the finding.
fn first(when: Condition, seen: &[Observation<'_>]) -> Option<(usize, Finding)> {
    let rules = StopRules::of(vec![Rule::new("own", when, Then::Stop)]);
    let mut state = StopState::default();
    seen.iter().enumerate().find_map(|(at, seen)| Some((at, state.observe(&rules, *seen)?.finding)))
}

#[test]
fn each_leaf_fires_at_its_threshold_and_not_before() {
    use crate::policies::{CallOutcome, Totals};
    use Observation::{Clock, Compacted, Paused, Step, Usage, User};
    let arguments = belay_protocol::Arguments::parse("{}");
    let call = |name| Observation::ToolCall { name, arguments: &arguments, spec: None };
    let result = |outcome| Observation::ToolResult { name: "t", outcome, text: "what it says" };
    let say = |text| Observation::Assistant { text, nudged: false };
    let totals = Totals { run_micro_usd: 500_000, session_micro_usd: 5_000_000, ..Totals::default() };
    let less = Totals { run_micro_usd: 499_999, session_micro_usd: 4_999_999, ..Totals::default() };
    let (totals, less) = (Observation::Totals(&totals), Observation::Totals(&less));
    let of_t = |count| Condition::ToolCallsOf(ToolCount { tool: "t".into(), count });
    let (failed, denied) = (result(CallOutcome::Failed), result(CallOutcome::Denied));
    let (unknown, invalid) = (result(CallOutcome::UnknownTool), result(CallOutcome::InvalidArguments));
    let poor = Compacted { before: 100, after: 95 };
    use StopReason::*;
    // The last event of each row makes the condition true; without it, the condition is false. Then: reason, count,
    // threshold.
    let table: &[(Condition, &[Observation<'_>], StopReason, u64, u64)] = &[
        (Condition::AtLeast(Counter::Steps, 2), &[Step, Step], OperatorRule, 2, 2),
        (Condition::AtLeast(Counter::WallMs, 2_000), &[Clock(500), Clock(2_499), Clock(2_500)], WallClock, 2, 2),
        (
            Condition::AtLeast(Counter::ActiveMs, 2_000),
            &[Clock(0), Paused(500), Clock(2_400), Clock(2_500)],
            ActiveTime,
            2,
            2,
        ),
        (Condition::AtLeast(Counter::ModelCalls, 2), &[Step, Step], ModelCalls, 2, 2),
        (Condition::AtLeast(Counter::ToolCalls, 2), &[call("a"), call("t")], ToolCalls, 2, 2),
        (of_t(2), &[call("t"), call("a"), call("t")], ToolCalls, 2, 2),
        (
            Condition::AtLeast(Counter::TokensIn, 9),
            &[Usage { input: 8, output: 9 }, Usage { input: 3, output: 0 }],
            Tokens,
            11,
            9,
        ),
        (
            Condition::AtLeast(Counter::TokensOut, 9),
            &[Usage { input: 9, output: 8 }, Usage { input: 0, output: 1 }],
            Tokens,
            9,
            9,
        ),
        (
            Condition::AtLeast(Counter::TokensTotal, 9),
            &[Usage { input: 4, output: 4 }, Usage { input: 0, output: 1 }],
            Tokens,
            9,
            9,
        ),
        (Condition::AtLeast(Counter::RunMicroUsd, 500_000), &[less, totals], RunCost, 500_000, 500_000),
        (Condition::AtLeast(Counter::SessionMicroUsd, 5_000_000), &[less, totals], SessionCost, 5_000_000, 5_000_000),
        (Condition::AtLeast(Counter::OutputBytes, 4), &[say("abc"), say("d")], OutputBytes, 4, 4),
        (Condition::AtLeast(Counter::Errors, 2), &[call("t"), failed, call("t"), failed], ConsecutiveErrors, 2, 2),
        (Condition::AtLeast(Counter::EmptyReplies, 1), &[say(""), Step], EmptyReplies, 1, 1),
        (Condition::RepeatedReplies(true), &[say("x"), say("x"), say("x"), Step], RepeatedReplies, 2, 2),
        (Condition::AtLeast(Counter::UnknownTools, 2), &[unknown, unknown], UnknownTools, 2, 2),
        (Condition::AtLeast(Counter::InvalidArguments, 2), &[invalid, invalid], InvalidArguments, 2, 2),
        (Condition::AtLeast(Counter::ApprovalReasks, 2), &[call("t"), denied, call("t"), denied], ApprovalReasks, 2, 2),
        (Condition::AtLeast(Counter::Compactions, 2), &[poor, poor], CompactionLoop, 2, 2),
        (Condition::Says("DONE".into()), &[say("not yet"), User("DONE"), say("DONE.")], OperatorRule, 1, 1),
        (Condition::Calls("t".into()), &[Step, call("a"), call("t")], OperatorRule, 1, 1),
        (Condition::Not(Box::new(Condition::AtLeast(Counter::Steps, 9))), &[Step], OperatorRule, 0, 0),
    ];
    for (when, seen, reason, count, threshold) in table {
        let (at, finding) = first(when.clone(), seen).unwrap_or_else(|| panic!("{when:?} did not fire"));
        assert_eq!(at, seen.len() - 1, "{when:?}");
        assert_eq!((finding.reason, finding.count, finding.threshold), (*reason, *count, *threshold), "{when:?}");
        assert_eq!(finding.rule, "own", "an operator's rule goes by its own name");
        assert!(finding.facts.contains_key("measure"), "{when:?}");
    }
}

#[test]
fn conditions_join_by_any_all_and_not() {
    use Observation::{Step, Usage};
    let tokens = Usage { input: 50, output: 0 };
    let not = |condition| Condition::Not(Box::new(condition));
    for (when, seen, expected) in [
        (
            Condition::Any(vec![Condition::AtLeast(Counter::Steps, 3), Condition::AtLeast(Counter::TokensIn, 50)]),
            &[Step, tokens][..],
            Some(1),
        ),
        (Condition::Any(vec![]), &[Step, tokens], None),
        (
            Condition::All(vec![Condition::AtLeast(Counter::Steps, 2), Condition::AtLeast(Counter::TokensIn, 50)]),
            &[Step, tokens, Step],
            Some(2),
        ),
        (
            Condition::All(vec![Condition::AtLeast(Counter::Steps, 2), Condition::AtLeast(Counter::TokensIn, 50)]),
            &[Step, Step, tokens],
            Some(2),
        ),
        (
            Condition::All(vec![Condition::AtLeast(Counter::Steps, 2), Condition::AtLeast(Counter::TokensIn, 50)]),
            &[Step, Step, Step],
            None,
        ),
        (
            Condition::All(vec![Condition::AtLeast(Counter::Steps, 2), not(Condition::AtLeast(Counter::TokensIn, 50))]),
            &[Step, Step],
            Some(1),
        ),
        (
            Condition::All(vec![Condition::AtLeast(Counter::Steps, 2), not(Condition::AtLeast(Counter::TokensIn, 50))]),
            &[tokens, Step, Step],
            None,
        ),
        (not(not(Condition::AtLeast(Counter::Steps, 2))), &[Step, Step], Some(1)),
    ] {
        assert_eq!(first(when.clone(), seen).map(|(at, _)| at), expected, "{when:?}");
    }
    let all =
        Condition::All(vec![not(Condition::AtLeast(Counter::TokensIn, 50)), Condition::AtLeast(Counter::Steps, 1)]);
    let (_, finding) = first(all, &[Step]).expect("fires");
    assert_eq!((finding.reason, finding.facts["measure"].as_str()), (StopReason::OperatorRule, Some("steps")));
}
