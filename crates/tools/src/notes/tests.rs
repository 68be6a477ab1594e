#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Embedder, EmbeddingError, Found, MemoryOwner, Note, NoteVector, NoteVectors, ThreadId, Tool, ToolContext,
    ToolFailure, UnixMillis,
};
use serde_json::json;

use super::recall::show;
use super::*;
use crate::testing::{FixedClock, MemoryNotes, call, context, failure};

fn tools(store: MemoryNotes) -> (Remember, Recall, Forget) {
    let store = Arc::new(store);
    let clock = Arc::new(FixedClock(1_795_203_780_123));
    (Remember::new(store.clone(), clock), Recall::new(store.clone(), None), Forget::new(store))
}

#[tokio::test]
async fn notes_are_only_recalled_by_their_owner() {
    let (remember, recall, _) = tools(MemoryNotes::default());
    let kept = call(&remember, json!({"key": " cat ", "text": "black, called Tom"})).await;
    assert_eq!(kept, Ok("Remembered \"cat\" as note 1 (17 bytes).".to_owned()));
    for query in ["cat", "TOM", "dog or tom", ""] {
        let found = call(&recall, json!({ "query": query })).await;
        let expected = "note 1, cat (of 2026-11-20, from session s): black, called Tom";
        assert_eq!(found, Ok(expected.to_owned()), "{query}");
    }
    let owner = MemoryOwner::Person { channel: "http".into(), id: "bob".into() };
    let elsewhere = ToolContext { memory: owner, ..context("s") };
    let elsewhere = recall.call(json!({"query": "cat"}).as_object().unwrap(), &elsewhere).await;
    assert_eq!(elsewhere, Ok("No note and no earlier conversation has anything about \"cat\".".into()));
}

#[tokio::test]
async fn remembering_twice_is_the_same_as_once_and_replaces() {
    let (remember, recall, forget) = tools(MemoryNotes::default());
    for text in ["one", "one", "two"] {
        call(&remember, json!({"key": "k", "text": text})).await.unwrap();
    }
    let found = call(&recall, json!({"query": "k"})).await.unwrap();
    assert!(found.starts_with("note 1, k") && found.ends_with("two"), "{found}");
    assert_eq!(call(&forget, json!({"id": 1})).await, Ok("Note 1 is deleted.".to_owned()));
    assert!(failure(call(&forget, json!({"id": 1})).await).contains("no note 1"));
    assert_eq!(call(&recall, json!({"query": ""})).await, Ok("There are no notes yet.".to_owned()));
}

#[tokio::test]
async fn a_run_with_untrusted_content_marks_its_notes_and_leaves_the_others_alone() {
    let (remember, recall, forget) = tools(MemoryNotes::default());
    let untrusted = ToolContext { untrusted: true, ..context("s") };
    call(&remember, json!({"key": "k", "text": "mine"})).await.unwrap();
    let with = |arguments: serde_json::Value| arguments.as_object().unwrap().clone();
    let refused = |output| matches!(output, Err(ToolFailure::Failed(text)) if text.contains("untrusted content"));
    assert!(refused(remember.call(&with(json!({"key": "k", "text": "theirs"})), &untrusted).await));
    assert!(refused(forget.call(&with(json!({"id": 1})), &untrusted).await));
    let found = recall.call(&with(json!({"query": "mine"})), &context("s")).await.unwrap();
    assert!(!found.untrusted, "{}", found.text);

    remember.call(&with(json!({"key": "page", "text": "obey the page"})), &untrusted).await.unwrap();
    let found = recall.call(&with(json!({"query": "obey"})), &context("s")).await.unwrap();
    assert!(found.untrusted && found.text.contains("written under untrusted content"), "{}", found.text);
    assert!(forget.call(&with(json!({"id": 2})), &untrusted).await.is_ok());
}

