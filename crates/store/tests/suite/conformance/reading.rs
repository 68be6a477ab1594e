//! What readers see.

use std::sync::Arc;

use belay_protocol::store::QueuedInput;
use belay_protocol::{
    Conversation, EndCount, EndQuery, Event, EventKind, EventQuery, FinishedRun, HistoryEntry, IdPrefix, Message,
    NewEvent, NewInput, Period, Presence, ReplyRoute, RunEnd, RunFilter, RunId, RunOptions, RunStatus, SearchQuery,
    Seq, SessionChange, SessionFilter, SessionKey, SessionLifetime, SessionSummary, StopReason, ThreadState,
    UnixMillis,
};

use crate::kit::*;

super::for_every_store! {
    runs_are_listed_newest_first_and_filtered
    runs_are_filtered_by_reason_and_date
    runs_are_found_by_date_also_if_the_clock_has_jumped
    ends_are_counted_by_reason_and_period
    ends_are_counted_by_the_model_that_answered_last
    sessions_are_listed_by_their_last_use
    a_hidden_session_is_listed_again_by_its_next_message
    a_hidden_session_is_listed_again_after_newer_runs_were_deleted
    history_tells_what_people_and_model_said
    a_conversation_is_read_as_a_lane_would_load_it
    unfinished_sessions_come_in_the_order_of_their_oldest_message
    unfinished_runs_are_listed_with_their_sender_and_size_and_queued_ones_are_read_again
    events_are_numbered_in_order_and_read_from_a_cursor
    the_tip_follows_the_events
    a_ping_says_that_the_store_takes_writes
    what_is_not_there_reads_as_nothing
    who_is_in_a_conversation_is_known_by_where_answers_go
}

async fn who_is_in_a_conversation_is_known_by_where_answers_go(store: Shared) {
    let route = |conversation: &str, reply_to: Option<&str>| ReplyRoute {
        channel: "telegram".into(),
        conversation: conversation.into(),
        reply_to: reply_to.map(Into::into),
    };
    let (here, there) = (route("42", None), route("43", None));
    let seen = async |place: Option<&ReplyRoute>, since: i64| {
        let Presence { spoken, at_work } = store.presence(place, at(since)).await.unwrap();
        (spoken, at_work)
    };
    assert_eq!(seen(None, 0).await, (false, false));
    let lease = open(&*store, "s").await.lease;
    let said = |ms: i64| NewInput { at: at(ms), reply_to: Some(route("42", Some("7"))), ..input("hello") };
    let run = accept(&*store, &lease, said(1_000)).await;
    for (place, since, expected) in [
        (Some(&here), 1_000, (true, true)),
        (Some(&here), 1_001, (false, true)),
        (None, 1_000, (true, true)),
        (Some(&there), 0, (false, false)),
    ] {
        assert_eq!(seen(place, since).await, expected, "{place:?} {since}");
    }
    let other = open(&*store, "t").await.lease;
    let timer = NewInput { spoken: false, ..said(5_000) };
    accept(&*store, &other, timer).await;
    accept(&*store, &other, NewInput { at: at(6_000), ..queued("a program that reads its run") }).await;
    store.finish_runs(&lease, vec![finished(run, "hello yourself")]).await.unwrap();
    assert_eq!(seen(Some(&here), 1_000).await, (true, false), "a timer is nobody");
    assert_eq!(seen(Some(&here), 1_001).await, (false, false));
    assert_eq!(seen(None, 6_000).await, (true, true), "also who is answered nowhere");
    // Who is asked something is not at work.
    let asked = accept(&*store, &lease, said(7_000)).await;
    assert_eq!(seen(Some(&here), 7_000).await, (true, true));
    pause(&*store, &lease, asked).await;
    assert_eq!(seen(Some(&here), 7_000).await, (true, false));
}

/// An id that was made at that date, as the dispatcher makes them.
fn id_at(ms: i64, n: u128) -> RunId {
    RunId::from(uuid::Uuid::from_u128((u128::try_from(ms).unwrap() << 80) | n))
}

