//! The state of a lane: it does one thing at a time with its conversation.

use std::sync::Arc;

use super::compact::Compacting;
use super::pause::PausedTurn;
use crate::queued_run::QueuedRun;
use belay_run::joining::Joining;

/// The state of a lane.
pub(super) enum LaneState {
    /// No work: the next message may start.
    Idle,
    /// A turn runs and has the conversation.
    Running(Box<Running>),
    /// A run waits for a person's answer. No turn starts before the run continues.
    Paused(Box<PausedTurn>),
    /// The conversation is being compacted. No turn starts before the end.
    Compacting(Box<Compacting>),
}

/// The running turn.
pub(super) struct Running {
    pub(super) waiting: QueuedRun,
    /// The messages that may join it.
    pub(super) joining: Arc<Joining>,
}

impl LaneState {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Whether a turn or a compaction has the conversation.
    pub(super) fn has_conversation(&self) -> bool {
        matches!(self, Self::Running(_) | Self::Compacting(_))
    }

    /// Whether a message is being answered, or its run waits for a person's answer.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self, Self::Running(_) | Self::Paused(_))
    }

    pub(super) fn running(&self) -> Option<&Running> {
        match self {
            Self::Running(running) => Some(running),
            _ => None,
        }
    }

    /// The message that is being answered.
    pub(super) fn current(&self) -> Option<&QueuedRun> {
        self.running().map(|running| &running.waiting)
    }

    /// The messages that may join the running turn.
    pub(super) fn joining(&self) -> Option<&Arc<Joining>> {
        self.running().map(|running| &running.joining)
    }

    pub(super) fn paused(&self) -> Option<&PausedTurn> {
        match self {
            Self::Paused(paused) => Some(paused),
            _ => None,
        }
    }

    pub(super) fn paused_mut(&mut self) -> Option<&mut PausedTurn> {
        match self {
            Self::Paused(paused) => Some(paused),
            _ => None,
        }
    }

    pub(super) fn compacting(&self) -> Option<&Compacting> {
        match self {
            Self::Compacting(compacting) => Some(compacting),
            _ => None,
        }
    }

    pub(super) fn compacting_mut(&mut self) -> Option<&mut Compacting> {
        match self {
            Self::Compacting(compacting) => Some(compacting),
            _ => None,
        }
    }

    /// Takes the running turn. The lane is idle afterwards.
    pub(super) fn take_running(&mut self) -> Option<Running> {
        match std::mem::replace(self, Self::Idle) {
            Self::Running(running) => Some(*running),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the paused run, if `is_meant` accepts it. The lane is idle then.
    pub(super) fn take_paused_if(&mut self, is_meant: impl FnOnce(&PausedTurn) -> bool) -> Option<PausedTurn> {
        match std::mem::replace(self, Self::Idle) {
            Self::Paused(paused) if is_meant(&paused) => Some(*paused),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the compaction. The lane is idle afterwards.
    pub(super) fn take_compacting(&mut self) -> Option<Compacting> {
        match std::mem::replace(self, Self::Idle) {
            Self::Compacting(compacting) => Some(*compacting),
            other => {
                *self = other;
                None
            }
        }
    }
}
