//! Finding, reading out and deleting.

use belay_protocol::archive::KEYS_KEPT_MS;
use belay_protocol::{
    Acceptance, ApprovalFilter, ApprovalState, EventKind, EventQuery, FinishedRun, LaneClaim, Message, NewInput,
    OutboxState, Removed, Retention, RunFilter, RunStatus, SearchQuery, Seq, SessionFilter, SessionLifetime,
    StoreError, ThreadEdit, ThreadState,
};

use crate::kit::*;

super::for_every_store! {
    freeing_space_fails_on_no_engine
    what_was_said_is_found_by_the_beginnings_of_its_words
    nothing_in_a_query_has_a_meaning_of_its_own
    what_was_taken_back_or_forgotten_is_not_found
    a_search_keeps_to_its_session_and_its_limit
    conversations_of_a_session_are_read_out_as_they_were
    a_session_is_called_by_its_first_words
    a_deleted_session_leaves_nothing_but_what_recognises_a_second_delivery
    a_session_at_work_is_not_deleted
    what_is_too_old_goes_with_all_that_names_it
    what_is_in_use_is_not_too_old
    keys_outlast_their_conversation_for_a_month
    old_facts_go_and_their_numbers_never_come_back
    all_secrets_of_a_session_are_forgotten_at_once
    when_a_person_last_spoke_is_known_and_timers_do_not_count
}

async fn search(store: &dyn Store, words: &str) -> Vec<String> {
    let query = SearchQuery { words: words.into(), ..SearchQuery::default() };
    store.search(query).await.unwrap().into_iter().map(|hit| hit.snippet).collect()
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

async fn what_was_said_is_found_by_the_beginnings_of_its_words(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("Deploy the website, please")).await;
    let step = checkpoint(
        run,
        vec![Message::assistant("the website, or the shop?"), Message::user("deploy, a nudge").for_run()],
    );
    store.checkpoint(&lease, step).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "Deployed: ключ 7")]).await.unwrap();

    assert_eq!(sorted(search(&*store, "deploy").await), ["Deploy the website, please", "Deployed: ключ 7"]);
    assert_eq!(search(&*store, "PLEASE web").await, ["Deploy the website, please"]);
    assert_eq!(search(&*store, "Ключ").await, ["Deployed: ключ 7"]);
    for nothing in ["site", "deploy shop", "", "🗝", "role"] {
        assert!(search(&*store, nothing).await.is_empty(), "{nothing}");
    }
    let hits = store.search(SearchQuery { words: "please".into(), ..SearchQuery::default() }).await.unwrap();
    let [hit] = &hits[..] else { panic!("{hits:?}") };
    assert_eq!((hit.session.as_str(), hit.id, &*hit.role, hit.run_id), ("s", 1, "user", Some(run)));
    assert_eq!((hit.thread, hit.at), (store.threads(&"s".into()).await.unwrap()[0].thread, at(1_000)));
}

async fn nothing_in_a_query_has_a_meaning_of_its_own(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "NEAR the text: x-ray OR \"not\"").await;
    for query in
        ["\"", "text:", "x-ray", "NEAR(the text)", "text OR", "*", "near^", "'); DROP TABLE", "a\"b", "\"not", "-x"]
    {
        let query = SearchQuery { words: query.into(), ..SearchQuery::default() };
        let terms = query.terms();
        let hits = store.search(query).await.unwrap().len();
        let words = ["near", "the", "text", "x", "ray", "or", "not"];
        let all =
            !terms.is_empty() && terms.iter().all(|term| words.iter().any(|word| word.starts_with(term.as_str())));
        assert_eq!(hits > 0, all, "{terms:?}");
    }
}

async fn what_was_taken_back_or_forgotten_is_not_found(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "apples").await;
    turn(&*store, &lease, "pears").await;
    edit(&*store, &lease, ThreadEdit::Undo).await;
    assert!(search(&*store, "pears").await.is_empty());
    edit(&*store, &lease, ThreadEdit::Redo).await;
    assert_eq!(search(&*store, "pears").await.len(), 2);
    edit(&*store, &lease, ThreadEdit::New).await;
    turn(&*store, &lease, "plums").await;
    edit(&*store, &lease, ThreadEdit::Clear).await;
    assert!(search(&*store, "plums").await.is_empty());
    assert_eq!(search(&*store, "apples").await.len(), 2, "an earlier conversation is kept");
}

