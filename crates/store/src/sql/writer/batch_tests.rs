//! Tests: batches in which one job fails when they are repeated.

use super::trial::{Act, Body, Script, Sent, Trial, check, write_event};
use super::*;

use Durability::{Committed, Relaxed};

/// Jobs that write, except that the last one makes the transaction be repeated, and that the one at `place` does `act` then.
fn batch(durabilities: [Durability; 3], place: usize, act: Act) -> Vec<Script> {
    let script = |(at, durability)| {
        let first = if at == 2 { Act::WriteAndFail } else { Act::Write };
        let then = if at == place { act } else { Act::Write };
        Script::new(durability, &[first, then, Act::Write])
    };
    durabilities.into_iter().enumerate().map(script).collect()
}

#[test]
fn a_batch_loses_no_job_wherever_one_fails_in_its_repetition() {
    let all = [Committed, Relaxed];
    let durabilities = all.map(|one| all.map(|two| all.map(|three| [one, two, three])));
    for mut trial in Trial::each() {
        let mut jobs = Vec::new();
        for durabilities in durabilities.as_flattened().as_flattened() {
            for place in 0..3 {
                for act in [
                    Act::WriteAndFail,
                    Act::EndTransaction,
                    Act::LoseSavepoint,
                    Act::WriteAndRefuse,
                    Act::Reject,
                    Act::WriteOrphan,
                ] {
                    let sent = trial.send(batch(*durabilities, place, act));
                    jobs.extend(sent.into_iter().map(Sent::answered));
                }
            }
        }
        trial.settle();
        check(&jobs, &trial.end());
    }
}

#[test]
fn a_job_that_fails_in_the_repetition_takes_no_unpromised_job_with_it() {
    for mut trial in Trial::each() {
        for place in 0..3 {
            let sent = trial.send(batch([Committed; 3], place, Act::WriteAndFail));
            let answers: Vec<bool> = sent.into_iter().map(|sent| sent.answered().answer.is_ok()).collect();
            let expected: Vec<bool> = (0..3).map(|at| at != place).collect();
            assert_eq!(answers, expected);
        }
    }
}

#[test]
fn an_event_that_the_database_rejects_fails_its_own_job_alone() {
    let Some(trial) = Trial::postgres() else { return };
    let long: String = (0..500).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect(); // too long for an index
    let event = move |number: i64| if number == 2 { long.clone() } else { number.to_string() };
    let jobs = (1..=3).map(|number| -> Box<Body> {
        let session = event(number);
        Box::new(move |tx, _| write_event(tx, session.as_str().into()))
    });
    let answers = trial.send_jobs(jobs.collect());
    let answers: Vec<bool> = answers.into_iter().map(|answer| answer.blocking_recv().unwrap().is_ok()).collect();
    assert_eq!(answers, [true, false, true]);
    assert_eq!(trial.end().events, [1, 3]);
}