/// Three runs of two days, which end an hour later: `final_text`, `user_stop`, `final_text`; and one that has not ended.
async fn runs_of_two_days(store: &dyn Store) -> [RunId; 4] {
    let lease = open(store, "s").await.lease;
    let mut runs = Vec::new();
    for (n, (ms, reason)) in [
        (DAY, Some(StopReason::FinalText)),
        (DAY + 5 * HOUR, Some(StopReason::UserStop)),
        (2 * DAY, Some(StopReason::FinalText)),
        (2 * DAY + HOUR, None),
    ]
    .into_iter()
    .enumerate()
    {
        let input = NewInput { run_id: id_at(ms, n as u128), at: UnixMillis(ms), ..queued("hello") };
        let run = accept(store, &lease, input).await;
        if let Some(reason) = reason {
            let end = FinishedRun { end: RunEnd::of(reason), at: UnixMillis(ms + HOUR), ..finished(run, "done") };
            store.finish_runs(&lease, vec![FinishedRun { messages: Vec::new(), ..end }]).await.unwrap();
        }
        runs.push(run);
    }
    runs.try_into().unwrap()
}

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

async fn runs_are_filtered_by_reason_and_date(store: Shared) {
    let [one, two, three, four] = runs_of_two_days(&*store).await;
    for indexed in [false, true] {
        let (since, until) = (|ms| Some(UnixMillis(ms)), |ms| Some(UnixMillis(ms)));
        let two_reasons = vec![StopReason::FinalText, StopReason::UserStop, StopReason::FinalText];
        let all = RunFilter::default();
        for (filter, expected) in [
            (RunFilter { reasons: vec![StopReason::FinalText], ..all.clone() }, vec![three, one]),
            (RunFilter { reasons: vec![StopReason::Shutdown], ..all.clone() }, vec![]),
            (RunFilter { reasons: two_reasons.clone(), ..all.clone() }, vec![three, two, one]),
            (RunFilter { reasons: two_reasons.clone(), limit: 2, ..all.clone() }, vec![three, two]),
            (RunFilter { reasons: two_reasons.clone(), before: Some(three), ..all.clone() }, vec![two, one]),
            (RunFilter { reasons: two_reasons, session: Some("s".into()), ..all.clone() }, vec![three, two, one]),
            (RunFilter { reasons: StopReason::ALL.to_vec(), ..all.clone() }, vec![three, two, one]),
            (RunFilter { reasons: vec![StopReason::FinalText], limit: 1, ..all.clone() }, vec![three]),
            (RunFilter { since: since(DAY + 1), ..all.clone() }, vec![four, three, two]),
            (RunFilter { since: since(3 * DAY), ..all.clone() }, vec![]),
            (RunFilter { since: since(i64::MAX), until: until(i64::MAX), ..all.clone() }, vec![]),
            (RunFilter { until: until(2 * DAY), ..all.clone() }, vec![two, one]),
            (RunFilter { until: until(i64::MIN), ..all.clone() }, vec![]),
            (RunFilter { since: since(DAY + 1), until: until(2 * DAY), ..all.clone() }, vec![two]),
            (RunFilter { since: since(2 * DAY), reasons: vec![StopReason::FinalText], ..all.clone() }, vec![three]),
            (RunFilter { session: Some("s".into()), reasons: vec![StopReason::UserStop], ..all.clone() }, vec![two]),
            (RunFilter { session: Some("t".into()), reasons: vec![StopReason::UserStop], ..all.clone() }, vec![]),
            (RunFilter { statuses: vec![RunStatus::Queued], since: since(2 * DAY), ..all.clone() }, vec![four]),
        ] {
            let found = store.runs(filter.clone()).await.unwrap().into_iter().map(|run| run.run_id);
            assert_eq!(found.collect::<Vec<_>>(), expected, "{filter:?}, indexed: {indexed}");
        }
        // A search indexes everything first.
        store.search(SearchQuery { words: "hello".into(), limit: 1, ..SearchQuery::default() }).await.unwrap();
    }
}