async fn a_search_keeps_to_its_session_and_its_limit(store: Shared) {
    for session in ["s", "t"] {
        let lease = open(&*store, session).await.lease;
        for n in 0..15 {
            turn(&*store, &lease, &format!("tea {n}")).await;
        }
    }
    let page = async |session: Option<&str>, skip, limit| {
        let query = SearchQuery { words: "tea".into(), session: session.map(Into::into), skip, limit };
        store.search(query).await.unwrap()
    };
    let of = async |session, limit| page(session, 0, limit).await;
    assert_eq!((of(None, 0).await.len(), of(None, 50).await.len(), of(None, 3).await.len()), (20, 50, 3));
    let own = of(Some("t"), 100).await;
    assert_eq!(own.len(), 30);
    assert!(own.iter().all(|hit| hit.session.as_str() == "t"), "{own:?}");
    assert!(of(Some("u"), 5).await.is_empty());
    let pages = [page(Some("t"), 0, 12).await, page(Some("t"), 12, 12).await, page(Some("t"), 24, 12).await].concat();
    assert_eq!(pages, own, "pages follow each other");
    assert!(page(Some("t"), 30, 12).await.is_empty());
}

async fn conversations_of_a_session_are_read_out_as_they_were(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "one").await;
    turn(&*store, &lease, "taken back").await;
    edit(&*store, &lease, ThreadEdit::Undo).await;
    store.compact(&lease, 0, "an account".into(), Vec::new()).await.unwrap();
    edit(&*store, &lease, ThreadEdit::New).await;
    turn(&*store, &lease, "two").await;
    store.ping().await.unwrap();

    let threads = store.threads(&"s".into()).await.unwrap();
    let seen: Vec<_> = threads.iter().map(|it| (it.state, it.active, it.summary.as_deref())).collect();
    assert_eq!(seen, [(ThreadState::Completed, false, Some("an account")), (ThreadState::Idle, true, None)]);
    let texts = async |n: usize, after, limit| {
        let lines = store.transcript(threads[n].thread, after, limit).await.unwrap();
        lines.into_iter().map(|line| (line.id, line.message.text().to_owned())).collect::<Vec<_>>()
    };
    let line = |id: u64, text: &str| (id, text.to_owned());
    assert_eq!(texts(0, 0, 10).await, [line(1, "one"), line(2, "re: one")], "compacted messages are kept");
    assert_eq!(texts(1, 0, 1).await, [line(1, "two")]);
    assert_eq!(texts(1, 1, 10).await, [line(2, "re: two")]);
    assert!(store.threads(&"nobody".into()).await.unwrap().is_empty());
    assert!(store.transcript(belay_protocol::ThreadId::new(), 0, 10).await.unwrap().is_empty());
}

async fn a_session_is_called_by_its_first_words(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let title = async || store.session(&"s".into()).await.unwrap().and_then(|session| session.title);
    store.ping().await.unwrap();
    assert_eq!(title().await, None);
    let brought = vec![Message::system("be kind"), Message::assistant("welcome"), Message::user("what\n is it?")];
    let run = accept(&*store, &lease, NewInput { history: brought, ..input("tell me") }).await;
    store.finish_runs(&lease, vec![finished(run, "this")]).await.unwrap();
    assert_eq!(title().await.as_deref(), Some("what is it?"));
    edit(&*store, &lease, ThreadEdit::New).await;
    turn(&*store, &lease, &"x".repeat(200)).await;
    let long = title().await.unwrap();
    assert_eq!((long.chars().count(), long.ends_with('…')), (80, true));
    assert_eq!(store.sessions(SessionFilter::lasting(5)).await.unwrap()[0].title, Some(long));
}

/// A month after the dates of this suite: keys may go.
const LATER: i64 = KEYS_KEPT_MS + 10_000;

