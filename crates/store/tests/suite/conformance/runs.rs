//! Leases, acceptance, and the life of a run.

use belay_protocol::run::RunUsage;
use belay_protocol::store::{KnownInput, RECENT_INPUTS, input_digest};
use belay_protocol::{
    Acceptance, Asker, Authority, BootId, Checkpoint, Durability, EventKind, EventQuery, JobId, LaneClaim, Message,
    NewEvent, NewInput, RunEnd, RunFilter, RunId, RunRecord, RunStatus, SessionKey, SessionLifetime, StopReason,
    StoreError, ThreadEdit, ThreadState, Work,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::*;

super::for_every_store! {
    a_new_session_is_empty_and_each_opening_raises_the_epoch
    an_old_lease_is_refused_by_every_write
    an_accepted_message_waits_with_all_that_belongs_to_it
    a_run_that_begins_at_once_is_running_with_its_message_in_the_thread
    taking_a_run_up_again_counts_the_attempt_and_repeats_no_message
    one_of_fifty_equal_keys_is_new_and_the_others_know_its_run
    a_key_with_another_text_is_a_conflict
    a_changed_message_is_known_by_what_was_sent
    the_keys_of_the_newest_messages_are_there_in_order
    messages_without_a_key_are_never_duplicates
    a_checkpoint_keeps_messages_state_and_totals
    a_checkpoint_of_a_run_that_does_not_run_is_refused
    a_run_ends_once_and_keeps_its_first_ending
    runs_end_together_or_not_at_all
    a_queued_run_that_ends_leaves_no_trace_in_the_thread
    a_run_id_that_exists_is_refused
    another_sessions_run_is_not_found
}

async fn a_new_session_is_empty_and_each_opening_raises_the_epoch(store: Shared) {
    let owner = BootId::new();
    let session = SessionKey::new("s");
    let first = store
        .open_lane(&session, SessionLifetime::Lasting, LaneClaim::free(owner), at(1))
        .await
        .unwrap()
        .opened()
        .unwrap();
    assert_eq!((first.lease.session.as_str(), first.lease.owner, first.lease.epoch), ("s", owner, 1));
    assert_eq!(first.thread.state, ThreadState::Idle);
    assert_eq!(first.thread.summary, None);
    assert!(first.thread.messages.is_empty() && first.unfinished.is_empty());

    let second = store
        .open_lane(&session, SessionLifetime::Lasting, LaneClaim::free(BootId::new()), at(2))
        .await
        .unwrap()
        .opened()
        .unwrap();
    assert_eq!(second.lease.epoch, 2);
    assert_eq!(second.thread, first.thread);
}

async fn an_old_lease_is_refused_by_every_write(store: Shared) {
    let old = open(&*store, "s").await.lease;
    let run = accept(&*store, &old, input("hi")).await;
    let new = open(&*store, "s").await.lease;

    let mut wrong_epoch = new.clone();
    wrong_epoch.epoch += 1;
    for lease in [&old, &wrong_epoch] {
        let outcomes = [
            store.accept(lease, input("x")).await.err(),
            store.start_run(lease, run, at(1)).await.err(),
            store.checkpoint(lease, checkpoint(run, vec![Message::assistant("x")])).await.err(),
            store.finish_runs(lease, vec![finished(run, "x")]).await.err(),
            store.edit_thread(lease, ThreadEdit::Clear, at(1)).await.err(),
            store.compact(lease, 0, "x".into(), Vec::new()).await.err(),
        ];
        for outcome in outcomes {
            assert!(matches!(&outcome, Some(StoreError::LeaseLost(session)) if session.as_str() == "s"), "{outcome:?}");
        }
    }
    store.finish_runs(&new, vec![finished(run, "yo")]).await.unwrap();
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), ["hi", "yo"]);
}

