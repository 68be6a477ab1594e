//! Digests of messages: they distinguish a redelivery from another message under the same idempotency key.
//!
//! The digest is defined in this crate since it is the content of the stored words
//! [`NewInput::digest`](crate::NewInput::digest) and [`ActedOn::digest`].

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attachment::Attachment;
use crate::declared::DeclaredOutput;
use crate::idempotency::IdempotencyKey;
use crate::inbound::{Body, HistoryLine, HistoryRole, Inbound};
use crate::message::canonical_json;
use crate::options::RunOptions;
use crate::store::{ActedOn, KnownInput, input_digest};

/// The context string of digests of a text with options. It separates them from digests of a text alone, whatever the
/// text is.
const WITH_MORE: &str = "Belay: a message with what it asks of its run, 1";

/// The key and the digest by which a redelivery of a message or a command is recognised.
///
/// If the message is a secret, the digest is that of the secret, and the caller stores the key without it; see
/// [`ActedOn::digest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The key.
    pub key: IdempotencyKey,
    /// The digest, in hex.
    pub digest: String,
}

impl Sent {
    /// The key and the digest of a message; `None` for control messages and for messages without a key, of which each
    /// delivery counts.
    pub fn of(inbound: &Inbound) -> Option<Self> {
        // Every field is named, so that a new field needs a decision here. The key contains the sender and the channel.
        // The destination of the reply and the readers may differ between deliveries.
        let Inbound {
            key,
            body,
            history,
            outputs,
            options,
            channel: _,
            session: _,
            work: _,   // its key names it
            source: _, // follows from the work
            principal: _,
            reply_to: _,
            want_deltas: _,
            lifetime: _,
            relayed: _,
            only_now: _, // how the answer is read
            // The platform's own, the same with each delivery, except the files that a client chooses.
            provenance,
        } = inbound;
        let (Some(key), Body::Text(text) | Body::Edit(text)) = (key, body) else { return None };
        let files = provenance.as_ref().map_or(&[][..], |provenance| &provenance.attachments);
        let digest = if options.is_default() && outputs.is_empty() && history.is_empty() && files.is_empty() {
            input_digest(text)
        } else {
            digest_with_more(text, options, outputs, history, files)
        };
        Some(Self { key: key.clone(), digest })
    }

    /// Whether it is the message that was committed under its key.
    pub fn is_again(&self, known: &KnownInput) -> bool {
        self.digest == known.digest
    }
}

impl From<Sent> for ActedOn {
    /// For messages that are no secret and were not refused.
    fn from(Sent { key, digest }: Sent) -> Self {
        Self { key, digest: Some(digest), refused: false }
    }
}

/// The digest of a text with its options, outputs and history. That of a text alone is [`input_digest`].
fn digest_with_more(
    text: &str,
    options: &RunOptions,
    outputs: &[DeclaredOutput],
    history: &[HistoryLine],
    files: &[Attachment],
) -> String {
    let history: Vec<Value> = history.iter().map(|line| json!([role(line.role), line.text])).collect();
    let mut beside = json!({ "options": options, "outputs": outputs, "history": history });
    if !files.is_empty() {
        beside["files"] = files.iter().map(|file| json!([file.name, file.digest])).collect();
    }
    let beside = canonical_json(&beside);
    let mut hasher = blake3::Hasher::new_derive_key(WITH_MORE);
    hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes()).update(beside.as_bytes());
    hasher.finalize().to_hex().to_string()
}

fn role(role: HistoryRole) -> &'static str {
    match role {
        HistoryRole::System => "system",
        HistoryRole::User => "user",
        HistoryRole::Assistant => "assistant",
        HistoryRole::Calls => "calls",
        HistoryRole::Result => "result",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use crate::attachment::AttachmentContent;
    use crate::options::{QueueMode, Thinking};
    use crate::principal::Principal;
    use crate::provenance::Provenance;

    fn plain(text: &str) -> Inbound {
        Inbound {
            key: Some(IdempotencyKey { channel: "http".into(), account: "s".into(), message_id: "k".into() }),
            ..Inbound::new("http".into(), "s".into(), Principal::operator("o"), Body::Text(text.into()))
        }
    }

    fn asking(options: RunOptions) -> Inbound {
        Inbound { options, ..plain("hi") }
    }

    fn wanting(schema: Value) -> Inbound {
        let output = DeclaredOutput { name: "n".into(), schema, description: None };
        Inbound { outputs: vec![output], ..plain("hi") }
    }

    fn with_file(name: &str, digit: char) -> Inbound {
        let file = Attachment {
            name: name.into(),
            media_type: "text/plain".into(),
            bytes: 1,
            digest: digit.to_string().repeat(64).parse().expect("a digest"),
            content: AttachmentContent::Named { detail: String::new() },
        };
        let provenance = Provenance { attachments: vec![file], ..Provenance::default() };
        Inbound { provenance: Some(Arc::new(provenance)), ..plain("hi") }
    }

    fn digest_of(inbound: &Inbound) -> String {
        Sent::of(inbound).map(|sent| sent.digest).unwrap_or_default()
    }

    #[test]
    fn a_text_alone_has_the_digest_that_it_always_had() {
        assert_eq!(digest_of(&plain("hi")), blake3::hash(b"hi").to_hex().to_string());
    }

    #[test]
    fn everything_that_was_sent_tells_messages_apart() {
        let nothing = RunOptions::default;
        let line = |role| Inbound { history: vec![HistoryLine { role, text: "x".into() }], ..plain("hi") };
        let messages = [
            plain("hi"),
            plain("hi "),
            asking(RunOptions { queue: Some(QueueMode::Collect), ..nothing() }),
            asking(RunOptions { queue: Some(QueueMode::Steer), ..nothing() }),
            asking(RunOptions { thinking: Some(Thinking::Low), ..nothing() }),
            asking(RunOptions { verbose: Some(true), ..nothing() }),
            asking(RunOptions { model: Some("m".into()), ..nothing() }),
            asking(RunOptions { timeout_ms: Some(5), ..nothing() }),
            asking(RunOptions { extra_prompt: Some("m".into()), ..nothing() }),
            wanting(json!({"type": "string"})),
            wanting(json!({"type": "integer"})),
            line(HistoryRole::User),
            line(HistoryRole::Assistant),
            with_file("a.txt", 'a'),
            with_file("b.txt", 'a'),
            with_file("a.txt", 'b'),
        ];
        let digests: HashSet<String> = messages.iter().map(digest_of).collect();
        assert_eq!(digests.len(), messages.len());
    }

    #[test]
    fn how_it_was_written_down_and_who_listens_does_not() {
        let one = wanting(json!({"type": "object", "required": ["a"]}));
        let other = wanting(json!({"required": ["a"], "type": "object"}));
        assert_eq!(digest_of(&one), digest_of(&Inbound { want_deltas: true, ..other }));
    }

    #[test]
    fn without_a_key_nothing_is_recognised() {
        assert_eq!(Sent::of(&Inbound { key: None, ..plain("hi") }), None);
    }
}
