//! Notes, and the search for what their owners have said.

use std::sync::Arc;

use belay_protocol::{
    Audience, Forgotten, MemoryOwner, NewInput, NewNote, NoteArchive, NoteFilter, NoteSelection, NoteStore, NoteVector,
    NoteVectors, Provenance, Remembered, RunId, SaidQuery, StoreError, ThreadEdit,
};
use belay_store::SqlStore;

use crate::kit::*;

super::for_every_store! {
    notes_are_found_by_any_word_without_case_best_first
    a_note_replaces_the_one_of_its_key_and_owner
    notes_of_one_owner_are_not_seen_by_another
    a_run_with_untrusted_content_leaves_other_notes_alone
    too_many_or_too_big_notes_are_refused_with_words
    people_list_search_edit_and_delete_notes
    prompts_get_the_newest_trusted_notes_that_fit
    what_was_said_is_found_in_the_persons_own_conversations_alone
    the_nearest_notes_of_an_owner_are_found_as_long_as_their_text_stays
}

async fn notes_are_found_by_any_word_without_case_best_first(store: Shared) {
    let owner = person("a");
    for (key, text, ms) in [
        ("Tea", "likes ÄPFEL and green tea", 1),
        ("city", "lives in Łódź", 2),
        ("pet", "a cat called Äpfel", 3),
        ("work", "green energy", 4),
    ] {
        store.remember(new_note(&owner, key, text, ms)).await.unwrap();
    }
    for (query, limit, expected) in [
        ("", 10, vec!["work", "pet", "city", "Tea"]),
        ("  ", 2, vec!["work", "pet"]),
        ("äpfel", 10, vec!["pet", "Tea"]),
        ("\"äpfel\", GREEN?", 10, vec!["Tea", "work", "pet"]),
        ("łódź", 10, vec!["city"]),
        ("TEA", 10, vec!["Tea"]),
        ("nothing", 10, vec![]),
        ("green", 1, vec!["work"]),
    ] {
        let found = store.recall(&owner, query, limit).await.unwrap();
        assert_eq!(found.iter().filter_map(|note| note.key.as_deref()).collect::<Vec<_>>(), expected, "{query:?}");
    }
}

async fn a_note_replaces_the_one_of_its_key_and_owner(store: Shared) {
    let owner = person("a");
    let first = store.remember(new_note(&owner, "k", "old", 1)).await.unwrap();
    assert_eq!(store.remember(new_note(&owner, "k", "new", 2)).await.unwrap(), first, "it keeps its number");
    store.remember(new_note(&group("a"), "k", "theirs", 3)).await.unwrap();
    store.remember(new_note(&owner, "", "without a key", 4)).await.unwrap();
    store.remember(new_note(&owner, "", "without a key", 5)).await.unwrap();
    store.remember(new_note(&owner, "", "another", 6)).await.unwrap();
    let untrusted = NewNote { untrusted: true, ..new_note(&owner, "", "another", 7) };
    store.remember(untrusted).await.unwrap();
    let found = store.recall(&owner, "", 10).await.unwrap();
    let shown: Vec<_> = found.iter().map(|note| (note.key.as_deref(), note.text.as_str(), note.at.0)).collect();
    assert_eq!(shown, [(None, "another", 6), (None, "without a key", 5), (Some("k"), "new", 2)]);
    assert!(!found[0].untrusted, "the words are known already");
}

async fn notes_of_one_owner_are_not_seen_by_another(store: Shared) {
    let elsewhere = MemoryOwner::Person { channel: "other".into(), id: "a".into() };
    let owners = [person("a"), person("b"), elsewhere, group("a"), group("b")];
    for (n, owner) in owners.iter().enumerate() {
        assert!(!store.may_have_notes(owner), "{owner}");
        store.remember(new_note(owner, "k", &format!("of {n}"), 1)).await.unwrap();
        assert!(store.may_have_notes(owner), "{owner}");
    }
    for (n, owner) in owners.iter().enumerate() {
        let found = store.recall(owner, "", 10).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].owner, &found[0].text), (owner, &format!("of {n}")));
        let other = &owners[(n + 1) % owners.len()];
        assert_eq!(store.forget_note(other, found[0].id, false).await.unwrap(), Forgotten::Missing);
        assert_eq!(store.forget_note(owner, found[0].id, false).await.unwrap(), Forgotten::Deleted);
        assert_eq!(store.forget_note(owner, found[0].id, false).await.unwrap(), Forgotten::Missing);
    }
    let Remembered::Stored(id) = store.remember(new_note(&owners[0], "k", "x", 1)).await.unwrap() else {
        panic!("it is not stored")
    };
    assert_eq!(id, 6, "the number of a deleted note is not used again");
}

