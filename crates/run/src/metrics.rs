//! What is counted for the operator's graphs. Labels are words of closed lists, and the names of rules in the settings:
//! no session, person or run is among them.

use belay_protocol::{
    HookPoint, JobNumbers, JobState, ModelErrorKind, Purpose, RoutineNumbers, RoutineRunStatus, RunRecord, SkipReason,
    StopReason, ToolStatus, UnixMillis, Usage,
};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// Runs that have ended, by layer, reason and status.
pub const RUNS_ENDED: &str = "belay_runs_ended_total";
/// Seconds from acceptance to end of runs that have ended, by status. A histogram.
pub const RUN_DURATION: &str = "belay_run_duration_seconds";
/// Upper bounds of the buckets of [`RUN_DURATION`], in seconds: from a command's reply to a job of two hours.
pub const RUN_BUCKETS: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];
/// Times a stop rule fired, by rule and action.
pub const STOP_RULES_FIRED: &str = "belay_stop_rules_fired_total";
/// Requests sent to the model, by outcome.
pub const MODEL_REQUESTS: &str = "belay_model_requests_total";
/// Tokens that the model said it used, by direction.
pub const MODEL_TOKENS: &str = "belay_model_tokens_total";
/// Money, in millionths of a US dollar, by what it went for.
pub const MODEL_MICRO_USD: &str = "belay_model_cost_micro_usd_total";
/// Answers of a model that stood in for another one, by what kept that one from it.
pub const MODEL_FALLBACKS: &str = "belay_model_fallbacks_total";
/// Tool calls that have ended, by status.
pub const TOOL_CALLS: &str = "belay_tool_calls_total";
/// Times a tool, or an MCP server, was reported to fail again and again.
pub const TOOL_REPORTS: &str = "belay_tool_reports_total";
/// Tools, and MCP servers, that fail again and again and are on.
pub const TOOLS_FAILING: &str = "belay_tools_failing";
/// Tools, and MCP servers, that are switched off.
pub const TOOLS_OFF: &str = "belay_tools_disabled";
/// Answers of hooks, by point and outcome: `continue`, `change`, `refuse`, `failed`, `crashed`, `timeout`, and `dropped`
/// for one that looks on and could not be told, or was not waited for.
pub const HOOK_CALLS: &str = "belay_hook_calls_total";
/// Runs that were taken up again after a restart.
pub const RUNS_RECOVERED: &str = "belay_runs_recovered_total";
/// Background tasks that ended unexpectedly and were restarted, by name.
pub const TASK_RESTARTS: &str = "belay_task_restarts_total";

/// Jobs that have come into a state, by state.
pub const JOB_CHANGES: &str = "belay_job_changes_total";
/// Routine runs of routines that have ended, by status; scheduled times that were missed, as `missed`.
pub const ROUTINE_RUNS_ENDED: &str = "belay_routine_runs_ended_total";
/// Beats of the heartbeat that were skipped, by reason.
pub const HEARTBEATS_SKIPPED: &str = "belay_heartbeats_skipped_total";
/// Scheduled times that were fired.
pub const SCHEDULED_FIRED: &str = "belay_routine_scheduled_fired_total";
/// Seconds between a scheduled time and the start of its routine run. A histogram.
pub const ROUTINE_LATENESS: &str = "belay_routine_lateness_seconds";
/// Upper bounds of the buckets of [`ROUTINE_LATENESS`], in seconds.
pub const LATENESS_BUCKETS: [f64; 7] = [0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 3600.0];

/// Jobs that are not over, by state. A gauge: as it was when it was asked for.
pub const JOBS: &str = "belay_jobs";
/// Jobs that may be at work at the same time.
pub const JOB_PLACES: &str = "belay_job_slots";
/// When the job was made that has waited longest, in seconds since 1970; 0: none waits.
pub const OLDEST_PENDING: &str = "belay_jobs_oldest_pending_timestamp_seconds";
/// Routines that are on.
pub const ROUTINES: &str = "belay_routines_enabled";
/// Routine runs at work.
pub const ROUTINE_RUNS: &str = "belay_routine_runs";
/// The earliest next scheduled time, in seconds since 1970; 0: there is none.
pub const NEXT_SCHEDULED: &str = "belay_routines_next_timestamp_seconds";