async fn an_accepted_message_waits_with_all_that_belongs_to_it(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let state = Some(serde_json::json!({ "delegate": { "outputs": [] } }));
    let asker = Asker { principal: "ann".into(), authority: Authority::Token, relayed: true };
    let work = Work::Job { job: JobId::new(), attempt: Some(2) };
    let message =
        NewInput { reply_to: Some(route("c")), asker: asker.clone(), work, state: state.clone(), ..queued("hi") };
    let run = accept(&*store, &lease, message).await;

    let opened = reload(&*store, &mut lease).await;
    assert_eq!(opened.thread.state, ThreadState::Idle);
    let [pending] = &opened.unfinished[..] else { panic!("one run waits: {:?}", opened.unfinished) };
    assert_eq!((pending.run_id, pending.text.as_str(), &pending.asker), (run, "hi", &asker));
    assert_eq!((pending.channel.as_str(), pending.work, &pending.reply_to), ("http", work, &Some(route("c"))));
    assert_eq!(store.unfinished_runs().await.unwrap()[0].work, work);
    assert_eq!((pending.status, pending.attempt, pending.started_at), (RunStatus::Queued, 0, None));
    assert_eq!(pending.accepted_at, at(1_000));
    assert!(pending.messages.is_empty());
    assert_eq!(pending.state, state, "what came with the message is what it begins with");

    let events = store.read(EventQuery::default()).await.unwrap();
    assert_eq!(events.iter().map(|event| &event.kind).collect::<Vec<_>>(), [&EventKind::RunAccepted]);
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    assert_eq!(reload(&*store, &mut lease).await.unfinished[0].state, state, "until a checkpoint brings another");
}

async fn a_run_that_begins_at_once_is_running_with_its_message_in_the_thread(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;

    let opened = reload(&*store, &mut lease).await;
    assert_eq!(opened.thread.state, ThreadState::Processing);
    assert!(opened.thread.messages.is_empty(), "the turn has not ended");
    let pending = &opened.unfinished[0];
    assert_eq!((pending.status, pending.attempt, pending.started_at), (RunStatus::Running, 1, Some(at(1_000))));
    assert_eq!(texts(&pending.messages), ["hi"]);
    assert_eq!(pending.messages[0].0, 1, "positions begin at 1");

    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    let kinds: Vec<_> = events.into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::RunAccepted, EventKind::RunStarted { attempt: 1 }]);
}

async fn taking_a_run_up_again_counts_the_attempt_and_repeats_no_message(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, queued("hi")).await;
    store.start_run(&lease, run, at(1_500)).await.unwrap();
    store.start_run(&lease, run, at(1_700)).await.unwrap();

    let opened = reload(&*store, &mut lease).await;
    assert_eq!(opened.thread.state, ThreadState::Processing);
    let pending = &opened.unfinished[0];
    assert_eq!((pending.attempt, pending.started_at), (2, Some(at(1_500))));
    assert_eq!(texts(&pending.messages), ["hi"]);
    store.finish_runs(&lease, vec![finished(run, "yo")]).await.unwrap();

    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    assert!(events.iter().any(|event| event.kind == EventKind::RunStarted { attempt: 2 }), "{events:?}");
    let again = store.start_run(&lease, run, at(1_800)).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "an ended run does not begin: {again:?}");
}

async fn one_of_fifty_equal_keys_is_new_and_the_others_know_its_run(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (store, lease) = (store.clone(), lease.clone());
        tasks.spawn(async move {
            let input = NewInput { key: Some(key("m")), ..queued("hi") };
            (input.run_id, store.accept(&lease, input).await.unwrap())
        });
    }
    let outcomes = tasks.join_all().await;
    let new: Vec<RunId> =
        outcomes.iter().filter(|(_, outcome)| *outcome == Acceptance::New).map(|(run, _)| *run).collect();
    assert_eq!(new.len(), 1);
    let known = KnownInput {
        run_id: new[0],
        session: SessionKey::new("s"),
        accepted_at: at(1_000),
        digest: input_digest("hi"),
    };
    let knowing = outcomes.iter().filter(|(_, outcome)| *outcome == Acceptance::Known(known.clone())).count();
    assert_eq!(knowing, 49);
    assert_eq!(store.find(&key("m")).await.unwrap(), Some(known));
    assert_eq!(store.find(&key("other")).await.unwrap(), None);
    assert_eq!(store.runs(RunFilter::default()).await.unwrap().len(), 1);
}

async fn a_key_with_another_text_is_a_conflict(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, NewInput { key: Some(key("m")), ..queued("hi") }).await;
    let other = open(&*store, "t").await.lease;
    let outcome = store.accept(&other, NewInput { key: Some(key("m")), ..queued("bye") }).await.unwrap();
    let Acceptance::Conflict(known) = outcome else { panic!("{outcome:?}") };
    assert_eq!((known.run_id, known.session.as_str()), (run, "s"));
    assert!(open(&*store, "t").await.unfinished.is_empty());
}

