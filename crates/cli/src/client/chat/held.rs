//! The steps that wait while the figures of an answered run are asked for. Pure.

use belay_protocol::{LiveNews, RunId};

use super::follow::Step;

/// Most steps that wait. 256: a second of events. While they are that many, no event is read.
const STEPS_MAX: usize = 256;

/// Keeps the end of an answered run, and the later steps of runs, until its figures are known: the terminal shows one
/// run at a time. Notices do not wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    is_asked: bool,
    steps: Vec<Step>,
}

/// The treatment of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is carried out now.
    Now(Step),
    /// It is kept. The figures of this run are to be asked for, and then [`Held::release`] returns it.
    Ask(RunId),
    /// It is kept behind an earlier step.
    Later,
}

impl Held {
    /// Takes a step, in the order of the events.
    pub(super) fn take(&mut self, step: Step) -> Next {
        let next = match &step {
            step if self.is_asked && step.run().is_some() => Next::Later,
            Step::Live(run, LiveNews::Ended { answered: true }) => Next::Ask(*run),
            _ => return Next::Now(step),
        };
        self.is_asked = true;
        self.steps.push(step);
        next
    }

    /// Whether no more steps may come.
    pub(super) fn is_full(&self) -> bool {
        self.steps.len() >= STEPS_MAX
    }

    /// The kept steps in their order: the end of the run, and then those to be taken again.
    pub(super) fn release(&mut self) -> Vec<Step> {
        self.is_asked = false;
        std::mem::take(&mut self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_runs_wait_for_the_figures_and_notices_do_not() {
        let (mut held, run, other) = (Held::default(), RunId::new(), RunId::new());
        let ended = Step::Live(run, LiveNews::Ended { answered: true });
        let answer = Step::Message(Some(run), "an answer".into());
        let began = Step::Live(other, LiveNews::Began);
        assert_eq!(held.take(began.clone()), Next::Now(began.clone()));
        assert_eq!(held.take(ended.clone()), Next::Ask(run));
        for step in [&answer, &Step::Over(run), &began] {
            assert_eq!(held.take(step.clone()), Next::Later);
        }
        let notice = Step::Message(None, "a notice".into());
        assert_eq!(held.take(notice.clone()), Next::Now(notice));
        assert!(!held.is_full());
        assert_eq!(held.release(), [ended, answer, Step::Over(run), began.clone()]);
        assert_eq!(held.take(began.clone()), Next::Now(began));
    }
}
