//! Tests: two writers over one database never wait for each other's locks.

use std::sync::mpsc::{Receiver, Sender, channel};

use belay_testkit::proxy::{Action, Direction, Fault};

use super::trial::{Act, Body, Script, Sent, Trial, check, write};
use super::*;
use crate::value::params;

/// A point that one writer reaches, and that the other waits for. Later executions of the job pass it.
fn point() -> (Sender<()>, Receiver<()>) {
    channel()
}

fn reach(point: &Sender<()>) {
    let _ = point.send(()); // the test has ended
}

fn wait_for(point: &Receiver<()>) {
    let _ = point.recv(); // it was reached before
}

fn broken() -> Failure {
    Failure::Broken("as the test wants it".into())
}

#[test]
fn a_batch_that_is_repeated_takes_the_lock_of_the_events_last_too() {
    let Some([one, other]) = Trial::writers() else { return };
    let ((locked, is_locked), (repeats, is_repeated)) = (point(), point());
    // The repetition of this batch is behind its first event when it comes to the lock of the other writer.
    let first = one.send_jobs(vec![
        Box::new(|tx, _| write(tx, 1, 1, None)),
        Box::new(move |tx, execution| {
            if execution == 0 {
                return write(tx, 2, 1, None).and(Err(broken()));
            }
            reach(&repeats);
            wait_for(&is_locked);
            tx.exclusive("a subject")?;
            write(tx, 2, 1, None)
        }),
    ]);
    let second = other.send_jobs(vec![Box::new(move |tx, _| {
        wait_for(&is_repeated);
        tx.exclusive("a subject")?;
        tx.exec("DELETE FROM trial WHERE n < 0", [])?; // with it, the lock is there
        reach(&locked);
        write(tx, 3, 1, None)
    })]);
    for answer in first.into_iter().chain(second) {
        answer.blocking_recv().unwrap().unwrap();
    }
    assert_eq!([&one, &other].map(|trial| trial.deadlocks.load(Ordering::Relaxed)), [0, 0]);
    other.end();
    let mut rows = one.end().rows;
    rows.sort_unstable();
    assert_eq!(rows, [1, 2, 3]);
}

#[test]
fn batches_take_the_locks_of_subjects_in_one_order_whatever_the_order_of_their_jobs() {
    let Some([one, other]) = Trial::writers() else { return };
    let ((first, is_first), (second, is_second)) = (point(), point());
    let locks = |subject: &'static str, number, reached: Sender<()>| -> Box<Body> {
        Box::new(move |tx, _| {
            tx.exclusive(subject)?;
            tx.exec("DELETE FROM trial WHERE n < 0", [])?; // with it, the lock is there
            reach(&reached);
            write(tx, number, 1, None)
        })
    };
    let then_locks = |subject: &'static str, number, reached: Receiver<()>| -> Box<Body> {
        Box::new(move |tx, _| {
            wait_for(&reached);
            write(tx, number, 1, None)?;
            tx.exclusive(subject)
        })
    };
    // Each batch locks the subject of the other one while it holds its own.
    let answers = one.send_jobs(vec![locks("a", 1, first), then_locks("b", 2, is_second)]);
    let more = other.send_jobs(vec![locks("b", 3, second), then_locks("a", 4, is_first)]);
    for answer in answers.into_iter().chain(more) {
        answer.blocking_recv().unwrap().unwrap();
    }
    assert_eq!([&one, &other].map(|trial| trial.deadlocks.load(Ordering::Relaxed)), [0, 0]);
    other.end();
    let mut rows = one.end().rows;
    rows.sort_unstable();
    assert_eq!(rows, [1, 2, 3, 4]);
}

/// How a job locks a row.
#[derive(Clone, Copy, Debug)]
enum Lock {
    /// It waits for the answer.
    Awaited,
    /// It does not: the commit waits.
    Posted,
}

