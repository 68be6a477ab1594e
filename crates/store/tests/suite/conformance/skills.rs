//! The skills that conversations began with.

use belay_protocol::{Retention, SkillSnapshot, ThreadEdit};

use crate::kit::*;

super::for_every_store! {
    a_conversation_keeps_its_first_skills
    each_conversation_has_its_own_and_a_copy_those_of_its_original
    skills_are_deleted_with_the_last_conversation_that_has_them
}

fn skills(text: &str) -> SkillSnapshot {
    SkillSnapshot { digest: format!("digest of {text}"), text: text.into() }
}

async fn kept(store: &dyn Store, session: &str) -> Option<String> {
    store.ping().await.unwrap(); // a relaxed write is read after the next commit
    store.kept_skills(&session.into()).await.unwrap()
}

async fn a_conversation_keeps_its_first_skills(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    assert_eq!((kept(&*store, "s").await, reload(&*store, &mut lease).await.thread.has_skills), (None, false));
    store.keep_skills(&"s".into(), skills("first")).await.unwrap();
    store.keep_skills(&"s".into(), skills("second")).await.unwrap();
    store.keep_skills(&"nobody".into(), skills("third")).await.unwrap();
    assert!(reload(&*store, &mut lease).await.thread.has_skills);
    assert_eq!((kept(&*store, "s").await.as_deref(), kept(&*store, "nobody").await), (Some("first"), None));
    assert!(store.conversation(&"s".into()).await.unwrap().unwrap().has_skills);
}

async fn each_conversation_has_its_own_and_a_copy_those_of_its_original(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "hi").await;
    store.keep_skills(&"s".into(), skills("first")).await.unwrap();
    let first = store.conversations(&"s".into(), None, 1).await.unwrap()[0].thread;
    assert!(edit(&*store, &lease, ThreadEdit::Fork).await.has_skills);
    assert_eq!(kept(&*store, "s").await.as_deref(), Some("first"));
    assert!(!edit(&*store, &lease, ThreadEdit::New).await.has_skills);
    assert_eq!(kept(&*store, "s").await, None);
    assert!(edit(&*store, &lease, ThreadEdit::Resume(first)).await.has_skills);
    assert!(!edit(&*store, &lease, ThreadEdit::Clear).await.has_skills);
    assert_eq!(kept(&*store, "s").await, None);
}

async fn skills_are_deleted_with_the_last_conversation_that_has_them(store: Shared) {
    for session in ["a", "b"] {
        let lease = open(&*store, session).await.lease;
        turn(&*store, &lease, "hi").await;
        store.keep_skills(&session.into(), skills("same")).await.unwrap();
    }
    let lease = open(&*store, "a").await.lease;
    store.delete_session(&lease, at(3_000)).await.unwrap();
    assert_eq!(kept(&*store, "b").await.as_deref(), Some("same"), "another conversation has them");
    let old = Retention { threads_before: Some(at(i64::from(u32::MAX))), ..Retention::default() };
    store.prune(old, 1_000).await.unwrap();
    // A row without a thread would still be found by its digest.
    let lease = open(&*store, "c").await.lease;
    turn(&*store, &lease, "hi").await;
    let changed = SkillSnapshot { text: "other".into(), ..skills("same") };
    store.keep_skills(&"c".into(), changed).await.unwrap();
    assert_eq!(kept(&*store, "c").await.as_deref(), Some("other"), "the old text is gone");
}
