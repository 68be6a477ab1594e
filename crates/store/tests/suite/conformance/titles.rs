//! Titles of conversations.

use belay_protocol::store::TITLE_TRIES;
use belay_protocol::{Lease, SessionChange, ThreadEdit, Untitled};

use crate::kit::*;

super::for_every_store! {
    a_title_is_kept_once_and_lists_show_it
    a_conversation_without_an_answer_gets_no_title
    failed_attempts_are_counted
    a_cleared_conversation_has_no_title_and_gets_none
}

/// A session with an ended turn.
async fn talked(store: &dyn Store) -> Lease {
    let lease = open(store, "s").await.lease;
    turn(store, &lease, "hi").await;
    lease
}

async fn untitled(store: &dyn Store) -> Vec<Untitled> {
    store.untitled(&"s".into(), 10).await.unwrap()
}

async fn title(store: &dyn Store) -> Option<String> {
    store.session(&"s".into()).await.unwrap().unwrap().title
}

async fn a_title_is_kept_once_and_lists_show_it(store: Shared) {
    let lease = talked(&*store).await;
    let found = untitled(&*store).await;
    assert_eq!(found.iter().map(|found| found.messages[0].text().to_owned()).collect::<Vec<_>>(), ["hi"]);
    assert_eq!(title(&*store).await.as_deref(), Some("hi"));
    store.keep_title(&found[0], Some("Greetings".into())).await.unwrap();
    store.keep_title(&found[0], Some("Another".into())).await.unwrap();
    assert_eq!(title(&*store).await.as_deref(), Some("Greetings"));
    let listed = store.conversations(&"s".into(), None, 10).await.unwrap();
    assert_eq!(listed[0].title.as_deref(), Some("Greetings"));
    assert_eq!(untitled(&*store).await, []);
    store.change_session(&"other".into(), SessionChange::title("Elsewhere")).await.unwrap();
    for (own, expected) in [(Some("By hand"), "By hand"), (None, "hi"), (Some("Greetings"), "Greetings")] {
        store.change_session(&"s".into(), SessionChange::title(own.unwrap_or_default())).await.unwrap();
        assert_eq!(title(&*store).await.as_deref(), Some(expected));
    }
    let both = SessionChange { hidden: Some(true), ..SessionChange::title("Both") };
    store.change_session(&"s".into(), both).await.unwrap();
    let changed = store.session(&"s".into()).await.unwrap().unwrap();
    assert_eq!((changed.title.as_deref(), changed.hidden), (Some("Both"), true));
    let neither = SessionChange { hidden: Some(false), ..SessionChange::title("Greetings") };
    store.change_session(&"s".into(), neither).await.unwrap();

    edit(&*store, &lease, ThreadEdit::New).await;
    turn(&*store, &lease, "and now?").await;
    assert_eq!(untitled(&*store).await.len(), 1, "the new one has none");
    assert_eq!(store.untitled(&"other".into(), 10).await.unwrap(), []);
}

async fn a_conversation_without_an_answer_gets_no_title(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, queued("hi")).await;
    assert_eq!(untitled(&*store).await, []);
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    assert_eq!(untitled(&*store).await, []);
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(untitled(&*store).await.len(), 1);
}

async fn failed_attempts_are_counted(store: Shared) {
    talked(&*store).await;
    for _ in 0..TITLE_TRIES {
        let found = untitled(&*store).await;
        assert_eq!(found.len(), 1);
        store.keep_title(&found[0], None).await.unwrap();
    }
    assert_eq!(untitled(&*store).await, []);
}

async fn a_cleared_conversation_has_no_title_and_gets_none(store: Shared) {
    let lease = talked(&*store).await;
    let found = untitled(&*store).await;
    edit(&*store, &lease, ThreadEdit::Clear).await;
    store.keep_title(&found[0], Some("Greetings".into())).await.unwrap();
    assert_eq!(title(&*store).await, None, "the model wrote it from what was cleared");

    turn(&*store, &lease, "anew").await;
    let found = untitled(&*store).await;
    store.keep_title(&found[0], Some("Anew".into())).await.unwrap();
    assert_eq!(title(&*store).await.as_deref(), Some("Anew"));
    edit(&*store, &lease, ThreadEdit::Clear).await;
    assert_eq!(title(&*store).await, None);
}