async fn a_changed_message_is_known_by_what_was_sent(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let digest = Some(input_digest("my pin is 1234"));
    let changed = || NewInput { key: Some(key("m")), digest: digest.clone(), ..queued("my pin is ****") };
    accept(&*store, &lease, changed()).await;
    for (text, known) in [("my pin is 1234", true), ("my pin is ****", false)] {
        let outcome = store.accept(&lease, NewInput { key: Some(key("m")), ..queued(text) }).await.unwrap();
        assert_eq!(matches!(outcome, Acceptance::Known(_)), known, "{text}: {outcome:?}");
    }
    let again = store.accept(&lease, changed()).await.unwrap();
    assert!(matches!(again, Acceptance::Known(_)), "{again:?}");
    assert_eq!(open(&*store, "s").await.unfinished[0].text, "my pin is ****");
}

async fn the_keys_of_the_newest_messages_are_there_in_order(store: Shared) {
    assert_eq!(store.recent_inputs().await.unwrap(), []);
    let lease = open(&*store, "s").await.lease;
    let name = |n: usize| format!("m{n}");
    for n in 0..=RECENT_INPUTS {
        let has_key = n != 2;
        let message = NewInput { key: has_key.then(|| key(&name(n))), ..queued("hi") };
        accept(&*store, &lease, message).await;
    }
    let recent = store.recent_inputs().await.unwrap();
    let keys: Vec<_> = recent.iter().map(|(key, _)| key.clone()).collect();
    let expected: Vec<_> = (1..=RECENT_INPUTS).filter(|n| *n != 2).map(|n| key(&name(n))).collect();
    assert_eq!(keys, expected);
    let newest = store.find(&key(&name(RECENT_INPUTS))).await.unwrap();
    assert_eq!(recent.last().map(|(_, known)| known), newest.as_ref());
}

async fn messages_without_a_key_are_never_duplicates(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    accept(&*store, &lease, queued("hi")).await;
    accept(&*store, &lease, queued("hi")).await;
    assert_eq!(open(&*store, "s").await.unfinished.len(), 2);
}

async fn a_checkpoint_keeps_messages_state_and_totals(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let usage = RunUsage { input: 3, output: 2, model_calls: 1, tool_calls: 4, estimated_calls: 1 };
    let brake = EventKind::GuardrailTriggered { guardrail: "b".into(), count: 1, force_text: false };
    let event =
        NewEvent { at: at(1_234), session: Some(lease.session.clone()), run_id: Some(run), kind: brake.clone() };
    let first = Checkpoint {
        state: Some(json!({"step": 1})),
        usage,
        cost_micro_usd: 9,
        events: vec![event],
        durability: Durability::Committed,
        ..checkpoint(run, vec![Message::assistant("one"), Message::user("nudge").for_run()])
    };
    store.checkpoint(&lease, first).await.unwrap();
    let second = Checkpoint { usage, cost_micro_usd: 9, ..checkpoint(run, vec![Message::assistant("two")]) };
    store.checkpoint(&lease, second).await.unwrap();

    let opened = reload(&*store, &mut lease).await;
    let pending = &opened.unfinished[0];
    assert_eq!(texts(&pending.messages), ["hi", "one", "nudge", "two"]);
    assert_eq!(pending.messages.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(pending.state, Some(json!({"step": 1})), "none leaves the stored one");
    assert_eq!((pending.usage, pending.cost_micro_usd), (usage, 9));
    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    assert_eq!(events.last().map(|event| (&event.kind, event.at)), Some((&brake, at(1_234))));
}

async fn a_checkpoint_of_a_run_that_does_not_run_is_refused(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let ended = turn(&*store, &lease, "hi").await;
    let waiting = accept(&*store, &lease, queued("later")).await;
    for run in [ended, waiting, RunId::new()] {
        let outcome = store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("x")])).await;
        assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    }
    assert_eq!(texts(&open(&*store, "s").await.thread.messages), ["hi", "re: hi"]);
}