async fn a_run_with_untrusted_content_leaves_other_notes_alone(store: Shared) {
    let owner = person("a");
    let untrusted = |key: &str| NewNote { untrusted: true, ..new_note(&owner, key, "from a page", 2) };
    store.remember(new_note(&owner, "mine", "my own words", 1)).await.unwrap();
    assert_eq!(store.remember(untrusted("mine")).await.unwrap(), Remembered::Protected(1));
    assert_eq!(store.forget_note(&owner, 1, true).await.unwrap(), Forgotten::Protected);
    assert_eq!(store.recall(&owner, "", 10).await.unwrap()[0].text, "my own words");

    assert_eq!(store.remember(untrusted("page")).await.unwrap(), Remembered::Stored(2));
    assert_eq!(store.remember(untrusted("page")).await.unwrap(), Remembered::Stored(2));
    assert!(store.recall(&owner, "page", 1).await.unwrap()[0].untrusted);
    assert_eq!(store.forget_note(&owner, 2, true).await.unwrap(), Forgotten::Deleted);
}

async fn too_many_or_too_big_notes_are_refused_with_words(store: Shared) {
    let owner = person("a");
    let refused = |outcome: Result<Remembered, StoreError>| match outcome {
        Err(StoreError::TooMuch(words)) => words,
        other => panic!("{other:?}"),
    };
    let long = "x".repeat(16 * 1024);
    assert!(refused(store.remember(new_note(&owner, "k", &format!("{long}x"), 1)).await).contains("16384 bytes"));
    assert!(refused(store.remember(new_note(&owner, &"k".repeat(257), "x", 1)).await).contains("key"));
    store.remember(new_note(&owner, "k", &long, 1)).await.unwrap();
    let mut writes = tokio::task::JoinSet::new();
    for n in 1..1000 {
        let (store, note) = (store.clone(), new_note(&owner, &n.to_string(), "x", n));
        writes.spawn(async move { store.remember(note).await });
    }
    assert!(writes.join_all().await.into_iter().all(|outcome| outcome.is_ok()));
    let words = refused(store.remember(new_note(&owner, "one more", "x", 1)).await);
    assert!(words.contains("1000 notes") && words.contains("forget"), "{words}");
    store.remember(new_note(&owner, "k", "a known key may change", 1)).await.unwrap();
    store.remember(new_note(&person("b"), "one more", "x", 1)).await.unwrap();
    let words = store.edit_note(1, &format!("{long}x"), at(1)).await;
    assert!(matches!(words, Err(StoreError::TooMuch(_))), "{words:?}");
}

async fn people_list_search_edit_and_delete_notes(store: Shared) {
    for (owner, text) in [(person("a"), "a black cat"), (group("g"), "the garden party"), (person("a"), "green tea")] {
        let note = NewNote { untrusted: true, ..new_note(&owner, "", text, 1) };
        store.remember(note).await.unwrap();
    }
    let ids = |filter: NoteFilter| {
        let store = store.clone();
        async move { store.notes(filter).await.unwrap().iter().map(|note| note.id).collect::<Vec<_>>() }
    };
    let every = NoteFilter::default;
    let search = |words: &str| NoteFilter { words: words.into(), ..every() };
    assert_eq!(ids(every()).await, [1, 2, 3]);
    assert_eq!(ids(NoteFilter { limit: 1, after: 1, ..every() }).await, [2]);
    assert_eq!(ids(NoteFilter { owner: Some(person("a")), ..every() }).await, [1, 3]);
    assert_eq!(ids(NoteFilter { id: Some(2), ..every() }).await, [2]);
    assert_eq!(ids(search("TEA garden")).await, [3, 2]);
    assert_eq!(ids(NoteFilter { owner: Some(group("g")), ..search("tea garden") }).await, [2]);

    assert!(store.edit_note(1, "a white cat", at(9)).await.unwrap());
    let edited = store.notes(NoteFilter { id: Some(1), ..every() }).await.unwrap().remove(0);
    assert_eq!(
        (edited.text.as_str(), edited.at, edited.untrusted),
        ("a white cat", at(9), false),
        "a person has read it"
    );
    assert!(!store.edit_note(4, "x", at(9)).await.unwrap());
    assert_eq!(store.delete_notes(NoteSelection::One(2)).await.unwrap(), 1);
    assert_eq!(store.delete_notes(NoteSelection::One(2)).await.unwrap(), 0);
    assert_eq!(store.delete_notes(NoteSelection::AllOf(person("a"))).await.unwrap(), 2);
    assert!(ids(every()).await.is_empty());
}

