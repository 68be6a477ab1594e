//! How a job gets on: what its runs have used, and what the newest of them does.

use belay_protocol::{EventKind, EventQuery, JobRecord, RunFilter, RunId, RunUsage, Seq, UnixMillis};
use serde::Serialize;

use super::runs::LIST_MAX;
use crate::app::App;
use crate::error::ApiError;

/// Facts read at a time, and how often at most: 16 384 facts, more than the steps that a run is given would leave.
const PAGE: u32 = 256;
const PAGES: usize = 64;

/// A job, and how it gets on.
#[derive(Serialize)]
pub(crate) struct JobView {
    #[serde(flatten)]
    job: JobRecord,
    /// Over all its attempts.
    usage: RunUsage,
    cost_micro_usd: u64,
    #[serde(flatten)]
    doing: Option<Doing>,
}

/// What an attempt has come to.
#[derive(Default, Serialize)]
struct Doing {
    /// Steps of the newest attempt.
    steps: u32,
    /// Its newest tool call.
    last_action: Option<Action>,
}

#[derive(Serialize)]
struct Action {
    at: UnixMillis,
    tool: String,
    /// `running`, or how the call ended.
    status: &'static str,
}

/// A job in a list: what it has used.
pub(crate) async fn used(app: &App, job: JobRecord) -> Result<JobView, ApiError> {
    let (mut usage, mut cost_micro_usd) = (RunUsage::default(), 0u64);
    if job.run_id.is_some() {
        let filter = RunFilter { session: Some(job.session.clone()), status: None, limit: LIST_MAX };
        for run in app.runs.runs(filter).await? {
            usage.input += run.usage.input;
            usage.output += run.usage.output;
            usage.model_calls += run.usage.model_calls;
            usage.tool_calls += run.usage.tool_calls;
            cost_micro_usd = cost_micro_usd.saturating_add(run.cost_micro_usd);
        }
    }
    Ok(JobView { job, usage, cost_micro_usd, doing: None })
}

/// A job by itself: what it has used, and what it does.
pub(crate) async fn seen(app: &App, job: JobRecord) -> Result<JobView, ApiError> {
    let doing = match job.run_id {
        Some(run) => doing(app, run).await?,
        None => Doing::default(),
    };
    Ok(JobView { doing: Some(doing), ..used(app, job).await? })
}

/// What the facts of a run say that it does.
async fn doing(app: &App, run: RunId) -> Result<Doing, ApiError> {
    let (mut doing, mut after) = (Doing::default(), Seq(0));
    for _ in 0..PAGES {
        let page = app.events.read(EventQuery { after, run: Some(run), session: None, limit: PAGE }).await?;
        let Some(last) = page.last().map(|fact| fact.seq) else { break };
        let full = page.len() >= PAGE as usize;
        for fact in page {
            doing.take(fact.at, fact.kind);
        }
        if !full {
            break;
        }
        after = last;
    }
    Ok(doing)
}

impl Doing {
    fn take(&mut self, at: UnixMillis, kind: EventKind) {
        match kind {
            EventKind::ModelCalled { step, .. } => self.steps = self.steps.max(step),
            EventKind::ToolStarted { name, .. } => {
                self.last_action = Some(Action { at, tool: name, status: "running" });
            }
            EventKind::ToolFinished { name, status, .. } => {
                self.last_action = Some(Action { at, tool: name, status: status.word() });
            }
            _ => {}
        }
    }
}