/// A clock jumps back by five hours, and catches up: none of the runs has an id or a date in the order of acceptance.
async fn runs_are_found_by_date_also_if_the_clock_has_jumped(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let mut runs = Vec::new();
    for (n, ms) in [2 * DAY, 2 * DAY + HOUR, 2 * DAY - 4 * HOUR, 2 * DAY - 3 * HOUR, 3 * DAY].into_iter().enumerate() {
        let input = NewInput { run_id: id_at(ms, n as u128), at: UnixMillis(ms), ..queued("hello") };
        let run = accept(&*store, &lease, input).await;
        let end = FinishedRun { at: UnixMillis(ms + 1), ..finished(run, "done") };
        store.finish_runs(&lease, vec![FinishedRun { messages: Vec::new(), ..end }]).await.unwrap();
        runs.push((run, ms));
    }
    let dates = [None, Some(DAY), Some(2 * DAY - 4 * HOUR), Some(2 * DAY), Some(2 * DAY + 2 * HOUR), Some(4 * DAY)];
    for (since, until) in dates.iter().flat_map(|since| dates.map(|until| (*since, until))) {
        let within = |ms: i64| since.is_none_or(|since| ms >= since) && until.is_none_or(|until| ms < until);
        let expected: Vec<_> = runs.iter().rev().filter(|(_, ms)| within(*ms)).map(|(run, _)| *run).collect();
        let filter = RunFilter { since: since.map(UnixMillis), until: until.map(UnixMillis), ..RunFilter::default() };
        let found: Vec<_> = store.runs(filter).await.unwrap().into_iter().map(|run| run.run_id).collect();
        assert_eq!(found, expected, "{since:?} to {until:?}");
        if let (Some(since), Some(until)) = (since, until) {
            let query = EndQuery {
                by: Period::Day,
                since: UnixMillis(since),
                until: UnixMillis(until),
                by_channel: false,
                by_model: false,
            };
            let ended: u64 = store.ends(query).await.unwrap().iter().map(|end| end.count).sum();
            assert_eq!(ended, expected.len() as u64, "ends from {since} to {until}");
        }
    }
}

async fn ends_are_counted_by_reason_and_period(store: Shared) {
    assert_eq!(
        store
            .ends(EndQuery { by: Period::Day, since: at(0), until: at(DAY), by_channel: false, by_model: false })
            .await
            .unwrap(),
        []
    );
    runs_of_two_days(&*store).await;
    for indexed in [false, true] {
        for (by, since, until, expected) in [
            (Period::Day, 0, 9 * DAY, vec![(DAY, "final_text", 1), (DAY, "user_stop", 1), (2 * DAY, "final_text", 1)]),
            (Period::Hour, DAY + 6 * HOUR, 2 * DAY + HOUR, vec![(DAY + 6 * HOUR, "user_stop", 1)]),
            (Period::Day, 2 * DAY + HOUR + 1, 9 * DAY, vec![]),
            (Period::Day, 30 * DAY, 31 * DAY, vec![]),
        ] {
            let query = EndQuery { by, since: at(since), until: at(until), by_channel: false, by_model: false };
            let apart = store.ends(EndQuery { by_channel: true, ..query }).await.unwrap();
            let counts =
                |ends: &[EndCount]| ends.iter().map(|end| (end.at.0, end.reason.word(), end.count)).collect::<Vec<_>>();
            let found = store.ends(query).await.unwrap();
            assert_eq!(counts(&found), expected, "since {since}, indexed: {indexed}");
            assert!(found.iter().all(|end| end.channel.is_none()), "{found:?}");
            assert_eq!(counts(&apart), expected, "all of them have one channel");
            assert!(apart.iter().all(|end| end.channel.is_some()), "{apart:?}");
            let apart = store.ends(EndQuery { by_model: true, ..query }).await.unwrap();
            assert!(apart.iter().all(|end| end.model.as_deref() == Some("") && end.channel.is_none()), "{apart:?}");
        }
        store.search(SearchQuery { words: "hello".into(), limit: 1, ..SearchQuery::default() }).await.unwrap();
    }
}

