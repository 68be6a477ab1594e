use belay_protocol::{Arguments, StopReason};

use super::*;
use crate::policies::{CallOutcome, RunLimits, StopsConfig, ToolCount};

mod cost;
mod properties;

/// Only these rules of an operator, from TOML.
fn rules(text: &str) -> StopRules {
    with(&format!("enabled = false\n{text}"))
}

fn with(text: &str) -> StopRules {
    let stops: StopsConfig = toml::from_str(text).expect("rules");
    assert_eq!(stops.validate(), Vec::<String>::new());
    StopRules::compile(&stops, &RunLimits::none())
}

/// Feeds a run of letters and returns each verdict: the index of its event, the action, and the rule.
///
/// s: a step; c: a call; f and o: it failed, it succeeded; u: no such tool; t: the same text again; d: another text; i:
/// a hundred tokens; R: recover; X: detection off; N: a new request.
fn run(rules: &StopRules, events: &str) -> Vec<(usize, Action, String)> {
    let mut state = StopState::default();
    let arguments = Arguments::parse("{}");
    let mut verdicts = Vec::new();
    for (at, event) in events.chars().enumerate() {
        let result = |outcome| Observation::ToolResult { name: "t", outcome, text: "no" };
        let other = format!("{at}");
        let verdict = state.observe(
            rules,
            match event {
                's' => Observation::Step,
                'c' => Observation::ToolCall { name: "t", arguments: &arguments, spec: None },
                'f' => result(CallOutcome::Failed),
                'o' => result(CallOutcome::Success),
                'u' => result(CallOutcome::UnknownTool),
                't' => Observation::Assistant { text: "the same", nudged: false },
                'd' => Observation::Assistant { text: &other, nudged: false },
                'i' => Observation::Usage { input: 100, output: 0 },
                'R' => Observation::Recover,
                'X' => Observation::Disable,
                _ => Observation::Reset,
            },
        );
        verdicts.extend(verdict.map(|verdict| (at, verdict.action, verdict.finding.rule)));
    }
    verdicts
}

fn check(rules: &StopRules, events: &str, expected: &[(usize, Action, &str)]) {
    let seen = run(rules, events);
    let seen: Vec<_> = seen.iter().map(|(at, action, rule)| (*at, *action, rule.as_str())).collect();
    assert_eq!(seen, expected, "{events}");
}

#[test]
fn a_notice_is_told_once_for_each_time_its_condition_turns_true() {
    use Action::Notice;
    let rules = rules("[[rules]]\nname = 'failing'\nwhen = { consecutive_errors = 2 }\nthen = 'notice'");
    check(&rules, "scfscfscfscf", &[(5, Notice, "failing")]);
    check(&rules, "scfscfscoscfscf", &[(5, Notice, "failing"), (14, Notice, "failing")]);
}

#[test]
fn a_rule_that_counts_from_its_last_notice_fires_every_so_often() {
    use Action::{Notice, Recover, Stop};
    let every = |then| {
        rules(&format!(
            "max_strikes = 3\n[[rules]]\nname = 'x'\nwhen = {{ tool_calls = 2 }}\nsince = 'notice'\nthen = '{then}'"
        ))
    };
    check(&every("notice"), "cccccc", &[(1, Notice, "x"), (3, Notice, "x"), (5, Notice, "x")]);
    check(&every("strike"), "ccRcRcccc", &[(1, Recover, "x"), (5, Recover, "x")]);
    check(&every("strike"), "ccRccRcc", &[(1, Recover, "x"), (4, Recover, "x"), (7, Stop, "x")]);
    let once = rules("[[rules]]\nname = 'x'\nwhen = { tool_calls = 2 }\nthen = 'notice'");
    check(&once, "cccccc", &[(1, Notice, "x")]);
    let streak = rules("[[rules]]\nname = 'x'\nwhen = { unknown_tools = 2 }\nsince = 'notice'\nthen = 'notice'");
    check(&streak, "uuuu", &[(1, Notice, "x"), (3, Notice, "x")]);
    check(&streak, "uuouu", &[(1, Notice, "x"), (4, Notice, "x")]);
    let jump = rules("[[rules]]\nname = 'x'\nwhen = { tokens_in = 100 }\nsince = 'notice'\nthen = 'notice'");
    check(&jump, "iiisi", &[(0, Notice, "x"), (1, Notice, "x"), (2, Notice, "x"), (4, Notice, "x")]);
    let of = rules(
        "[[rules]]\nname = 'x'\nwhen = { tool_calls_of = { tool = 't', count = 2 } }\nsince = 'notice'\nthen = 'notice'",
    );
    check(&of, "cccc", &[(1, Notice, "x"), (3, Notice, "x")]);
}

