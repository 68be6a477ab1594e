//! Properties that hold for every run.

use belay_protocol::Arguments;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::*;
use super::notation::{Event, play, read};

/// Scripts with a loop of each kind.
const LOOPS: [&str; 8] = [
    "9x read(path=a, lines=5) -> x",
    "9x read(path=a, deep=yes) -> x | grep(pattern=foo bar, path=src) -> 3 hits",
    "9x f(a=1, b=2) -> x | muse(about={w}) -> hm",
    "20x fetch(url=http://x/{w}, mode=raw) -> !connection refused",
    "20x search(query=mend foo bar {w} {i}, lang=en) -> No results found.",
    "40x get_status(id=1, full=no) -> in progress",
    "9x write(path=a, content=x) -> ok | write(path=a, content=y) -> ok",
    "9x run_tests(suite=all, fast=yes) -> !3 of 40 failed",
];

/// The same events with the keys of the arguments in another order, and with nonces in arguments and results.
fn disguised(events: &[Event], turn: usize, nonces: &[u32]) -> Vec<Event> {
    let mut nonces = nonces.iter().cycle();
    let mut nonce = || u64::from(*nonces.next().expect("a cycle")).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let disguise = |event: &Event| match event {
        Event::Call { name, arguments: Arguments::Object(map) } => {
            let mut pairs: Vec<(String, Value)> = map.clone().into_iter().collect();
            let at = turn % pairs.len().max(1);
            pairs.rotate_left(at);
            pairs.insert(0, ("request_id".into(), json!(format!("{:016x}", nonce()))));
            pairs.push(("timestamp".into(), json!(1_767_000_000 + nonce() % 1_000_000)));
            pairs.push(("nonce".into(), json!(nonce())));
            Event::Call { name: name.clone(), arguments: Arguments::Object(Map::from_iter(pairs)) }
        }
        Event::Result { name, outcome, text } => {
            let (seed, second) = (nonce(), nonce() % 59 + 1);
            let text = format!("[2026-01-02T03:04:{second:02}Z] {text} (trace_id={seed:016x}, took {} ms)", seed % 999);
            Event::Result { name: name.clone(), outcome: *outcome, text }
        }
        other => other.clone(),
    };
    events.iter().map(disguise).collect()
}

fn verdict(events: &[Event]) -> Option<(usize, String)> {
    play(&ToolLoopConfig::default(), events).map(|(at, finding)| (at, finding.rule))
}

/// Any event, from so few values that repetitions are common.
fn event() -> impl Strategy<Value = Event> {
    let name = prop::sample::select(vec!["read", "edit", "run_tests", "get_status", "sleep", "think", "search", "f"]);
    let key = prop::sample::select(vec!["path", "query", "old_string", "new_string", "content", "page", "id"]);
    let text =
        prop::sample::select(vec!["", "ok", "no results", "pending", "a b c", "17", "failed", "text of some size"]);
    let call = (name.clone(), key, text.clone()).prop_map(|(name, key, text)| Event::Call {
        name: name.into(),
        arguments: Arguments::Object(Map::from_iter([(key.to_owned(), json!(text))])),
    });
    let outcome = prop::sample::select(vec![CallOutcome::Success, CallOutcome::Failed, CallOutcome::NotExecuted]);
    let result = (name, outcome, text).prop_map(|(name, outcome, text)| Event::Result {
        name: name.into(),
        outcome,
        text: text.into(),
    });
    prop_oneof![4 => call, 4 => result, 1 => (0u64..90_000).prop_map(Event::Clock), 1 => Just(Event::Compacted)]
}

proptest! {
    #[test]
    fn shuffled_keys_and_nonces_change_no_verdict(
        which in 0..LOOPS.len(), turn in 0usize..5, nonces in proptest::collection::vec(any::<u32>(), 7..40)
    ) {
        let plain = read(LOOPS[which]);
        prop_assert!(verdict(&plain).is_some(), "{}", LOOPS[which]);
        prop_assert_eq!(verdict(&disguised(&plain, turn, &nonces)), verdict(&plain), "{}", LOOPS[which]);
    }

    #[test]
    fn calls_whose_results_are_always_new_are_no_loop(calls in proptest::collection::vec((0usize..6, 0usize..3), 0..200)) {
        let names = ["read", "search", "get_status", "run_tests", "f", "edit"];
        let script: Vec<String> = calls
            .iter()
            .enumerate()
            .map(|(at, (name, argument))| format!("{}(path=a{argument}) -> fact number {at}", names[*name]))
            .collect();
        prop_assert_eq!(verdict(&read(&script.join("\n"))), None);
    }

    #[test]
    fn a_state_that_was_stored_and_read_back_counts_on(
        events in proptest::collection::vec(event(), 0..120), at in 0usize..120
    ) {
        let config = ToolLoopConfig::default();
        let (mut kept, mut stored) = (ToolLoops::default(), ToolLoops::default());
        for (i, event) in events.iter().enumerate() {
            kept.observe(&config, &event.seen());
            stored.observe(&config, &event.seen());
            if i == at || i % 17 == 0 {
                let text = serde_json::to_string(&stored).expect("serialises");
                stored = serde_json::from_str(&text).expect("reads back");
            }
            prop_assert_eq!(&kept, &stored);
        }
    }
}

proptest! {
    // A case has hundreds of calls, and a bound depends little on chance. `make soak` has more of them.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]

    #[test]
    fn a_state_stays_small(seed in any::<u64>(), calls in 100usize..400) {
        let config = ToolLoopConfig::default();
        let mut loops = ToolLoops::default();
        for at in 0..calls as u64 {
            let n = (seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let name = format!("write_a_thing_with_a_long_name_{}", n % 90);
            let words: Vec<String> = (0..20).map(|word| format!("word{}", n + word)).collect();
            let map = Map::from_iter([("path".to_owned(), json!(n)), ("content".to_owned(), json!(words.join("\"\\ ")))]);
            let arguments = Arguments::Object(map);
            loops.observe(&config, &Observation::ToolCall { name: &name, arguments: &arguments, spec: None });
            let text = format!("fact {at}");
            if at % 20 < 10 {
                loops.observe(&config, &Observation::ToolResult { name: &name, outcome: CallOutcome::Success, text: &text });
            }
        }
        let size = serde_json::to_string(&loops).expect("serialises").len();

        prop_assert!(size <= 6 * 1024, "{size} bytes");
    }
}