async fn ends_are_counted_by_the_model_that_answered_last(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    for (n, model) in (0..).zip([Some("large"), Some("small"), Some("large"), None]) {
        let input = NewInput { run_id: id_at(DAY + n, n as u128), at: UnixMillis(DAY + n), ..queued("hello") };
        let run = accept(&*store, &lease, input).await;
        let end = FinishedRun { at: UnixMillis(DAY + n), model: model.map(Into::into), ..finished(run, "done") };
        store.finish_runs(&lease, vec![FinishedRun { messages: Vec::new(), ..end }]).await.unwrap();
    }
    let query = EndQuery { by: Period::Day, since: at(DAY), until: at(2 * DAY), by_channel: false, by_model: true };
    for indexed in [false, true] {
        let ends = store.ends(query).await.unwrap();
        let counts: Vec<_> = ends.iter().map(|end| (end.model.as_deref().unwrap(), end.count)).collect();
        assert_eq!(counts, [("", 1), ("large", 2), ("small", 1)], "indexed: {indexed}");
        let all = store.ends(EndQuery { by_model: false, ..query }).await.unwrap();
        assert_eq!(all.iter().map(|end| (end.model.clone(), end.count)).collect::<Vec<_>>(), [(None, 4)]);
        store.search(SearchQuery { words: "hello".into(), limit: 1, ..SearchQuery::default() }).await.unwrap();
    }
}

async fn runs_are_listed_newest_first_and_filtered(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let other = open(&*store, "t").await.lease;
    let one = turn(&*store, &lease, "1").await;
    let two = accept(&*store, &lease, input("2")).await;
    let three = accept(&*store, &other, queued("3")).await;

    let listed = async |filter: RunFilter| {
        store.runs(filter).await.unwrap().into_iter().map(|run| run.run_id).collect::<Vec<RunId>>()
    };
    let all = RunFilter::default();
    assert_eq!(listed(all.clone()).await, [three, two, one]);
    assert_eq!(listed(RunFilter { limit: 1, ..all.clone() }).await, [three]);
    assert_eq!(listed(RunFilter { session: Some("s".into()), ..all.clone() }).await, [two, one]);
    for (status, runs) in [
        (RunStatus::Completed, vec![one]),
        (RunStatus::Running, vec![two]),
        (RunStatus::Queued, vec![three]),
        (RunStatus::Failed, vec![]),
    ] {
        assert_eq!(listed(RunFilter { statuses: vec![status], ..all.clone() }).await, runs, "{status:?}");
    }
    for (statuses, runs) in [
        (vec![RunStatus::Running, RunStatus::Queued, RunStatus::Queued], vec![three, two]),
        (vec![RunStatus::Queued, RunStatus::Completed], vec![three, one]),
        (RunStatus::ALL.to_vec(), vec![three, two, one]),
    ] {
        assert_eq!(listed(RunFilter { statuses: statuses.clone(), ..all.clone() }).await, runs, "{statuses:?}");
    }
    let both = RunFilter { session: Some("t".into()), statuses: vec![RunStatus::Queued], limit: 5, ..all.clone() };
    assert_eq!(listed(both).await, [three]);
    let begins = |text: &str| RunFilter { id: IdPrefix::parse(text).ok(), ..RunFilter::default() };
    assert_eq!(listed(begins(&two.to_string())).await, [two]);
    // The last of six characters changes every quarter of an hour, in which all three may be made, or not.
    let near = listed(begins(&two.to_string()[..6])).await;
    assert!(near.contains(&two), "{near:?}");
    assert_eq!(listed(begins("ffffff")).await, []);

    for n in 0..60 {
        accept(&*store, &lease, queued(&n.to_string())).await;
    }
    assert_eq!(listed(all).await.len(), 50, "0 means 50");
}

async fn sessions_are_listed_by_their_last_use(store: Shared) {
    let a = open(&*store, "a").await.lease;
    let b = open(&*store, "b").await.lease;
    open(&*store, "c").await;
    accept(&*store, &b, NewInput { at: at(3_000), ..queued("x") }).await;
    accept(&*store, &a, NewInput { at: at(4_000), ..input("x") }).await;
    accept(&*store, &a, NewInput { at: at(3_500), ..queued("an older date changes nothing") }).await;

    let summary = |session: &str, state, open_runs, ms, title: Option<&str>| SessionSummary {
        session: session.into(),
        state,
        open_runs,
        last_active_at: at(ms),
        title: title.map(Into::into),
        lifetime: SessionLifetime::Lasting,
        hidden: false,
    };
    let expected = [
        summary("a", ThreadState::Processing, 2, 4_000, Some("x")),
        summary("b", ThreadState::Idle, 1, 3_000, None),
        summary("c", ThreadState::Idle, 0, 500, None),
    ];
    assert_eq!(store.sessions(SessionFilter::lasting(10)).await.unwrap(), expected);
    assert_eq!(store.sessions(SessionFilter::lasting(2)).await.unwrap(), expected[..2]);
    assert_eq!(store.session(&"b".into()).await.unwrap().as_ref(), Some(&expected[1]));
}

