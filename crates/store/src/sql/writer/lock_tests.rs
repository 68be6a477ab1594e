//! Tests: two writers over one database never wait for each other's locks.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::trial::{Body, Trial, write};
use super::*;

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