/// Describes every metric, and shows every ending at 0, so that a first occurrence is a rise. Called once, after the
/// recorder is in place.
pub fn describe() {
    describe_counter!(RUNS_ENDED, "Runs that have ended, by layer, reason and status");
    describe_histogram!(RUN_DURATION, Unit::Seconds, "Time from acceptance to end of runs that have ended");
    describe_counter!(STOP_RULES_FIRED, "Times a stop rule fired: a notice, a strike with a recovery turn, or the end");
    describe_counter!(MODEL_REQUESTS, "Requests sent to the model");
    describe_counter!(MODEL_TOKENS, "Tokens that the model reported");
    describe_counter!(
        MODEL_MICRO_USD,
        "What model calls were charged, in millionths of a US dollar, by what they were for"
    );
    describe_counter!(MODEL_FALLBACKS, "Answers of a model that stood in for another one");
    describe_counter!(TOOL_CALLS, "Tool calls that have ended");
    describe_counter!(TOOL_REPORTS, "Reports that a tool or an MCP server fails repeatedly");
    describe_gauge!(TOOLS_FAILING, "Tools and MCP servers that fail repeatedly and are enabled");
    describe_gauge!(TOOLS_OFF, "Tools and MCP servers that are disabled");
    describe_counter!(HOOK_CALLS, "Answers of hooks, and their failures");
    describe_counter!(RUNS_RECOVERED, "Runs that were resumed after a restart");
    describe_counter!(TASK_RESTARTS, "Background tasks that ended unexpectedly and were restarted");
    describe_counter!(JOB_CHANGES, "Jobs that have come into a state");
    describe_counter!(ROUTINE_RUNS_ENDED, "Routine runs that have ended, and scheduled times that were missed");
    describe_counter!(HEARTBEATS_SKIPPED, "Beats of the heartbeat that were skipped, by reason");
    describe_counter!(SCHEDULED_FIRED, "Scheduled times that started a routine run");
    describe_histogram!(ROUTINE_LATENESS, Unit::Seconds, "Delay of scheduled routine runs");
    describe_gauge!(JOBS, "Jobs that are not over, by state");
    describe_gauge!(JOB_PLACES, "Jobs that may run at the same time");
    describe_gauge!(OLDEST_PENDING, Unit::Seconds, "When the job was made that has waited longest; 0: none waits");
    describe_gauge!(ROUTINES, "Enabled routines");
    describe_gauge!(ROUTINE_RUNS, "Routine runs in progress");
    describe_gauge!(NEXT_SCHEDULED, Unit::Seconds, "The earliest next scheduled time; 0: there is none");
    for state in JobState::ALL {
        counter!(JOB_CHANGES, "state" => state.word()).increment(0);
    }
    use RoutineRunStatus::{Attention, Failed, Missed, Ok, Skipped};
    for status in [Ok, Attention, Failed, Missed, Skipped] {
        counter!(ROUTINE_RUNS_ENDED, "status" => status.word()).increment(0);
    }
    for reason in SkipReason::ALL {
        counter!(HEARTBEATS_SKIPPED, "reason" => reason.word()).increment(0);
    }
    counter!(SCHEDULED_FIRED).increment(0);
    for reason in StopReason::ALL {
        ended(*reason, 0);
    }
    counter!(RUNS_RECOVERED).increment(0);
    counter!(TOOL_REPORTS).increment(0);
    tools_stand(0, 0);
    for purpose in Purpose::ALL {
        charged(*purpose, 0);
    }
}

fn ended(reason: StopReason, runs: u64) {
    let (layer, status) = (reason.layer().word(), reason.status().word());
    counter!(RUNS_ENDED, "layer" => layer, "reason" => reason.word(), "status" => status).increment(runs);
}

/// A run has ended, and its end is committed.
pub fn run_ended(record: &RunRecord) {
    let Some(reason) = record.reason else { return };
    ended(reason, 1);
    if let Some(ended_at) = record.ended_at {
        let took_s = ended_at.0.saturating_sub(record.accepted_at.0).max(0) as f64 / 1000.0;
        histogram!(RUN_DURATION, "status" => record.status.word()).record(took_s);
    }
}

/// A run of an earlier start is taken up.
pub fn run_recovered() {
    counter!(RUNS_RECOVERED).increment(1);
}

/// A background task has ended unexpectedly and is restarted. Its name is one of the program's own.
pub(crate) fn task_restarted(task: &'static str) {
    counter!(TASK_RESTARTS, "task" => task).increment(1);
}

/// A rule has fired. Its name comes from the configuration, or is the wire name of a kind of loop.
pub fn rule_fired(rule: &str, action: &'static str) {
    counter!(STOP_RULES_FIRED, "rule" => rule.to_owned(), "action" => action).increment(1);
}

