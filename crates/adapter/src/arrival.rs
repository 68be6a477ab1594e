//! A message of a person, from a frame to an envelope, and the answer to its acknowledgement.

use belay_protocol::provenance::{Audience, Author, Person, Provenance, Quote};
use belay_protocol::{Ack, Body, Control, IdempotencyKey, Inbound, Principal, ReplyRoute};

use crate::access::AdapterAccess;
use crate::config::is_id;
use crate::frames::{Decide, Said, Sender, TEXT_MAX, ToAdapter};

/// The pause before a message is sent again that the agent has dropped without an acknowledgement.
const PAUSE_MS: u64 = 1_000;

/// The author of a forwarded text, whom the frame does not name.
const SOMEBODY: &str = "somebody else";

/// The treatment of a frame of a person.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// The agent gets it.
    Take(Box<Inbound>),
    /// It is answered at once: the result, and the reason.
    Answer(&'static str, String),
}

impl Arrival {
    fn refused(why: impl Into<String>) -> Self {
        Self::Answer("refused", why.into())
    }
}

/// A message, or the new text of one.
pub(crate) fn message(access: &AdapterAccess, said: Said, is_edit: bool) -> Arrival {
    let visible = |text: &str| belay_text::removed(text).into_owned();
    if said.text.len() > TEXT_MAX {
        return Arrival::refused(format!("text: at most {TEXT_MAX} bytes"));
    }
    let place = match Place::of(access, &said.id, &said.sender, said.conversation.as_deref()) {
        Ok(place) => place,
        Err(why) => return Arrival::refused(why),
    };
    if place.audience == Audience::Group && !said.addressed {
        return Arrival::Answer("ignored", "it is not addressed to Belay".to_owned());
    }
    let text = visible(&said.text);
    if text.trim().is_empty() {
        return Arrival::refused("text: it is empty");
    }
    let body = if is_edit { Body::Edit(text) } else { Body::Text(text) };
    let key = (!is_edit).then(|| place.key(access, &said.id)); // each edit is one of its own
    let quote = said.reply_to.map(|quoted| Quote {
        author: if quoted.own { Author::Assistant } else { Author::Other },
        name: quoted.name.filter(|_| !quoted.own).as_deref().map(visible),
        text: visible(&quoted.text),
        ..Quote::default()
    });
    let provenance = Provenance {
        audience: place.audience,
        sender: Some(person(&said.sender)),
        forwarded_from: said.forwarded.then(|| SOMEBODY.to_owned()),
        reply_to: quote,
        message_id: Some(said.id.clone()),
        ..Provenance::default()
    };
    let mut inbound = place.inbound(access, &said.id, body);
    (inbound.key, inbound.relayed, inbound.provenance) = (key, said.bot, Some(provenance.cleaned().into()));
    Arrival::Take(Box::new(inbound))
}

/// The answer to a question.
pub(crate) fn decision(access: &AdapterAccess, decide: &Decide) -> Arrival {
    let Ok(approval) = decide.approval.parse() else { return Arrival::refused("approval: it is no id of a question") };
    match Place::of(access, &decide.id, &decide.sender, decide.conversation.as_deref()) {
        Ok(place) => {
            let control = Control::Decide { approval, decision: decide.decision };
            let mut inbound = place.inbound(access, &decide.id, Body::Control(control));
            inbound.reply_to = None; // the adapter shows the answer of its `ack`
            Arrival::Take(Box::new(inbound))
        }
        Err(why) => Arrival::refused(why),
    }
}

/// The conversation of a message, and its author.
struct Place {
    conversation: String,
    audience: Audience,
    principal: Principal,
}

impl Place {
    fn of(access: &AdapterAccess, id: &str, sender: &Sender, conversation: Option<&str>) -> Result<Self, String> {
        let conversation = conversation.unwrap_or(&sender.id);
        for (field, value) in [("id", id), ("sender.id", &sender.id), ("conversation", conversation)] {
            if !is_id(value) {
                return Err(format!("{field}: 1 to 128 visible bytes"));
            }
        }
        let Some(role) = access.role(&sender.id) else { return Err(access.not_listed(&sender.id)) };
        let audience = if conversation == sender.id { Audience::Person } else { Audience::Group };
        if audience == Audience::Group && !access.is_listed_group(conversation) {
            let list = format!("channels.adapters.{}.groups", access.channel());
            return Err(format!("{conversation} is not on the list {list}"));
        }
        let principal = Principal { id: sender.id.as_str().into(), role };
        Ok(Self { conversation: conversation.to_owned(), audience, principal })
    }

