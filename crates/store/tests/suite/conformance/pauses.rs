//! Runs that rest on a question.

use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, AskedIn, Asker, Authority, BootId,
    Checkpoint, ChildQuestion, EventKind, FinishedRun, Lease, Message, NewEvent, Outbound, OutboxId, PausedRun,
    PendingRun, Question, RunEnd, RunFilter, RunId, RunStatus, StopReason, StoreError, ThreadEdit, ThreadState,
    WaitingFor,
};
use belay_protocol::{RunUsage, StoreError::LeaseLost};
use serde_json::json;

use crate::kit::*;

super::for_every_store! {
    a_pause_keeps_progress_question_and_message_together
    a_question_reads_back_as_it_was_asked
    a_pause_that_is_refused_leaves_nothing_behind
    a_paused_run_writes_nothing_until_it_is_taken_up_again
    a_run_that_asks_twice_rests_on_its_newest_question
    what_a_paused_run_waits_for_is_told_until_somebody_answers
    the_end_of_a_run_withdraws_what_was_not_used
    a_run_that_cannot_end_withdraws_nothing
    editing_a_thread_leaves_its_paused_turn_alone
    a_part_of_a_run_asks_while_the_run_works_on
}

async fn pending(store: &dyn Store, lease: &mut Lease) -> PendingRun {
    let mut unfinished = reload(store, lease).await.unfinished;
    assert_eq!(unfinished.len(), 1);
    unfinished.remove(0)
}

async fn states(store: &dyn Store, run: RunId) -> Vec<ApprovalState> {
    store.approvals_of(run).await.unwrap().into_iter().map(|approval| approval.state).collect()
}

async fn a_pause_keeps_progress_question_and_message_together(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("push it")).await;
    let approval = approval(&lease, run);
    let question = Question { approval: approval.id, offers_always: true, decidable: true };
    let outbound = Outbound { run_id: Some(run), question: Some(question), ..outbound("c", "May I?") };
    let usage = RunUsage { input: 3, output: 2, model_calls: 1, tool_calls: 0, estimated_calls: 1 };
    let brake = EventKind::GuardrailTriggered { guardrail: "b".into(), count: 1, force_text: false };
    let event = NewEvent { at: at(1_650), session: Some("s".into()), run_id: Some(run), kind: brake.clone() };
    let checkpoint = Checkpoint {
        state: Some(json!({"step": 1})),
        usage,
        cost_micro_usd: 9,
        events: vec![event],
        ..checkpoint(run, vec![Message::assistant("I will push")])
    };
    let mut told = store.committed();
    told.mark_unchanged();
    let pause = PausedRun { checkpoint, approval: approval.clone(), outbound: Some(outbound.clone()), callback: None };
    store.pause_run(&lease, pause).await.unwrap();

    assert!(told.has_changed().unwrap(), "whoever delivers is woken");
    let due = store.due(at(0), &[], None, 10, 10).await.unwrap();
    assert_eq!(due.into_iter().map(|row| row.message).collect::<Vec<_>>(), [outbound]);
    assert_eq!(store.approvals_of(run).await.unwrap(), std::slice::from_ref(&approval));
    assert_eq!(unfinished_sessions(&*store).await, ["s".into()]);
    let asked = EventKind::ApprovalRequested {
        approval: approval.id,
        call_id: "call-1".into(),
        name: "run_command".into(),
        kind: "approval".into(),
        summary: "run git push".into(),
        detail: "it writes outside".into(),
    };
    let expected = [EventKind::RunAccepted, EventKind::RunStarted { attempt: 1 }, brake, asked];
    assert_eq!(kinds(&*store, run).await, expected);

    let opened = reload(&*store, &mut lease).await;
    assert_eq!(opened.thread.state, ThreadState::AwaitingApproval);
    let pending = &opened.unfinished[0];
    assert_eq!((pending.status, pending.attempt, &pending.approval), (RunStatus::Paused, 1, &Some(approval)));
    assert_eq!((&pending.state, pending.usage, pending.cost_micro_usd), (&Some(json!({"step": 1})), usage, 9));
    assert_eq!(texts(&pending.messages), ["push it", "I will push"]);
    assert_eq!(store.session(&"s".into()).await.unwrap().map(|row| row.last_active_at), Some(at(1_700)));
}

