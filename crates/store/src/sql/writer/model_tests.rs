//! Tests: any jobs with any failures, against the rules of [`check`].

use belay_testkit::proxy::{Action, Direction, Fault};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::trial::{Act, Script, Sent, Trial, check};
use super::*;

/// A fault of the network while a batch is written.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Whether it meets the commit; otherwise an insert.
    at_commit: bool,
    direction: Direction,
    /// Whether the server stays away until the writer has given up.
    stays_away: bool,
}

#[derive(Clone, Debug)]
struct Batch {
    scripts: Vec<Script>,
    cut: Option<Cut>,
}

fn script() -> impl Strategy<Value = Script> {
    let act = prop_oneof![
        12 => Just(Act::Write),
        1 => Just(Act::WriteOrphan),
        1 => Just(Act::Refuse),
        1 => Just(Act::WriteAndRefuse),
        2 => Just(Act::WriteAndFail),
        1 => Just(Act::WriteAndContend),
        1 => Just(Act::Reject),
        1 => Just(Act::LoseSavepoint),
        1 => Just(Act::EndTransaction),
    ];
    let durability = prop_oneof![Just(Durability::Committed), Just(Durability::Relaxed)];
    let subject = prop::option::weighted(0.3, ("[abc]", any::<bool>()));
    let parts = (durability, prop::collection::vec(act, 0..4), 0..10_usize, subject);
    parts.prop_map(|(durability, mut acts, events, subject)| {
        acts.push(Act::Write); // at last, so that the writer gets further
        Script { durability, acts, events, subject }
    })
}

fn cut() -> impl Strategy<Value = Cut> {
    let direction = prop_oneof![Just(Direction::ToServer), Just(Direction::ToClient)];
    let cut = |(at_commit, direction, stays_away)| Cut { at_commit, direction, stays_away };
    (prop::bool::weighted(0.8), direction, prop::bool::weighted(0.05)).prop_map(cut)
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = (prop::collection::vec(script(), 1..7), prop::option::weighted(0.3, cut()));
    prop::collection::vec(batch.prop_map(|(scripts, cut)| Batch { scripts, cut }), 1..6)
}

fn play(mut trial: Trial, batches: Vec<Batch>) {
    let mut jobs = Vec::new();
    for Batch { scripts, cut } in batches {
        if let Some((proxy, cut)) = trial.proxy().zip(cut) {
            let bytes = if cut.at_commit { b"COMMIT\0".to_vec() } else { b"INSERT".to_vec() };
            let action = if cut.stays_away { Action::CutBeforeAndRefuse } else { Action::CutBefore };
            proxy.arm(Fault { direction: cut.direction, bytes, nth: 1, action });
        }
        jobs.extend(trial.send(scripts).into_iter().map(Sent::answered));
        trial.proxy().inspect(|proxy| proxy.accept());
    }
    trial.settle();
    check(&jobs, &trial.end());
}

/// Plays so many cases, the same ones each time.
fn play_cases(cases: u32, trial: impl Fn() -> Trial) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let played = runner.run(&batches(), |batches| {
        play(trial(), batches);
        Ok(())
    });
    played.unwrap();
}

#[test]
fn whatever_fails_in_a_file_nothing_promised_is_lost_and_nothing_is_doubled() {
    play_cases(ProptestConfig::default().cases / 2, Trial::sqlite);
}

#[test]
fn whatever_fails_in_postgresql_nothing_promised_is_lost_and_nothing_is_doubled() {
    if Trial::postgres().is_some() {
        play_cases(ProptestConfig::default().cases / 16, || Trial::postgres().unwrap());
    }
}
