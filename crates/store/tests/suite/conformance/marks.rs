//! Events are for people: a store writes them without the marks of untrusted content, whatever made them.

use std::sync::Arc;

use belay_protocol::{
    EventKind, EventQuery, HeldJobs, JobCaps, JobChange, JobCreated, JobState, NewEvent, Seq, ToolStatus,
};

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    events_of_any_writer_have_no_marks
    an_event_that_a_store_has_cleaned_is_recognised_by_its_writer
}

type Store = Arc<dyn Everything>;

const MARKED: &str = "it says <untrusted source=\"page\" id=\"0123456789ab\">noon</untrusted id=\"0123456789ab\">";

async fn kinds(store: &Store) -> Vec<EventKind> {
    let all = EventQuery { after: Seq(0), run: None, session: None, limit: 100 };
    store.read(all).await.unwrap().into_iter().map(|event| event.kind).collect()
}

async fn events_of_any_writer_have_no_marks(store: Store) {
    // The event of a change of a job is written by the store itself.
    let caps = JobCaps { at_work: 10, at_work_each: 10, open_each: 10, open: 10 };
    let JobCreated::New(job) = store.create(job("ann"), caps).await.unwrap() else { panic!("it is new") };
    store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().expect("a place");
    let failed = JobChange {
        job: job.job_id,
        to: JobState::Failed,
        attempt: None,
        detail: MARKED.into(),
        result: None,
        notice: None,
        told_in: None,
        at: at(3_000),
    };
    store.change(failed).await.unwrap();
    let details: Vec<String> = kinds(&store)
        .await
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::JobChanged { detail, to: JobState::Failed, .. } => Some(detail),
            _ => None,
        })
        .collect();
    assert_eq!(details, ["it says noon"]);
}

async fn an_event_that_a_store_has_cleaned_is_recognised_by_its_writer(store: Store) {
    let kind = EventKind::ToolFinished {
        call_id: "c".into(),
        name: "page".into(),
        status: ToolStatus::Error,
        took_ms: 3,
        result: format!("1 < 2, {MARKED}"),
    };
    store.append(vec![NewEvent { at: at(1), session: None, run_id: None, kind: kind.clone() }]).await.unwrap();
    store.ping().await.unwrap(); // everything before it is written
    let kept = kinds(&store).await.pop().expect("an event");
    let EventKind::ToolFinished { result, status, .. } = &kept else { panic!("{kept:?}") };
    assert_eq!((result.as_str(), *status), ("1 < 2, it says noon", ToolStatus::Error));
    assert_eq!(kept.to_stored().unwrap(), kind.to_stored().unwrap());
}