async fn a_deleted_session_leaves_nothing_but_what_recognises_a_second_delivery(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let first =
        accept(&*store, &lease, NewInput { key: Some(key("m")), reply_to: Some(route("c")), ..input("secret plan") })
            .await;
    let approval = approved(&*store, &lease, first).await;
    store.checkpoint(&lease, using(first, vec![approval])).await.unwrap();
    let reply = FinishedRun { outbound: Some(outbound("c", "the plan")), ..finished(first, "the plan") };
    let sent = reply.outbound.as_ref().unwrap().id;
    store.finish_runs(&lease, vec![reply]).await.unwrap();
    store.mark(sent, OutboxState::Sent, at(0), None).await.unwrap();
    edit(&*store, &lease, ThreadEdit::New).await;
    let second = turn(&*store, &lease, "another plan").await;
    let queued_only = accept(&*store, &lease, queued("never begun")).await;
    store.finish_runs(&lease, vec![finished(queued_only, "")]).await.unwrap();
    store.remember(new_note(&group("s"), "k", "a note of the group", 1)).await.unwrap();
    store.remember(new_note(&person("a"), "k", "a note of a person", 1)).await.unwrap();
    store.put_sealed(&"s".into(), "n", vec![1], at(1)).await.unwrap();
    let other = open(&*store, "t").await.lease;
    turn(&*store, &other, "another session").await;

    let mut removed = store.delete_session(&lease, at(3_000)).await.unwrap();
    let mut gone = std::mem::take(&mut removed.run_ids);
    gone.sort();
    let mut all = vec![first, second, queued_only];
    all.sort();
    assert_eq!(gone, all);
    assert!(removed.events > 8, "{removed:?}");
    let expected = Removed {
        sessions: 1,
        threads: 2,
        messages: 5,
        runs: 3,
        events: removed.events,
        replies: 1,
        notes: 1,
        secrets: 1,
        ..Removed::default()
    };
    assert_eq!(removed, expected);
    assert_eq!(store.session(&"s".into()).await.unwrap(), None);
    assert!(store.threads(&"s".into()).await.unwrap().is_empty());
    assert!(search(&*store, "plan").await.is_empty());
    assert_eq!(store.approval(approval).await.unwrap(), None);
    assert!(store.recall(&group("s"), "", 5).await.unwrap().is_empty());
    assert_eq!(store.recall(&person("a"), "", 5).await.unwrap().len(), 1, "it outlives the session");
    assert_eq!(store.sealed(&"s".into(), "n").await.unwrap(), None);
    let events = store.read(EventQuery::default()).await.unwrap();
    let left: Vec<_> =
        events.iter().filter(|event| event.session == Some("s".into())).map(|event| &event.kind).collect();
    assert_eq!(left, [&EventKind::ThreadEdited { edit: "deleted".into() }]);
    assert_eq!(store.run(second).await.unwrap(), None);
    let stub = store.run(first).await.unwrap().unwrap();
    assert_eq!((stub.status, stub.reply, stub.evidence.is_empty()), (RunStatus::Completed, None, true));
    assert_eq!(store.find(&key("m")).await.unwrap().map(|known| known.run_id), Some(first));

    let lost = store.accept(&lease, input("x")).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost(_))), "{lost:?}");
    let mut anew = open(&*store, "s").await;
    assert!(anew.fresh && anew.thread.messages.is_empty());
    let again = NewInput { key: Some(key("m")), ..input("secret plan") };
    assert!(
        matches!(store.accept(&anew.lease, again).await.unwrap(), Acceptance::Known(known) if known.run_id == first)
    );
    turn(&*store, &anew.lease, "a fresh start").await;
    assert_eq!(texts(&reload(&*store, &mut anew.lease).await.thread.messages), ["a fresh start", "re: a fresh start"]);
    assert_eq!(search(&*store, "another").await.len(), 2, "the other session is whole");
}

async fn a_session_at_work_is_not_deleted(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, queued("hi")).await;
    let outcome = store.delete_session(&lease, at(3_000)).await;
    assert!(matches!(&outcome, Err(StoreError::TooMuch(words)) if words.contains("stop it first")), "{outcome:?}");
    store.ping().await.unwrap();
    assert_eq!(store.read(EventQuery::default()).await.unwrap().len(), 1);
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    let old = open(&*store, "s").await.lease;
    open(&*store, "s").await;
    let outcome = store.delete_session(&old, at(3_000)).await;
    assert!(matches!(outcome, Err(StoreError::LeaseLost(_))), "{outcome:?}");
}