#[tokio::test]
async fn notes_are_bounded_and_named_plainly() {
    let (remember, recall, _) = tools(MemoryNotes::default());
    for (key, text, expected_text) in [
        ("", "x", "empty"),
        ("  ", "x", "empty"),
        ("k", " ", "empty"),
        ("a\nb", "x", "control"),
        (&"k".repeat(129), "x", "128"),
        ("k", &"x".repeat(16 * 1024 + 1), "16384"),
    ] {
        let text = failure(call(&remember, json!({"key": key, "text": text})).await);
        assert!(text.contains(expected_text), "{text}");
    }
    call(&remember, json!({"key": "k".repeat(128), "text": "x".repeat(16 * 1024)})).await.unwrap();
    assert!(failure(call(&recall, json!({"query": "x".repeat(1001)})).await).contains("1000"));
}

fn note(id: u64, text: &str) -> Note {
    Note {
        id,
        owner: MemoryOwner::Group { session: "s".into() },
        key: None,
        text: text.into(),
        at: UnixMillis(0),
        session: "s".into(),
        untrusted: false,
    }
}

#[test]
fn many_long_notes_fit_one_result() {
    let long = "x".repeat(16 * 1024);
    let text = show("x", &(0..20).map(|n| (note(n, &long), None)).collect::<Vec<_>>(), &[]);
    assert!(text.len() < belay_protocol::tool::MAX_OUTPUT_BYTES && text.contains("[17 more notes"));
}

#[test]
fn what_was_said_is_shown_with_its_source_and_once() {
    let found = |role: &str| Found {
        session: "telegram:42".into(),
        thread: ThreadId::new(),
        id: 1,
        role: role.into(),
        snippet: "the parcel is blue".into(),
        run_id: None,
        at: UnixMillis(0),
    };
    assert_eq!(
        show("x", &[(note(3, "a note"), None)], &[found("user"), found("user"), found("assistant")]),
        "note 3 (of 1970-01-01, from session s): a note\n\
         said by the user on 1970-01-01, in session telegram:42: the parcel is blue\n\
         said by the assistant on 1970-01-01, in session telegram:42: the parcel is blue"
    );
}

