//! Measures the cost of an observation. Prints figures and asserts the budget, which is far above them.

use std::time::Instant;

use belay_protocol::Arguments;

use crate::policies::state::*;
use crate::policies::{CallOutcome, RunLimits, StopsConfig, Totals};

/// Most nanoseconds for the median observation, with every policy and limit enabled. 2 µs: a run has a few hundred
/// observations, and a model call takes seconds.
const MEDIAN_NS: u128 = 2_000;

#[test]
#[ignore = "measures; run it with --release -- --ignored --nocapture"]
fn the_median_observation_costs_less_than_two_microseconds() {
    let limits = RunLimits {
        wall_clock_s: Some(36_000),
        model_calls: Some(100_000),
        tool_calls: Some(100_000),
        tool_calls_of: [("fetch_url".into(), 100_000)].into(),
        tokens_total: Some(u64::MAX),
        usd_per_run: Some(1e6),
        output_bytes: Some(u64::MAX),
        ..RunLimits::none()
    };
    let rules = StopRules::compile(&StopsConfig::default(), &limits);
    let mut state = StopState::default();
    let mut costs: Vec<(&str, Vec<u128>)> = Vec::new();
    let mut show = |state: &mut StopState, kind: &'static str, seen: Observation<'_>| {
        let begun = Instant::now();
        let verdict = state.observe(&rules, seen);
        let ns = begun.elapsed().as_nanos();
        assert_eq!(verdict, None, "nothing fires in a healthy run");
        match costs.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, all)) => all.push(ns),
            None => costs.push((kind, vec![ns])),
        }
    };
    let output = "error[E0308]: mismatched types in the module that was changed last\n".repeat(40);
    for n in 0..5_000u64 {
        let answer = format!("Step {n}: I read the next part of the file and look for the function that fails. {n}");
        let raw = format!(r#"{{"path":"src/module_{n}.rs","start":{n},"lines":200,"why":"to see what calls it"}}"#);
        let arguments = Arguments::parse(&raw);
        let totals = Totals { model_calls: n, tool_calls: n, tokens_in: n * 900, ..Totals::default() };
        show(&mut state, "clock", Observation::Clock(n * 3_000));
        show(&mut state, "totals", Observation::Totals(&totals));
        show(&mut state, "step", Observation::Step);
        for piece in answer.split_inclusive(' ') {
            show(&mut state, "text", Observation::Text(piece));
        }
        show(&mut state, "assistant", Observation::Assistant { text: &answer, nudged: false });
        if n % 5 != 0 {
            show(&mut state, "call", Observation::ToolCall { name: "read_file", arguments: &arguments, spec: None });
            let result = format!("{n}\n{output}");
            let outcome = CallOutcome::Success;
            show(&mut state, "result", Observation::ToolResult { name: "read_file", outcome, text: &result });
        }
    }
    let mut all: Vec<u128> = costs.iter().flat_map(|(_, ns)| ns.iter().copied()).collect();
    costs.push(("all", std::mem::take(&mut all)));
    let stored = serde_json::to_string(&state).expect("serialises").len();
    println!("state: {stored} bytes as JSON");
    for (kind, ns) in &mut costs {
        ns.sort_unstable();
        println!(
            "{kind:>10}: median {:>6} ns, 99 % {:>6} ns, n {}",
            ns[ns.len() / 2],
            ns[ns.len() * 99 / 100],
            ns.len()
        );
    }
    let (_, all) = costs.last().expect("all of them");
    assert!(all[all.len() / 2] <= MEDIAN_NS);
}