/// Deletes until nothing more is deleted, three rows at a time, and returns the sum.
async fn prune(store: &dyn Store, old: Retention) -> Removed {
    let mut all = Removed::default();
    for _ in 0..1_000 {
        let removed = store.prune(old, 3).await.unwrap();
        if removed.is_nothing() {
            return all;
        }
        all.add(removed);
    }
    panic!("it does not come to an end: {all:?}");
}

fn older_than(ms: i64) -> Retention {
    Retention {
        threads_before: Some(at(ms)),
        events_before: None,
        ended_routine_runs_before: None,
        ephemeral_before: None,
        keys_before: at(LATER),
    }
}

async fn what_is_too_old_goes_with_all_that_names_it(store: Shared) {
    let old = open(&*store, "old").await.lease;
    for n in 0..5 {
        let run = accept(&*store, &old, input(&format!("tea {n}"))).await;
        let approval = approved(&*store, &old, run).await;
        store.checkpoint(&old, using(run, vec![approval])).await.unwrap();
        store.finish_runs(&old, vec![finished(run, "cake")]).await.unwrap();
    }
    let new = open(&*store, "new").await.lease;
    turn(&*store, &new, "tea, long ago").await;
    edit(&*store, &new, ThreadEdit::New).await;
    let kept = accept(&*store, &new, NewInput { at: at(8_000), ..input("tea, today") }).await;
    store.finish_runs(&new, vec![FinishedRun { at: at(9_000), ..finished(kept, "cake, today") }]).await.unwrap();
    store.ping().await.unwrap();

    let expected = store.prunable(older_than(5_000)).await.unwrap();
    assert_eq!((expected.sessions, expected.threads, expected.messages, expected.runs), (1, 2, 17, 6));
    let removed = prune(&*store, older_than(5_000)).await;
    assert_eq!((removed.sessions, removed.threads, removed.messages, removed.runs), (1, 2, 17, 6));
    assert_eq!(removed.run_ids.len(), 6);
    assert!(store.prunable(older_than(5_000)).await.unwrap().is_nothing());

    let runs = store.runs(RunFilter::default()).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.run_id).collect::<Vec<_>>(), [kept]);
    assert!(store.approvals(ApprovalFilter::default()).await.unwrap().is_empty());
    assert_eq!(sorted(search(&*store, "tea").await), ["tea, today"]);
    assert_eq!(store.sessions(SessionFilter::lasting(9)).await.unwrap().len(), 1);
    assert_eq!(texts(&open(&*store, "new").await.thread.messages), ["tea, today", "cake, today"]);
    assert!(open(&*store, "old").await.fresh);
}

async fn what_is_in_use_is_not_too_old(store: Shared) {
    let paused = open(&*store, "paused").await.lease;
    let run = accept(&*store, &paused, input("may I?")).await;
    let approval = pause(&*store, &paused, run).await;
    let waits = open(&*store, "waits").await.lease;
    turn(&*store, &waits, "before").await;
    accept(&*store, &waits, queued("later")).await;
    let awake = open(&*store, "awake").await.lease;
    turn(&*store, &awake, "hi").await;
    let awake = store
        .open_lane(&awake.session, SessionLifetime::Lasting, LaneClaim::free(awake.owner), at(6_000))
        .await
        .unwrap()
        .opened()
        .unwrap()
        .lease;
    let undelivered = outbound("c", "on its way");
    store.enqueue(undelivered).await.unwrap();

    assert!(prune(&*store, older_than(5_000)).await.is_nothing());
    assert_eq!(answer(&*store, approval.id, ApprovalState::Denied).await.id, approval.id);
    assert_eq!(texts(&open(&*store, "waits").await.thread.messages), ["before", "re: before"]);
    turn(&*store, &awake, "still here").await;
    assert_eq!(store.due(at(0), &[], None, 5, 5).await.unwrap().len(), 1);
    // A conversation that was ended while another one of its session waits goes all the same.
    let lease = open(&*store, "waits").await.lease;
    let open_runs = open(&*store, "waits").await.unfinished.len();
    assert_eq!((lease.session.as_str(), open_runs), ("waits", 1));
}

