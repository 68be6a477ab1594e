//! Notices: what jobs have come to, in the conversations that asked for them.

use belay_protocol::{
    Arguments, EventKind, HeldJobs, JobCaps, JobChange, JobChanged, JobCreated, JobId, JobState, Message,
    SessionNotice, ThreadEdit, ToolCall, ToolResult, ToolStatus,
};

use crate::kit::*;

super::for_every_store! {
    a_notice_of_a_job_is_kept_once_and_makes_the_session_where_there_is_none
    a_notice_stored_amid_a_turn_is_read_behind_the_results_of_its_step
    a_summary_made_without_knowing_of_a_notice_leaves_what_was_to_stay
    undoing_a_turn_leaves_a_notice_where_it_is
}

/// What a notice of `it is 42` says.
const NOTICE: &str = "This is a notice from Belay, not a message of the user. it is 42";

type Store = std::sync::Arc<dyn Everything>;

const CAPS: JobCaps = JobCaps { at_work: 10, at_work_each: 10, open_each: 10, open: 10 };

async fn at_work(store: &Store) -> JobId {
    let JobCreated::New(job) = store.create(job("ann"), CAPS).await.unwrap() else { panic!("it is new") };
    store.begin_next(CAPS, HeldJobs::default(), boot(), at(2_000)).await.unwrap().expect("a place");
    job.job_id
}

fn done(job: JobId) -> JobChange {
    let notice = SessionNotice { session: "s".into(), text: "it is 42".into() };
    JobChange {
        job,
        to: JobState::Completed,
        attempt: None,
        detail: String::new(),
        result: Some("42".into()),
        notice: None,
        told_in: Some(notice),
        at: at(3_000),
    }
}

/// A job that was asked for in the session `s` ends.
async fn notice(store: &Store) {
    let job = at_work(store).await;
    let changed = store.change(done(job)).await.unwrap();
    assert!(matches!(changed, JobChanged::Now(_)), "{changed:?}");
}

async fn a_notice_of_a_job_is_kept_once_and_makes_the_session_where_there_is_none(store: Store) {
    let job = at_work(&store).await;
    store.change(done(job)).await.unwrap();
    store.change(done(job)).await.unwrap(); // a crash before the answer was read
    assert_eq!(facts(&*store, "s".into()).await, [EventKind::Notice { text: NOTICE.into() }]);
    let history = store.history(&"s".into(), 0, 10).await.unwrap();
    let read: Vec<_> = history.iter().map(|entry| (entry.role.as_str(), entry.text.as_str(), entry.run_id)).collect();
    assert_eq!(read, [("system", NOTICE, None)]);
    assert_eq!(store.recent_history(&"s".into(), 10).await.unwrap(), history);
    let opened = open(&*store, "s").await;
    let messages: Vec<Message> = opened.thread.messages.iter().map(|(_, message)| (**message).clone()).collect();
    assert_eq!(messages, [Message::notice("it is 42")]);
    turn(&*store, &opened.lease, "what came of it?").await;
    let read = open(&*store, "s").await.thread.messages;
    assert_eq!(texts(&read), [NOTICE, "what came of it?", "re: what came of it?"]);
}

async fn a_notice_stored_amid_a_turn_is_read_behind_the_results_of_its_step(store: Store) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let call = |id: &str| ToolCall { id: id.into(), name: "clock".into(), arguments: Arguments::parse("{}") };
    let result = |id: &str, text: &str| {
        let (name, status) = ("clock".into(), ToolStatus::Success);
        Message::tool(ToolResult { call_id: id.into(), name, status, text: text.into() })
    };
    let calls = Message::assistant_calls("two calls", vec![call("a"), call("b")]);
    store.checkpoint(&lease, checkpoint(run, vec![calls])).await.unwrap();
    notice(&store).await;
    store.checkpoint(&lease, checkpoint(run, vec![result("a", "one"), result("b", "two")])).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    let wanted = ["hi", "two calls", "one", "two", NOTICE, "yo"];
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), wanted);
    let read = store.conversation(&"s".into()).await.unwrap().expect("a session").messages;
    assert_eq!(read.iter().map(|message| message.text()).collect::<Vec<_>>(), wanted);
}

async fn a_summary_made_without_knowing_of_a_notice_leaves_what_was_to_stay(store: Store) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    notice(&store).await;
    store.compact(&lease, 2, "about a".into(), Vec::new()).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["b", "re: b", NOTICE]);
    store.compact(&lease, 0, "about a and b".into(), Vec::new()).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), [NOTICE], "no summary has it yet");
    turn(&*store, &lease, "c").await;
    store.compact(&lease, 0, "about all".into(), Vec::new()).await.unwrap();
    assert!(reload(&*store, &mut lease).await.thread.messages.is_empty());
}

async fn undoing_a_turn_leaves_a_notice_where_it_is(store: Store) {
    let lease = open(&*store, "s").await.lease;
    notice(&store).await;
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await);
    turn(&*store, &lease, "a").await;
    notice(&store).await;
    assert_eq!(texts(&edit(&*store, &lease, ThreadEdit::Undo).await.messages), [NOTICE, NOTICE]);
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await);
    let again = edit(&*store, &lease, ThreadEdit::Redo).await;
    assert_eq!(texts(&again.messages), [NOTICE, "a", "re: a", NOTICE]);
    assert!(edit(&*store, &lease, ThreadEdit::Clear).await.messages.is_empty());
}
