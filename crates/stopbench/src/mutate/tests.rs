use proptest::prelude::*;

use super::*;

fn call(name: &str, args: &str) -> TrajectoryEvent {
    TrajectoryEvent::tool(name, args)
}

fn ok(name: &str, text: &str) -> TrajectoryEvent {
    TrajectoryEvent::result(name, true, text)
}

/// A loop of calls with a stream and a thought in each step. The onset is the call of the second round.
fn looped(rounds: usize) -> Run {
    let mut events = vec![TrajectoryEvent::Reset, TrajectoryEvent::User("find it".into())];
    let mut onset = None;
    for round in 0..rounds {
        events.push(TrajectoryEvent::Turn);
        events.push(TrajectoryEvent::Other("where is it".into()));
        events.extend(["I look ", "again."].map(|piece| TrajectoryEvent::Text(piece.into())));
        events.push(TrajectoryEvent::Assistant("I look again.".into()));
        if round == 1 {
            onset = Some(events.len());
        }
        events.push(call("bash", r#"{"command":"ls -la src","timeout":5}"#));
        events.push(ok("bash", "no such directory"));
    }
    Run { events, onset, stuck: true, restarts: Vec::new(), changes: Vec::new() }
}

fn kinds(run: &Run) -> String {
    let kind = |event: &TrajectoryEvent| match event {
        TrajectoryEvent::Tool { name, .. } => name.chars().next().unwrap_or('?'),
        TrajectoryEvent::ToolResult { .. } => '=',
        TrajectoryEvent::Text(_) => '~',
        TrajectoryEvent::Assistant(_) => ':',
        TrajectoryEvent::Turn => '.',
        _ => '-',
    };
    run.events.iter().map(kind).collect()
}

#[test]
fn words_name_mutations_both_ways() {
    for mutation in Mutation::ALL {
        assert_eq!(Mutation::from_word(mutation.word()), Some(*mutation));
    }
    assert_eq!(Mutation::from_word("all"), None);
    assert!(Mutation::ALL.is_sorted_by_key(|mutation| *mutation == Mutation::Restart), "places are named last");
}

#[test]
fn the_onset_stays_at_its_call_whatever_comes_before_it() {
    let run = looped(12);
    for mutation in Mutation::ALL {
        for seed in 0..20 {
            let changed = mutation.apply(&run, &mut Random::new(seed, "test"));
            let onset = changed.onset.expect("kept");
            assert!(
                matches!(&changed.events[onset], TrajectoryEvent::Tool { name, .. } if name == "bash"),
                "{mutation:?}"
            );
            let before = changed.events[..onset]
                .iter()
                .filter(|event| matches!(event, TrajectoryEvent::Tool { name, .. } if name == "bash"));
            assert_eq!(before.count(), 1, "{mutation:?}: the second call of the loop");
            assert_eq!(
                mutation.apply(&run, &mut Random::new(seed, "test")),
                changed,
                "{mutation:?} is drawn from its seed"
            );
        }
    }
}

#[test]
fn each_mutation_changes_what_it_says_and_nothing_else() {
    let run = looped(12);
    let of = |mutation: Mutation| mutation.apply(&run, &mut Random::new(3, "test"));
    let meaning = |run: &Run| run.events.iter().filter_map(|event| event.arguments().cloned()).collect::<Vec<_>>();
    let written = |run: &Run| {
        run.events
            .iter()
            .filter_map(|event| match event {
                TrajectoryEvent::Tool { args, .. } => Some(args.written().to_owned()),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let shuffled = of(Mutation::Shuffle);
    assert_eq!(meaning(&shuffled), meaning(&run));
    assert_ne!(written(&shuffled), written(&run));
    let nonces = of(Mutation::Nonces);
    let distinct: std::collections::BTreeSet<_> = written(&nonces).into_iter().collect();
    assert_eq!((distinct.len(), kinds(&nonces)), (12, kinds(&run)));
    let counted = of(Mutation::Counters);
    assert!(written(&counted)[11].ends_with(":12}"), "{}", written(&counted)[11]);
    let spaced = of(Mutation::Whitespace);
    assert_ne!(spaced.events, run.events);
    assert!(written(&spaced).iter().all(|args| args.contains("la") && args.ends_with("\"timeout\":5}")));
    let paraphrased = of(Mutation::Paraphrase);
    assert_eq!(meaning(&paraphrased), meaning(&run));
    assert_eq!(kinds(&paraphrased), kinds(&run).replace("~~", "~~~"));
    let restarted = of(Mutation::Restart);
    assert_eq!((restarted.restarts.len(), &restarted.events), (3, &run.events));
    assert!(restarted.restarts.iter().all(|at| run.events[*at] == TrajectoryEvent::Turn));
}

#[test]
fn harmless_calls_come_between_steps_and_never_two_in_a_row() {
    let text = kinds(&Mutation::Harmless.apply(&looped(100), &mut Random::new(3, "test")));
    assert!(text.contains(".c=") && text.contains(".t="), "{text}");
    assert!(!["c=.c", "c=.t", "t=.c", "t=.t"].iter().any(|two| text.contains(two)), "{text}");
    // Recordings without turns, and recordings without results.
    for (events, broken) in [(vec![call("f", "{}"), ok("f", "1")], "fc"), (vec![call("f", "{}")], "==")] {
        let events = events.into_iter().cycle().take(200).collect();
        let run = Run { events, onset: None, stuck: false, restarts: Vec::new(), changes: Vec::new() };
        let text = kinds(&Mutation::Harmless.apply(&run, &mut Random::new(3, "test")));
        assert!(text.contains('c') && !text.contains(broken), "{text}");
    }
}

#[test]
fn what_is_about_text_keeps_its_text() {
    let said = |text: &str| TrajectoryEvent::Assistant(text.into());
    let events = vec![
        TrajectoryEvent::Turn,
        said("Let me know."),
        TrajectoryEvent::Turn,
        said("Let me know."),
        TrajectoryEvent::Turn,
    ];
    let stuck = Run { events, onset: Some(3), stuck: true, restarts: Vec::new(), changes: Vec::new() };
    let healthy = Run { onset: None, stuck: false, ..stuck.clone() };
    let applying =
        |run: &Run| Mutation::ALL.iter().filter(|mutation| mutation.applies(run)).copied().collect::<Vec<_>>();
    assert_eq!(applying(&stuck), [Mutation::Reslice, Mutation::Restart]);
    assert_eq!(applying(&healthy), [Mutation::Paraphrase, Mutation::Reslice, Mutation::Restart]);
    assert_eq!(applying(&looped(6)), Mutation::ALL);
}

#[test]
fn an_onset_within_a_stream_moves_to_the_piece_that_holds_it() {
    let pieces = ["we go ", "round and ", "round and ", "round"].map(|piece| TrajectoryEvent::Text(piece.into()));
    let run = Run { events: pieces.to_vec(), onset: Some(2), stuck: true, restarts: Vec::new(), changes: Vec::new() };
    for seed in 0..30 {
        let changed = Mutation::Reslice.apply(&run, &mut Random::new(seed, "test"));
        let text = |events: &[TrajectoryEvent]| {
            events
                .iter()
                .map(|event| if let TrajectoryEvent::Text(text) = event { text.as_str() } else { "" })
                .collect::<String>()
        };
        let onset = changed.onset.unwrap();
        let (before, through) = (text(&changed.events[..onset]).len(), text(&changed.events[..=onset]).len());
        assert!((before..through).contains(&"we go round and ".len()), "{before}..{through}");
        assert_eq!(text(&changed.events), "we go round and round and round");
    }
}

proptest! {
    #[test]
    fn slicing_changes_no_text(pieces in prop::collection::vec(".{0,12}", 1..8), onset in 0_usize..8, seed: u64) {
        let whole: String = pieces.concat();
        let mut events: Vec<_> = pieces.into_iter().map(TrajectoryEvent::Text).collect();
        events.push(TrajectoryEvent::Assistant(whole.clone()));
        let onset = Some(onset.min(events.len() - 1));
        let run = Run { events, onset, stuck: true, restarts: Vec::new(), changes: Vec::new() };
        let changed = Mutation::Reslice.apply(&run, &mut Random::new(seed, "test"));
        let streamed: String = changed.events.iter().filter_map(|event| match event {
            TrajectoryEvent::Text(text) => Some(text.as_str()),
            _ => None,
        }).collect();
        prop_assert_eq!(streamed, whole);
        prop_assert!(changed.onset.is_some_and(|onset| onset < changed.events.len()));
    }
}
