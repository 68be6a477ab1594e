//! What a thread shows.

use belay_protocol::{
    Acceptance, EventKind, EventQuery, FinishedRun, Message, MessageScope, NewInput, StoreError, ThreadEdit,
    ThreadState, ToolResult, ToolStatus, TurnCompaction,
};

use crate::kit::*;

super::for_every_store! {
    an_ended_turn_shows_all_but_what_was_said_for_its_run
    a_message_reads_back_as_it_was
    loop_detection_is_on_until_it_is_switched_off_and_stays_so
    brought_history_comes_before_the_message_and_goes_with_its_turn
    a_thread_is_fresh_until_a_run_waits_or_begins_in_it
    undo_and_redo_walk_back_and_forth
    a_new_turn_ends_the_chance_to_redo
    twenty_turns_can_be_undone_and_no_more
    a_message_replaces_the_last_turn_in_one_commit
    clear_hides_everything_for_good
    edits_leave_a_turn_at_work_alone
    new_completes_the_thread_and_the_next_turns_are_in_another
    an_earlier_thread_is_resumed_and_threads_of_other_sessions_never
    a_fork_is_a_copy_that_leaves_the_original_alone
    a_fork_of_a_compacted_thread_has_its_summary_and_the_rest
    a_summary_replaces_all_but_the_newest_messages
    a_running_turn_is_not_swallowed_by_a_summary
    what_leaves_a_running_turn_is_in_no_later_load
    positions_are_never_used_twice
    edits_are_recorded
}

async fn an_ended_turn_shows_all_but_what_was_said_for_its_run(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let said = vec![Message::assistant("draft"), Message::user("nudge").for_run()];
    store.checkpoint(&lease, checkpoint(run, said)).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    let thread = open(&*store, "s").await.thread;
    assert_eq!(texts(&thread.messages), ["hi", "draft", "yo"]);
    assert_eq!(thread.messages.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(thread.state, ThreadState::Idle);
}

async fn a_thread_is_fresh_until_a_run_waits_or_begins_in_it(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    assert!(reload(&*store, &mut lease).await.fresh);
    let run = accept(&*store, &lease, queued("hi")).await;
    assert!(!reload(&*store, &mut lease).await.fresh, "one waits");
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert!(!reload(&*store, &mut lease).await.fresh, "one has ended");
    for (edit, fresh) in [(ThreadEdit::Undo, false), (ThreadEdit::Clear, false), (ThreadEdit::New, true)] {
        store.edit_thread(&lease, edit, at(2_000)).await.unwrap();
        assert_eq!(reload(&*store, &mut lease).await.fresh, fresh, "{edit:?}");
    }
}

async fn a_message_reads_back_as_it_was(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("ключ 🗝 \0 \"")).await;
    let call = belay_protocol::ToolCall {
        id: "c".into(),
        name: "clock".into(),
        arguments: belay_protocol::Arguments::parse("{\"b\":1,\"a\":[null]}"),
    };
    let result =
        ToolResult { call_id: "c".into(), name: "clock".into(), status: ToolStatus::OutcomeUnknown, text: "?".into() };
    let said = vec![
        Message::assistant_calls("", vec![call]),
        Message::tool(result),
        Message::system("notice"),
        Message::user("nudge").for_run(),
    ];
    store.checkpoint(&lease, checkpoint(run, said.clone())).await.unwrap();
    let pending = open(&*store, "s").await.unfinished.remove(0);
    let read: Vec<Message> = pending.messages.iter().skip(1).map(|(_, message)| (**message).clone()).collect();
    assert_eq!(read, said);
    assert_eq!(read[3].scope, MessageScope::Run);
    assert_eq!(pending.messages[0].1.text(), "ключ 🗝 \0 \"");
}

async fn brought_history_comes_before_the_message_and_goes_with_its_turn(store: Shared) {
    for (session, start) in [("at once", true), ("later", false)] {
        let mut lease = open(&*store, session).await.lease;
        let history = vec![Message::user("before"), Message::assistant("yes")];
        let run = accept(&*store, &lease, NewInput { history, start, ..input("hi") }).await;
        if !start {
            assert!(reload(&*store, &mut lease).await.thread.messages.is_empty(), "not before the start");
            store.start_run(&lease, run, at(1_500)).await.unwrap();
        }
        let opened = reload(&*store, &mut lease).await;
        assert_eq!(texts(&opened.thread.messages), ["before", "yes"]);
        assert_eq!(texts(&opened.unfinished[0].messages), ["hi"]);
        assert_eq!(opened.unfinished[0].messages[0].0, 3);

        store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
        assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["before", "yes", "hi", "yo"]);
        assert!(edit(&*store, &lease, ThreadEdit::Undo).await.messages.is_empty());
    }
}

