//! Recorded trajectories: the events of a run, one on each line.
//!
//! **For**: recorded runs: reads and imports them, and judges them by stop rules.
//!
//! **Does not know**: the network, processes, or where files are. It works on readers, writers and strings that the
//! caller has opened.
//!
//! A recording is a stream of [`TrajectoryEvent`]s. [`Reader`] reads them from any buffered source in constant memory.
//! [`Judge`] passes them to the stop engine and gives one [`Verdict`], which [`explain`] says in plain words. [`import`]
//! makes them from the sessions and transcripts of other programs. [`eval`] measures how well a [`RuleSet`] distinguishes
//! pathological runs from healthy ones.
//!
//! Reading order: [`event`] → [`reader`] → [`verdict`] → [`explain`] → [`import`] → [`rule_set`] → [`eval`].

pub mod eval;
pub mod event;
pub mod explain;
pub mod import;
pub mod reader;
pub mod rule_set;
pub mod verdict;

pub use event::{CallArguments, TrajectoryEvent, is_event_name};
pub use reader::{LINE_MAX_BYTES, ReadError, Reader};
pub use rule_set::RuleSet;
pub use verdict::{Judge, Verdict};

/// The target of the fuzzer. Any bytes are read to their end or refused with a line number, and each event that was
/// read can be serialised and parsed again to the same event.
///
/// # Panics
/// If that does not hold, because this is a test.
pub fn trajectory_target(data: &[u8]) {
    let mut judge = Judge::new(belay_agent_loop::policies::StopRules::progress());
    let mut reader = Reader::new(data);
    let lines = data.split(|byte| *byte == b'\n').count() as u64;
    for event in &mut reader {
        match event {
            Ok(event) => {
                judge.observe(&event);
                let line = event.to_line();
                let again = Reader::new(line.as_bytes()).next();
                assert!(matches!(&again, Some(Ok(same)) if *same == event), "{line}: {again:?}");
            }
            Err(error) => assert!((1..=lines).contains(&error.line), "{error}: of {lines} lines"),
        }
    }
    assert!(reader.next().is_none(), "a reader that has ended stays so");
}