impl Lock {
    fn row(self, tx: &mut Tx<'_>, number: i64) -> Done<()> {
        let row = "SELECT n FROM trial WHERE n = ?1";
        match self {
            Self::Awaited => tx.locked(row, "trial", params![number], |_| Ok(())).map(|_| ()),
            Self::Posted => tx.post(&format!("{row} FOR UPDATE"), params![number]),
        }
    }
}

#[test]
fn batches_that_lock_rows_in_opposite_orders_are_both_committed_without_a_deadlock() {
    for lock in [Lock::Awaited, Lock::Posted] {
        let Some([one, other]) = Trial::writers() else { return };
        for row in
            one.send_jobs(vec![Box::new(|tx, _| write(tx, 101, 1, None)), Box::new(|tx, _| write(tx, 102, 1, None))])
        {
            row.blocking_recv().unwrap().unwrap();
        }
        let ((first, is_first), (second, is_second)) = (point(), point());
        let locks = |row, number, reached: Sender<()>| -> Box<Body> {
            Box::new(move |tx, _| {
                Lock::Awaited.row(tx, row)?;
                reach(&reached);
                write(tx, number, 1, None)
            })
        };
        let then_locks = move |row, number, reached: Receiver<()>| -> Box<Body> {
            Box::new(move |tx, execution| {
                if execution == 0 {
                    wait_for(&reached);
                }
                write(tx, number, 1, None)?;
                lock.row(tx, row)
            })
        };
        // Each batch locks the row of the other one while it holds its own, and one of them has an answered job.
        let mut answers = one.send_with(vec![
            (Durability::Relaxed, Box::new(|tx, _| write(tx, 1, 1, None))),
            (Durability::Committed, locks(101, 2, first)),
            (Durability::Committed, then_locks(102, 3, is_second)),
        ]);
        answers.remove(0).blocking_recv().unwrap().unwrap(); // before the batch of the other writer begins
        answers.extend(other.send_jobs(vec![locks(102, 4, second), then_locks(101, 5, is_first)]));
        for answer in answers {
            answer.blocking_recv().unwrap().unwrap();
        }
        assert_eq!([&one, &other].map(|trial| trial.deadlocks.load(Ordering::Relaxed)), [0, 0], "{lock:?}");
        other.end();
        let found = one.end();
        for numbers in [found.rows, found.events] {
            let of = |jobs: &[i64]| numbers.iter().copied().filter(|number| jobs.contains(number)).collect::<Vec<_>>();
            assert_eq!((of(&[1, 2, 3]), of(&[4, 5])), (vec![1, 2, 3], vec![4, 5]), "{lock:?}");
        }
    }
}

/// The first one of three jobs that are committed one by one loses the answer of its commit. The next transaction finds that
/// it was committed, and executes the others.
#[test]
fn an_unclear_commit_of_one_job_does_not_lose_the_answered_ones_behind_it() {
    let Some(mut trial) = Trial::postgres() else { return };
    let proxy = trial.proxy().unwrap();
    let bytes = b"COMMIT\0".to_vec();
    proxy.arm(Fault { direction: Direction::ToClient, bytes, nth: 1, action: Action::CutBeforeAndRefuse });
    let sent = trial.send([
        Script::new(Durability::Relaxed, &[Act::Write]),
        Script::new(Durability::Relaxed, &[Act::Write]),
        Script::new(Durability::Committed, &[Act::WriteAndContend, Act::Write]),
    ]);
    let answered: Vec<_> = sent.into_iter().map(Sent::answered).collect();
    let answers: Vec<_> = answered.iter().map(|job| job.answer.is_ok()).collect();
    assert_eq!(answers, [true, true, false]);
    assert_eq!(trial.proxy().unwrap().happened(), 1);
    trial.proxy().unwrap().accept();
    trial.settle();
    let found = trial.end();
    check(&answered, &found);
    assert_eq!(found.rows, [1, 2]);
}