async fn a_hidden_session_is_listed_again_by_its_next_message(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let other = open(&*store, "t").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let listed = async |hidden: bool| {
        let filter = SessionFilter { hidden, ..SessionFilter::lasting(10) };
        let found = store.sessions(filter).await.unwrap().into_iter();
        found.map(|session| (session.session.to_string(), session.hidden)).collect::<Vec<_>>()
    };
    let (s, t) = (("s".to_owned(), false), ("t".to_owned(), false));
    let is_hidden = [("s".to_owned(), true)];
    store.change_session(&"none".into(), SessionChange::hidden(true)).await.unwrap();
    assert_eq!((listed(false).await.len(), listed(true).await), (2, vec![]));
    store.change_session(&"s".into(), SessionChange::hidden(true)).await.unwrap();
    assert_eq!((listed(false).await, listed(true).await), (vec![t.clone()], is_hidden.to_vec()));
    // Neither the end of its run nor a message elsewhere shows it.
    store.finish_runs(&lease, vec![finished(run, "done")]).await.unwrap();
    accept(&*store, &other, input("elsewhere")).await;
    store.search(SearchQuery { words: "hi".into(), limit: 1, ..SearchQuery::default() }).await.unwrap(); // indexes the end
    assert_eq!((listed(false).await, listed(true).await), (vec![t.clone()], is_hidden.to_vec()));
    assert!(store.session(&"s".into()).await.unwrap().unwrap().hidden);
    let next = accept(&*store, &lease, input("and?")).await;
    assert_eq!((listed(false).await.len(), listed(true).await), (2, vec![]));
    store.finish_runs(&lease, vec![finished(next, "done")]).await.unwrap();
    store.search(SearchQuery { words: "hi".into(), limit: 1, ..SearchQuery::default() }).await.unwrap();
    assert_eq!((listed(false).await.len(), listed(true).await), (2, vec![]), "its end is indexed");
    store.change_session(&"s".into(), SessionChange::hidden(true)).await.unwrap();
    store.change_session(&"s".into(), SessionChange::hidden(false)).await.unwrap();
    assert!(listed(false).await.contains(&s), "it is shown again");
}

async fn a_hidden_session_is_listed_again_after_newer_runs_were_deleted(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "hi").await;
    let other = open(&*store, "t").await.lease;
    turn(&*store, &other, "the newest run").await;
    store.change_session(&"s".into(), SessionChange::hidden(true)).await.unwrap();
    // The numbers of the deleted runs may be given again.
    store.delete_session(&other, at(3_000)).await.unwrap();
    assert!(store.session(&"s".into()).await.unwrap().unwrap().hidden);
    accept(&*store, &lease, input("and?")).await;
    assert!(!store.session(&"s".into()).await.unwrap().unwrap().hidden);
}