    /// One platform may count its messages for each conversation.
    fn key(&self, access: &AdapterAccess, id: &str) -> IdempotencyKey {
        let account = self.conversation.as_str().into();
        IdempotencyKey { channel: access.channel().clone(), account, message_id: id.into() }
    }

    fn inbound(self, access: &AdapterAccess, id: &str, body: Body) -> Inbound {
        let (channel, session) = (access.channel().clone(), access.session(&self.conversation));
        let conversation = self.conversation.into();
        let route = ReplyRoute { channel: channel.clone(), conversation, reply_to: Some(id.into()) };
        Inbound { reply_to: Some(route), ..Inbound::new(channel, session, self.principal, body) }
    }
}

fn person(sender: &Sender) -> Person {
    let name = sender.name.as_deref().map(|name| belay_text::removed(name).into_owned());
    let name = name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| sender.id.clone());
    Person { name, username: None, id: sender.id.clone() }
}

/// The `ack` of a message, and whether it is settled: an unsettled one is sent again by the adapter.
pub(crate) fn answer(id: String, ack: Option<Ack>) -> (ToAdapter, bool) {
    let (result, detail, after_ms) = match ack {
        None => ("again", Some("Belay has not taken it".to_owned()), Some(PAUSE_MS)),
        Some(Ack::Command(reply)) => ("command", Some(reply.reply), None),
        Some(Ack::Refused(refusal)) => match refusal.again() {
            Some(after) => ("again", Some(refusal.to_string()), u64::try_from(after.as_millis()).ok()),
            None => ("refused", Some(refusal.to_string()), None),
        },
        Some(_) => ("accepted", None, None),
    };
    (ToAdapter::Ack { id, result, detail, after_ms }, result != "again")
}

#[cfg(test)]
mod tests {
    use belay_protocol::Refusal;

    use super::*;
    use crate::config::AdapterConfig;

    #[test]
    fn invisible_characters_are_removed() {
        let config = AdapterConfig { allow: vec!["ann".to_owned()], ..AdapterConfig::default() };
        let access = AdapterAccess::of("irc", &config);
        let said = |text: &str| {
            let frame = serde_json::json!({
                "id": "1", "text": text, "sender": { "id": "ann", "name": "A\u{200b}nn" },
                "reply_to": { "text": "be\u{202e}fore", "name": "E\u{2060}ve" },
            });
            message(&access, serde_json::from_value(frame).expect("a message"), false)
        };
        let Arrival::Take(inbound) = said("re\u{200b}ad \u{e0041}me") else { panic!("it is taken") };
        assert!(matches!(&inbound.body, Body::Text(text) if text == "read me"), "{:?}", inbound.body);
        let provenance = inbound.provenance.as_deref().expect("a sender");
        let quote = provenance.reply_to.as_ref().expect("a quote");
        assert_eq!((quote.text.as_str(), quote.name.as_deref()), ("before", Some("Eve")));
        assert_eq!(provenance.sender.as_ref().map(|person| person.name.as_str()), Some("Ann"));
        let invisible = said("\u{200b}\u{e0041}");
        assert!(matches!(&invisible, Arrival::Answer("refused", why) if why.contains("empty")), "{invisible:?}");
    }

    #[test]
    fn a_text_that_the_person_did_not_write_is_relayed() {
        let config = AdapterConfig { operators: vec!["ann".to_owned()], ..AdapterConfig::default() };
        let access = AdapterAccess::of("irc", &config);
        for (field, value, author) in [
            ("bot", true, Some("another program")),
            ("forwarded", true, Some("somebody else")),
            ("bot", false, None),
            ("forwarded", false, None),
        ] {
            for (text, is_edit) in [("/freeze", false), ("yes", false), ("yes", true)] {
                let mut frame = serde_json::json!({ "id": "1", "text": text, "sender": { "id": "ann" } });
                frame[field] = value.into();
                let said = serde_json::from_value(frame).expect("a message");
                let Arrival::Take(inbound) = message(&access, said, is_edit) else { panic!("{field} is taken") };
                assert_eq!(inbound.is_relayed(), value, "{field} {text}");
                let named = inbound.with_author().provenance.and_then(|facts| facts.forwarded_from.clone());
                assert_eq!(named.as_deref(), author, "{field} {text}");
            }
        }
    }

    #[test]
    fn a_message_never_comes_again_without_a_pause() {
        for ack in [None, Some(Ack::Refused(Refusal::ShuttingDown)), Some(Ack::Refused(Refusal::Store("full".into())))]
        {
            let (frame, is_settled) = answer("1".to_owned(), ack);
            assert!(
                matches!(frame, ToAdapter::Ack { result: "again", after_ms: Some(1_000), .. }) && !is_settled,
                "{frame:?}"
            );
        }
    }
}
