//! Before a run asks the model for the first time: hooks may change who the model is told it is, or refuse the run.
//!
//! They are asked once. What they have said is part of the run's state, so that it holds over questions and restarts.

use belay_agent_loop::{LoopContext, LoopError, LoopState};
use belay_protocol::{Durability, HookPoint, RunEnd, StopReason};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::core::RunCore;
use crate::hooks::Place;
use crate::prompt;

/// Where in the state it is kept, beside what others keep there.
const KEY: &str = "hooks";

/// What hooks have said at the beginning of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Memo {
    /// Who the model is told it is; `None`: what every run's model is told.
    persona: Option<String>,
}

/// What comes of asking them.
pub(crate) enum Beginning {
    /// The run begins, or goes on; the model is told this, where it is not what every run's model is told.
    Go(Option<String>),
    /// The run is over; the words are for the person.
    Over(RunEnd, Option<String>),
}

/// Asks hooks about a run whose message this is, unless they have been asked before.
///
/// # Errors
/// What they have said could not be stored.
pub(crate) async fn begin(
    core: &mut RunCore,
    context: &mut LoopContext,
    message: &str,
) -> Result<Beginning, LoopError> {
    if let Some(memo) = recall(&context.state) {
        return Ok(Beginning::Go(memo.persona));
    }
    let hooks = core.house.hooks.clone();
    if !hooks.is_bound(HookPoint::Bootstrap) && !hooks.is_bound(HookPoint::BeforeAgentStart) {
        return Ok(Beginning::Go(None));
    }
    let ours = prompt::persona(&core.house.config).to_owned();
    let mut facts = Vec::new();
    let place = Place { session: &core.live.session, run: core.live.id };
    let decided = tokio::select! {
        biased; // who is stopped asks nobody any more
        () = core.cancel.cancelled() => None,
        decided = hooks.before_agent_start(place, ours.clone(), message, &mut facts) => Some(decided),
    };
    facts.into_iter().for_each(|fact| core.journal.note(fact));
    match decided {
        None => Ok(Beginning::Over(RunEnd::of(core.stopped().unwrap_or(StopReason::UserStop)), None)),
        Some(Err(refusal)) => {
            let end = RunEnd::of(StopReason::HookRefused).with("hook", refusal.by);
            Ok(Beginning::Over(end, Some(refusal.why)))
        }
        Some(Ok(persona)) => {
            let persona = Some(persona).filter(|persona| *persona != ours);
            keep(&mut context.state, &Memo { persona: persona.clone() });
            core.journal.write(context, Durability::Relaxed).await?;
            Ok(Beginning::Go(persona))
        }
    }
}

fn recall(state: &LoopState) -> Option<Memo> {
    serde_json::from_value(state.delegate.get(KEY)?.clone()).ok()
}

fn keep(state: &mut LoopState, memo: &Memo) {
    let Ok(memo) = serde_json::to_value(memo) else { return }; // plain data: it always serialises
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
        let memo = Memo { persona: Some("a pirate".into()) };
        keep(&mut state, &memo);
        assert_eq!(state.delegate, json!({"outputs": [], "hooks": {"persona": "a pirate"}}));
        assert_eq!(recall(&state), Some(memo));
        let mut fresh = LoopState::default();
        keep(&mut fresh, &Memo::default());
        assert_eq!(recall(&fresh), Some(Memo::default()), "asked, and nothing changed");
    }
}