async fn prompts_get_the_newest_trusted_notes_that_fit(store: Shared) {
    let owner = person("a");
    for (key, text, ms, untrusted) in
        [("a", "12345", 1, false), ("b", "from a page", 2, true), ("c", "a long text", 3, false), ("d", "éé", 4, false)]
    {
        store.remember(NewNote { untrusted, ..new_note(&owner, key, text, ms) }).await.unwrap();
    }
    for (max_chars, expected) in
        [(0, ""), (2, ""), (3, "d"), (8, "d"), (9, "da"), (14, "da"), (15, "dc"), (21, "dca"), (1000, "dca")]
    {
        let notes = store.prompt_notes(&owner, max_chars).await.unwrap();
        let keys: String = notes.iter().filter_map(|note| note.key.as_deref()).collect();
        assert_eq!(keys, expected, "{max_chars}");
    }
}

async fn what_was_said_is_found_in_the_persons_own_conversations_alone(store: Shared) {
    let by = |id: &str, text: &str| {
        let mut input = input(text);
        input.asker.principal = id.into();
        input
    };
    let in_group = || Some(Arc::new(Provenance { audience: Audience::Group, ..Provenance::default() }));
    let mut runs = Vec::new();
    for (session, message) in [
        ("one", by("ann", "the parcel is blue")),
        ("two", by("ann", "a green parcel came")),
        ("two", by("bob", "the parcel of bob")),
        ("group", NewInput { provenance: in_group(), ..by("ann", "the parcel of the group") }),
    ] {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, message).await;
        store.finish_runs(&lease, vec![finished(run, "a parcel, fine")]).await.unwrap();
        runs.push(run);
    }
    let said = |owner: MemoryOwner, words: &str, except: RunId| {
        let (store, words) = (Arc::clone(&store), words.to_owned());
        async move {
            let found = store.said(SaidQuery { owner, words, except, limit: 10 }).await.unwrap();
            let mut shown: Vec<_> =
                found.iter().map(|found| format!("{} {}: {}", found.session, found.role, found.snippet)).collect();
            shown.sort();
            shown
        }
    };
    let nobody = RunId::new();
    let found = said(person("ann"), "parcel?", nobody).await;
    assert!(found.iter().all(|found| found.starts_with("one") || found.starts_with("two")), "{found:?}");
    assert!(found.iter().any(|found| found.contains("green")) && !found.iter().any(|found| found.contains("bob")));
    assert_eq!(said(person("ann"), "blue green", nobody).await.len(), 2, "any word is enough");
    assert_eq!(said(person("ann"), "blue green", runs[0]).await.len(), 1, "not the run that asks");
    assert!(said(person("bob"), "blue", nobody).await.is_empty());
    assert!(said(person("ann"), " ?! ", nobody).await.is_empty());
    let found = said(group("group"), "parcel", nobody).await;
    assert!(!found.is_empty() && found.iter().all(|found| found.starts_with("group")), "{found:?}");

    let lease = open(&*store, "one").await.lease;
    edit(&*store, &lease, ThreadEdit::Clear).await;
    assert!(said(person("ann"), "blue", nobody).await.is_empty(), "a cleared message is not found");
}

