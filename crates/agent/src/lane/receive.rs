//! Runs the hooks for a message before it is accepted. Meanwhile the lane holds back other messages and commands, so
//! that they keep their order. It still handles answers to approval requests, stops, and the end of its turn.

use belay_protocol::{EventKind, HookPoint, NewEvent, Refusal};
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument;

use super::{Lane, LeaseLost};
use crate::mail::LaneInput;
use crate::queue::MAX_TEXT_BYTES;
use belay_run::hooks::HookRefusal;

/// A message that hooks are checking.
pub(super) struct Receiving {
    input: LaneInput,
    /// The one task that runs the hooks. Dropping this value aborts it.
    asking: JoinSet<HookedText>,
}

/// The answer of the hooks: the text as they changed it, or a refusal.
type HookedText = Result<String, HookRefusal>;

/// Waits for the answer of the hooks; `None` if no message is being checked.
///
/// # Cancel safety
/// Nothing is lost.
pub(super) async fn looked_at(receiving: &mut Option<Receiving>) -> Option<Result<HookedText, JoinError>> {
    receiving.as_mut()?.asking.join_next().await
}

impl Lane {
    /// Receives a message: runs the hooks, if there are any, and then accepts it.
    pub(super) async fn receive(&mut self, input: LaneInput) -> Result<(), LeaseLost> {
        let input = match input.repeat {
            None => input,
            Some(_) => match Box::pin(self.resolve_repeat(input)).await {
                Some(input) => input,
                None => return Ok(()),
            },
        };
        if input.checked || !self.services.hooks.is_bound(HookPoint::MessageReceived) {
            return self.accept(input).await;
        }
        let (services, inbound, text) = (self.services.clone(), input.inbound.clone(), input.text.clone());
        let mut asking = JoinSet::new();
        let ask = async move {
            // Hooks do not check a duplicate again. If the store fails here, they do: the store recognises the
            // duplicate at the acceptance in any case.
            if let Some(key) = &inbound.key
                && let Ok(Some(_known)) = services.store.inputs.find(key).await
            {
                return Ok(text);
            }
            let mut facts = Vec::new();
            let decided = services.hooks.message_received(&inbound, text, &mut facts).await;
            let session = Some(inbound.session);
            let event =
                |kind: EventKind| NewEvent { at: services.clock.now(), session: session.clone(), run_id: None, kind };
            let events: Vec<NewEvent> = facts.into_iter().map(event).collect();
            if !events.is_empty()
                && let Err(error) = services.store.events.append(events).await
            {
                tracing::warn!(%error, "what hooks did to a message was not stored");
            }
            decided
        };
        asking.spawn(ask.in_current_span());
        self.receiving = Some(Receiving { input, asking });
        Ok(())
    }

    /// Handles the answer of the hooks.
    pub(super) async fn received(&mut self, said: Result<HookedText, JoinError>) -> Result<(), LeaseLost> {
        let Some(Receiving { input, .. }) = self.receiving.take() else { return Ok(()) };
        let refusal = match said {
            Ok(Ok(text)) => return self.accept_as(LaneInput { checked: true, ..input }, text).await,
            Ok(Err(refusal)) => Refusal::Forbidden(capitalised(&refusal.to_string())),
            Err(error) => {
                tracing::error!(%error, "asking hooks about a message crashed");
                Refusal::Store("it was not accepted".into())
            }
        };
        self.turn_away(input, refusal).await;
        Ok(())
    }

    /// Accepts a message with the text that the hooks returned.
    async fn accept_as(&mut self, mut input: LaneInput, text: String) -> Result<(), LeaseLost> {
        if text == input.text {
            return self.accept(input).await;
        }
        if text.trim().is_empty() || text.contains('\0') || text.len() > MAX_TEXT_BYTES {
            let what =
                "The operator's hooks removed all text of this message, so there is nothing to answer.".to_owned();
            self.turn_away(input, Refusal::Forbidden(what)).await;
            return Ok(());
        }
        // The digest that recognises duplicates is of the message as received, not of this text.
        input.text = text;
        self.accept(input).await
    }

    /// Returns the message that hooks are checking, if there is one. They check it again.
    pub(super) fn give_back_receiving(&mut self) -> Option<LaneInput> {
        self.receiving.take().map(|Receiving { input, .. }| input)
    }

    /// Refuses the message that hooks are checking, if there is one.
    pub(super) async fn refuse_receiving(&mut self, refusal: Refusal) {
        if let Some(Receiving { input, .. }) = self.receiving.take() {
            self.turn_away(input, refusal).await;
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
