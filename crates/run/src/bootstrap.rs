//! The hooks before the first model call of a run. They may change the persona and the workspace files in the prompt,
//! or refuse the run.
//!
//! They are called once for each run. The run's state keeps their answer over pauses and restarts.

use belay_agent_loop::{LoopContext, LoopError, LoopState};
use belay_protocol::{BootstrapFile, Durability, HookPoint, RunEnd, RunId, StopReason};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::core::RunCore;
use crate::hooks::HookContext;
use crate::prompt::{self, Briefing};

/// Key of the notes in `LoopState::delegate`, beside the keys of other parts.
const KEY: &str = "hooks";

/// Changes by hooks at the beginning of a run. `None` keeps the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapNotes {
    /// Replaces the persona.
    #[serde(skip_serializing_if = "Option::is_none")]
    persona: Option<String>,
    /// Replaces the workspace files.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<HookFile>>,
}

/// A file of the workspace, as hooks see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFile {
    name: String,
    text: String,
}

impl BootstrapNotes {
    /// Applies the changes to a briefing.
    pub fn over(self, briefing: Briefing) -> Briefing {
        let file = |HookFile { name, text }: HookFile| {
            let whole_chars = text.chars().count();
            BootstrapFile { name, text, whole_chars, cut: false }
        };
        match self {
            Self { persona: None, files: None } => briefing,
            Self { persona, files } => briefing.with(persona, files.map(|files| files.into_iter().map(file).collect())),
        }
    }
}

/// Parses the files in a hook's answer. An invalid answer keeps the original files.
fn files_of(answer: Value, ours: Vec<HookFile>, run: RunId) -> Vec<HookFile> {
    match serde_json::from_value::<Vec<HookFile>>(answer) {
        Ok(files) if files.iter().all(|file| is_name(&file.name)) => files,
        Ok(_) => {
            tracing::warn!(%run, "hooks have named a file with control characters, `<`, `>` or quotes; all stay as they were");
            ours
        }
        Err(error) => {
            tracing::warn!(%run, %error, "the files in a hook's answer are invalid; the originals are used as they were");
            ours
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_control() || matches!(c, '<' | '>' | '"'))
}

/// Result of the hooks.
pub enum Beginning {
    /// The run begins or continues, with these changes.
    Go(BootstrapNotes),
    /// The run has ended. The text is for the person.
    Over(RunEnd, Option<String>),
}

/// Calls the hooks for a run that begins with `message`, unless they were called before.
///
/// # Errors
/// The answer of the hooks could not be stored.
pub async fn begin(
    core: &mut RunCore,
    context: &mut LoopContext,
    briefing: &Briefing,
    message: &str,
) -> Result<Beginning, LoopError> {
    if let Some(told) = recall(&context.state) {
        return Ok(Beginning::Go(told));
    }
    let hooks = core.services.hooks.clone();
    if !hooks.is_bound(HookPoint::Bootstrap) && !hooks.is_bound(HookPoint::BeforeAgentStart) {
        return Ok(Beginning::Go(BootstrapNotes::default()));
    }
    let ours = briefing.persona.clone().unwrap_or_else(|| prompt::persona(&core.services.config).to_owned());
    let file = |file: &BootstrapFile| HookFile { name: file.name.clone(), text: file.text.clone() };
    let files: Vec<HookFile> = briefing.files.files.iter().map(file).collect();
    let shown = serde_json::to_value(&files).unwrap_or_default(); // plain data always serialises
    let mut facts = Vec::new();
    let place = HookContext::from(&*core.request);
    let decided = tokio::select! {
        biased; // a stopped run calls no hook
        () = core.cancel.cancelled() => None,
        decided = hooks.before_agent_start(place, ours.clone(), shown.clone(), message, &mut facts) => Some(decided),
    };
    facts.into_iter().for_each(|fact| core.journal.note(fact));
    match decided {
        None => Ok(Beginning::Over(RunEnd::of(core.stopped().unwrap_or(StopReason::UserStop)), None)),
        Some(Err(refusal)) => {
            let end = RunEnd::of(StopReason::HookRefused).with("hook", refusal.by);
            Ok(Beginning::Over(end, Some(refusal.why)))
        }
        Some(Ok((persona, answer))) => {
            let changed = (answer != shown).then(|| files_of(answer, files, core.live.id));
            let told = BootstrapNotes { persona: Some(persona).filter(|persona| *persona != ours), files: changed };
            keep(&mut context.state, &told);
            core.journal.write(context, Durability::Relaxed).await?;
            Ok(Beginning::Go(told))
        }
    }
}

fn recall(state: &LoopState) -> Option<BootstrapNotes> {
    serde_json::from_value(state.delegate.get(KEY)?.clone()).ok()
}

fn keep(state: &mut LoopState, told: &BootstrapNotes) {
    let Ok(memo) = serde_json::to_value(told) else { return }; // plain data always serialises
    match state.delegate.as_object_mut() {
        Some(others) => {
            others.insert(KEY.to_owned(), memo);
        }
        None => state.delegate = Value::Object(Map::from_iter([(KEY.to_owned(), memo)])),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_hooks_have_said_is_kept_beside_what_others_keep() {
        let mut state = LoopState { delegate: json!({"outputs": []}), ..LoopState::default() };
        assert_eq!(recall(&state), None);
        let memo = BootstrapNotes { persona: Some("a pirate".into()), files: None };
        keep(&mut state, &memo);
        assert_eq!(state.delegate, json!({"outputs": [], "hooks": {"persona": "a pirate"}}));
        assert_eq!(recall(&state), Some(memo));
        let mut fresh = LoopState::default();
        keep(&mut fresh, &BootstrapNotes::default());
        assert_eq!(recall(&fresh), Some(BootstrapNotes::default()), "asked, and nothing changed");
    }
}