#[test]
fn a_strike_grants_a_recovery_turn_and_the_last_one_ends_the_run() {
    use Action::{Recover, Stop};
    let two = with("");
    check(&two, "tststs", &[(5, Recover, "repeated_replies")]);
    check(&two, "tststststst", &[(5, Recover, "repeated_replies")]);
    check(&two, "tststsRtsts", &[(5, Recover, "repeated_replies")]);
    check(&two, "tststsRtststs", &[(5, Recover, "repeated_replies"), (12, Stop, "repeated_replies")]);
    check(&two, "tststsNtststs", &[(5, Recover, "repeated_replies"), (12, Recover, "repeated_replies")]);
    check(&with("max_strikes = 1"), "tststs", &[(5, Stop, "repeated_replies")]);
}

#[test]
fn a_recovery_lets_only_the_layers_behind_the_verdict_forget() {
    use Action::{Notice, Recover, Stop};
    // The errors of earlier steps keep their count over the recovery from repeated answers.
    let rules = with("errors_notice = 2\nerrors_stop = 3");
    check(
        &rules,
        "scfscfstststsRscf",
        &[(5, Notice, "consecutive_errors"), (12, Recover, "repeated_replies"), (16, Stop, "consecutive_errors")],
    );
}

#[test]
fn one_behaviour_seen_by_two_strikes_is_one_strike() {
    use Action::Recover;
    let both = "[[rules]]\nname = 'a'\nwhen = { unknown_tools = 2 }\nthen = 'strike'\n\
        [[rules]]\nname = 'b'\nwhen = { consecutive_errors = 2 }\nthen = 'strike'";
    // Both at the same moment, and one while the verdict of the other is in force.
    check(&rules(both), "scuscuRscuscoscu", &[(5, Recover, "a")]);
    check(&rules(&both.replace("errors = 2", "errors = 3")), "scuscuscuRscuscosc", &[(5, Recover, "a")]);
}

#[test]
fn with_detection_off_limits_and_stops_of_the_operator_stay() {
    use Action::{Notice, Stop};
    check(&with(""), "Xtststs", &[]);
    check(&with(""), "scuXscuscuscuscuscu", &[]);
    let own = "[[rules]]\nname = 'a'\nwhen = { unknown_tools = 2 }\nthen = 'strike'\n\
        [[rules]]\nname = 'b'\nwhen = { unknown_tools = 3 }\nthen = 'notice'\n\
        [[rules]]\nname = 'c'\nwhen = { unknown_tools = 4 }";
    check(&rules(own), "Xuuuu", &[(3, Notice, "b"), (4, Stop, "c")]);
    check(&rules(own), "XNuuuu", &[(4, Notice, "b"), (5, Stop, "c")]);
    check(&rules(&format!("loops = false\n{own}")), "uuuu", &[(2, Notice, "b"), (3, Stop, "c")]);
    let mut state = StopState { detection_off: true, ..StopState::default() };
    let limits = StopRules::compile(&StopsConfig::default(), &RunLimits { tool_calls: Some(1), ..RunLimits::none() });
    let call = Observation::ToolCall { name: "t", arguments: &Arguments::parse("{}"), spec: None };
    assert_eq!(state.observe(&limits, call).map(|verdict| verdict.finding.reason), Some(StopReason::ToolCalls));
}

#[test]
fn of_several_rules_that_turn_true_at_once_the_table_decides() {
    let steps = |name: &str, when: Condition, then| Rule::new(name, when, then);
    let one_call = || ToolCount { tool: "t".into(), count: 1 };
    use Condition::{All, Calls, ToolCallsOf};
    let tool_calls = |count| Condition::AtLeast(Counter::ToolCalls, count);
    // Each row: rules that all become true at the first call, and the one that is reported.
    for (rules, told) in [
        (vec![steps("a", Calls("t".into()), Then::Stop), steps("b", tool_calls(1), Then::Stop)], "b"),
        (vec![steps("a", tool_calls(1), Then::Stop), steps("b", Calls("t".into()), Then::Stop)], "a"),
        (vec![steps("a", tool_calls(1), Then::Stop), steps("b", ToolCallsOf(one_call()), Then::Stop)], "a"),
        (vec![steps("a", ToolCallsOf(one_call()), Then::Stop), steps("b", tool_calls(1), Then::Stop)], "a"),
        (vec![steps("a", tool_calls(1), Then::Notice), steps("b", Calls("t".into()), Then::Stop)], "b"),
        (vec![steps("a", tool_calls(1), Then::Strike), steps("b", Calls("t".into()), Then::Stop)], "b"),
        (vec![steps("a", tool_calls(1), Then::Notice), steps("b", Calls("t".into()), Then::Strike)], "b"),
        (vec![steps("a", All(vec![]), Then::Stop), steps("b", tool_calls(1), Then::Stop)], "b"),
    ] {
        let compiled = StopRules::of(rules);
        check(&compiled, "c", &[(0, run(&compiled, "c")[0].1, told)]);
    }
}

