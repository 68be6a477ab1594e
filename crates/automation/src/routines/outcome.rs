//! The outcome of a routine run, and the notices to its owner. Pure.

use belay_protocol::{
    JobRecord, JobState, NO_SESSION, Outbound, ReplyRoute, RoutineOrigin, RoutineRecord, RoutineRunEnd,
    RoutineRunRecord, RoutineRunStatus, RunRecord, RunStatus, RunUsage, SessionKey, SessionNotice, StopReason,
    UnixMillis,
};
use belay_run::rights::{self, AccessPolicy};

use super::text;

/// The outcome of a routine run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) status: RoutineRunStatus,
    /// The text for the owner.
    pub(super) summary: Option<String>,
    /// Why the run ended. `None`: there was no run, or a job did the work.
    pub(super) reason: Option<StopReason>,
    pub(super) usage: RunUsage,
    pub(super) cost_micro_usd: u64,
}

impl Outcome {
    /// The routine run failed before it used anything.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        let (status, summary) = (RoutineRunStatus::Failed, Some(why.into()));
        Self { status, summary, reason: None, usage: RunUsage::default(), cost_micro_usd: 0 }
    }

    /// The outcome of a run. An empty reply counts as a failure, unless the model chose to report nothing.
    pub(super) fn of_run(run: &RunRecord) -> Self {
        let silent = run.evidence.get("silent").is_some_and(|silent| silent == true);
        let (status, summary) = match (run.status, run.reason) {
            (RunStatus::Completed, Some(StopReason::EmptyReply)) => (RoutineRunStatus::Failed, run.reply.clone()),
            (RunStatus::Completed, _) if silent => (RoutineRunStatus::Ok, None),
            (RunStatus::Completed, _) => (RoutineRunStatus::Attention, run.reply.clone()),
            (_, reason) => {
                let line = reason.map(|reason| reason.user_line().to_owned());
                (RoutineRunStatus::Failed, run.reply.clone().or(line))
            }
        };
        Self { status, summary, reason: run.reason, usage: run.usage, cost_micro_usd: run.cost_micro_usd }
    }

    /// The outcome of a job that is over. The second argument is the usage and cost of all its attempts. The summary
    /// of a failed job contains the reason and the partial result.
    pub(super) fn of_job(job: &JobRecord, (usage, cost_micro_usd): (RunUsage, u64)) -> Self {
        let why = || Some(job.detail.clone()).filter(|why| !why.is_empty());
        let with_result = |why: String| match &job.result {
            Some(partial) => format!("{why}\n\nSo far:\n\n{partial}"),
            None => why,
        };
        let (status, summary) = match job.state {
            JobState::Completed | JobState::Submitted | JobState::Accepted => match &job.result {
                Some(result) => (RoutineRunStatus::Attention, Some(result.clone())),
                None => (RoutineRunStatus::Ok, None),
            },
            JobState::Cancelled => (RoutineRunStatus::Failed, why().or_else(|| Some("its job was cancelled".into()))),
            JobState::Failed | JobState::Pending | JobState::InProgress | JobState::Stuck => {
                let why = why().unwrap_or_else(|| "its job failed".to_owned());
                (RoutineRunStatus::Failed, Some(with_result(why)))
            }
        };
        Self { status, summary, reason: None, usage, cost_micro_usd }
    }

    /// The end of the routine run, with the notices to its owner. `told_in`: the conversation that reads the report
    /// too.
    pub(super) fn end(
        self,
        routine_run: &RoutineRunRecord,
        routine: Option<&RoutineRecord>,
        told_in: Option<SessionKey>,
        at: UnixMillis,
    ) -> RoutineRunEnd {
        let route = routine.and_then(route_of);
        let report = routine.and_then(|routine| self.told(routine));
        let said = route.clone().zip(report.clone());
        let said = said.map(|(route, report)| Outbound::new(routine_run.run_id, route, report));
        let told_in = told_in.zip(report).map(|(session, report)| notice_in(session, routine_run, &report));
        let disabled = route.zip(routine).map(|(route, routine)| {
            let name = &routine.spec.name;
            let most = routine.spec.guard.max_failures;
            let text = format!(
                "The routine {name} is disabled: it failed {most} times in a row. `/routine on {name}` enables it \
                 again."
            );
            Outbound::new(None, route, text)
        });
        RoutineRunEnd {
            routine_run: routine_run.routine_run_id,
            status: self.status,
            summary: self.summary,
            usage: self.usage,
            cost_micro_usd: self.cost_micro_usd,
            switch_off: None,
            notice: said,
            disabled_notice: disabled,
            told_in,
            at,
        }
    }

    /// The end of a routine run whose creator has no permission any more. It also disables the routine. The only
    /// notice reports this, to the conversation that created the routine, and only when `told`.
    pub(super) fn last(
        self,
        routine_run: &RoutineRunRecord,
        routine: &RoutineRecord,
        told: bool,
        at: UnixMillis,
    ) -> RoutineRunEnd {
        let why = self.summary.clone().unwrap_or_default();
        let text = format!("The routine {} is disabled: {why}.", routine.spec.name);
        let route = routine.reply_to.clone().filter(|_| told);
        RoutineRunEnd {
            switch_off: Some(why),
            notice: None,
            disabled_notice: route.map(|route| Outbound::new(None, route, text)),
            ..self.end(routine_run, None, None, at)
        }
    }

    /// The notice to the owner. `None`: the routine's settings ask for none.
    fn told(&self, routine: &RoutineRecord) -> Option<String> {
        let (name, notify) = (&routine.spec.name, &routine.spec.notify);
        let summary = self.summary.as_deref().unwrap_or_default();
        match self.status {
            RoutineRunStatus::Attention if notify.on_attention => Some(format!("Routine {name}: {summary}")),
            RoutineRunStatus::Failed if notify.on_failure && summary.is_empty() => {
                Some(format!("The routine {name} failed."))
            }
            RoutineRunStatus::Failed if notify.on_failure => Some(format!("The routine {name} failed: {summary}")),
            RoutineRunStatus::Ok if notify.on_success => Some(format!("Routine {name}: nothing to report.")),
            _ => None,
        }
    }
}

/// The notice about a report in a conversation.
pub(super) fn notice_in(session: SessionKey, routine_run: &RoutineRunRecord, report: &str) -> SessionNotice {
    let text = text::notice_in_session(routine_run.routine_run_id, &routine_run.routine, report);
    SessionNotice { session, text }
}

/// The conversation whose model reads the reports of a routine: the one that people read them in, else the one that
/// made the routine. `None`: there is none.
pub(super) fn conversation_of(access: &AccessPolicy, routine: &RoutineRecord) -> Option<SessionKey> {
    if let Some(route) = &routine.spec.notify.to {
        return rights::session_of(access, route);
    }
    let made_in_one = routine.origin == RoutineOrigin::Made && routine.made_in.as_str() != NO_SESSION;
    made_in_one.then(|| routine.made_in.clone())
}

/// The route of notices to the owner of a routine.
fn route_of(routine: &RoutineRecord) -> Option<ReplyRoute> {
    routine.spec.notify.to.clone().or_else(|| routine.reply_to.clone())
}
