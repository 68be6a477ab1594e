//! What a routine run has come to, and who is told of it. Pure.

use belay_protocol::{
    JobRecord, JobState, Outbound, ReplyRoute, RoutineRecord, RoutineRunEnd, RoutineRunRecord, RoutineRunStatus,
    RunRecord, RunStatus, RunUsage, StopReason, UnixMillis,
};

/// What a routine run has come to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) status: RoutineRunStatus,
    /// What there is to say.
    pub(super) summary: Option<String>,
    /// Why the run that did it has ended; `None`: none did.
    pub(super) reason: Option<StopReason>,
    pub(super) usage: RunUsage,
    pub(super) cost_micro_usd: u64,
}

impl Outcome {
    /// It was not done, and used nothing.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        let (status, summary) = (RoutineRunStatus::Failed, Some(why.into()));
        Self { status, summary, reason: None, usage: RunUsage::default(), cost_micro_usd: 0 }
    }

    /// Of the run that did it. Nothing said is no success, unless the model chose to say nothing.
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

    /// Of the job that did it, once that is over. `used`: by all its attempts. What a failed job had come to is shown with why it
    /// has failed.
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

    /// The end of the routine run, with what its owner is told of it.
    pub(super) fn end(
        self,
        routine_run: &RoutineRunRecord,
        routine: Option<&RoutineRecord>,
        at: UnixMillis,
    ) -> RoutineRunEnd {
        let route = routine.and_then(route_of);
        let said = route.clone().zip(routine).and_then(|(route, routine)| {
            let text = self.told(routine)?;
            Some(Outbound::new(routine_run.run_id, route, text))
        });
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
            at,
        }
    }

    /// The end of a routine run for whose routine nobody is let in any more: the routine is switched off with it, and that alone is
    /// told, to the conversation that made it, if it is `told` anything.
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
            ..self.end(routine_run, None, at)
        }
    }

    /// What is told of it; `None`: nothing.
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

/// Where the owner of a routine is told of it.
fn route_of(routine: &RoutineRecord) -> Option<ReplyRoute> {
    routine.spec.notify.to.clone().or_else(|| routine.reply_to.clone())
}