async fn a_question_reads_back_as_it_was_asked(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let ann = || Asker { principal: "ann".into(), ..Asker::default() };
    let changes: [fn(ApprovalRequest) -> ApprovalRequest; 5] = [
        |approval| approval,
        |approval| ApprovalRequest { kind: ApprovalKind::Credential { name: "mail password".into() }, ..approval },
        |approval| {
            let asker = Asker { principal: "bob".into(), ..Asker::default() };
            let place = AskedIn {
                work: "Job “x”".into(),
                session: "t".into(),
                route: Some(route("t")),
                asker,
                in_place: false,
            };
            let place = Some(Box::new(place));
            ApprovalRequest { covers: None, bound: Vec::new(), arguments: json!(null), place, ..approval }
        },
        |approval| ApprovalRequest {
            summary: "\"quoted\" ключ 🗝\nline".into(),
            arguments: json!({"a": [1, {"b": null}]}),
            ..approval
        },
        |approval| ApprovalRequest { bound: vec![("a".into(), "1".into()), ("a".into(), "2".into())], ..approval },
    ];
    let askers = [
        ann(),
        Asker { authority: Authority::Token, ..ann() },
        Asker { authority: Authority::Operator, ..ann() },
        Asker { relayed: true, ..ann() },
        Asker::default(),
    ];
    for (change, asker) in changes.into_iter().zip(askers) {
        let run = accept(&*store, &lease, input("hi")).await;
        let approval = change(ApprovalRequest { asker, ..approval(&lease, run) });
        store.pause_run(&lease, paused(approval.clone())).await.unwrap();
        assert_eq!(store.approval(approval.id).await.unwrap(), Some(approval.clone()));
        let there = ApprovalFilter { session: Some("t".into()), waiting: true, ..ApprovalFilter::default() };
        let found = store.approvals(there).await.unwrap().iter().any(|found| found.id == approval.id);
        assert_eq!(found, approval.place.is_some(), "it is found in the conversation in which it is asked");
        // Reminded once, and not after the answer.
        let remind = || store.remind(approval.id, Outbound::new(Some(run), route("t"), "still"), at(1_750));
        assert!(remind().await.unwrap() && !remind().await.unwrap());
        assert_eq!(store.approval(approval.id).await.unwrap().unwrap().reminded_at, Some(at(1_750)));
    }
    let run = accept(&*store, &lease, input("hi")).await;
    let answered = pause(&*store, &lease, run).await;
    answer(&*store, answered.id, ApprovalState::Denied).await;
    let late = store.remind(answered.id, Outbound::new(Some(run), route("t"), "still"), at(1_900)).await;
    assert!(!late.unwrap(), "an answered question is not reminded of");
    assert_eq!(store.approval(ApprovalId::new()).await.unwrap(), None);
}

