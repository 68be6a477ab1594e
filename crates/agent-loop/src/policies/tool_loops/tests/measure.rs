//! Prints the cost of an event: `cargo test --release -p belay-agent-loop -- --ignored --nocapture measure`.

use std::time::Instant;

use super::super::*;
use super::notation::read;

#[test]
#[ignore = "a measurement, and not a test"]
fn measure() {
    let config = ToolLoopConfig::default();
    let big = |i: u32| format!("{i} {}", "let total = items.iter().map(|item| item.price).sum::<u64>();\n".repeat(170));
    for (what, script) in [
        (
            "short calls and results",
            "100x read_file(path=src/{w}{i}.rs) -> line {i} of it | edit(path=a, old_string=x{i}, new_string=y) -> ok",
        ),
        ("calls alone", "200x read_file(path=src/{w}{i}.rs, limit=100)"),
        ("commands", "100x bash(\"cd /repo && cargo test -p crate{i} --quiet\") -> {long {i}}"),
        ("results of 10 KB", "100x read_file(path=src/{i}.rs) -> BIG{i}"),
    ] {
        let mut events = read(script);
        for event in &mut events {
            if let super::notation::Event::Result { text, .. } = event
                && let Some(i) = text.strip_prefix("BIG")
            {
                *text = big(i.parse().expect("a number"));
            }
        }
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        let mut size = 0;
        for _ in 0..200 {
            let mut loops = ToolLoops::default();
            for event in &events {
                let seen = event.seen();
                let begin = Instant::now();
                loops.observe(&config, &seen);
                let times = if matches!(seen, Observation::ToolCall { .. }) { &mut calls } else { &mut results };
                times.push(begin.elapsed().as_nanos());
            }
            assert_eq!(loops.found(), None, "{what}");
            size = serde_json::to_string(&loops).expect("serialises").len();
        }
        for (kind, times) in [("call", &mut calls), ("result", &mut results)] {
            times.sort_unstable();
            if let Some(last) = times.len().checked_sub(1) {
                println!("{what}: {kind} median {} ns, 99 % {} ns", times[last / 2], times[last * 99 / 100]);
            }
        }
        println!("{what}: state {size} bytes");
    }
}