async fn loop_detection_is_on_until_it_is_switched_off_and_stays_so(store: Shared) {
    let opened = open(&*store, "s").await;
    assert!(opened.loop_detection);
    store.set_loop_detection(&opened.lease, false).await.unwrap();
    let again = open(&*store, "s").await;
    assert!(!again.loop_detection);
    assert!(open(&*store, "t").await.loop_detection, "another session has its own");
    let lost = store.set_loop_detection(&opened.lease, true).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost(_))), "{lost:?}");
    store.set_loop_detection(&again.lease, true).await.unwrap();
    assert!(open(&*store, "s").await.loop_detection);
}

async fn undo_and_redo_walk_back_and_forth(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await);
    assert!(does_nothing(&*store, &lease, ThreadEdit::Redo).await);
    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    let before = reload(&*store, &mut lease).await.thread;

    let undone = edit(&*store, &lease, ThreadEdit::Undo).await;
    assert_eq!(texts(&undone.messages), ["a", "re: a"]);
    assert_eq!(reload(&*store, &mut lease).await.thread, undone, "it is stored");
    assert!(edit(&*store, &lease, ThreadEdit::Undo).await.messages.is_empty());
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await);

    assert_eq!(edit(&*store, &lease, ThreadEdit::Redo).await, undone);
    assert_eq!(edit(&*store, &lease, ThreadEdit::Redo).await, before);
    assert!(does_nothing(&*store, &lease, ThreadEdit::Redo).await);
}

async fn a_new_turn_ends_the_chance_to_redo(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    edit(&*store, &lease, ThreadEdit::Undo).await;
    turn(&*store, &lease, "c").await;
    assert!(does_nothing(&*store, &lease, ThreadEdit::Redo).await);
    assert_eq!(texts(&edit(&*store, &lease, ThreadEdit::Undo).await.messages), ["a", "re: a"]);
    let shown = edit(&*store, &lease, ThreadEdit::Redo).await;
    assert_eq!(texts(&shown.messages), ["a", "re: a", "c", "re: c"], "the turn that was left behind stays hidden");
}

async fn twenty_turns_can_be_undone_and_no_more(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    for n in 0..22 {
        turn(&*store, &lease, &n.to_string()).await;
    }
    for _ in 0..20 {
        edit(&*store, &lease, ThreadEdit::Undo).await;
    }
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await);
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), ["0", "re: 0", "1", "re: 1"]);
}

async fn clear_hides_everything_for_good(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    for text in ["a", "b", "c"] {
        turn(&*store, &lease, text).await;
    }
    store.compact(&lease, 4, "about a".into(), Vec::new()).await.unwrap();
    edit(&*store, &lease, ThreadEdit::Undo).await;
    let cleared = edit(&*store, &lease, ThreadEdit::Clear).await;
    assert!(cleared.messages.is_empty());
    assert_eq!(cleared.summary, None);
    for nothing in [ThreadEdit::Redo, ThreadEdit::Undo] {
        assert!(does_nothing(&*store, &lease, nothing).await, "{nothing:?}");
    }
    assert_eq!(reload(&*store, &mut lease).await.thread, cleared);
    turn(&*store, &lease, "d").await;
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), ["d", "re: d"]);
}

async fn edits_leave_a_turn_at_work_alone(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    let history = vec![Message::user("before")];
    let run = accept(&*store, &lease, NewInput { history, ..input("b") }).await;

    let undone = edit(&*store, &lease, ThreadEdit::Undo).await;
    assert_eq!(texts(&undone.messages), ["before"], "the ended turn is the last one that can be undone");
    assert_eq!(undone.state, ThreadState::Processing);
    assert_eq!(texts(&edit(&*store, &lease, ThreadEdit::Clear).await.messages), ["before"]);
    assert_eq!(texts(&reload(&*store, &mut lease).await.unfinished[0].messages), ["b"]);

    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["before", "b", "yo"]);
}

async fn new_completes_the_thread_and_the_next_turns_are_in_another(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    let run = accept(&*store, &lease, input("b")).await;
    let old = reload(&*store, &mut lease).await.thread;
    let new = edit(&*store, &lease, ThreadEdit::New).await;
    assert_ne!(new.id, old.id);
    assert!(new.messages.is_empty());
    assert_eq!(new.state, ThreadState::Idle);

    // A turn of the old thread that was still at work ends there, and changes nothing here.
    store.start_run(&lease, run, at(2_500)).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(reload(&*store, &mut lease).await.thread, new);
    for nothing in [ThreadEdit::Undo, ThreadEdit::Redo] {
        assert!(does_nothing(&*store, &lease, nothing).await);
    }
    turn(&*store, &lease, "c").await;
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), ["c", "re: c"]);
}

