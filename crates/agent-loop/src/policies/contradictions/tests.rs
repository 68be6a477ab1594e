use super::*;

/// The problems of these settings, with limits of 100 model calls and one hour, and 50 steps.
fn problems(text: &str) -> Vec<String> {
    let stops: StopsConfig = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(stops.validate(), Vec::<String>::new(), "{text}");
    let limits = RunLimits {
        active_s: 600,
        wall_clock_s: Some(3_600),
        model_calls: Some(100),
        tool_calls: Some(200),
        tool_calls_of: [("fetch_url".into(), 20)].into(),
        usd_per_run: Some(0.5),
        ..RunLimits::none()
    };
    stops.problems(&limits, Some(50))
}

/// The problems of one rule that has this condition and only sends a notice.
fn notice(when: &str) -> Vec<String> {
    problems(&format!("[[rules]]\nname = 'x'\nwhen = {when}\nthen = 'notice'"))
}

fn check(found: &[String], expected: &[&str], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: {found:#?}");
    for (problem, words) in found.iter().zip(expected) {
        assert!(problem.starts_with("stops.") && problem.contains(words), "{what}: {problem} should say {words}");
    }
}

#[test]
fn what_is_written_by_default_is_all_right() {
    check(&problems(""), &[], "the defaults");
    check(&problems("enabled = false"), &[], "switched off");
    check(&problems("loops = false"), &[], "without loops");
    assert_eq!(StopsConfig::default().problems(&RunLimits::none(), None), Vec::<String>::new());
}

#[test]
fn a_condition_that_is_never_or_always_true_is_named() {
    for (when, expected) in [
        ("{ any = [] }", Some("can never fire: it is an empty `any`")),
        ("{ all = [] }", Some("is true from the beginning")),
        ("{ not = { any = [] } }", Some("is true from the beginning")),
        ("{ not = { all = [] } }", Some("can never fire")),
        ("{ not = { steps = 3 } }", Some("is true from the beginning")),
        ("{ not = { not = { steps = 3 } } }", None),
        ("{ any = [ { steps = 3 }, { not = { says = 'x' } } ] }", Some("is true from the beginning")),
        ("{ all = [ { steps = 3 }, { not = { says = 'x' } } ] }", None),
        ("{ all = [ { steps = 3 }, { not = { steps = 3 } } ] }", Some("asks for steps = 3 and not steps = 3")),
        ("{ all = [ { steps = 5 }, { not = { steps = 3 } } ] }", Some("asks for steps = 5 and not steps = 3")),
        ("{ all = [ { steps = 3 }, { not = { steps = 5 } } ] }", None),
        ("{ all = [ { says = 'x' }, { not = { says = 'x' } } ] }", Some("asks for says = \"x\" and not says = \"x\"")),
        ("{ all = [ { says = 'DONE' }, { not = { says = 'ONE' } } ] }", Some("asks for says")),
        ("{ all = [ { says = 'ONE' }, { not = { says = 'DONE' } } ] }", None),
        ("{ all = [ { calls = 'a' }, { not = { calls = 'b' } } ] }", None),
        ("{ all = [ { tool_loop = true }, { not = { tool_loop = true } } ] }", Some("asks for tool_loop and not")),
        ("{ all = [ { active_s = 9 }, { not = { wall_clock_s = 5 } } ] }", Some("asks for active_s = 9 and not wall")),
        ("{ all = [ { wall_clock_s = 9 }, { not = { active_s = 5 } } ] }", None),
        (
            "{ all = [ { steps = 3 }, { any = [ { not = { steps = 2 } }, { not = { steps = 3 } } ] } ] }",
            Some("can never fire"),
        ),
        ("{ all = [ { steps = 3 }, { any = [ { not = { steps = 2 } }, { not = { steps = 4 } } ] } ] }", None),
        ("{ all = [ { steps = 3 }, { not = { all = [ { steps = 2 }, { says = 'x' } ] } } ] }", None),
        ("{ all = [ { steps = 3 }, { not = { any = [ { steps = 2 }, { says = 'x' } ] } } ] }", Some("can never fire")),
    ] {
        check(&notice(when), expected.as_slice(), when);
    }
}

#[test]
fn what_only_code_can_write_is_seen_as_well() {
    let rule = |when| StopsConfig { rules: vec![Rule::new("x", when, Then::Notice)], ..StopsConfig::default() };
    let problems = |when| rule(when).problems(&RunLimits::none(), None);
    check(&problems(Condition::AtLeast(Counter::Steps, 0)), &["is true from the beginning"], "steps = 0");
    check(
        &problems(Condition::Not(Box::new(Condition::AtLeast(Counter::Steps, 0)))),
        &["steps is always at least 0"],
        "not steps = 0",
    );
    check(&problems(Condition::ToolLoop(false)), &["never holds"], "tool_loop = false");
    // With too many cases, the condition is not checked.
    let pair = || Condition::Any(vec![Condition::AtLeast(Counter::Steps, 1), Condition::Says("x".into())]);
    let mut many: Vec<Condition> = (0..20).map(|_| pair()).collect();
    many.push(Condition::ToolLoop(false));
    check(&problems(Condition::All(many)), &[], "2^20 cases");
}

#[test]
fn a_threshold_that_something_else_forestalls_is_named() {
    for (when, expected) in [
        ("{ steps = 50 }", None),
        ("{ steps = 51 }", Some("the limit of 50 steps ends the run before steps = 51")),
        ("{ consecutive_errors = 4 }", None),
        (
            "{ consecutive_errors = 6 }",
            Some("the built-in rule errors_stop = 5 ends the run before consecutive_errors = 6"),
        ),
        (
            "{ consecutive_errors = 5 }",
            Some("decides nothing: the built-in rule errors_stop = 5 ends the run at the same moment"),
        ),
        ("{ model_calls = 99 }", None),
        ("{ model_calls = 100 }", Some("limits.model_calls = 100 ends the run at the same moment")),
        ("{ model_calls = 101 }", Some("limits.model_calls = 100 ends the run before")),
        ("{ active_s = 538 }", None),
        ("{ active_s = 539 }", Some("limits.active_s = 600, of which 61 s are for the closing turn, ends the run at")),
        ("{ active_s = 601 }", Some("for the closing turn, ends the run before active_s = 601")),
        ("{ wall_clock_s = 601 }", None),
        ("{ wall_clock_s = 3601 }", Some("limits.wall_clock_s = 3600")),
        ("{ tool_calls_of = { tool = 'fetch_url', count = 21 } }", Some("before tool_calls_of fetch_url = 21")),
        ("{ tool_calls_of = { tool = 'other', count = 21 } }", None),
        ("{ tool_calls_of = { tool = 'other', count = 201 } }", Some("limits.tool_calls = 200")),
        ("{ unknown_tools = 6 }", Some("the built-in rule unknown_tools = 5")),
        ("{ run_usd = 0.4 }", None),
        ("{ run_usd = 0.6 }", Some("limits.usd_per_run = 0.5 ends the run before run_usd = 0.6")),
        ("{ session_usd = 0.6 }", None),
        ("{ tokens_total = 1_000_000_000 }", None),
        ("{ any = [ { steps = 60 }, { steps = 40 } ] }", None),
        ("{ any = [ { steps = 60 }, { model_calls = 300 } ] }", Some("can never fire")),
        ("{ all = [ { says = 'x' }, { steps = 60 } ] }", Some("can never fire")),
        ("{ not = { not = { steps = 60 } } }", Some("can never fire")),
        ("{ all = [ { steps = 30 }, { not = { steps = 60 } } ] }", None),
    ] {
        check(&notice(when), expected.as_slice(), when);
    }
    check(&problems("errors_notice = 5"), &["stops.errors_notice: never comes"], "a notice at the end");
    check(&problems("errors_notice = 4"), &[], "a notice before the end");
    check(&problems("errors_notice = 9\nerrors_stop = 0"), &[], "a notice without an end");
    let own = "[[rules]]\nname = 'errors_stop'\nwhen = { consecutive_errors = 9 }\n";
    check(&problems(&format!("errors_notice = 7\n{own}")), &[], "a notice before an end of the operator's own");
}

#[test]
fn rules_of_the_operator_forestall_each_other() {
    let two =
        |one: &str, other: &str| problems(&format!("[[rules]]\nname = 'a'\n{one}\n[[rules]]\nname = 'b'\n{other}"));
    for (one, other, expected) in [
        ("when = { steps = 10 }", "when = { steps = 20 }", Some("`b` can never fire: `a` (steps = 10)")),
        ("when = { steps = 20 }", "when = { steps = 10 }", Some("`a` can never fire: `b` (steps = 10)")),
        ("when = { steps = 10 }", "when = { steps = 10 }", Some("`b` decides nothing: `a` (steps = 10)")),
        ("when = { steps = 10 }\nthen = 'notice'", "when = { steps = 10 }", Some("`a` decides nothing: `b`")),
        ("when = { steps = 10 }\nthen = 'notice'", "when = { steps = 20 }", None),
        ("when = { steps = 10 }\nthen = 'strike'", "when = { steps = 20 }", None),
        ("when = { any = [ { says = 'x' }, { steps = 10 } ] }", "when = { steps = 20 }", Some("`b` can never fire")),
        ("when = { all = [ { says = 'x' }, { steps = 10 } ] }", "when = { steps = 20 }", None),
        ("when = { says = 'x' }", "when = { says = 'x' }\nthen = 'notice'", None),
    ] {
        check(&two(one, other), expected.as_slice(), &format!("{one} / {other}"));
    }
    let at_once = two("when = { all = [] }", "when = { steps = 3 }");
    check(&at_once, &["`a` is true from the beginning", "`b` is never reached: `a` ends every run"], "at once");
}

#[test]
fn settings_of_a_rule_that_mean_nothing_are_named() {
    let rule = |text: &str| problems(&format!("[[rules]]\nname = 'x'\n{text}"));
    for (text, expected) in [
        ("when = { steps = 3 }\nthen = 'notice'\nsince = 'notice'", None),
        ("when = { any = [ { says = 'x' }, { steps = 3 } ] }\nthen = 'notice'\nsince = 'notice'", None),
        ("when = { says = 'x' }\nthen = 'notice'\nsince = 'notice'", Some("nothing in it counts")),
        ("when = { tool_loop = true }\nthen = 'strike'\nsince = 'notice'", Some("nothing in it counts")),
        ("when = { steps = 3 }\nsince = 'notice'", Some("since = \"notice\" means nothing")),
        ("when = { steps = 3 }\nthen = 'strike'", None),
    ] {
        check(&rule(text), expected.as_slice(), text);
    }
    let strike = "loops = false\n[[rules]]\nname = 'x'\nwhen = { steps = 3 }\nthen = 'strike'";
    check(&problems(strike), &["`x` is a strike, and loops = false"], "a strike without loops");
    let twice = "[[rules]]\nname = 'x'\nwhen = { steps = 3 }\n[[rules]]\nname = 'x'\nwhen = { steps = 2 }";
    check(&problems(twice), &["stops.rules[0]: `x` is replaced by a later rule"], "two rules of one name");
}
