//! The outbox.

use belay_protocol::{
    ApprovalId, EventKind, EventQuery, FinishedRun, Outbound, OutboxId, OutboxRow, OutboxState, Question, RunId,
    StoreError, TextKind,
};

use crate::kit::*;

super::for_every_store! {
    conversations_are_delivered_side_by_side_and_each_in_order
    what_is_not_due_keeps_its_conversation_waiting
    a_row_reads_back_as_it_was_with_its_attempts
    a_reply_names_the_message_whose_place_it_takes
    a_checked_text_replaces_the_one_that_hooks_had_not_checked
    every_ending_lets_the_next_one_through
    what_a_dead_daemon_was_sending_is_ambiguous
    a_channel_that_settles_unknown_results_has_its_interrupted_rows_wait_since_the_first_attempt
    callbacks_are_counted_apart_and_wait_again_after_a_crash
    the_outbox_tells_of_new_rows
    an_ended_or_unknown_row_cannot_be_marked
    the_outcome_of_a_delivery_is_told_with_it_and_once
    a_reply_is_in_the_outbox_with_the_end_of_its_run
    the_newest_delivered_message_of_a_conversation_shows_its_question
}

async fn due(store: &dyn Store, now: i64) -> Vec<String> {
    store.due(at(now), &[], None, 10, 10).await.unwrap().into_iter().map(|row| row.message.text).collect()
}

async fn enqueue(store: &dyn Store, conversation: &str, text: &str) -> OutboxId {
    let message = outbound(conversation, text);
    let id = message.id;
    store.enqueue(message).await.unwrap();
    id
}

async fn conversations_are_delivered_side_by_side_and_each_in_order(store: Shared) {
    let a1 = enqueue(&*store, "a", "a1").await;
    enqueue(&*store, "b", "b1").await;
    enqueue(&*store, "a", "a2").await;
    enqueue(&*store, "c", "c1").await;
    assert_eq!(due(&*store, 0).await, ["a1", "b1", "c1"]);
    let busy = [belay_protocol::ReplyRoute { reply_to: None, ..route("b") }];
    let rows = store.due(at(0), &busy, None, 10, 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.message.text.as_str()).collect::<Vec<_>>(), ["a1", "c1"]);
    assert_eq!(store.due(at(0), &[], None, 2, 2).await.unwrap().len(), 2);

    store.mark(a1, OutboxState::Sending, at(0), None).await.unwrap();
    assert_eq!(due(&*store, 0).await, ["b1", "c1"], "a2 waits for a1");
    store.mark(a1, OutboxState::Sent, at(0), None).await.unwrap();
    assert_eq!(due(&*store, 0).await, ["b1", "a2", "c1"]);
}

async fn what_is_not_due_keeps_its_conversation_waiting(store: Shared) {
    let a1 = enqueue(&*store, "a", "a1").await;
    enqueue(&*store, "a", "a2").await;
    assert_eq!(store.next_due(None).await.unwrap(), None, "it is due already");
    store.mark(a1, OutboxState::Sending, at(0), None).await.unwrap();
    store
        .mark(a1, OutboxState::Waiting { until: at(5_000), pieces_sent: 1, unsure_since: None }, at(0), None)
        .await
        .unwrap();
    assert!(due(&*store, 4_999).await.is_empty());
    assert_eq!(store.next_due(None).await.unwrap(), Some(at(5_000)));
    assert_eq!(due(&*store, 5_000).await, ["a1"]);
}

async fn a_row_reads_back_as_it_was_with_its_attempts(store: Shared) {
    let message = belay_protocol::Outbound { run_id: Some(belay_protocol::RunId::new()), ..outbound("a", "*x*") };
    store.enqueue(message.clone()).await.unwrap();
    let row = OutboxRow { message: message.clone(), attempts: 0, unsure_since: None };
    assert_eq!(store.due(at(0), &[], None, 10, 10).await.unwrap(), [row]);
    store.mark(message.id, OutboxState::Sending, at(0), None).await.unwrap();
    store
        .mark(message.id, OutboxState::Waiting { until: at(1), pieces_sent: 2, unsure_since: Some(at(0)) }, at(0), None)
        .await
        .unwrap();
    let message = belay_protocol::Outbound { pieces_sent: 2, ..message };
    let row = OutboxRow { message, attempts: 1, unsure_since: Some(at(0)) };
    assert_eq!(store.due(at(1), &[], None, 10, 10).await.unwrap(), [row]);
}