async fn a_run_ends_once_and_keeps_its_first_ending(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let end = RunEnd::of(StopReason::MaxIterations).with("limit", 11);
    let first = belay_protocol::FinishedRun {
        end: end.clone(),
        outbound: Some(outbound("c", "sorry")),
        thread_state: Some(ThreadState::Interrupted),
        ..finished(run, "sorry")
    };
    store.finish_runs(&lease, vec![first]).await.unwrap();
    let second = belay_protocol::FinishedRun { outbound: Some(outbound("c", "well")), ..finished(run, "well") };
    store.finish_runs(&lease, vec![second]).await.unwrap();

    let expected = RunRecord {
        run_id: run,
        session: SessionKey::new("s"),
        status: RunStatus::Failed,
        reason: Some(StopReason::MaxIterations),
        evidence: end.evidence.clone(),
        reply: Some("sorry".into()),
        usage: RunUsage { input: 10, output: 5, model_calls: 1, tool_calls: 0, estimated_calls: 1 },
        cost_micro_usd: 7,
        attempt: 1,
        accepted_at: at(1_000),
        started_at: Some(at(1_000)),
        ended_at: Some(at(2_000)),
        waiting_for: None,
        files: Vec::new(),
    };
    assert_eq!(store.run(run).await.unwrap(), Some(expected));
    let opened = open(&*store, "s").await;
    assert_eq!(opened.thread.state, ThreadState::Interrupted);
    assert_eq!(texts(&opened.thread.messages), ["hi", "sorry"]);
    let events = store.read(EventQuery { run: Some(run), ..EventQuery::default() }).await.unwrap();
    let ended =
        EventKind::RunEnded { status: RunStatus::Failed, reason: StopReason::MaxIterations, evidence: end.evidence };
    assert_eq!(events.iter().filter(|event| event.kind == ended).count(), 1);
    assert_eq!(events.len(), 3, "accepted, started, ended: {events:?}");
    let due = store.due(at(9_000), &[], None, 10, 10).await.unwrap();
    assert_eq!(due.iter().map(|row| row.message.text.as_str()).collect::<Vec<_>>(), ["sorry"]);
}

async fn runs_end_together_or_not_at_all(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let one = accept(&*store, &lease, input("one")).await;
    let two = accept(&*store, &lease, queued("two")).await;
    let with_unknown = vec![finished(one, "a"), finished(RunId::new(), "b")];
    let outcome = store.finish_runs(&lease, with_unknown).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    store.ping().await.unwrap();
    assert_eq!(store.run(one).await.unwrap().map(|run| run.status), Some(RunStatus::Running));

    store.finish_runs(&lease, vec![finished(one, "a"), finished(two, "b")]).await.unwrap();
    for run in [one, two] {
        assert_eq!(store.run(run).await.unwrap().map(|run| run.status), Some(RunStatus::Completed));
    }
    assert!(open(&*store, "s").await.unfinished.is_empty());
}

async fn a_queued_run_that_ends_leaves_no_trace_in_the_thread(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, queued("hi")).await;
    let stopped =
        belay_protocol::FinishedRun { end: RunEnd::of(StopReason::UserStop), ..finished(run, "Interrupted.") };
    store.finish_runs(&lease, vec![stopped]).await.unwrap();
    let opened = open(&*store, "s").await;
    assert!(opened.thread.messages.is_empty() && opened.unfinished.is_empty());
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!((record.attempt, record.started_at, record.status), (0, None, RunStatus::Stopped));
}

async fn a_run_id_that_exists_is_refused(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let first = input("hi");
    let again = NewInput { run_id: first.run_id, key: Some(key("k")), ..queued("again") };
    accept(&*store, &lease, first).await;
    let outcome = store.accept(&lease, again).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    assert_eq!(store.find(&key("k")).await.unwrap(), None);
    turn(&*store, &lease, "life goes on").await;
}

async fn another_sessions_run_is_not_found(store: Shared) {
    let mine = open(&*store, "mine").await.lease;
    let run = accept(&*store, &mine, input("hi")).await;
    let other = open(&*store, "other").await.lease;
    let outcomes = [
        store.start_run(&other, run, at(1)).await.err(),
        store.checkpoint(&other, checkpoint(run, Vec::new())).await.err(),
        store.finish_runs(&other, vec![finished(run, "x")]).await.err(),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Some(StoreError::NotFound(_))), "{outcome:?}");
    }
}