async fn a_pause_that_is_refused_leaves_nothing_behind(store: Shared) {
    let old = open(&*store, "s").await.lease;
    let lease = open(&*store, "s").await.lease;
    let before = turn(&*store, &lease, "before").await;
    let run = accept(&*store, &lease, input("hi")).await;
    let waiting = accept(&*store, &lease, queued("later")).await;
    let other = open(&*store, "t").await.lease;
    let theirs = accept(&*store, &other, input("theirs")).await;
    let asked = pause(&*store, &other, theirs).await;
    let in_the_way = outbound("c", "in the way");
    store.enqueue(in_the_way.clone()).await.unwrap();
    let events = kinds(&*store, run).await;

    let own = || approval(&lease, run);
    let is_missing = |error: &StoreError| matches!(error, StoreError::NotFound(_));
    // What is refused, and whether because the run is not there.
    let cases: [(&str, PausedRun, bool); 9] = [
        ("the run has ended", paused(approval(&lease, before)), true),
        ("the run has not begun", paused(approval(&lease, waiting)), true),
        ("there is no such run", paused(approval(&lease, RunId::new())), true),
        ("the question is about another run", PausedRun { approval: approval(&lease, before), ..paused(own()) }, false),
        ("the question is of another session", paused(ApprovalRequest { session: "t".into(), ..own() }), false),
        ("it is answered already", paused(ApprovalRequest { state: ApprovalState::Approved, ..own() }), false),
        ("somebody has answered", paused(ApprovalRequest { decided_by: Some("ann".into()), ..own() }), false),
        ("its id is taken", paused(ApprovalRequest { id: asked.id, ..own() }), false),
        ("the message is in the outbox", PausedRun { outbound: Some(in_the_way), ..paused(own()) }, false),
    ];
    for (case, pause, missing) in cases {
        let messages = vec![std::sync::Arc::new(Message::assistant("x"))];
        let checkpoint = Checkpoint { messages, state: Some(json!(1)), ..pause.checkpoint };
        let error = store.pause_run(&lease, PausedRun { checkpoint, ..pause }).await.unwrap_err();
        assert!(
            if missing { is_missing(&error) } else { matches!(error, StoreError::Unavailable(_)) },
            "{case}: {error:?}"
        );
    }
    let foreign = store.pause_run(&other, paused(ApprovalRequest { session: "t".into(), ..own() })).await.unwrap_err();
    assert!(is_missing(&foreign), "another session's run: {foreign:?}");
    for lease in [&old, &Lease { owner: BootId::new(), ..lease.clone() }] {
        let error = store.pause_run(lease, paused(own())).await.unwrap_err();
        assert!(matches!(error, LeaseLost(_)), "{error:?}");
    }

    store.ping().await.unwrap();
    assert_eq!(kinds(&*store, run).await, events);
    assert_eq!(store.approvals(ApprovalFilter::default()).await.unwrap(), [asked]);
    assert_eq!(store.due(at(0), &[], None, 10, 10).await.unwrap().len(), 1);
    let opened = open(&*store, "s").await;
    assert_eq!(opened.thread.state, ThreadState::Processing);
    let pending = &opened.unfinished[0];
    assert_eq!(
        (pending.run_id, pending.status, &pending.state, &pending.approval),
        (run, RunStatus::Running, &None, &None)
    );
    assert_eq!(texts(&pending.messages), ["hi"]);
}

async fn a_paused_run_writes_nothing_until_it_is_taken_up_again(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    pause(&*store, &lease, run).await;
    let outcome = store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("x")])).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    let outcome = store.pause_run(&lease, paused(approval(&lease, run))).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "it rests already: {outcome:?}");

    store.start_run(&lease, run, at(2_500)).await.unwrap();
    store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("done")])).await.unwrap();
    let opened = reload(&*store, &mut lease).await;
    assert_eq!(opened.thread.state, ThreadState::Processing);
    let pending = &opened.unfinished[0];
    assert_eq!((pending.status, pending.attempt, pending.started_at), (RunStatus::Running, 1, Some(at(1_000))));
    assert_eq!(texts(&pending.messages), ["hi", "done"], "no message twice");
}

async fn a_run_that_asks_twice_rests_on_its_newest_question(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    assert_eq!(pending(&*store, &mut lease).await.approval, None, "nothing was asked");
    let first = approved(&*store, &lease, run).await;
    let rested_on = pending(&*store, &mut lease).await.approval.map(|approval| (approval.id, approval.state));
    assert_eq!(rested_on, Some((first, ApprovalState::Approved)), "what it rested on last, with its answer");
    store.checkpoint(&lease, using(run, vec![first])).await.unwrap();
    let second = pause(&*store, &lease, run).await;
    assert_eq!(pending(&*store, &mut lease).await.approval, Some(second.clone()));
    let of_run: Vec<ApprovalId> =
        store.approvals_of(run).await.unwrap().into_iter().map(|approval| approval.id).collect();
    assert_eq!(of_run, [first, second.id], "oldest first");
}