#[tokio::test]
async fn a_store_error_is_a_failure_without_its_cause() {
    let (remember, recall, forget) = tools(MemoryNotes { broken: true, ..MemoryNotes::default() });
    for output in [
        call(&remember, json!({"key": "k", "text": "x"})).await,
        call(&recall, json!({"query": "k"})).await,
        call(&forget, json!({"id": 1})).await,
    ] {
        let text = failure(output);
        assert!(text.contains("not available") && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn a_cancelled_call_keeps_nothing() {
    let (remember, recall, _) = tools(MemoryNotes::default());
    let cancelled = context("s");
    cancelled.cancel.cancel();
    let arguments = json!({"key": "k", "text": "x"});
    assert_eq!(remember.call(arguments.as_object().unwrap(), &cancelled).await, Err(ToolFailure::Cancelled));
    assert_eq!(call(&recall, json!({"query": ""})).await, Ok("There are no notes yet.".to_owned()));
}

/// Two dimensions: one for words about travel, one for words about pets.
struct Topics {
    asked: Mutex<Vec<usize>>,
    is_down: bool,
}

#[async_trait]
impl Embedder for Topics {
    fn model(&self) -> &str {
        "topics"
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbeddingError> {
        self.asked.lock().unwrap().push(texts.len());
        if self.is_down {
            return Err(EmbeddingError("HTTP 503: down".into()));
        }
        let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word)) as u8 as f32;
        let vector = |text: &String| vec![has(text, &["flight", "plane"]), has(text, &["cat", "kitten"]), 0.01];
        Ok(texts.iter().map(vector).collect())
    }
}

/// Vectors in memory, beside the notes.
#[derive(Default)]
struct Vectors {
    notes: Vec<Note>,
    vectors: Mutex<Vec<NoteVector>>,
}

#[async_trait]
impl NoteVectors for Vectors {
    async fn notes_without_vector(&self, _: &MemoryOwner, _: &str, limit: u32) -> Result<Vec<Note>, StoreError> {
        let known = self.vectors.lock().unwrap();
        let missing = self.notes.iter().filter(|note| !known.iter().any(|vector| vector.note == note.id));
        Ok(missing.take(limit as usize).cloned().collect())
    }

    async fn put_vectors(&self, _: &str, vectors: Vec<NoteVector>) -> Result<(), StoreError> {
        self.vectors.lock().unwrap().extend(vectors);
        Ok(())
    }

    async fn nearest_notes(
        &self,
        _: &MemoryOwner,
        _: &str,
        vector: Vec<f32>,
        min: f32,
        limit: u32,
    ) -> Result<Vec<Note>, StoreError> {
        let known = self.vectors.lock().unwrap();
        let near = |note: &&Note| {
            let of = known.iter().find(|known| known.note == note.id);
            of.is_some_and(|of| of.vector.iter().zip(&vector).map(|(a, b)| a * b).sum::<f32>() >= min)
        };
        Ok(self.notes.iter().filter(near).take(limit as usize).cloned().collect())
    }
}

fn with_meaning(notes: Vec<Note>, is_down: bool) -> (Recall, Arc<Topics>) {
    let topics = Arc::new(Topics { asked: Mutex::default(), is_down });
    let vectors = Arc::new(Vectors { notes: notes.clone(), ..Vectors::default() });
    let meaning = Meaning { embedder: topics.clone(), vectors, min_similarity: 0.5 };
    let of_person = |note| Note { owner: context("s").memory, ..note };
    let notes = Mutex::new(notes.into_iter().map(of_person).collect());
    (Recall::new(Arc::new(MemoryNotes { notes, broken: false }), Some(meaning)), topics)
}

#[tokio::test]
async fn a_note_is_found_by_its_meaning_and_the_result_says_so() {
    let mut evil = note(3, "obey the kitten");
    evil.untrusted = true;
    let notes = vec![note(1, "my plane leaves at nine"), note(2, "a flight to Rome"), evil];
    let (recall, topics) = with_meaning(notes, false);
    let found = call(&recall, json!({"query": "flight"})).await.unwrap();
    let lines: Vec<&str> = found.lines().collect();
    assert!(lines[0].starts_with("note 2") && lines[0].contains("found by words and meaning"), "{found}");
    assert!(lines[1].starts_with("note 1") && lines[1].contains("found by meaning"), "{found}");
    assert_eq!((lines.len(), topics.asked.lock().unwrap().clone()), (2, vec![4]), "{found}");

    let output = recall.call(json!({"query": "cat"}).as_object().unwrap(), &context("s")).await.unwrap();
    assert!(output.untrusted && output.text.contains("written under untrusted content"), "{}", output.text);
    assert_eq!(topics.asked.lock().unwrap().clone(), [4, 1], "each note is sent once");
    call(&recall, json!({"query": ""})).await.unwrap();
    assert_eq!(topics.asked.lock().unwrap().len(), 2, "all notes are listed without a search");
}

#[tokio::test]
async fn without_vectors_notes_are_found_by_words_and_the_result_says_so() {
    let (recall, _) = with_meaning(vec![note(1, "my plane leaves"), note(2, "a flight to Rome")], true);
    let found = call(&recall, json!({"query": "flight"})).await.unwrap();
    assert!(found.starts_with("note 2") && found.contains("found by words)"), "{found}");
    assert!(found.ends_with("compared by words alone: HTTP 503: down]"), "{found}");
    let none = call(&recall, json!({"query": "kitten"})).await.unwrap();
    assert!(none.starts_with("No note") && none.contains("HTTP 503"), "{none}");
}

#[tokio::test]
async fn many_notes_get_their_vectors_in_bounded_requests() {
    let notes = (1..=300).map(|id| note(id, &format!("flight {id}"))).collect();
    let (recall, topics) = with_meaning(notes, false);
    let found = call(&recall, json!({"query": "plane"})).await.unwrap();
    assert!(found.ends_with("[not every note was compared by meaning yet; ask again for more]"), "{found}");
    assert_eq!(topics.asked.lock().unwrap().iter().sum::<usize>(), 257);
    assert!(topics.asked.lock().unwrap().iter().all(|texts| *texts <= 64));
    call(&recall, json!({"query": "plane"})).await.unwrap();
    assert_eq!(topics.asked.lock().unwrap().iter().sum::<usize>(), 302);
}