async fn an_earlier_thread_is_resumed_and_threads_of_other_sessions_never(store: Shared) {
    let (mut lease, other) = (open(&*store, "s").await.lease, open(&*store, "other").await.lease);
    turn(&*store, &lease, "a").await;
    let first = reload(&*store, &mut lease).await.thread;
    edit(&*store, &lease, ThreadEdit::New).await;
    turn(&*store, &lease, "b").await;
    assert!(does_nothing(&*store, &other, ThreadEdit::Resume(first.id)).await, "it is not theirs");
    assert_eq!(store.conversations(&other.session, None, 10).await.unwrap(), []);
    let listed = store.conversations(&lease.session, None, 10).await.unwrap();
    let facts: Vec<_> = listed.iter().map(|one| (one.title.as_deref().unwrap(), one.messages, one.active)).collect();
    assert_eq!(facts, [("b", 1, true), ("a", 1, false)]);
    let prefix = belay_protocol::IdPrefix::parse(&first.id.to_string()).unwrap();
    assert_eq!(store.conversations(&lease.session, Some(&prefix), 10).await.unwrap(), listed[1..]);
    assert_eq!(store.conversations(&lease.session, None, 1).await.unwrap(), listed[..1]);

    assert_eq!(texts(&edit(&*store, &lease, ThreadEdit::Resume(first.id)).await.messages), ["a", "re: a"]);
    assert!(does_nothing(&*store, &lease, ThreadEdit::Resume(first.id)).await, "it is active");
    turn(&*store, &lease, "c").await;
    let resumed = reload(&*store, &mut lease).await;
    assert_eq!(texts(&resumed.thread.messages), ["a", "re: a", "c", "re: c"]);
    assert_eq!((resumed.thread.state, resumed.fresh), (ThreadState::Idle, false));
}

async fn a_fork_is_a_copy_that_leaves_the_original_alone(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    assert!(does_nothing(&*store, &lease, ThreadEdit::Fork).await, "it is empty");
    for text in ["a", "b", "gone"] {
        turn(&*store, &lease, text).await;
    }
    edit(&*store, &lease, ThreadEdit::Undo).await;
    let original = reload(&*store, &mut lease).await.thread;
    let copy = edit(&*store, &lease, ThreadEdit::Fork).await;
    assert_eq!((copy.id == original.id, &copy.messages), (false, &original.messages));
    assert!(does_nothing(&*store, &lease, ThreadEdit::Redo).await, "the undone turn is not copied");
    edit(&*store, &lease, ThreadEdit::Undo).await;
    turn(&*store, &lease, "c").await;
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["a", "re: a", "c", "re: c"]);
    let back = edit(&*store, &lease, ThreadEdit::Resume(original.id)).await;
    assert_eq!(back.messages, original.messages);
}

async fn a_fork_of_a_compacted_thread_has_its_summary_and_the_rest(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    store.compact(&lease, 2, "older".into(), Vec::new()).await.unwrap();
    let copy = edit(&*store, &lease, ThreadEdit::Fork).await;
    assert_eq!((copy.summary.as_deref(), texts(&copy.messages)), (Some("older"), vec!["b", "re: b"]));
    store.compact(&lease, 0, "all".into(), Vec::new()).await.unwrap();
    edit(&*store, &lease, ThreadEdit::Fork).await;
    turn(&*store, &lease, "c").await;
    let thread = reload(&*store, &mut lease).await.thread;
    assert_eq!((thread.summary.as_deref(), texts(&thread.messages)), (Some("all"), vec!["c", "re: c"]));
}

async fn a_summary_replaces_all_but_the_newest_messages(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    for text in ["a", "b", "c"] {
        turn(&*store, &lease, text).await;
    }
    store.compact(&lease, 3, "older".into(), Vec::new()).await.unwrap();
    let thread = reload(&*store, &mut lease).await.thread;
    assert_eq!(thread.summary.as_deref(), Some("older"));
    assert_eq!(texts(&thread.messages), ["re: b", "c", "re: c"]);

    store.compact(&lease, 9, "kept more than there is".into(), Vec::new()).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["re: b", "c", "re: c"]);
    store.compact(&lease, 0, "all".into(), Vec::new()).await.unwrap();
    let thread = reload(&*store, &mut lease).await.thread;
    assert_eq!((thread.summary.as_deref(), thread.messages.len()), (Some("all"), 0));
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await, "what a summary tells cannot be undone");
    assert_eq!(store.history(&lease.session, 0, 100).await.unwrap().len(), 6, "the originals stay");
}

async fn a_running_turn_is_not_swallowed_by_a_summary(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    let run = accept(&*store, &lease, input("b")).await;
    let by = "extract".to_owned();
    let kind = EventKind::Compacted { messages: 2, before: 900, after: 100, source: by, will_retry: true };
    let event =
        belay_protocol::NewEvent { at: at(1_600), session: Some(lease.session.clone()), run_id: Some(run), kind };
    store.compact(&lease, 0, "about a".into(), vec![event.clone()]).await.unwrap();
    let opened = reload(&*store, &mut lease).await;
    assert!(opened.thread.messages.is_empty());
    assert_eq!(texts(&opened.unfinished[0].messages), ["b"]);
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["b", "yo"]);
    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    assert!(events.iter().any(|stored| stored.kind == event.kind));
}

