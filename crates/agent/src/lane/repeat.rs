//! `/retry` and `/edit TEXT`: a message that replaces the last turn. The store hides that turn and accepts the message in one
//! commit, so that a crash loses neither.

use std::sync::Arc;

use belay_protocol::store::LastTurn;
use belay_protocol::{Attachment, Message, Provenance, Refusal, StoreError};

use super::Lane;
use crate::mail::LaneInput;
use crate::submission::Repeat;

/// The refusal while the last turn still runs.
const BUSY: &str = "A message is still being answered. Send /stop first, then repeat this.";

/// The refusal without a last turn.
const NOTHING: &str = "There is no last message to send again.";

/// The refusal of a turn that somebody else began.
const NOT_YOURS: &str = "The last message is from somebody else. Only its sender can send it again.";

impl Lane {
    /// Sets the text and the files of a message that replaces the last turn; any other message is returned unchanged.
    /// `None`: it was answered.
    pub(super) async fn resolve_repeat(&mut self, mut input: LaneInput) -> Option<LaneInput> {
        let Some(repeat) = input.repeat.clone() else { return Some(input) };
        let refusal = match self.turn_to_replace(&input).await {
            Ok(Some(turn)) => {
                let new = input.inbound.provenance.as_deref();
                let (text, provenance) = repeated(&turn.messages, repeat, new);
                input.text = text;
                input.inbound.provenance = provenance.map(Arc::new);
                return Some(input);
            }
            // A redelivery; the acceptance recognises it. Its text is not used.
            Ok(None) => return Some(input),
            Err(refusal) => refusal,
        };
        self.turn_away(input, refusal).await;
        None
    }

    /// The last turn, if the sender of this message may replace it; `None`: the message was accepted before.
    async fn turn_to_replace(&self, input: &LaneInput) -> Result<Option<LastTurn>, Refusal> {
        let (inputs, inbound) = (&self.services.store.inputs, &input.inbound);
        let unread = |error: StoreError| Refusal::Store(error.to_string());
        if let Some(key) = &inbound.key
            && inputs.find(key).await.map_err(unread)?.is_some()
        {
            return Ok(None);
        }
        if !self.state.is_idle() || !self.queue.is_empty() {
            return Err(Refusal::Decided(BUSY.to_owned()));
        }
        match inputs.last_turn(&self.lease.session).await.map_err(unread)? {
            None => Err(Refusal::Decided(NOTHING.to_owned())),
            Some(turn) if turn.channel != inbound.channel || *turn.principal != *inbound.principal.id => {
                Err(Refusal::Decided(NOT_YOURS.to_owned()))
            }
            Some(turn) => Ok(Some(turn)),
        }
    }
}

/// The text and the facts of a message that replaces these. The facts about who wrote the text stay with it; the files
/// stay in any case. `new` has the facts of the message that asks for it.
fn repeated(messages: &[Message], repeat: Repeat, new: Option<&Provenance>) -> (String, Option<Provenance>) {
    let facts = |message: &Message| message.provenance.as_deref().cloned();
    let attachments: Vec<Attachment> =
        messages.iter().filter_map(facts).flat_map(|provenance| provenance.attachments).collect();
    let (text, mut provenance) = match (repeat, messages) {
        (Repeat::Other(text), _) => (text, new.cloned()),
        (Repeat::Same, [one]) => (one.text().to_owned(), facts(one)),
        (Repeat::Same, several) => {
            let texts: Vec<_> = several.iter().map(|message| message.for_model()).collect();
            let audience = new.map(|provenance| provenance.audience).unwrap_or_default();
            let untrusted = several.iter().any(|message| message.untrusted);
            (texts.join("\n\n"), Some(Provenance::of_several(audience, untrusted)))
        }
    };
    if !attachments.is_empty() {
        provenance.get_or_insert_default().attachments = attachments;
    }
    if let Some(new) = new {
        provenance.get_or_insert_default().message_id.clone_from(&new.message_id);
    }
    (text, provenance)
}

#[cfg(test)]
mod tests {
    use belay_protocol::AttachmentContent;

    use super::*;

    fn sent(text: &str, provenance: Provenance) -> Message {
        Message::sent(text, Some(Arc::new(provenance)))
    }

    #[test]
    fn the_facts_about_a_text_stay_with_it_and_the_id_is_that_of_the_new_message() {
        let content = AttachmentContent::Named { detail: "unread".into() };
        let (name, media_type, digest) = ("a.txt".into(), "text/plain".into(), "a".repeat(64).parse().unwrap());
        let file = Attachment { name, media_type, bytes: 1, digest, content };
        let old = Provenance {
            forwarded_from: Some("Eve".into()),
            attachments: vec![file.clone()],
            message_id: Some("1".into()),
            ..Provenance::default()
        };
        let new = Provenance { message_id: Some("2".into()), ..Provenance::default() };
        let (text, provenance) = repeated(&[sent("buy", old.clone())], Repeat::Same, Some(&new));
        assert_eq!(
            (text.as_str(), provenance),
            ("buy", Some(Provenance { message_id: Some("2".into()), ..old.clone() }))
        );

        let other = Repeat::Other("sell".into());
        let (text, provenance) = repeated(&[sent("buy", old.clone())], other, Some(&new));
        let expected = Provenance { attachments: vec![file.clone()], ..new.clone() };
        assert_eq!((text.as_str(), provenance), ("sell", Some(expected)), "the sender wrote this text");

        let (text, provenance) = repeated(&[sent("buy", old), Message::user("now")], Repeat::Same, None);
        let provenance = provenance.unwrap();
        assert!(text.contains("buy") && text.ends_with("\n\nnow") && text.contains("Eve"), "{text}");
        assert!(provenance.is_untrusted() && provenance.collected && provenance.attachments == [file]);

        let plain = repeated(&[Message::user("hi")], Repeat::Same, None);
        assert_eq!(plain, ("hi".to_owned(), None));
    }
}
