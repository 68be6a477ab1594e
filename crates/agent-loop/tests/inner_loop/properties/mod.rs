//! What holds whatever the model says, the person interjects, and the delegate gets wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use belay_agent_loop::{AgenticLoopConfig, LoopContext, LoopSignal};
use belay_protocol::{Message, MessageScope, ModelErrorKind, StopReason};
use belay_testkit::scripted_model::{Scripted, check_transcript};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::json;

use crate::support::{Play, Sloppy};

/// One reply of a random model. Few kinds of everything, so that streaks come about.
#[derive(Clone, Debug)]
enum Said {
    Text(&'static str),
    Calls { calls: Vec<(&'static str, bool)>, ids: Vec<&'static str>, truncated: bool },
    Error,
}

impl Said {
    fn script(&self, at: usize) -> Scripted {
        match self {
            Self::Text(text) => Scripted::text(*text),
            Self::Error => Scripted::error(ModelErrorKind::Network),
            Self::Calls { calls, ids, truncated } => {
                // Numbered by place in the whole script, so that a resumed run hears the same ids.
                let own: Vec<String> = (0..calls.len()).map(|call| format!("id-{at}-{call}")).collect();
                let ids = own.iter().zip(ids).map(|(own, id)| if *id == "own" { own } else { *id });
                let batch = Scripted::calls(calls.iter().map(|(name, fail)| {
                    let arguments = if *name == "cut" { json!("{\"a\":") } else { json!({ "fail": fail }) };
                    (if *name == "cut" { "read" } else { *name }, arguments)
                }));
                let batch = batch.with_ids(ids);
                if *truncated { batch.truncated() } else { batch }
            }
        }
    }
}

fn said() -> impl Strategy<Value = Said> {
    let call =
        (prop_oneof![4 => Just("read"), 1 => Just("search"), 1 => Just("nothing"), 1 => Just("cut")], any::<bool>());
    let id = prop_oneof![4 => Just("own"), 1 => Just("same"), 1 => Just("")];
    let calls =
        (proptest::collection::vec(call, 1..4), proptest::collection::vec(id, 3), proptest::bool::weighted(0.25));
    prop_oneof![
        2 => Just(Said::Text("Let me search for that.")),
        1 => Just(Said::Text("Half of it.")),
        1 => Just(Said::Text("")),
        1 => Just(Said::Text("All of it, done.")),
        4 => Just(Said::Calls { calls: vec![("read", true)], ids: vec!["own"], truncated: false }),
        6 => calls.prop_map(|(calls, ids, truncated)| Said::Calls { calls, ids, truncated }),
        1 => Just(Said::Error),
    ]
}

#[derive(Clone, Debug)]
struct Story {
    replies: Vec<Said>,
    signals: BTreeMap<u32, LoopSignal>,
    sloppy: BTreeMap<u32, Sloppy>,
    guarded: bool,
    max_iterations: u32,
}

fn story() -> impl Strategy<Value = Story> {
    let signal = prop_oneof![
        5 => Just(LoopSignal::InjectMessage(belay_protocol::Message::user("And more.").into())),
        1 => Just(LoopSignal::Stop(StopReason::UserStop)),
    ];
    let sloppy = prop_oneof![
        Just(Sloppy::Forgets),
        Just(Sloppy::Repeats),
        Just(Sloppy::Reverses),
        Just(Sloppy::Invents),
        Just(Sloppy::Breaks),
        Just(Sloppy::Leaves)
    ];
    (
        proptest::collection::vec(said(), 14),
        proptest::collection::btree_map(1..14u32, signal, 0..3),
        proptest::collection::btree_map(1..14u32, sloppy, 0..4),
        proptest::bool::weighted(0.2),
        0..12u32,
    )
        .prop_map(|(replies, signals, sloppy, guarded, max_iterations)| Story {
            replies,
            signals,
            sloppy,
            guarded,
            max_iterations,
        })
}

/// How a run ended and what it left.
type Ended = (String, LoopContext);

impl Story {
    /// Runs the story from where `context` stands.
    fn run(&self, mut context: LoopContext) -> (Ended, Play) {
        let from = context.state.iteration as usize;
        let script = self.replies.iter().enumerate().skip(from).map(|(at, said)| said.script(at));
        let mut play = Play::new(script);
        play.signals = self.signals.clone();
        play.sloppy = self.sloppy.clone();
        play.ends_with = Some("done");
        play.guarded = self.guarded.then_some("search");
        let config = AgenticLoopConfig { max_iterations: self.max_iterations, ..AgenticLoopConfig::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let end = runtime.block_on(play.run(&mut context, &config));
        ((format!("{end:?}"), context), play)
    }

    fn start() -> LoopContext {
        LoopContext::new(vec![Arc::new(Message::user("Go."))])
    }
}

proptest! {
    #[test]
    fn every_call_has_one_result_and_the_run_ends_within_its_limit(story in story()) {
        // The model itself checks each transcript it is sent; `seen` raises what it found.
        let ((end, context), play) = story.run(Story::start());
        prop_assert!(play.model.seen().len() <= story.max_iterations as usize);
        prop_assert!(context.state.iteration <= story.max_iterations);
        if !end.contains("NeedApproval") {
            prop_assert_eq!(check_transcript(&context.messages), Ok(()));
        }
    }

    #[test]
    fn without_tools_means_no_tools_in_any_later_request(story in story()) {
        let (_, play) = story.run(Story::start());
        let mut forced_before = false;
        for (request, forced) in play.model.seen().iter().zip(&play.forced) {
            prop_assert!(*forced || !forced_before, "it is never taken back");
            prop_assert_eq!(request.tools.is_none(), *forced);
            prop_assert_eq!(request.prompt.as_str(), if *forced { "You have no tools." } else { "You have tools." });
            forced_before = *forced;
        }
    }

    #[test]
    fn a_run_resumed_from_any_stored_state_ends_as_if_it_had_never_stopped(story in story()) {
        let (mut whole, play) = story.run(Story::start());
        forget_what_is_not_stored(&mut whole.1);
        for (messages, state) in &play.stored {
            let mut context = LoopContext::new(messages.clone());
            context.state = serde_json::from_str(state).expect("a stored state loads");
            let (mut resumed, _) = story.run(context);
            forget_what_is_not_stored(&mut resumed.1);
            prop_assert_eq!(&resumed, &whole);
        }
    }

    #[test]
    fn only_the_person_speaks_as_the_person_in_later_turns(story in story()) {
        let ((_, context), _) = story.run(Story::start());
        for message in &context.messages {
            let said = matches!(message.text(), "Go." | "And more.");
            if matches!(message.body, belay_protocol::MessageBody::User { .. }) {
                prop_assert_eq!(message.scope == MessageScope::Thread, said, "{:?}", message);
            }
        }
    }
}

/// A stream does not survive a restart, nor what was about to be reported.
fn forget_what_is_not_stored(context: &mut LoopContext) {
    context.state.stops.measures.chanting.clear();
    context.state.fired.clear();
}

#[test]
fn the_stories_come_to_every_ending() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut endings = BTreeMap::<&str, u32>::new();
    for _ in 0..300 {
        let story = story().new_tree(&mut runner).expect("a story").current();
        let ((end, context), _) = story.run(Story::start());
        for ending in ["Response", "NeedApproval", "Stopped", "MaxIterations", "Err"] {
            if end.contains(ending) {
                *endings.entry(ending).or_default() += 1;
            }
        }
        if context.state.force_text {
            *endings.entry("force_text").or_default() += 1;
        }
    }
    assert_eq!(endings.len(), 6, "a property over these stories says something about each: {endings:?}");
}