#[test]
fn what_was_not_told_because_something_else_was_is_told_next() {
    use Action::{Notice, Recover, Stop};
    let rules = rules(
        "[[rules]]\nname = 'a'\nwhen = { tool_calls = 1 }\nthen = 'notice'\n\
         [[rules]]\nname = 'b'\nwhen = { unknown_tools = 1 }\nthen = 'strike'\n\
         [[rules]]\nname = 'c'\nwhen = { consecutive_errors = 1 }\nthen = 'notice'\n\
         [[rules]]\nname = 'd'\nwhen = { steps = 2 }",
    );
    check(&rules, "scuRo", &[(1, Notice, "a"), (2, Recover, "b")]);
    check(&rules, "scuRi", &[(1, Notice, "a"), (2, Recover, "b"), (4, Notice, "c")]);
    check(&rules, "scusRi", &[(1, Notice, "a"), (2, Recover, "b"), (5, Stop, "d")]);
}

#[test]
fn a_rule_of_the_operator_replaces_a_built_in_one_of_its_name() {
    use Action::{Notice, Stop};
    let later = with("[[rules]]\nname = 'unknown_tools'\nwhen = { unknown_tools = 7 }");
    check(&later, "uuuuuuuu", &[(6, Stop, "unknown_tools")]);
    let limit = RunLimits { tool_calls: Some(1), ..RunLimits::none() };
    let own = vec![Rule::new("tool_calls", Condition::AtLeast(Counter::ToolCalls, 2), Then::Notice)];
    let compiled = StopRules::compile(&StopsConfig { rules: own, ..StopsConfig::default() }, &limit);
    check(&compiled, "cc", &[(1, Notice, "tool_calls")]);
}

#[test]
fn the_judge_strikes_like_any_other_layer() {
    let rules = StopRules::progress();
    let finding = || Finding::new(StopReason::JudgedLoop, "LLM_DETECTED_LOOP", 95, 90);
    let mut state = StopState::default();
    let first = state.judged(&rules, finding()).expect("a verdict");
    assert_eq!((first.action, first.strike), (Action::Recover, 1));
    assert_eq!(state.judged(&rules, finding()), None, "a verdict stands");
    state.recover();
    let second = state.judged(&rules, finding()).expect("a verdict");
    assert_eq!((second.action, second.strike, state.latched.is_some()), (Action::Stop, 2, true));
    let mut off = StopState { detection_off: true, ..StopState::default() };
    assert_eq!(off.judged(&rules, finding()), None);
}

#[test]
fn the_deadline_is_the_earliest_reading_at_which_time_alone_ends_the_run() {
    let limits = |active_s, wall_clock_s| RunLimits { active_s, wall_clock_s, ..RunLimits::none() };
    let own = |text: &str| {
        let stops: StopsConfig = toml::from_str(&format!("[[rules]]\nname = 'x'\n{text}")).expect("rules");
        stops
    };
    let none = StopsConfig::default();
    for (stops, limits, expected) in [
        (none.clone(), limits(0, None), None),
        (none.clone(), limits(600, None), Some(1_000 + 600_000 - 61_000 + 50)),
        (none.clone(), limits(600, Some(300)), Some(1_000 + 300_000 - 61_000)),
        (none.clone(), limits(60, None), Some(1_000 + 60_000 - 15_000 + 50)),
        (none, limits(30, None), Some(1_000 + 30_000 + 50)),
        (own("when = { any = [ { steps = 5 }, { wall_clock_s = 9 } ] }"), limits(600, None), Some(10_000)),
        (own("when = { all = [ { steps = 5 }, { wall_clock_s = 9 } ] }"), limits(0, None), None),
        (own("when = { all = [ { not = { wall_clock_s = 9 } }, { steps = 5 } ] }"), limits(0, None), None),
        (own("when = { wall_clock_s = 9 }\nthen = 'notice'"), limits(0, None), None),
    ] {
        let rules = StopRules::compile(&stops, &limits);
        let mut state = StopState::default();
        assert_eq!(rules.deadline_ms(&state), None, "no reading yet");
        for seen in [Observation::Clock(1_000), Observation::Clock(1_100), Observation::Paused(50)] {
            assert_eq!(state.observe(&rules, seen), None);
        }
        let deadline = rules.deadline_ms(&state);
        assert_eq!(deadline, expected, "{limits:?}");
        if let Some(reading) = deadline {
            assert_eq!(state.observe(&rules, Observation::Clock(reading - 1)), None, "not before");
            assert!(state.observe(&rules, Observation::Clock(reading)).is_some(), "but then");
        }
    }
}

#[test]
fn the_state_is_small_when_there_is_little_to_remember() {
    let stored = serde_json::to_string(&StopState::default()).expect("serialises");
    assert!(stored.len() < 100, "{} bytes: {stored}", stored.len());
    assert_eq!(serde_json::from_str::<StopState>("{}").expect("reads"), StopState::default());
}
