//! Notes that both writers change.

use belay_protocol::{Forgotten, NewNote, NoteStore, Remembered, StoreError};

use super::holder::waiting;
use super::two::two;
use crate::kit::*;

/// Reads go on, and nobody can write before both have come.
const BOTH: &str = "LOCK TABLE notes IN SHARE MODE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_note_without_a_key_is_stored_once() {
    let Some(two) = two().await else { return };
    let held = two.hold(BOTH, &waiting(2), "SELECT 1").await;
    let note = || new_note(&person("ann"), "", "likes tea", 1_000);
    let (one, other) = tokio::join!(two.one.remember(note()), two.other.remember(note()));
    held.await.unwrap();
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(two.one.recall(&person("ann"), "", 9).await.unwrap().len(), 1);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_notes_is_limited_for_both_together() {
    let Some(two) = two().await else { return };
    let most = "INSERT INTO notes (kind, channel, owner, at, untrusted, session, text)
                SELECT 'person', 'http', 'ann', 1, 0, 's', 'note ' || n FROM generate_series(1, 999) n";
    two.value(most).await;
    let held = two.hold(BOTH, &waiting(2), "SELECT 1").await;
    let note = |key| new_note(&person("ann"), key, "the last one", 1_000);
    let (one, other) = tokio::join!(two.one.remember(note("a")), two.other.remember(note("b")));
    held.await.unwrap();
    let stored = [one, other].into_iter().filter(|stored| match stored {
        Ok(Remembered::Stored(_)) => true,
        Err(StoreError::TooMuch(_)) => false,
        unexpected => panic!("{unexpected:?}"),
    });
    assert_eq!(stored.count(), 1);
    two.close().await;
}

/// A person has just edited the note, so it is trusted now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_that_was_edited_meanwhile_is_protected() {
    let Some(two) = two().await else { return };
    let untrusted = |text| NewNote { untrusted: true, ..new_note(&person("ann"), "drink", text, 1_000) };
    let stored = two.one.remember(untrusted("tea")).await.unwrap();
    let Remembered::Stored(id) = stored else { panic!("{stored:?}") };

    let edit = "UPDATE notes SET untrusted = 0, text = 'coffee'";
    let editing = two.hold(edit, &waiting(1), "SELECT 1").await;
    assert_eq!(two.one.remember(untrusted("poison")).await.unwrap(), Remembered::Protected(id));
    editing.await.unwrap();
    assert_eq!(two.value("SELECT text FROM notes").await, "coffee");

    two.value("UPDATE notes SET untrusted = 1").await;
    let editing = two.hold(edit, &waiting(1), "SELECT 1").await;
    assert_eq!(two.one.forget_note(&person("ann"), id, true).await.unwrap(), Forgotten::Protected);
    editing.await.unwrap();
    assert_eq!(two.value("SELECT COUNT(*) FROM notes").await, "1");
    two.close().await;
}
