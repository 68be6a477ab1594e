//! Properties that hold for any run, any rules, and a restart at any moment.

use belay_protocol::Arguments;
use proptest::prelude::*;

use crate::policies::state::*;
use crate::policies::{CallOutcome, Condition, RunLimits, StopsConfig, Totals};

/// An observation with its own text.
#[derive(Clone, Debug)]
enum Seen {
    Step,
    Text(&'static str),
    Assistant(&'static str, bool),
    Call(&'static str, u8),
    Result(&'static str, CallOutcome),
    User,
    Usage(u64, u64),
    Totals(Totals),
    Clock(u64),
    Paused(u64),
    Compacted(u64, u64),
    Other,
    Reset,
    Recover,
    Disable,
}

const TOOLS: &[&str] = &["read", "fetch_url", "push"];

const SAID: &[&str] = &[
    "",
    "  ",
    "DONE",
    "Not yet.",
    "I look at the configuration of the server once more and then I change the port in it.",
    "I look at the configuration of the server once more and then I change the port in it!",
];

fn seen() -> impl Strategy<Value = Seen> {
    use CallOutcome::*;
    let tool = || proptest::sample::select(TOOLS);
    let said = || proptest::sample::select(SAID);
    let outcome =
        proptest::sample::select(&[Success, Failed, Failed, UnknownTool, InvalidArguments, Denied, NotExecuted][..]);
    let totals = proptest::array::uniform7(0..40u64).prop_map(|[a, b, c, d, e, f, g]| {
        Seen::Totals(Totals {
            model_calls: a,
            tool_calls: b,
            tokens_in: c * 10,
            tokens_out: d,
            run_micro_usd: e * 20_000,
            session_micro_usd: f * 20_000,
            output_bytes: g * 50,
        })
    });
    prop_oneof![
        6 => Just(Seen::Step),
        2 => said().prop_map(Seen::Text),
        5 => (said(), proptest::bool::weighted(0.2)).prop_map(|(text, nudged)| Seen::Assistant(text, nudged)),
        6 => (tool(), 0..3u8).prop_map(|(name, n)| Seen::Call(name, n)),
        6 => (tool(), outcome).prop_map(|(name, outcome)| Seen::Result(name, outcome)),
        1 => Just(Seen::User),
        2 => (0..50u64, 0..9u64).prop_map(|(input, output)| Seen::Usage(input, output)),
        1 => totals,
        3 => (0..900_000u64).prop_map(Seen::Clock),
        1 => (0..90_000u64).prop_map(Seen::Paused),
        2 => (0..100u64, 0..100u64).prop_map(|(before, after)| Seen::Compacted(before, after)),
        1 => Just(Seen::Other),
        1 => Just(Seen::Reset),
        3 => Just(Seen::Recover),
        1 => Just(Seen::Disable),
    ]
}

impl Seen {
    fn show(&self, state: &mut StopState, rules: &StopRules) -> Option<Verdict> {
        let arguments = match self {
            Self::Call(_, n) => Arguments::parse(&format!(r#"{{"n":{n}}}"#)),
            _ => Arguments::parse("{}"),
        };
        state.observe(
            rules,
            match self {
                Self::Step => Observation::Step,
                Self::Text(text) => Observation::Text(text),
                Self::Assistant(text, nudged) => Observation::Assistant { text, nudged: *nudged },
                Self::Call(name, _) => Observation::ToolCall { name, arguments: &arguments, spec: None },
                Self::Result(name, outcome) => {
                    Observation::ToolResult { name, outcome: *outcome, text: "what the tool says" }
                }
                Self::User => Observation::User("go on"),
                Self::Usage(input, output) => Observation::Usage { input: *input, output: *output },
                Self::Totals(totals) => Observation::Totals(totals),
                Self::Clock(ms) => Observation::Clock(*ms),
                Self::Paused(ms) => Observation::Paused(*ms),
                Self::Compacted(before, after) => Observation::Compacted { before: *before, after: *after },
                Self::Other => Observation::Other,
                Self::Reset => Observation::Reset,
                Self::Recover => Observation::Recover,
                Self::Disable => Observation::Disable,
            },
        )
    }
}

/// Rules that together use every leaf except chanting, whose state is not stored, with every action.
fn rules() -> StopRules {
    let stops: StopsConfig = toml::from_str(
        r#"
        max_strikes = 3
        errors_notice = 2
        repeated_replies = 1
        [[rules]]
        name = "chanting" # replaces the built-in one
        when = { all = [ { says = "DONE" }, { calls = "push" } ] }
        then = "strike"
        [[rules]]
        name = "every_three"
        when = { tool_calls = 3 }
        since = "notice"
        then = "notice"
        [[rules]]
        name = "fetches"
        when = { tool_calls_of = { tool = "fetch_url", count = 4 } }
        since = "notice"
        then = "strike"
        [[rules]]
        name = "streak"
        when = { any = [ { unknown_tools = 2 }, { all = [ { invalid_arguments = 1 }, { not = { steps = 4 } } ] } ] }
        since = "notice"
        then = "notice"
        [[rules]]
        name = "long_and_poor"
        when = { all = [ { active_s = 120 }, { any = [ { compactions_without_gain = 2 }, { empty_replies = 2 } ] } ] }
        [[rules]]
        name = "money"
        when = { any = [ { run_usd = 0.5 }, { session_usd = 0.7 } ] }
        then = "strike"
        [[rules]]
        name = "denied"
        when = { all = [ { approval_reasks = 2 }, { not = { says = "DONE" } } ] }
        then = "notice"
        "#,
    )
    .expect("rules");
    let limits = RunLimits {
        active_s: 600,
        wall_clock_s: Some(800),
        model_calls: Some(30),
        tokens_total: Some(320),
        output_bytes: Some(1_500),
        ..RunLimits::none()
    };
    StopRules::compile(&stops, &limits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]

    #[test]
    fn verdicts_do_not_depend_on_where_the_state_was_stored_and_read_back(
        run in proptest::collection::vec((seen(), any::<bool>()), 0..120)
    ) {
        let rules = rules();
        let (mut whole, mut stored) = (StopState::default(), StopState::default());
        for (seen, restart) in &run {
            prop_assert_eq!(seen.show(&mut whole, &rules), seen.show(&mut stored, &rules), "{:?}", seen);
            if *restart {
                let text = serde_json::to_string(&stored).expect("serialises");
                stored = serde_json::from_str(&text).expect("reads back");
            }
        }
    }

    #[test]
    fn asking_only_the_rules_that_an_event_can_change_misses_nothing(
        run in proptest::collection::vec(seen(), 0..120)
    ) {
        let rules = rules();
        let (mut some, mut every) = (StopState::default(), StopState::default());
        // Changes by pieces of text are evaluated at the next complete observation, by design.
        for seen in run.iter().filter(|seen| !matches!(seen, Seen::Text(_))) {
            every.untold = rules.watched.read_measures;
            let told = seen.show(&mut some, &rules);
            prop_assert_eq!(&told, &seen.show(&mut every, &rules), "{:?}", seen);
            if told.is_some_and(|told| told.action != Action::Notice) {
                break; // what is still true after a recovery strikes only at an event that changes it
            }
        }
    }

    #[test]
    fn of_several_rules_true_at_once_the_strongest_and_then_the_table_decides(
        chosen in proptest::collection::vec((0..7usize, 0..3usize), 1..12)
    ) {
        let leaves = [
            Condition::AtLeast(Counter::ModelCalls, 1), Condition::AtLeast(Counter::ToolCalls, 1), Condition::AtLeast(Counter::TokensIn, 1), Condition::AtLeast(Counter::RunMicroUsd, 100_000),
            Condition::AtLeast(Counter::SessionMicroUsd, 100_000), Condition::AtLeast(Counter::OutputBytes, 1),
            Condition::All(vec![Condition::AtLeast(Counter::ModelCalls, 1), Condition::AtLeast(Counter::ToolCalls, 1)]),
        ];
        let thens = [Then::Stop, Then::Strike, Then::Notice];
        let rule = |(at, &(leaf, then)): (usize, &(usize, usize))| Rule::new(at.to_string(), leaves[leaf].clone(), thens[then]);
        let rules = StopRules::of(chosen.iter().enumerate().map(rule).collect());
        let totals = Totals {
            model_calls: 1, tool_calls: 1, tokens_in: 1, tokens_out: 1, run_micro_usd: 500_000,
            session_micro_usd: 500_000, output_bytes: 1,
        };
        let told = StopState::default().observe(&rules, Observation::Totals(&totals)).expect("all are true");
        let mut measures = Measures::default();
        measures.observe(&rules.watched, &Observation::Totals(&totals));
        // Finds the expected rule: stop before strike before notice, then the precedence, then the order.
        let mut best: Option<(usize, usize, belay_protocol::StopReason)> = None;
        for (at, &(leaf, then)) in chosen.iter().enumerate() {
            let reason = leaves[leaf].holds(&measures).expect("true").reason;
            let better = best.is_none_or(|(_, other, seen)| {
                then < other || (then == other && reason.precedence(seen).is_lt())
            });
            if better {
                best = Some((at, then, reason));
            }
        }
        let (at, then, reason) = best.expect("at least one");
        prop_assert_eq!((told.finding.rule, told.finding.reason), (at.to_string(), reason));
        prop_assert_eq!(told.action, [Action::Stop, Action::Recover, Action::Notice][then]);
    }

    #[test]
    fn nothing_is_judged_while_a_verdict_stands_and_strikes_never_exceed_what_was_told(
        run in proptest::collection::vec(seen(), 0..120)
    ) {
        let rules = rules();
        let mut state = StopState::default();
        let mut told = 0;
        for seen in &run {
            let stood = state.latched.is_some();
            let verdict = seen.show(&mut state, &rules);
            if matches!(seen, Seen::Reset) {
                told = 0;
            }
            if let Some(verdict) = verdict {
                prop_assert!(!stood);
                prop_assert_eq!(state.latched.is_some(), verdict.action != Action::Notice);
                told += u32::from(verdict.action != Action::Notice);
                prop_assert_eq!(verdict.strike == 0, verdict.action == Action::Notice);
            }
            prop_assert_eq!(state.strikes, told);
        }
    }
}