/// A model has stood in for one that could not answer, for this reason: a word of a closed list.
pub(crate) fn model_fell_back(why: &str) {
    counter!(MODEL_FALLBACKS, "reason" => why.to_owned()).increment(1);
}

/// A logical model call has ended: `requests` were sent, the last of them with this outcome.
pub(crate) fn model_called(requests: u32, error: Option<&ModelErrorKind>, usage: Option<&Usage>) {
    let outcome = error.map_or("ok", |kind| kind.word());
    // None is sent while every model is left alone.
    counter!(MODEL_REQUESTS, "outcome" => outcome).increment(u64::from(requests.min(1)));
    if requests > 1 {
        counter!(MODEL_REQUESTS, "outcome" => "retried").increment(u64::from(requests - 1));
    }
    if let Some(usage) = usage {
        counter!(MODEL_TOKENS, "direction" => "in").increment(usage.input);
        counter!(MODEL_TOKENS, "direction" => "out").increment(usage.output);
    }
}

/// A model call was dropped, or cut off.
pub(crate) fn model_dropped(why: &'static str) {
    counter!(MODEL_REQUESTS, "outcome" => why).increment(1);
}

/// A model call was charged to what it is for.
pub fn charged(purpose: Purpose, micro_usd: u64) {
    counter!(MODEL_MICRO_USD, "purpose" => purpose.word()).increment(micro_usd);
}

/// A tool call has ended.
pub(crate) fn tool_called(status: ToolStatus) {
    counter!(TOOL_CALLS, "status" => status.word()).increment(1);
}

/// A tool, or an MCP server, was reported.
pub(crate) fn tool_reported() {
    counter!(TOOL_REPORTS).increment(1);
}

/// So many tools, and MCP servers, fail and are on, and so many are off.
pub(crate) fn tools_stand(failing: usize, off: usize) {
    gauge!(TOOLS_FAILING).set(failing as f64);
    gauge!(TOOLS_OFF).set(off as f64);
}

/// A hook has answered, or has not.
pub(crate) fn hook_called(point: HookPoint, outcome: &'static str) {
    counter!(HOOK_CALLS, "point" => point.word(), "outcome" => outcome).increment(1);
}

/// A job has come into this state, and that is committed.
pub fn job_came_to(state: JobState) {
    counter!(JOB_CHANGES, "state" => state.word()).increment(1);
}

/// So many jobs there are.
pub fn jobs_are(numbers: &JobNumbers, places: u32) {
    for (state, jobs) in [
        (JobState::Pending, numbers.pending),
        (JobState::InProgress, numbers.in_progress),
        (JobState::Stuck, numbers.stuck),
    ] {
        gauge!(JOBS, "state" => state.word()).set(jobs as f64);
    }
    gauge!(JOB_PLACES).set(places);
    gauge!(OLDEST_PENDING).set(seconds(numbers.oldest_pending_at));
}

/// So many routines there are.
pub fn routines_are(numbers: &RoutineNumbers) {
    gauge!(ROUTINES).set(numbers.enabled as f64);
    gauge!(ROUTINE_RUNS).set(numbers.at_work as f64);
    gauge!(NEXT_SCHEDULED).set(seconds(numbers.next_at));
}

/// A date as Prometheus writes it; 0 where there is none.
fn seconds(at: Option<UnixMillis>) -> f64 {
    at.map_or(0.0, |at| at.0 as f64 / 1000.0)
}

/// A routine run has ended, and its end is committed.
pub fn routine_run_ended(status: RoutineRunStatus) {
    counter!(ROUTINE_RUNS_ENDED, "status" => status.word()).increment(1);
}

/// A beat was skipped, and that is committed.
pub fn heartbeat_skipped(reason: SkipReason) {
    counter!(HEARTBEATS_SKIPPED, "reason" => reason.word()).increment(1);
}

/// A scheduled time was claimed, so many milliseconds after it.
pub fn scheduled_fired(late_ms: i64) {
    counter!(SCHEDULED_FIRED).increment(1);
    histogram!(ROUTINE_LATENESS).record(late_ms.max(0) as f64 / 1000.0);
}

/// So many scheduled times were recorded as missed.
pub fn scheduled_missed(times: usize) {
    counter!(ROUTINE_RUNS_ENDED, "status" => RoutineRunStatus::Missed.word()).increment(times as u64);
}
