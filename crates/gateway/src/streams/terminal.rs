//! The result of a run in the RPC: `ok`, `error` or `timeout`. Pure.

use belay_protocol::run::RunUsage;
use belay_protocol::{ModelInfo, RunId, RunRecord, RunStatus, StopLayer, StopReason, UnixMillis};
use serde::Serialize;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It completed its work.
    Ok,
    /// It ran out of time: `wall_clock` or `active_time`.
    Timeout,
    /// It was stopped: by a person, an operator, a newer message, or the end of the daemon.
    Aborted,
    /// It failed for another reason.
    Error,
}

impl Verdict {
    /// The verdict on an ended run.
    pub(crate) fn of(status: RunStatus, reason: StopReason) -> Self {
        match (status, reason) {
            (RunStatus::Completed, _) => Self::Ok,
            (_, StopReason::WallClock | StopReason::ActiveTime) => Self::Timeout,
            (_, reason) if reason.layer() == StopLayer::Operator => Self::Aborted,
            _ => Self::Error,
        }
    }

    /// The word on the wire. A stopped run is an `error` with `aborted`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Aborted | Self::Error => "error",
        }
    }

    /// Whether the run was stopped.
    pub(crate) fn is_aborted(self) -> bool {
        self == Self::Aborted
    }
}

/// The end of a run, in the form for clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "EndedRun"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Terminal {
    run_id: RunId,
    #[cfg_attr(test, schemars(extend("enum" = ["ok", "error", "timeout"])))]
    status: &'static str,
    /// A line for people.
    summary: String,
    /// `aborted`, or the word of the reason; absent if the run is ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(schema_with = "run_error"))]
    error: Option<&'static str>,
    /// The cause of the end: `run_timeout`, or the word of the reason.
    #[cfg_attr(test, schemars(schema_with = "end_reason"))]
    reason: &'static str,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    result: RunResult,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RunResult {
    payloads: Vec<Payload>,
    meta: Meta,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ReplyPayload"))]
struct Payload {
    text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RunMeta"))]
#[serde(rename_all = "camelCase")]
struct Meta {
    duration_ms: i64,
    agent_meta: AgentMeta,
    #[cfg_attr(test, schemars(with = "StopReason"))]
    stop_reason: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aborted: bool,
    /// The run that this run's message has joined, and that answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    joined_run_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct AgentMeta {
    provider: String,
    model: String,
    usage: RunUsage,
    cost_micro_usd: u64,
}

/// The words of the stop reasons, with these first.
#[cfg(test)]
fn reasons_and(generator: &mut schemars::SchemaGenerator, words: &[&str]) -> schemars::Schema {
    let mut schema = <StopReason as schemars::JsonSchema>::json_schema(generator);
    let forms = schema.ensure_object().get_mut("oneOf").and_then(serde_json::Value::as_array_mut);
    let forms = forms.expect("the reasons are a list");
    forms.insert(0, serde_json::json!({ "type": "string", "enum": words }));
    schema.remove("description");
    schema
}

/// The words of [`Terminal::reason`].
#[cfg(test)]
fn end_reason(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    reasons_and(generator, &["run_timeout"])
}

/// The words of the error of an ended run.
#[cfg(test)]
pub(crate) fn run_error(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    reasons_and(generator, &["aborted"])
}

/// The words of the reason of a run that was waited for.
#[cfg(test)]
pub(crate) fn waited_reason(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    reasons_and(generator, &["run_timeout", "wait_expired"])
}

impl Terminal {
    /// Describes an ended run; `None`: it has not ended.
    pub(crate) fn of(run: &RunRecord, model: &ModelInfo) -> Option<Self> {
        let reason = run.reason.filter(|_| run.status.is_end())?;
        let verdict = Verdict::of(run.status, reason);
        let reply = run.reply.as_deref().filter(|text| !text.is_empty());
        let payloads = match verdict {
            Verdict::Ok => reply.map(|text| Payload { text: text.to_owned() }).into_iter().collect(),
            _ => Vec::new(), // the summary explains why there is no answer
        };
        let summary = match verdict {
            Verdict::Ok => "completed".to_owned(),
            _ => reply.unwrap_or(reason.user_line()).to_owned(),
        };
        let joined = run.evidence.get("run").filter(|_| reason == StopReason::Joined);
        let millis = |date: Option<UnixMillis>| date.map(|date| date.0);
        let from = run.started_at.unwrap_or(run.accepted_at).0;
        Some(Self {
            run_id: run.run_id,
            status: verdict.word(),
            summary,
            error: match verdict {
                Verdict::Ok => None,
                Verdict::Aborted => Some("aborted"),
                Verdict::Timeout | Verdict::Error => Some(reason.word()),
            },
            reason: if verdict == Verdict::Timeout { "run_timeout" } else { reason.word() },
            started_at: millis(run.started_at),
            ended_at: millis(run.ended_at),
            result: RunResult {
                payloads,
                meta: Meta {
                    duration_ms: run.ended_at.map_or(0, |end| (end.0 - from).max(0)),
                    agent_meta: AgentMeta {
                        provider: model.provider.clone(),
                        model: model.model.clone(),
                        usage: run.usage,
                        cost_micro_usd: run.cost_micro_usd,
                    },
                    stop_reason: reason.word(),
                    aborted: verdict.is_aborted(),
                    joined_run_id: joined.and_then(|run| run.as_str()).map(str::to_owned),
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_ok_an_error_or_a_timeout() {
        for reason in StopReason::ALL {
            let verdict = Verdict::of(reason.status(), *reason);
            let expected = match reason {
                StopReason::WallClock | StopReason::ActiveTime => ("timeout", false),
                StopReason::UserStop
                | StopReason::OperatorStop
                | StopReason::ClientGone
                | StopReason::ParentStopped
                | StopReason::Superseded
                | StopReason::Shutdown => ("error", true),
                other if other.status() == RunStatus::Completed => ("ok", false),
                _ => ("error", false),
            };
            assert_eq!((verdict.word(), verdict.is_aborted()), expected, "{reason:?}");
        }
    }
}