async fn a_reply_names_the_message_whose_place_it_takes(store: Shared) {
    for preview in [None, Some("77".into())] {
        let message = belay_protocol::Outbound { preview, ..outbound("a", "the answer") };
        store.enqueue(message.clone()).await.unwrap();
        let due = store.due(at(0), &[], None, 1, 1).await.unwrap();
        assert_eq!(due.into_iter().map(|row| row.message).collect::<Vec<_>>(), std::slice::from_ref(&message));
        // Also after a failed attempt: the next one finds the same message to change.
        store.mark(message.id, OutboxState::Sending, at(0), None).await.unwrap();
        store
            .mark(message.id, OutboxState::Waiting { until: at(5), pieces_sent: 0, unsure_since: None }, at(0), None)
            .await
            .unwrap();
        let due = store.due(at(5), &[], None, 1, 1).await.unwrap();
        assert_eq!(due.first().map(|row| &row.message.preview), Some(&message.preview));
        store.mark(message.id, OutboxState::Sent, at(0), None).await.unwrap();
    }
}

async fn every_ending_lets_the_next_one_through(store: Shared) {
    for ending in [OutboxState::Sent, OutboxState::Ambiguous, OutboxState::Failed] {
        let conversation = format!("{ending:?}");
        let first = enqueue(&*store, &conversation, "first").await;
        let second = enqueue(&*store, &conversation, "second").await;
        store.mark(first, OutboxState::Sending, at(0), None).await.unwrap();
        store.mark(first, ending.clone(), at(0), None).await.unwrap();
        assert_eq!(due(&*store, 0).await, ["second"], "{ending:?}");
        store.mark(second, OutboxState::Sent, at(0), None).await.unwrap();
    }
}

async fn what_a_dead_daemon_was_sending_is_ambiguous(store: Shared) {
    let sending = enqueue(&*store, "a", "a1").await;
    enqueue(&*store, "a", "a2").await;
    enqueue(&*store, "b", "b1").await;
    store.mark(sending, OutboxState::Sending, at(0), None).await.unwrap();
    let settled = store.settle_interrupted(at(0), None, &[]).await.unwrap();
    assert_eq!(settled.iter().map(|row| (row.message.id, row.attempts)).collect::<Vec<_>>(), [(sending, 1)]);
    assert_eq!(due(&*store, 0).await, ["a2", "b1"], "it is not tried again");
    assert_eq!(store.settle_interrupted(at(0), None, &[]).await.unwrap(), []);
}

async fn the_outbox_tells_of_new_rows(store: Shared) {
    let mut committed = store.committed();
    committed.mark_unchanged();
    let id = enqueue(&*store, "a", "a1").await;
    assert!(committed.has_changed().unwrap());
    committed.mark_unchanged();
    store.mark(id, OutboxState::Sending, at(0), None).await.unwrap();
    assert!(!committed.has_changed().unwrap(), "no new row, no change");
}

async fn an_ended_or_unknown_row_cannot_be_marked(store: Shared) {
    let ended = enqueue(&*store, "a", "a1").await;
    store.mark(ended, OutboxState::Failed, at(0), None).await.unwrap();
    for id in [ended, OutboxId::new()] {
        for state in [
            OutboxState::Sending,
            OutboxState::Sent,
            OutboxState::Waiting { until: at(1), pieces_sent: 0, unsure_since: None },
        ] {
            let outcome = store.mark(id, state, at(0), None).await;
            assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
        }
    }
    let twice = outbound("a", "twice");
    store.enqueue(twice.clone()).await.unwrap();
    let outcome = store.enqueue(twice).await;
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
    assert_eq!(due(&*store, 0).await, ["twice"]);
}

async fn the_outcome_of_a_delivery_is_told_with_it_and_once(store: Shared) {
    for (text, state) in [("a", OutboxState::Sent), ("b", OutboxState::Failed), ("c", OutboxState::Ambiguous)] {
        let id = enqueue(&*store, text, text).await;
        store.mark(id, OutboxState::Sending, at(1), None).await.unwrap();
        store
            .mark(id, OutboxState::Waiting { until: at(2), pieces_sent: 0, unsure_since: None }, at(2), None)
            .await
            .unwrap();
        store.mark(id, state.clone(), at(3), None).await.unwrap();
        store.mark(id, state, at(4), None).await.unwrap_err();
    }
    let interrupted = enqueue(&*store, "d", "d").await;
    store.mark(interrupted, OutboxState::Sending, at(4), None).await.unwrap();
    store.settle_interrupted(at(5), None, &[]).await.unwrap();
    store.settle_interrupted(at(6), None, &[]).await.unwrap();
    let told = store.read(EventQuery::default()).await.unwrap();
    let told = told.into_iter().filter_map(|event| match event.kind {
        EventKind::Delivered { outcome } => Some((event.at.0, outcome)),
        _ => None,
    });
    let expected = [(3, "sent"), (3, "failed"), (3, "ambiguous"), (5, "ambiguous")];
    assert_eq!(told.collect::<Vec<_>>(), expected.map(|(at, outcome)| (at, outcome.to_owned())));
}