async fn the_nearest_notes_of_an_owner_are_found_as_long_as_their_text_stays(store: Arc<SqlStore>) {
    let (ann, bob) = (person("a"), person("b"));
    for (owner, key, ms) in
        [(&ann, "near", 1), (&ann, "nearer", 2), (&ann, "far", 3), (&ann, "odd", 4), (&bob, "near", 5)]
    {
        store.remember(new_note(owner, key, "text", ms)).await.unwrap();
    }
    let missing = async |owner: &MemoryOwner, model: &str, limit: u32| -> Vec<u64> {
        let notes = store.notes_without_vector(owner, model, limit).await.unwrap();
        notes.iter().map(|note| note.id).collect()
    };
    assert_eq!((missing(&ann, "m", 9).await, missing(&ann, "m", 2).await), (vec![1, 2, 3, 4], vec![1, 2]));
    let vector = |note: u64, vector: &[f32]| NoteVector { note, at: at(note as i64), vector: vector.to_vec() };
    let vectors = vec![
        vector(1, &[2.0, 1.5]),
        vector(2, &[3.0, 0.1]),
        vector(3, &[0.0, 1.0]),
        vector(4, &[0.0, 0.0]), // it has no direction
        vector(5, &[1.0, 0.0]),
        vector(99, &[1.0, 0.0]),
        NoteVector { at: at(77), ..vector(4, &[1.0, 0.0]) }, // of an older text
    ];
    store.put_vectors("m", vectors).await.unwrap();
    assert_eq!((missing(&ann, "m", 9).await, missing(&bob, "m", 9).await.len()), (vec![4], 0));
    assert_eq!(missing(&ann, "another", 9).await.len(), 4);
    let nearest = async |model: &str, vector: &[f32], min: f32, limit: u32| -> Vec<String> {
        let notes = store.nearest_notes(&ann, model, vector.to_vec(), min, limit).await.unwrap();
        notes.into_iter().filter_map(|note| note.key).collect()
    };
    assert_eq!(nearest("m", &[5.0, 0.0], 0.5, 9).await, ["nearer", "near"]);
    assert_eq!(nearest("m", &[5.0, 0.0], 0.5, 1).await, ["nearer"]);
    for (model, vector) in [("another", &[5.0, 0.0][..]), ("m", &[5.0]), ("m", &[0.0, 0.0]), ("m", &[f32::NAN, 0.0])] {
        assert!(nearest(model, vector, -1.0, 9).await.is_empty(), "{model} {vector:?}");
    }
    // A changed note has no vector, and a deleted one is not found.
    store.remember(new_note(&ann, "nearer", "another text", 9)).await.unwrap();
    assert_eq!(missing(&ann, "m", 9).await, [2, 4]);
    assert_eq!(nearest("m", &[5.0, 0.0], 0.5, 9).await, ["near"]);
    store.forget_note(&ann, 1, false).await.unwrap();
    store.delete_notes(NoteSelection::AllOf(ann.clone())).await.unwrap();
    assert!(nearest("m", &[5.0, 0.0], -1.0, 9).await.is_empty());
    assert_eq!(missing(&bob, "m", 9).await.len(), 0, "the notes of others keep theirs");
}

/// Prints the time of a search over the most notes that an owner may have.
#[tokio::test]
#[ignore = "a measurement"]
async fn the_nearest_of_a_thousand_notes() {
    let (store, _directory) = crate::kit::sqlite();
    let owner = person("a");
    for number in 1..=1000_i64 {
        store.remember(new_note(&owner, &number.to_string(), "a note about something", number)).await.unwrap();
        let vector: Vec<f32> = (0..1536).map(|at| ((number * 31 + at * 17) % 101) as f32 - 50.0).collect();
        store.put_vectors("m", vec![NoteVector { note: number as u64, at: at(number), vector }]).await.unwrap();
    }
    let query: Vec<f32> = (0..1536).map(|at| (at * 17 % 101) as f32 - 50.0).collect();
    for _ in 0..5 {
        let begun = std::time::Instant::now();
        let found = store.nearest_notes(&owner, "m", query.clone(), 0.25, 5).await.unwrap();
        println!("{} of 1000 notes with 1536 dimensions: {:?}", found.len(), begun.elapsed());
    }
    store.close().await;
}
