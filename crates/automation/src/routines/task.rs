//! The task of a lightweight routine run. The run loads it when it begins, since a restart may have resumed the run.

use belay_protocol::routine::ROUTINE_OK;
use belay_protocol::{
    RoutineAction, RoutineOrigin, RoutineRecord, RoutineRunId, RoutineRunRecord, RunEnd, StopReason, StoreError,
    Unusable,
};

use super::config::MOST_ITERATIONS;
use super::service::RoutineService;
use super::{heartbeat, text};
use belay_run::rights;

/// Largest file in the prompt of a routine run, in bytes. A larger one is left out.
const FILE_MAX_BYTES: u64 = 32 * 1024;

/// The input of the small loop of a lightweight routine run.
pub struct LightweightTask {
    /// Added to the system prompt.
    pub instructions: String,
    /// Shown to the model besides the prompt, as untrusted content.
    pub shown: Option<String>,
    /// Whether the model may call tools.
    pub with_tools: bool,
    /// Most model calls, the last without tools. At least 1.
    pub iterations: u32,
    /// Most tokens of one answer.
    pub max_tokens: u32,
    /// How the model reports nothing.
    pub nothing: NothingToReport,
    /// The routine, with the present rights of its creator.
    pub routine: Box<RoutineRecord>,
}

/// How a model says that it has nothing to report.
#[derive(Clone, Copy)]
pub struct NothingToReport {
    /// The word for it, which is stored as the answer.
    pub word: &'static str,
    /// Returns whether an answer means it.
    pub is_said: fn(&str) -> bool,
}

/// Loads the task of a lightweight routine run. Returns the end of the run when there is no task any more.
/// # Errors
/// The store does not answer.
pub async fn lightweight_task(
    service: &RoutineService,
    id: RoutineRunId,
) -> Result<Result<LightweightTask, RunEnd>, StoreError> {
    let store = &service.routines;
    let Some(routine_run) = store.routine_run(id).await? else { return Ok(Err(cannot("routine_run"))) };
    // A new routine of the same name has another id. Neither its prompt nor its creator's permissions apply to this
    // routine run.
    let routine =
        store.routine(&routine_run.routine).await?.filter(|routine| routine.routine_id == routine_run.routine_id);
    let Some(routine) = routine else { return Ok(Err(cannot("routine"))) };
    // The engine checked the permissions before the run began. A restart with other settings may have resumed the run
    // since.
    let Ok(routine) = rights::of_routine(&service.access, &routine) else {
        return Ok(Err(RunEnd::of(StopReason::ParentStopped).with("rights", "none")));
    };
    let RoutineAction::Lightweight { files, use_tools, max_tool_rounds, .. } = &routine.spec.action else {
        return Ok(Err(cannot("mode")));
    };
    let beats = routine.origin == RoutineOrigin::Heartbeat;
    let config = &service.registry.config;
    let with_tools = *use_tools;
    let shown = match shown(service, &routine_run, &routine, if beats { None } else { Some(files) }).await {
        Ok(shown) => shown,
        Err(end) => return Ok(Err(end)),
    };
    let task = LightweightTask {
        instructions: text::instructions(&routine_run, &routine),
        shown,
        with_tools,
        iterations: if with_tools {
            (*max_tool_rounds).min(config.lightweight_max_iterations).clamp(1, MOST_ITERATIONS)
        } else {
            1
        },
        max_tokens: config.max_tokens,
        nothing: NothingToReport { word: ROUTINE_OK, is_said: |answer| answer == ROUTINE_OK },
        routine: Box::new(routine.clone()),
    };
    Ok(if beats { heartbeat::task(service, &routine_run, &routine, task).await } else { Ok(task) })
}

/// The end of a run whose task no longer exists.
fn cannot(what: &str) -> RunEnd {
    RunEnd::of(StopReason::Internal).with("cause", what)
}

/// The end of a run whose file exists and cannot be opened: without its instructions it must not work.
pub(super) fn unread(file: &str, why: &Unusable) -> RunEnd {
    tracing::error!(file, %why, "a routine run ends: its instructions cannot be read");
    cannot("instructions").with("file", file)
}

/// The files, the state that earlier routine runs have left, and the payload of the trigger. `files`: `None` for a beat,
/// which shows others.
///
/// # Errors
/// The end of the run: a file exists and cannot be opened.
async fn shown(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
    files: Option<&Vec<String>>,
) -> Result<Option<String>, RunEnd> {
    let Some(files) = files else { return Ok(None) };
    let mut parts = Vec::new();
    for path in files {
        match service.context.file(path, FILE_MAX_BYTES).await {
            Ok(Some(said)) => parts.push(text::file(path, &said)),
            Ok(None) => parts.push(format!("There is no file {path}.")),
            Err(why) if why.is_unread() => return Err(unread(path, &why)),
            Err(why) => parts.push(format!("The file {path} is not shown: {why}.")),
        }
    }
    let state = format!("routines/{}/state.md", routine.spec.name);
    match service.context.file(&state, FILE_MAX_BYTES).await {
        Ok(Some(said)) => parts.push(text::state(&state, &said)),
        Ok(None) => {}
        Err(why) if why.is_unread() => return Err(unread(&state, &why)),
        Err(why) => parts.push(format!("The file {state} is not shown: {why}.")),
    }
    parts.extend(routine_run.payload.as_deref().map(|payload| text::payload(routine_run.routine_run_id, payload)));
    Ok((!parts.is_empty()).then(|| parts.join("\n\n")))
}