async fn what_leaves_a_running_turn_is_in_no_later_load(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    for text in ["a", "b"] {
        turn(&*store, &lease, text).await;
    }
    let run = accept(&*store, &lease, input("c")).await;
    let steps = |texts: &[&str]| texts.iter().map(|text| Message::assistant(*text)).collect::<Vec<_>>();
    store.checkpoint(&lease, checkpoint(run, steps(&["1", "2", "3"]))).await.unwrap();
    let cut = |left: &[u32], summary: &str| {
        let (left, summary) = (left.to_vec(), summary.to_owned());
        TurnCompaction { run, left, keep: 1, summary, events: Vec::new() }
    };
    store.compact_turn(&lease, cut(&[1, 9], "a and 1")).await.unwrap();
    let opened = reload(&*store, &mut lease).await;
    assert_eq!((opened.thread.summary.as_deref(), texts(&opened.thread.messages)), (Some("a and 1"), vec!["re: b"]));
    assert_eq!(texts(&opened.unfinished[0].messages), ["c", "2", "3"]);

    store.checkpoint(&lease, checkpoint(run, steps(&["4"]))).await.unwrap();
    store.compact_turn(&lease, cut(&[1, 2], "a and 3")).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.unfinished[0].messages), ["c", "4"], "numbered anew");
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["re: b", "c", "4", "yo"]);
    assert_eq!(store.run_messages(run).await.unwrap().len(), 6, "the originals stay");
    store.compact(&lease, 2, "all but two".into(), Vec::new()).await.unwrap();
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["4", "yo"], "what has left is not counted");
}

async fn positions_are_never_used_twice(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    edit(&*store, &lease, ThreadEdit::Clear).await;
    turn(&*store, &lease, "b").await;
    edit(&*store, &lease, ThreadEdit::Undo).await;
    let run = accept(&*store, &lease, input("c")).await;
    let silent = FinishedRun { messages: Vec::new(), thread_state: None, ..finished(run, "") };
    store.finish_runs(&lease, vec![silent]).await.unwrap();
    let thread = reload(&*store, &mut lease).await.thread;
    assert_eq!(thread.messages.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [5]);
    assert_eq!(thread.state, ThreadState::Processing, "no state was given, so none was set");
}

async fn edits_are_recorded(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    for change in [ThreadEdit::Undo, ThreadEdit::Redo, ThreadEdit::Clear, ThreadEdit::New] {
        edit(&*store, &lease, change).await;
    }
    assert!(does_nothing(&*store, &lease, ThreadEdit::Undo).await);
    let events = store.read(EventQuery::default()).await.unwrap();
    let edits: Vec<String> = events
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ThreadEdited { edit } => Some(edit),
            _ => None,
        })
        .collect();
    assert_eq!(edits, ["undo", "redo", "clear", "new"]);
}

async fn a_message_replaces_the_last_turn_in_one_commit(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let replaces = |text: &str| NewInput { replaces_turn: true, key: Some(key(text)), ..input(text) };
    assert_eq!(store.last_turn(&lease.session).await.unwrap(), None);
    let refused = store.accept(&lease, replaces("b2")).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))), "{refused:?}");
    assert!(reload(&*store, &mut lease).await.unfinished.is_empty(), "nothing was accepted");

    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    let last = store.last_turn(&lease.session).await.unwrap().unwrap();
    assert_eq!((&*last.principal, last.messages), ("p", vec![Message::user("b")]));
    let run = accept(&*store, &lease, replaces("b2")).await;
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["a", "re: a"]);
    let again = store.accept(&lease, replaces("b2")).await.unwrap();
    assert!(matches!(again, Acceptance::Known(_)), "{again:?}");
    store.finish_runs(&lease, vec![finished(run, "re: b2")]).await.unwrap();
    let seen = ["a", "re: a", "b2", "re: b2"];
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), seen, "a redelivery hides nothing");
    assert!(does_nothing(&*store, &lease, ThreadEdit::Redo).await);

    // A message that waits hides the turn too. If it never begins, the turn can be shown again.
    let waiting = accept(&*store, &lease, NewInput { start: false, ..replaces("b3") }).await;
    assert_eq!(texts(&reload(&*store, &mut lease).await.thread.messages), ["a", "re: a"]);
    store.finish_runs(&lease, vec![finished(waiting, "")]).await.unwrap();
    assert_eq!(texts(&edit(&*store, &lease, ThreadEdit::Redo).await.messages), seen);
}
