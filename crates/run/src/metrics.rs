//! Metrics for the operator. Labels are words of closed lists and names of rules from the settings. They never contain
//! a session, person or run.

mod gauges;

use std::time::Duration;

use belay_protocol::{
    HookPoint, JobNumbers, JobState, ModelErrorKind, Purpose, RoutineNumbers, RoutineRunStatus, RunRecord, SkipReason,
    StopReason, ToolStatus, UnixMillis, Usage,
};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

pub use self::gauges::{RunNumbers, set_spent_gauge, set_state_gauges, set_trouble_gauges};

/// Ended runs, by layer, reason and status.
pub const RUNS_ENDED: &str = "belay_runs_ended_total";
/// Seconds from acceptance to end of runs that have ended, by status. A histogram.
pub const RUN_DURATION: &str = "belay_run_duration_seconds";
/// Upper bounds of the buckets of [`RUN_DURATION`], in seconds: from a command's reply to a job of two hours.
pub const RUN_BUCKETS: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0];
/// Seconds from acceptance to the first start of runs that have ended. A histogram.
pub const QUEUE_WAIT: &str = "belay_queue_wait_seconds";
/// Seconds from the first stop of a run to the commit of its end, by reason. A histogram.
pub const STOP_TIME: &str = "belay_stop_acknowledgement_seconds";
/// Seconds from the beginning of a model call to its first fragment, retries included. A histogram.
pub const MODEL_FIRST: &str = "belay_model_first_token_seconds";
/// Seconds from the beginning of a model call to its end, by outcome, retries included. A histogram.
pub const MODEL_DURATION: &str = "belay_model_call_duration_seconds";
/// Seconds that calls of tools took, by status. A histogram. Refused calls are not part of it.
pub const TOOL_DURATION: &str = "belay_tool_call_duration_seconds";
/// Seconds that attempts to deliver a message took, by outcome. A histogram.
pub const DELIVERY_DURATION: &str = "belay_delivery_duration_seconds";
/// Upper bounds of the buckets of durations within a run, in seconds: from a local call to the slowest model.
pub const STEP_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Histograms with [`STEP_BUCKETS`].
pub const STEP_HISTOGRAMS: [&str; 5] = [QUEUE_WAIT, MODEL_FIRST, MODEL_DURATION, TOOL_DURATION, DELIVERY_DURATION];
/// Upper bounds of the buckets of [`STOP_TIME`], in seconds.
pub const STOP_BUCKETS: [f64; 8] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];
/// Actions of stop rules, by rule and action.
pub const STOP_RULES_FIRED: &str = "belay_stop_rules_fired_total";
/// Requests sent to the model, by outcome.
pub const MODEL_REQUESTS: &str = "belay_model_requests_total";
/// Tokens that the model reported, by direction.
pub const MODEL_TOKENS: &str = "belay_model_tokens_total";
/// Cost of model calls in millionths of a US dollar, by purpose.
pub const MODEL_MICRO_USD: &str = "belay_model_cost_micro_usd_total";
/// Answers of a fallback model, by the reason why the first one did not answer.
pub const MODEL_FALLBACKS: &str = "belay_model_fallbacks_total";
/// Ended tool calls, by status.
pub const TOOL_CALLS: &str = "belay_tool_calls_total";
/// Reports that a tool, or an MCP server, fails repeatedly.
pub const TOOL_REPORTS: &str = "belay_tool_reports_total";
/// Tools, and MCP servers, that fail repeatedly and are enabled.
pub const TOOLS_FAILING: &str = "belay_tools_failing";
/// Tools, and MCP servers, that are disabled.
pub const TOOLS_OFF: &str = "belay_tools_disabled";
/// Answers of hooks, by point and outcome: `continue`, `change`, `refuse`, `failed`, `crashed`, `timeout`, and
/// `dropped` for an observing hook that was skipped or was not waited for.
pub const HOOK_CALLS: &str = "belay_hook_calls_total";
/// Runs resumed after a restart.
pub const RUNS_RECOVERED: &str = "belay_runs_recovered_total";
/// Background tasks that ended unexpectedly and were restarted, by name.
pub const TASK_RESTARTS: &str = "belay_task_restarts_total";

/// Changes of job states, by new state.
pub const JOB_CHANGES: &str = "belay_job_changes_total";
/// Ended routine runs, by status; also missed scheduled times, as `missed`.
pub const ROUTINE_RUNS_ENDED: &str = "belay_routine_runs_ended_total";
/// Skipped heartbeats, by reason.
pub const HEARTBEATS_SKIPPED: &str = "belay_heartbeats_skipped_total";
/// Scheduled times that started a routine run.
pub const SCHEDULED_FIRED: &str = "belay_routine_scheduled_fired_total";
/// Seconds between a scheduled time and the start of its routine run. A histogram.
pub const ROUTINE_LATENESS: &str = "belay_routine_lateness_seconds";
/// Upper bounds of the buckets of [`ROUTINE_LATENESS`], in seconds.
pub const LATENESS_BUCKETS: [f64; 7] = [0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 3600.0];

