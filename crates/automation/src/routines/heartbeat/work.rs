//! The work of a beat: the small loop of lightweight routine runs, with the list as data and a different word for
//! "nothing".

use belay_protocol::{HEARTBEAT_OK, RoutineRecord, RoutineRunRecord, RunEnd};

use super::look::LIST_MAX_BYTES;
use super::{alert, text};
use crate::routines::task::unread;
use crate::routines::text as shared;
use crate::routines::{LightweightTask, NothingToReport, RoutineService};

/// Adapts the task of a lightweight routine run to a beat.
///
/// # Errors
/// The end of the run: the list exists and cannot be opened.
pub(crate) async fn task(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
    task: LightweightTask,
) -> Result<LightweightTask, RunEnd> {
    let told = routine.spec.notify.to.is_some();
    let file = &service.heartbeat.config.file;
    let mut parts = Vec::new();
    match service.context.file_start(file, LIST_MAX_BYTES).await {
        Ok(Some((list, cut))) => {
            parts.push(shared::file(file, &list));
            parts.extend(cut.then(|| text::cut(file, LIST_MAX_BYTES)));
        }
        // It existed when the beat read its facts.
        Ok(None) => parts.push(format!("There is no file {file} any more.")),
        Err(why) if why.is_unread() => return Err(unread(file, &why)),
        Err(why) => parts.push(format!("The file {file} is not shown: {why}.")),
    }
    parts.extend(routine_run.payload.as_deref().map(|payload| shared::payload(routine_run.routine_run_id, payload)));
    Ok(LightweightTask {
        instructions: text::instructions(file, told),
        shown: Some(parts.join("\n\n")),
        nothing: NothingToReport { word: HEARTBEAT_OK, is_said: alert::is_quiet },
        ..task
    })
}