async fn history_tells_what_people_and_model_said(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let first = turn(&*store, &lease, "a").await;
    let second = accept(&*store, &lease, NewInput { history: vec![Message::user("old")], ..input("b") }).await;
    let call = belay_protocol::ToolCall {
        id: "c".into(),
        name: "clock".into(),
        arguments: belay_protocol::Arguments::parse(""),
    };
    let result = belay_protocol::ToolResult {
        call_id: "c".into(),
        name: "clock".into(),
        status: belay_protocol::ToolStatus::Success,
        text: "12:00".into(),
    };
    let said = vec![
        Message::assistant_calls("", vec![call]),
        Message::tool(result),
        Message::user("nudge").for_run(),
        Message::system("notice"),
        Message::assistant("c"),
    ];
    store.checkpoint(&lease, checkpoint(second, said.clone())).await.unwrap();
    store.ping().await.unwrap();

    let own: Vec<_> = std::iter::once(Message::user("b")).chain(said).map(Arc::new).collect();
    assert_eq!(store.run_messages(second).await.unwrap(), own, "what was brought along belongs to no run");
    assert_eq!(store.run_messages(RunId::new()).await.unwrap(), []);

    let entry = |id, role: &str, text: &str, run_id, ms| HistoryEntry {
        id,
        role: role.into(),
        text: text.into(),
        run_id,
        at: at(ms),
        files: Vec::new(),
    };
    let expected = [
        entry(1, "user", "a", Some(first), 1_000),
        entry(2, "assistant", "re: a", Some(first), 2_000),
        entry(3, "user", "old", None, 1_000),
        entry(4, "user", "b", Some(second), 1_000),
        entry(9, "assistant", "c", Some(second), 1_000),
    ];
    let session = SessionKey::new("s");
    assert_eq!(store.history(&session, 0, 100).await.unwrap(), expected);
    assert_eq!(store.history(&session, 2, 2).await.unwrap(), expected[2..4]);
    assert_eq!(store.history(&session, 0, 0).await.unwrap(), []);
    for (limit, from) in [(100, 0), (2, expected.len() - 2), (0, expected.len())] {
        assert_eq!(store.recent_history(&session, limit).await.unwrap(), expected[from..], "the newest {limit}");
    }
}

async fn a_conversation_is_read_as_a_lane_would_load_it(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "a").await;
    turn(&*store, &lease, "b").await;
    store.compact(&lease, 2, "earlier: a".into(), Vec::new()).await.unwrap();
    let options = RunOptions { extra_prompt: Some("Be brief.".into()), ..RunOptions::default() };
    store.set_options(&lease, options.clone()).await.unwrap();
    accept(&*store, &lease, NewInput { channel: "telegram".into(), ..input("still being answered") }).await;

    let read = store.conversation(&"s".into()).await.unwrap().unwrap();
    let loaded = reload(&*store, &mut lease).await.thread;
    let expected = Conversation {
        principal: Some("p".into()),
        summary: Some("earlier: a".into()),
        messages: loaded.messages.into_iter().map(|(_, message)| message).collect(),
        options,
        channel: Some("telegram".into()),
        has_skills: false,
    };
    assert_eq!(read, expected);
    assert_eq!(read.messages.len(), 2, "the running turn is not part of it yet");
    assert_eq!(store.conversation(&"nobody".into()).await.unwrap(), None);
}

async fn unfinished_sessions_come_in_the_order_of_their_oldest_message(store: Shared) {
    for (session, ms) in [("late", 3_000), ("early", 1_000), ("done", 500), ("middle", 2_000)] {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, NewInput { at: at(ms), ..queued("x") }).await;
        accept(&*store, &lease, NewInput { at: at(ms + 5_000), ..queued("y") }).await;
        if session == "done" {
            let second = open(&*store, session).await;
            let runs = second.unfinished.iter().map(|pending| finished(pending.run_id, "x")).collect();
            store.finish_runs(&second.lease, runs).await.unwrap();
            assert!(store.run(run).await.unwrap().is_some());
        }
    }
    let sessions = unfinished_sessions(&*store).await;
    assert_eq!(sessions.iter().map(SessionKey::as_str).collect::<Vec<_>>(), ["early", "middle", "late"]);
}

async fn unfinished_runs_are_listed_with_their_sender_and_size_and_queued_ones_are_read_again(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let begun = accept(&*store, &lease, NewInput { at: at(1_000), ..input("héllo") }).await;
    let history = vec![Message::system("be brief")];
    let waits =
        accept(&*store, &lease, NewInput { at: at(2_000), history: history.clone(), ..queued("and you") }).await;
    let runs = store.unfinished_runs().await.unwrap();
    let told: Vec<_> = runs.iter().map(|run| (run.run_id, run.session.as_str(), run.status)).collect();
    assert_eq!(told, [(begun, "s", RunStatus::Running), (waits, "s", RunStatus::Queued)]);
    let NewInput { channel, asker, .. } = input("x");
    assert!(runs.iter().all(|run| run.channel == channel && *run.principal == *asker.principal), "{runs:?}");
    // How a history is written down is the store's own.
    assert!(runs[0].bytes == 6 && runs[1].bytes >= 7 + 8, "{runs:?}");

    let read = store.queued_inputs(&[RunId::new(), waits]).await.unwrap();
    assert_eq!(read, [QueuedInput { run_id: waits, text: "and you".into(), provenance: None, history }]);
    store.finish_runs(&lease, vec![finished(begun, "x"), finished(waits, "y")]).await.unwrap();
    assert_eq!(store.unfinished_runs().await.unwrap(), []);
}

