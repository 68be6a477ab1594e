//! A batch whose lock was not free: its jobs are executed again, each in a transaction of its own.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use belay_protocol::StoreError;

use super::Writer;
use crate::sql::tx::{Done, Failure};

/// The longest pause before a job whose lock was not free is repeated, in milliseconds.
const PAUSE_MAX_MS: u64 = 60;

/// A random pause: two writers that wait for each other do not begin again at the same time.
fn pause() -> Duration {
    Duration::from_millis(RandomState::new().hash_one(()) % (PAUSE_MAX_MS + 1))
}

impl Writer {
    /// Executes the jobs of the batch again, each in a transaction of its own: while one of them waits for a lock, it holds
    /// none of the others.
    pub(super) fn separate(&mut self) {
        self.rollback();
        let until = Instant::now() + self.conn.lock_limit();
        self.until = Some(until);
        let mut jobs = std::mem::take(&mut self.batch).into_iter();
        while let Some(job) = jobs.next() {
            self.batch.push(job);
            match self.commit_until(until) {
                Ok(()) => {}
                Err(failure @ (Failure::Contended(_) | Failure::Rejected(_)))
                    if !self.batch.iter().any(|job| job.is_promised()) =>
                {
                    self.rollback();
                    self.due = None;
                    for mut job in self.batch.drain(..) {
                        job.answer(Err(StoreError::Unavailable(failure.to_string())));
                    }
                }
                Err(failure) => {
                    self.batch.extend(jobs); // behind it, in order
                    self.give_up(&failure);
                    break;
                }
            }
        }
        self.until = None;
    }

    /// Commits the batch. While a lock is not free, it is repeated until that time.
    fn commit_until(&mut self, until: Instant) -> Done<()> {
        loop {
            match self.try_commit() {
                Err(Failure::Contended(_)) if Instant::now() < until => {
                    self.rollback();
                    std::thread::sleep(pause());
                }
                done => return done,
            }
        }
    }
}
