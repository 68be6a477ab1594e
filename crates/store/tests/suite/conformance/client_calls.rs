//! Runs that wait for results of their client.

use std::sync::Arc;

use belay_protocol::{
    ApprovalFilter, ApprovalKind, ApprovalRequest, ApprovalState, CallChoice, ClientCall, ClientNote, ClientResult,
    ClientTool, ClientTools, Decided, EventKind, RunOptions, UsedTokens,
};

use crate::kit::*;

super::for_every_store! {
    the_first_results_of_a_client_are_kept_with_the_options_of_its_run
    a_client_is_no_person_who_is_asked
}

/// A run that waits for the result of one call.
async fn waiting(store: &dyn Store) -> (belay_protocol::Lease, ApprovalRequest) {
    let lease = open(store, "s").await.lease;
    let run = accept(store, &lease, input("hi")).await;
    let call = ClientCall { id: "call-1".into(), name: "weather".into(), arguments: "{}".into() };
    let kind = ApprovalKind::ClientCalls { calls: vec![call], results: Vec::new() };
    let request = ApprovalRequest { kind, covers: None, arguments: serde_json::Value::Null, ..approval(&lease, run) };
    store.pause_run(&lease, paused(request.clone())).await.unwrap();
    (lease, request)
}

fn rain() -> Vec<ClientResult> {
    let used = Some(UsedTokens { input: 40, output: 2 });
    vec![ClientResult { said: "and?".into(), used, ..ClientResult::of("call-1".into(), "rain") }]
}

fn offering(name: &str) -> RunOptions {
    let parameters = serde_json::json!({"type": "object"}).into();
    let tool = ClientTool { name: name.into(), description: String::new(), parameters, strict: false };
    let tools = ClientTools { tools: vec![tool], choice: CallChoice::Auto, one_at_a_time: false };
    RunOptions { client_tools: Some(Arc::new(tools)), ..RunOptions::default() }
}

async fn the_first_results_of_a_client_are_kept_with_the_options_of_its_run(store: Shared) {
    let (mut lease, request) = waiting(&*store).await;
    assert_eq!(store.client_notes(request.run_id).await.unwrap(), []);
    let fields = serde_json::json!({"instructions": "be brief"}).as_object().cloned().unwrap();
    let notes = vec![ClientNote { after: None, fields }];
    let options = RunOptions { notes: notes.clone(), ..offering("another") };
    let stored = store.answer_client_calls(request.id, rain(), options.clone(), "ann", at(1_750)).await.unwrap();
    let Decided::Now(stored) = stored else { panic!("{stored:?}") };
    assert_eq!((stored.state, stored.decided_by.as_deref()), (ApprovalState::Approved, Some("ann")));
    assert!(
        matches!(&stored.kind, ApprovalKind::ClientCalls { results, calls } if *results == rain() && calls.len() == 1)
    );
    let opened = reload(&*store, &mut lease).await;
    assert_eq!((opened.unfinished.len(), &opened.unfinished[0].options), (1, &options));

    assert_eq!(store.client_notes(request.run_id).await.unwrap(), notes);
    assert_eq!(store.client_notes(belay_protocol::RunId::new()).await.unwrap(), []);

    let other = vec![ClientResult::of("call-1".into(), "snow")];
    let again = store.answer_client_calls(request.id, other, RunOptions::default(), "bob", at(1_760)).await.unwrap();
    assert_eq!(again, Decided::Before(stored), "only the first answer counts");
    let unknown = belay_protocol::ApprovalId::new();
    let unknown = store.answer_client_calls(unknown, rain(), options, "ann", at(1_760)).await.unwrap();
    assert_eq!(unknown, Decided::Unknown);
}

async fn a_client_is_no_person_who_is_asked(store: Shared) {
    let (_, request) = waiting(&*store).await;
    assert_eq!(store.approvals(ApprovalFilter::default()).await.unwrap(), []);
    assert_eq!(store.approvals(ApprovalFilter { waiting: true, ..ApprovalFilter::default() }).await.unwrap(), []);
    let record = store.run(request.run_id).await.unwrap().unwrap();
    assert_eq!(record.waiting_for.map(|waits| (waits.approval, waits.kind)), Some((request.id, request.kind.clone())));
    let asked =
        |kind: &EventKind| matches!(kind, EventKind::ApprovalRequested { .. } | EventKind::ApprovalResolved { .. });
    store.answer_client_calls(request.id, rain(), RunOptions::default(), "ann", at(1_750)).await.unwrap();
    assert!(!kinds(&*store, request.run_id).await.iter().any(asked));
    // A question to a person is not answered by results.
    let lease = open(&*store, "other").await.lease;
    let run = accept(&*store, &lease, input("hi")).await;
    let question = approval(&lease, run);
    store.pause_run(&lease, paused(question.clone())).await.unwrap();
    let refused =
        store.answer_client_calls(question.id, rain(), RunOptions::default(), "ann", at(1_750)).await.unwrap();
    assert_eq!(refused, Decided::Before(Box::new(question)));
}