/// Jobs that have not ended, by state. A gauge: a snapshot at the last query.
pub const JOBS: &str = "belay_jobs";
/// Maximum number of jobs that run at the same time.
pub const JOB_SLOTS: &str = "belay_job_slots";
/// Creation date of the oldest pending job, in seconds since 1970; 0: no job is pending.
pub const OLDEST_PENDING: &str = "belay_jobs_oldest_pending_timestamp_seconds";
/// Enabled routines.
pub const ROUTINES: &str = "belay_routines_enabled";
/// Routine runs in progress.
pub const ROUTINE_RUNS: &str = "belay_routine_runs";
/// The earliest next scheduled time, in seconds since 1970; 0: none.
pub const NEXT_SCHEDULED: &str = "belay_routines_next_timestamp_seconds";

/// Describes every metric, and registers every ending with the value 0, so that a first occurrence is an increase. To
/// be called once, after the recorder is installed.
pub fn describe() {
    describe_counter!(RUNS_ENDED, "Runs that have ended, by layer, reason and status");
    describe_histogram!(RUN_DURATION, Unit::Seconds, "Time from acceptance to end of runs that have ended");
    describe_histogram!(QUEUE_WAIT, Unit::Seconds, "Time from acceptance to the first start of runs that have ended");
    describe_histogram!(STOP_TIME, Unit::Seconds, "Time from the stop of a run to the commit of its end");
    describe_histogram!(MODEL_FIRST, Unit::Seconds, "Time from the beginning of a model call to its first fragment");
    describe_histogram!(MODEL_DURATION, Unit::Seconds, "Time of model calls, retries included");
    describe_histogram!(TOOL_DURATION, Unit::Seconds, "Time of tool calls that were not refused");
    describe_histogram!(DELIVERY_DURATION, Unit::Seconds, "Time of attempts to deliver a message");
    describe_counter!(STOP_RULES_FIRED, "Times a stop rule fired: a notice, a strike with a recovery turn, or the end");
    describe_counter!(MODEL_REQUESTS, "Requests sent to the model");
    describe_counter!(MODEL_TOKENS, "Tokens that the model reported");
    describe_counter!(
        MODEL_MICRO_USD,
        "What model calls were charged, in millionths of a US dollar, by what they were for"
    );
    describe_counter!(MODEL_FALLBACKS, "Answers of a fallback model");
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
    describe_gauge!(JOB_SLOTS, "Jobs that may run at the same time");
    describe_gauge!(OLDEST_PENDING, Unit::Seconds, "When the job was made that has waited longest; 0: none waits");
    describe_gauge!(ROUTINES, "Enabled routines");
    describe_gauge!(ROUTINE_RUNS, "Routine runs in progress");
    describe_gauge!(NEXT_SCHEDULED, Unit::Seconds, "The earliest next scheduled time; 0: there is none");
    gauges::describe();
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
    set_tool_gauges(0, 0);
    for purpose in Purpose::ALL {
        charged(*purpose, 0);
    }
}

fn ended(reason: StopReason, runs: u64) {
    let (layer, status) = (reason.layer().word(), reason.status().word());
    counter!(RUNS_ENDED, "layer" => layer, "reason" => reason.word(), "status" => status).increment(runs);
}

/// Counts a run whose end is committed.
pub fn run_ended(record: &RunRecord) {
    let Some(reason) = record.reason else { return };
    ended(reason, 1);
    if let Some(ended_at) = record.ended_at {
        let took_s = between(record.accepted_at, ended_at);
        histogram!(RUN_DURATION, "status" => record.status.word()).record(took_s);
    }
    if let Some(started_at) = record.started_at {
        histogram!(QUEUE_WAIT).record(between(record.accepted_at, started_at));
    }
}

/// Seconds between two dates; 0 if the clock was set back.
fn between(from: UnixMillis, to: UnixMillis) -> f64 {
    to.0.saturating_sub(from.0).max(0) as f64 / 1000.0
}

/// Records how long after its stop the end of a run was committed.
pub fn stop_acknowledged(reason: StopReason, took: Duration) {
    histogram!(STOP_TIME, "reason" => reason.word()).record(took);
}

/// Records an attempt to deliver a message. `outcome` is a word of a closed list.
pub fn delivery_tried(outcome: &'static str, took: Duration) {
    histogram!(DELIVERY_DURATION, "outcome" => outcome).record(took);
}

/// Counts a run of an earlier start that is resumed.
pub fn run_recovered() {
    counter!(RUNS_RECOVERED).increment(1);
}

/// Counts the restart of a background task. `task` is a fixed name of the program.
pub(crate) fn task_restarted(task: &'static str) {
    counter!(TASK_RESTARTS, "task" => task).increment(1);
}

/// Counts an action of a stop rule. `rule` is a name of the configuration, or the wire name of a kind of loop.
pub fn rule_fired(rule: &str, action: &'static str) {
    counter!(STOP_RULES_FIRED, "rule" => rule.to_owned(), "action" => action).increment(1);
}

