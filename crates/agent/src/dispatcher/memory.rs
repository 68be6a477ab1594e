//! `/memory` and `/forget`: the notes of the person who writes, or of the group in a group.

use std::fmt::Write;

use belay_protocol::{
    AckSender, Audience, Forgotten, Inbound, MemoryOwner, Note, NoteStore, Refusal, Sent, StoreError,
};

use super::{Dispatcher, Flow};
use crate::submission::MemoryCommand;
use belay_run::live::RunOrigin;

/// Most notes of a list.
const LISTED: u32 = 30;

/// Most characters of a note in a list.
const SHOWN_CHARS: usize = 200;

impl Dispatcher {
    /// Carries out a command about notes in a background task, because it queries the store.
    pub(super) fn memory_command(
        &mut self,
        command: MemoryCommand,
        word: String,
        sent: Option<Sent>,
        inbound: Inbound,
        ack: AckSender,
    ) -> Flow {
        let services = self.services.clone();
        let audience = inbound.provenance.as_ref().map_or(Audience::Person, |provenance| provenance.audience);
        let owner = services.run.memory.owner_in(&RunOrigin::of(&inbound), &inbound.session, audience);
        let answer = self.answer_of(word, sent, inbound, ack);
        self.background(async move {
            answer.carry_out(true, carry_out(&*services.store.notes, command, &owner)).await;
        });
        Flow::Continue
    }
}

async fn carry_out(notes: &dyn NoteStore, command: MemoryCommand, owner: &MemoryOwner) -> Result<String, Refusal> {
    let unavailable = |error: StoreError| Refusal::Store(error.to_string());
    match command {
        MemoryCommand::List => notes.recall(owner, "", LISTED).await.map(|notes| list(&notes)).map_err(unavailable),
        // A person deletes it, not a run.
        MemoryCommand::Forget(id) => match notes.forget_note(owner, id, false).await.map_err(unavailable)? {
            Forgotten::Deleted => Ok(format!("Note {id} is deleted.")),
            Forgotten::Missing | Forgotten::Protected => {
                Err(Refusal::Unknown(format!("There is no note {id} here. /memory lists them.")))
            }
        },
    }
}

/// The list, newest first.
fn list(notes: &[Note]) -> String {
    if notes.is_empty() {
        return "There are no notes.".to_owned();
    }
    let mut text = String::from("Notes, newest first. /forget ID deletes one.");
    for note in notes {
        let key = note.key.as_ref().map(|key| format!(" {key}")).unwrap_or_default();
        let mark = if note.untrusted { ", written under untrusted content" } else { "" };
        let words = note.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shown: String = words.chars().take(SHOWN_CHARS).collect();
        if shown.len() < words.len() {
            shown.push('…');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "\n- `{}`{key} ({}{mark}): {shown}", note.id, note.at.day());
    }
    if notes.len() >= LISTED as usize {
        text.push_str("\nThere may be more.");
    }
    text
}

#[cfg(test)]
mod tests {
    use belay_protocol::UnixMillis;

    use super::*;

    #[test]
    fn notes_are_listed_on_lines_and_marked() {
        let note = |id, text: String, untrusted| Note {
            id,
            owner: MemoryOwner::Group { session: "s".into() },
            key: Some("k".into()),
            text,
            at: UnixMillis(0),
            session: "s".into(),
            untrusted,
        };
        assert_eq!(list(&[]), "There are no notes.");
        let listed = list(&[note(2, "a\nb".into(), false), note(1, "é".repeat(201), true)]);
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines[1], "- `2` k (1970-01-01): a b");
        let expected = format!("- `1` k (1970-01-01, written under untrusted content): {}…", "é".repeat(200));
        assert_eq!(lines[2], expected);
    }
}