async fn keys_outlast_their_conversation_for_a_month(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, NewInput { key: Some(key("m")), ..input("hi") }).await;
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();
    let joined = accept(&*store, &lease, NewInput { key: Some(key("n")), ..queued("stopped early") }).await;
    store.finish_runs(&lease, vec![finished(joined, "")]).await.unwrap();

    let soon = Retention { keys_before: at(500), ..older_than(5_000) };
    let removed = prune(&*store, soon).await;
    assert_eq!((removed.runs, removed.threads), (2, 1));
    let lease = open(&*store, "s").await.lease;
    for (name, text, known) in [("m", "hi", run), ("n", "stopped early", joined)] {
        let again = store.accept(&lease, NewInput { key: Some(key(name)), ..queued(text) }).await.unwrap();
        assert!(matches!(&again, Acceptance::Known(it) if it.run_id == known), "{again:?}");
        let record = store.run(known).await.unwrap().unwrap();
        assert_eq!((record.reply, record.status), (None, RunStatus::Completed));
    }
    let nobody = Retention { threads_before: None, ..older_than(0) };
    assert_eq!(prune(&*store, nobody).await.runs, 2, "whatever is kept besides, keys go in the end");
    assert_eq!(store.find(&key("m")).await.unwrap(), None);
    assert_eq!(store.run(run).await.unwrap(), None);
}

async fn old_facts_go_and_their_numbers_never_come_back(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    store.ping().await.unwrap();
    let newest = *store.tip().borrow();
    let old = Retention {
        threads_before: None,
        events_before: Some(at(2_000)),
        ended_routine_runs_before: None,
        ephemeral_before: None,
        keys_before: at(0),
    };
    // The first turn ended at 2000: what comes behind stays, whatever its date.
    assert_eq!(store.prunable(old).await.unwrap().events, 2);
    assert_eq!(prune(&*store, old).await, Removed { events: 2, ..Removed::default() });
    let all = Retention { events_before: Some(at(100_000)), ..old };
    prune(&*store, all).await;
    let left = store.read(EventQuery::default()).await.unwrap();
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [newest]);

    prune(&*store, older_than(100_000)).await;
    let lease = open(&*store, "s").await.lease;
    accept(&*store, &lease, queued("c")).await;
    assert_eq!(*store.tip().borrow(), Seq(newest.0 + 1));
    let later = store.read(EventQuery { after: newest, ..EventQuery::default() }).await.unwrap();
    assert_eq!(later.iter().map(|event| event.seq).collect::<Vec<_>>(), [Seq(newest.0 + 1)]);
}

async fn all_secrets_of_a_session_are_forgotten_at_once(store: Shared) {
    for (session, name) in [("s", "a"), ("s", "b"), ("t", "a")] {
        store.put_sealed(&session.into(), name, vec![1], at(1)).await.unwrap();
    }
    assert_eq!(store.remove_all_sealed(&"s".into()).await.unwrap(), 2);
    assert_eq!(store.remove_all_sealed(&"s".into()).await.unwrap(), 0);
    assert_eq!(store.sealed(&"s".into(), "b").await.unwrap(), None);
    assert_eq!(store.sealed(&"t".into(), "a").await.unwrap(), Some(vec![1]));
}

async fn when_a_person_last_spoke_is_known_and_timers_do_not_count(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    assert_eq!(reload(&*store, &mut lease).await.spoken_at, None);
    accept(&*store, &lease, NewInput { at: at(1_000), ..queued("a person") }).await;
    accept(&*store, &lease, NewInput { at: at(4_000), spoken: false, ..queued("a timer") }).await;
    assert_eq!(reload(&*store, &mut lease).await.spoken_at, Some(at(1_000)));
}

async fn freeing_space_fails_on_no_engine(store: Shared) {
    store.shrink(10).await.unwrap();
    store.ping().await.unwrap();
}