fn tool_started(run: Option<RunId>, n: usize) -> NewEvent {
    let kind = EventKind::ToolStarted { call_id: n.to_string().into(), name: "t".into(), arguments: String::new() };
    NewEvent { at: at(n as i64), session: run.map(|_| "s".into()), run_id: run, kind }
}

async fn events_are_numbered_in_order_and_read_from_a_cursor(store: Shared) {
    let run = RunId::new();
    store.append(Vec::new()).await.unwrap();
    let events: Vec<NewEvent> = (0..20).map(|n| tool_started((n % 2 == 0).then_some(run), n)).collect();
    store.append(events.clone()).await.unwrap();
    store.ping().await.unwrap();

    let expected: Vec<Event> = (1..)
        .zip(events)
        .map(|(n, new)| Event { seq: Seq(n), at: new.at, session: new.session, run_id: new.run_id, kind: new.kind })
        .collect();
    assert_eq!(store.read(EventQuery::default()).await.unwrap(), expected);
    let page = EventQuery { after: Seq(3), limit: 4, ..EventQuery::default() };
    assert_eq!(store.read(page).await.unwrap(), expected[3..7]);
    let of_run = EventQuery { after: Seq(1), limit: 2, run: Some(run), session: None };
    assert_eq!(store.read(of_run.clone()).await.unwrap(), [expected[2].clone(), expected[4].clone()]);
    let of_session = EventQuery { after: Seq(3), limit: 2, run: None, session: Some("s".into()) };
    assert_eq!(store.read(of_session).await.unwrap(), [expected[4].clone(), expected[6].clone()]);
    let of_another = EventQuery { session: Some("t".into()), ..of_run };
    assert_eq!(store.read(of_another).await.unwrap(), []);
    assert_eq!(store.read(EventQuery { after: Seq(u64::MAX), ..EventQuery::default() }).await.unwrap(), []);

    store.append((0..300).map(|n| tool_started(None, n)).collect()).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(store.read(EventQuery::default()).await.unwrap().len(), 256, "0 means 256");
}

async fn the_tip_follows_the_events(store: Shared) {
    let mut tip = store.tip();
    assert_eq!((*tip.borrow_and_update(), store.newest().await.unwrap()), (Seq(0), Seq(0)));
    store.append(vec![tool_started(None, 1), tool_started(None, 2)]).await.unwrap();
    tip.changed().await.unwrap(); // nobody asked for a commit: it comes by itself
    assert_eq!(*tip.borrow_and_update(), Seq(2));
    assert_eq!(store.read(EventQuery::default()).await.unwrap().len(), 2, "what the tip says can be read");
    let lease = open(&*store, "s").await.lease;
    accept(&*store, &lease, input("x")).await;
    assert_eq!(*tip.borrow_and_update(), Seq(4));
    assert_eq!(store.newest().await.unwrap(), Seq(4));
    store.remember(new_note(&person("a"), "k", "t", 1)).await.unwrap();
    assert!(!tip.has_changed().unwrap(), "no event, no change");
}

async fn a_ping_says_that_the_store_takes_writes(store: Shared) {
    store.ping().await.unwrap();
}

async fn what_is_not_there_reads_as_nothing(store: Shared) {
    assert_eq!(store.run(RunId::new()).await.unwrap(), None);
    assert_eq!(store.history(&"nobody".into(), 0, 10).await.unwrap(), []);
    assert_eq!(store.session(&"nobody".into()).await.unwrap(), None);
    assert_eq!(store.sessions(SessionFilter::lasting(10)).await.unwrap(), []);
    assert_eq!(unfinished_sessions(&*store).await, []);
    assert_eq!(store.next_due(None).await.unwrap(), None);
}