async fn what_a_paused_run_waits_for_is_told_until_somebody_answers(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let working = accept(&*store, &open(&*store, "t").await.lease, input("other work")).await;
    let waiting_for = async || {
        let one = store.run(run).await.unwrap().unwrap();
        let listed = store.runs(RunFilter { session: Some("s".into()), ..RunFilter::default() }).await.unwrap();
        assert_eq!(listed, std::slice::from_ref(&one));
        (one.status, one.waiting_for)
    };
    assert_eq!(waiting_for().await, (RunStatus::Running, None));
    let approval = ApprovalRequest { kind: ApprovalKind::Credential { name: "token".into() }, ..approval(&lease, run) };
    store.pause_run(&lease, paused(approval.clone())).await.unwrap();
    let expected = WaitingFor {
        approval: approval.id,
        kind: ApprovalKind::Credential { name: "token".into() },
        tool: "run_command".into(),
        summary: "run git push".into(),
        expires_at: at(1_800),
    };
    assert_eq!(waiting_for().await, (RunStatus::Paused, Some(expected)));
    let with_status = async |status| {
        let found = store.runs(RunFilter { statuses: vec![status], ..RunFilter::default() }).await.unwrap();
        found.into_iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    assert_eq!((with_status(RunStatus::Paused).await, with_status(RunStatus::Queued).await), (vec![run], vec![]));

    answer(&*store, approval.id, ApprovalState::Denied).await;
    assert_eq!(waiting_for().await, (RunStatus::Queued, None), "answered, and not continued yet");
    assert_eq!((with_status(RunStatus::Paused).await, with_status(RunStatus::Queued).await), (vec![], vec![run]));
    store.start_run(&lease, run, at(2_000)).await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(waiting_for().await, (RunStatus::Running, None));
    assert_eq!(store.run(working).await.unwrap().unwrap().waiting_for, None);
}

async fn the_end_of_a_run_withdraws_what_was_not_used(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let used = approved(&*store, &lease, run).await;
    store.checkpoint(&lease, using(run, vec![used])).await.unwrap();
    let denied = pause(&*store, &lease, run).await.id;
    answer(&*store, denied, ApprovalState::Denied).await;
    store.start_run(&lease, run, at(2_000)).await.unwrap();
    let unused = approved(&*store, &lease, run).await;
    let waiting = pause(&*store, &lease, run).await.id;
    let other = open(&*store, "t").await.lease;
    let theirs = accept(&*store, &other, input("theirs")).await;
    pause(&*store, &other, theirs).await;

    let stopped = FinishedRun {
        end: RunEnd::of(StopReason::UserStop),
        outbound: Some(Outbound { id: OutboxId::new(), ..outbound("c", "Interrupted.") }),
        ..finished(run, "Interrupted.")
    };
    store.finish_runs(&lease, vec![stopped.clone()]).await.unwrap();
    store.finish_runs(&lease, vec![stopped]).await.unwrap(); // ended already: nothing happens
    let (w, u, d) = (ApprovalState::Withdrawn, ApprovalState::Used, ApprovalState::Denied);
    assert_eq!(states(&*store, run).await, [u, d, w, w]);
    assert_eq!(states(&*store, theirs).await, [ApprovalState::Waiting]);
    let kept = store.approval(unused).await.unwrap().unwrap();
    assert_eq!((kept.decided_by, kept.decided_at), (Some("ann".into()), Some(at(1_800))), "who had said yes");

    let kinds = kinds(&*store, run).await;
    let withdrawn = |approval| EventKind::ApprovalResolved {
        approval,
        state: "withdrawn".into(),
        actor: "the end of its run".into(),
    };
    assert_eq!(kinds[kinds.len() - 3..kinds.len() - 1], [withdrawn(unused), withdrawn(waiting)]);
    assert!(matches!(kinds.last(), Some(EventKind::RunEnded { status: RunStatus::Stopped, .. })), "{kinds:?}");
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!((record.status, record.waiting_for), (RunStatus::Stopped, None));
    assert!(open(&*store, "s").await.unfinished.is_empty());
}

async fn a_run_that_cannot_end_withdraws_nothing(store: Shared) {
    let lease = open(&*store, "s").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    pause(&*store, &lease, run).await;
    let outcome = store.finish_runs(&lease, vec![finished(run, "a"), finished(RunId::new(), "b")]).await;
    assert!(matches!(outcome, Err(StoreError::NotFound(_))), "{outcome:?}");
    assert_eq!(states(&*store, run).await, [ApprovalState::Waiting]);
    assert_eq!(store.run(run).await.unwrap().unwrap().status, RunStatus::Paused);
}

async fn editing_a_thread_leaves_its_paused_turn_alone(store: Shared) {
    let mut lease = open(&*store, "s").await.lease;
    turn(&*store, &lease, "before").await;
    let run = accept(&*store, &lease, input("hi")).await;
    pause(&*store, &lease, run).await;
    for step in [ThreadEdit::Undo, ThreadEdit::Redo, ThreadEdit::Clear] {
        assert_eq!(edit(&*store, &lease, step).await.state, ThreadState::AwaitingApproval, "{step:?}");
    }
    assert_eq!(texts(&pending(&*store, &mut lease).await.messages), ["hi"]);
    edit(&*store, &lease, ThreadEdit::New).await;
    store.start_run(&lease, run, at(4_000)).await.unwrap();
    store.finish_runs(&lease, vec![finished(run, "done")]).await.unwrap();
    assert!(reload(&*store, &mut lease).await.thread.messages.is_empty(), "it ends in the thread it began in");
}

/// A question of a part of this run.
fn in_place(lease: &Lease, run: RunId) -> ChildQuestion {
    let asker = Asker { principal: "ann".into(), ..Asker::default() };
    let place = AskedIn { work: "A subagent".into(), session: "s".into(), route: None, asker, in_place: true };
    let approval = ApprovalRequest { place: Some(Box::new(place)), covers: None, ..approval(lease, run) };
    let outbound = Some(Outbound { run_id: Some(run), ..outbound("c", "May I?") });
    ChildQuestion { approval, outbound }
}

async fn a_part_of_a_run_asks_while_the_run_works_on(store: Shared) {
    let old = open(&*store, "s").await.lease;
    let lease = open(&*store, "s").await.lease;
    let before = turn(&*store, &lease, "before").await;
    let run = accept(&*store, &lease, input("hi")).await;
    let events = kinds(&*store, run).await.len();
    let asked = in_place(&lease, run);
    let answered = ApprovalRequest { state: ApprovalState::Approved, ..asked.approval.clone() };
    let paused = ApprovalRequest { place: None, ..asked.approval.clone() };
    for (why, lease, question) in [
        ("an old lease", &old, asked.clone()),
        ("a run that has ended", &lease, in_place(&lease, before)),
        ("a question that is answered", &lease, ChildQuestion { approval: answered, ..asked.clone() }),
        ("a question that pauses its run", &lease, ChildQuestion { approval: paused, ..asked.clone() }),
    ] {
        assert!(store.ask_in_place(lease, question).await.is_err(), "{why}");
        assert_eq!((kinds(&*store, run).await.len(), states(&*store, run).await.len()), (events, 0), "{why}");
    }
    for _ in 0..2 {
        // A repetition, after the answer to the first write was lost, changes nothing.
        store.ask_in_place(&lease, asked.clone()).await.unwrap();
        assert_eq!(store.approval(asked.approval.id).await.unwrap(), Some(asked.approval.clone()));
        assert_eq!(kinds(&*store, run).await.len(), events + 1);
    }
    let record = store.run(run).await.unwrap().unwrap();
    assert_eq!((record.status, record.waiting_for), (RunStatus::Running, None));
    let other = in_place(&lease, run);
    store.ask_in_place(&lease, other.clone()).await.unwrap();
    assert!(store.withdraw(other.approval.id, at(1_800)).await.unwrap());
    assert!(!store.withdraw(other.approval.id, at(1_800)).await.unwrap(), "it is withdrawn once");
    assert!(!store.withdraw(ApprovalId::new(), at(1_800)).await.unwrap());
    store.finish_runs(&lease, vec![finished(run, "over")]).await.unwrap();
    assert_eq!(states(&*store, run).await, [ApprovalState::Withdrawn; 2], "the end of the run withdraws the rest");
    let by: Vec<String> = kinds(&*store, run)
        .await
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::ApprovalResolved { actor, .. } => Some(actor),
            _ => None,
        })
        .collect();
    assert_eq!(by, ["the end of its call", "the end of its run"]);
}