async fn a_reply_is_in_the_outbox_with_the_end_of_its_run(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let mut committed = store.committed();
    committed.mark_unchanged();
    for text in ["one", "two"] {
        let run = accept(&*store, &lease, input(text)).await;
        let reply = FinishedRun { outbound: Some(outbound("c", text)), ..finished(run, text) };
        store.finish_runs(&lease, vec![reply]).await.unwrap();
        assert!(committed.has_changed().unwrap());
    }
    assert_eq!(due(&*store, 0).await, ["one"]);
}

async fn a_channel_that_settles_unknown_results_has_its_interrupted_rows_wait_since_the_first_attempt(store: Shared) {
    let id = enqueue(&*store, "a", "a1").await;
    let settling = [route("a").channel];
    let waits = async || store.due(at(100), &[], None, 10, 10).await.unwrap().remove(0);
    for attempt in 1..=3 {
        // Only the first attempt with an unknown result counts.
        store.mark(id, OutboxState::Sending, at(i64::from(attempt)), None).await.unwrap();
        assert_eq!(store.settle_interrupted(at(10), None, &settling).await.unwrap(), [], "nothing is ambiguous");
        let row = waits().await;
        assert_eq!((row.attempts, row.unsure_since), (attempt, Some(at(1))));
    }
    let known = OutboxState::Waiting { until: at(50), pieces_sent: 1, unsure_since: None };
    store.mark(id, known, at(20), None).await.unwrap();
    assert_eq!(waits().await.unsure_since, None);
    store.mark(id, OutboxState::Sending, at(60), None).await.unwrap();
    let other = ["other".into()];
    assert_eq!(store.settle_interrupted(at(61), None, &other).await.unwrap().len(), 1, "of another channel");
    assert_eq!(due(&*store, 100).await, [""; 0]);
}

async fn callbacks_are_counted_apart_and_wait_again_after_a_crash(store: Shared) {
    let callback = |conversation: &str| belay_protocol::Outbound {
        callback: Some("https://example.com/ended".into()),
        ..outbound(conversation, conversation)
    };
    for conversation in ["a", "b"] {
        store.enqueue(callback(conversation)).await.unwrap();
    }
    enqueue(&*store, "c", "c").await;
    let texts = |rows: Vec<OutboxRow>| rows.into_iter().map(|row| row.message.text).collect::<Vec<_>>();
    assert_eq!(texts(store.due(at(0), &[], None, 10, 1).await.unwrap()), ["a", "c"]);
    let rows = store.due(at(0), &[], None, 10, 10).await.unwrap();
    assert_eq!(rows[0].message.callback.as_deref(), Some("https://example.com/ended"));
    for row in &rows {
        store.mark(row.message.id, OutboxState::Sending, at(0), None).await.unwrap();
    }
    assert_eq!(
        texts(store.settle_interrupted(at(0), None, &[]).await.unwrap()),
        ["c"],
        "a message for people may have arrived"
    );
    assert_eq!(due(&*store, 0).await, ["a", "b"]);
}

async fn a_checked_text_replaces_the_one_that_hooks_had_not_checked(store: Shared) {
    let first = async || store.due(at(0), &[], None, 1, 1).await.unwrap().remove(0).message;
    let unchecked = outbound("a", "as it was").of_kind(TextKind::Command);
    store.enqueue(unchecked.clone()).await.unwrap();
    assert_eq!(first().await, unchecked);
    let checked = Outbound { text: "as it is".into(), ..unchecked }.checked();
    store.put_checked(&checked).await.unwrap();
    assert_eq!(first().await, checked);
}

async fn the_newest_delivered_message_of_a_conversation_shows_its_question(store: Shared) {
    let (run, approval) = (RunId::new(), ApprovalId::new());
    let question = Some(Question { approval, offers_always: false, decidable: true });
    let asks = Outbound { run_id: Some(run), question, ..outbound("a", "may it?") };
    let shown = async |conversation| store.shown_last(&route(conversation), run).await.unwrap();
    let sent = async |id| store.mark(id, OutboxState::Sending, at(0), None).await.unwrap();
    sent(enqueue(&*store, "a", "before").await).await;
    assert_eq!(shown("a").await, None, "nothing was asked");
    store.enqueue(asks.clone()).await.unwrap();
    assert_eq!(shown("a").await, None, "it is not delivered yet");
    sent(asks.id).await;
    sent(enqueue(&*store, "b", "elsewhere").await).await;
    let later = enqueue(&*store, "a", "later").await;
    assert_eq!((shown("a").await, shown("b").await), (Some(approval), None));
    assert_eq!(store.shown_last(&route("a"), RunId::new()).await.unwrap(), None, "another run");
    sent(later).await;
    assert_eq!(shown("a").await, None, "it is not the newest message any more");
}