/// Counts an answer of a fallback model. `why` is a word of a closed list.
pub(crate) fn model_fell_back(why: &str) {
    counter!(MODEL_FALLBACKS, "reason" => why.to_owned()).increment(1);
}

/// Counts a logical model call that has ended: `requests` were sent, the last of them with this outcome.
pub(crate) fn model_called(requests: u32, error: Option<&ModelErrorKind>, usage: Option<&Usage>) {
    let outcome = error.map_or("ok", |kind| kind.word());
    // No request is sent while every candidate's circuit breaker is open.
    counter!(MODEL_REQUESTS, "outcome" => outcome).increment(u64::from(requests.min(1)));
    if requests > 1 {
        counter!(MODEL_REQUESTS, "outcome" => "retried").increment(u64::from(requests - 1));
    }
    if let Some(usage) = usage {
        counter!(MODEL_TOKENS, "direction" => "in").increment(usage.input);
        if usage.cached_input > 0 {
            counter!(MODEL_TOKENS, "direction" => "cached").increment(usage.cached_input);
        }
        counter!(MODEL_TOKENS, "direction" => "out").increment(usage.output);
    }
}

/// Records how long a model call took, and when its first fragment came, if one came.
pub(crate) fn model_took(outcome: &'static str, first: Option<Duration>, whole: Duration) {
    histogram!(MODEL_DURATION, "outcome" => outcome).record(whole);
    if let Some(first) = first {
        histogram!(MODEL_FIRST).record(first);
    }
}

/// Counts a model call that was dropped or cut.
pub(crate) fn model_dropped(why: &'static str) {
    counter!(MODEL_REQUESTS, "outcome" => why).increment(1);
}

/// Counts the charge of a model call to its purpose.
pub fn charged(purpose: Purpose, micro_usd: u64) {
    counter!(MODEL_MICRO_USD, "purpose" => purpose.word()).increment(micro_usd);
}

/// Counts a tool call that has ended. `took`: its time; `None`: it was refused.
pub(crate) fn tool_called(status: ToolStatus, took: Option<Duration>) {
    counter!(TOOL_CALLS, "status" => status.word()).increment(1);
    if let Some(took) = took {
        histogram!(TOOL_DURATION, "status" => status.word()).record(took);
    }
}

/// Counts a report about a tool or an MCP server.
pub(crate) fn tool_reported() {
    counter!(TOOL_REPORTS).increment(1);
}

/// Sets the number of failing enabled tools and MCP servers, and of disabled ones.
pub(crate) fn set_tool_gauges(failing: usize, off: usize) {
    gauge!(TOOLS_FAILING).set(failing as f64);
    gauge!(TOOLS_OFF).set(off as f64);
}

/// Counts a hook call by its outcome.
pub(crate) fn hook_called(point: HookPoint, outcome: &'static str) {
    counter!(HOOK_CALLS, "point" => point.word(), "outcome" => outcome).increment(1);
}

/// Counts a job whose new state is committed.
pub fn count_job_state(state: JobState) {
    counter!(JOB_CHANGES, "state" => state.word()).increment(1);
}

/// Sets the gauges of jobs.
pub fn set_job_gauges(numbers: &JobNumbers, places: u32) {
    for (state, jobs) in [
        (JobState::Pending, numbers.pending),
        (JobState::InProgress, numbers.in_progress),
        (JobState::Stuck, numbers.stuck),
    ] {
        gauge!(JOBS, "state" => state.word()).set(jobs as f64);
    }
    gauge!(JOB_SLOTS).set(places);
    gauge!(OLDEST_PENDING).set(seconds(numbers.oldest_pending_at));
}

/// Sets the gauges of routines.
pub fn set_routine_gauges(numbers: &RoutineNumbers) {
    gauge!(ROUTINES).set(numbers.enabled as f64);
    gauge!(ROUTINE_RUNS).set(numbers.running as f64);
    gauge!(NEXT_SCHEDULED).set(seconds(numbers.next_at));
}

/// A date in seconds since 1970, as Prometheus expects it; 0 for `None`.
fn seconds(at: Option<UnixMillis>) -> f64 {
    at.map_or(0.0, |at| at.0 as f64 / 1000.0)
}

/// Counts a routine run whose end is committed.
pub fn routine_run_ended(status: RoutineRunStatus) {
    counter!(ROUTINE_RUNS_ENDED, "status" => status.word()).increment(1);
}

/// Counts a skipped heartbeat whose skip is committed.
pub fn heartbeat_skipped(reason: SkipReason) {
    counter!(HEARTBEATS_SKIPPED, "reason" => reason.word()).increment(1);
}

/// Counts a scheduled time that was claimed `late_ms` milliseconds after it.
pub fn scheduled_fired(late_ms: i64) {
    counter!(SCHEDULED_FIRED).increment(1);
    histogram!(ROUTINE_LATENESS).record(late_ms.max(0) as f64 / 1000.0);
}

/// Counts scheduled times that were recorded as missed.
pub fn scheduled_missed(times: usize) {
    counter!(ROUTINE_RUNS_ENDED, "status" => RoutineRunStatus::Missed.word()).increment(times as u64);
}
