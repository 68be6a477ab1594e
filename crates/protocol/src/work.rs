//! The kind of work of a run: a chat, a job, a routine run. The maker of the run's message sets it, and the store keeps
//! it with the run. Nothing derives it from a name. Only the agent's own parts may set anything but [`Work::Chat`].
//!
//! Jobs and routine runs work in sessions with reserved names, in which nobody else may write: [`SessionOwner`].

use serde::{Deserialize, Serialize};

use crate::ids::{ChannelId, JobId, RoutineRunId, SessionKey};
use crate::purpose::Purpose;

/// The kind of work of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// The answer to a message of a person or a program.
    #[default]
    Chat,
    /// Work on a job.
    Job {
        /// The job.
        job: JobId,
        /// The attempt of the job that the run is, from 1. `None`: the run is no attempt; its message is passed on to
        /// the running attempt.
        attempt: Option<u32>,
    },
    /// A run of a routine.
    RoutineRun {
        /// Its id.
        id: RoutineRunId,
    },
    /// A run of the heartbeat's routine.
    Heartbeat {
        /// Its id.
        id: RoutineRunId,
    },
}

impl Work {
    /// The purpose, which selects the budget.
    pub fn purpose(self) -> Purpose {
        match self {
            Self::Chat => Purpose::Chat,
            Self::Job { .. } => Purpose::Job,
            Self::RoutineRun { .. } => Purpose::Routine,
            Self::Heartbeat { .. } => Purpose::Heartbeat,
        }
    }

    /// Whether the work is autonomous: its rights were decided when it was created, and nobody can be asked.
    pub fn is_autonomous(self) -> bool {
        self.purpose().is_autonomous()
    }
}

/// The creator's channel and the routine of autonomous work. A freeze of the creator or of the routine covers the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkSource {
    /// The channel of the creator. The sender of the work's message is the id of the creator within this channel.
    pub channel: ChannelId,
    /// The name of the routine that the work belongs to; `None`: a person or a model created the job.
    pub routine: Option<String>,
    /// The session in which the work was asked for: that of the job's request, or that in which its routine was
    /// created.
    pub asked_in: SessionKey,
}

/// The work that a session is reserved for by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOwner {
    /// A job.
    Job(JobId),
    /// A routine run.
    RoutineRun(RoutineRunId),
}

impl SessionOwner {
    /// The work that a session of this name is reserved for; `None`: it is a conversation. It decides who may write and
    /// read there. The kind of work of a run in it is in [`Work`].
    pub fn of(session: &SessionKey) -> Option<Self> {
        let (kind, id) = session.as_str().split_once(':')?;
        match kind {
            "job" => id.parse().ok().map(Self::Job),
            "routine" => id.parse().ok().map(Self::RoutineRun),
            _ => None,
        }
    }
}

/// The session of a job.
pub fn job_session(job: JobId) -> SessionKey {
    SessionKey::new(format!("job:{job}"))
}

/// The session of a routine run. Each routine run has its own, so that the runs of one routine do not wait for each
/// other.
pub fn routine_run_session(routine_run: RoutineRunId) -> SessionKey {
    SessionKey::new(format!("routine:{routine_run}"))
}

/// Whether a channel's name belongs to one of the agent's own parts. The keys of their messages and the objects of the
/// configuration have such a channel. No other channel may have such a name.
pub fn is_own_channel(channel: &ChannelId) -> bool {
    Purpose::from_word(channel.as_str()).is_some_and(Purpose::is_autonomous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_work_are_told_from_conversations_by_their_names() {
        let (job, routine_run) = (JobId::new(), RoutineRunId::new());
        for (session, expected) in [
            (job_session(job), Some(SessionOwner::Job(job))),
            (routine_run_session(routine_run), Some(SessionOwner::RoutineRun(routine_run))),
            ("job:alice".into(), None),
            ("routine:".into(), None),
            (SessionKey::new(format!("chat:{job}")), None),
            ("alice".into(), None),
        ] {
            assert_eq!(SessionOwner::of(&session), expected, "{session}");
        }
    }

    #[test]
    fn the_names_of_the_agents_own_channels_are_those_of_its_purposes() {
        for (channel, expected) in
            [("job", true), ("routine", true), ("heartbeat", true), ("chat", false), ("http", false), ("jobs", false)]
        {
            assert_eq!(is_own_channel(&channel.into()), expected, "{channel}");
        }
        assert!(Purpose::ALL.iter().all(|purpose| is_own_channel(&purpose.channel()) == purpose.is_autonomous()));
    }

    #[test]
    fn work_is_stored_by_its_kind() {
        let (job, id) = (JobId::new(), RoutineRunId::new());
        for (work, purpose, expected) in [
            (Work::Chat, Purpose::Chat, serde_json::json!({"kind": "chat"})),
            (
                Work::Job { job, attempt: Some(2) },
                Purpose::Job,
                serde_json::json!({"kind": "job", "job": job, "attempt": 2}),
            ),
            (Work::RoutineRun { id }, Purpose::Routine, serde_json::json!({"kind": "routine_run", "id": id})),
            (Work::Heartbeat { id }, Purpose::Heartbeat, serde_json::json!({"kind": "heartbeat", "id": id})),
        ] {
            assert_eq!((work.purpose(), serde_json::to_value(work).expect("json")), (purpose, expected.clone()));
            assert_eq!(serde_json::from_value::<Work>(expected).expect("the same"), work);
        }
    }
}
