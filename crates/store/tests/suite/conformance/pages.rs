//! Pages of lists: each row once, also while rows come and go.

use std::sync::Arc;

use belay_protocol::{
    ApprovalFilter, ApprovalId, Asker, HeldJobs, JobCaps, JobChange, JobFilter, JobId, JobState, KnownPrincipal,
    NewInput, NewJob, NewRoutineRun, PrincipalCursor, PrincipalFilter, Retention, RoutineId, RoutineRunFilter,
    RoutineRunId, RoutineRunStatus, RoutineRunStore, RunFilter, RunId, RunStatus, SearchQuery, SessionCursor,
    SessionFilter, SessionSummary, StoreError,
};

use crate::kit::*;

super::for_every_store! {
    runs_are_listed_in_pages
    runs_are_listed_in_pages_while_others_are_accepted_and_deleted
    jobs_are_listed_in_pages_while_others_are_created_and_deleted
    approvals_are_listed_in_pages_while_others_are_asked_and_deleted
    routine_runs_are_listed_in_pages_while_others_are_claimed_and_deleted
    sessions_are_listed_in_pages_while_others_are_used_and_deleted
    principals_are_listed_in_pages_while_others_are_seen_and_deleted
}

type Everywhere = Arc<dyn Everything>;

/// The cursor was refused, and the message names its row.
fn is_refused<T: std::fmt::Debug>(refused: Result<T, StoreError>, id: impl ToString) {
    let names_it = |what: &str| what.contains(&id.to_string());
    assert!(matches!(&refused, Err(StoreError::InvalidCursor(what)) if names_it(what)), "{refused:?}");
}

/// Deletes all work that has ended.
async fn prune(store: &Everywhere) {
    let old = Retention { threads_before: Some(at(5_000)), keys_before: at(5_000), ..Retention::default() };
    store.prune(old, 100).await.unwrap();
}

/// A page of three runs.
async fn runs(store: &Shared, filter: &RunFilter, before: Option<RunId>) -> Result<Vec<RunId>, StoreError> {
    let runs = store.runs(RunFilter { before, limit: 3, ..filter.clone() }).await?;
    Ok(runs.into_iter().map(|run| run.run_id).collect())
}

async fn runs_are_listed_in_pages(store: Shared) {
    let (lease, other) = (open(&*store, "s").await.lease, open(&*store, "t").await.lease);
    let mut newest_first = Vec::new();
    for n in 0..7 {
        let run = match n {
            0..5 => turn(&*store, &lease, "hello").await,
            _ => accept(&*store, &lease, queued("hello")).await,
        };
        newest_first.insert(0, run);
        turn(&*store, &other, "in between").await;
    }
    let [of_session, completed, since] = [
        RunFilter::default(),
        RunFilter { statuses: vec![RunStatus::Completed], ..RunFilter::default() },
        RunFilter { since: Some(at(0)), ..RunFilter::default() },
    ]
    .map(|filter| RunFilter { session: Some("s".into()), ..filter });
    let queued = RunFilter { statuses: vec![RunStatus::Queued], ..RunFilter::default() };
    for indexed in [false, true] {
        for (filter, expected) in [
            (&of_session, &newest_first[..]),
            (&completed, &newest_first[2..]),
            (&since, &newest_first),
            (&queued, &newest_first[..2]),
        ] {
            let mut pages: Vec<Vec<RunId>> = Vec::new();
            while pages.last().is_none_or(|page| page.len() == 3) {
                let cursor = pages.last().and_then(|page| page.last().copied());
                pages.push(runs(&store, filter, cursor).await.unwrap());
            }
            assert_eq!(pages.concat(), expected, "{filter:?}, indexed: {indexed}");
            assert_eq!(pages.len(), expected.len() / 3 + 1);
        }
        store.search(SearchQuery { words: "hello".into(), limit: 1, ..SearchQuery::default() }).await.unwrap();
    }
}

async fn runs_are_listed_in_pages_while_others_are_accepted_and_deleted(store: Shared) {
    let mut made = Vec::new();
    for session in ["0", "1", "2", "3", "4", "5", "6"] {
        made.push(turn(&*store, &open(&*store, session).await.lease, "hello").await);
    }
    let delete = async |session: &str| {
        let lease = open(&*store, session).await.lease;
        store.delete_session(&lease, at(9_000)).await.unwrap();
    };
    let all = RunFilter::default();
    assert_eq!(runs(&store, &all, None).await.unwrap(), [made[6], made[5], made[4]]);
    turn(&*store, &open(&*store, "new").await.lease, "hello").await;
    delete("6").await; // it was in the page before
    delete("2").await;
    assert_eq!(runs(&store, &all, Some(made[4])).await.unwrap(), [made[3], made[1], made[0]]);
    assert_eq!(runs(&store, &all, Some(made[0])).await.unwrap(), []);
    delete("4").await;
    is_refused(runs(&store, &all, Some(made[4])).await, made[4]);
}

async fn jobs_are_listed_in_pages_while_others_are_created_and_deleted(store: Everywhere) {
    let caps = JobCaps { at_work: 2, at_work_each: 2, open_each: 10_000, open: 10_000 };
    let create = async |who: &str, ms: i64| {
        let new = NewJob { at: at(ms), ..job(who) };
        let id = new.id;
        store.create(new, caps).await.unwrap();
        id
    };
    let delete = async |job: JobId| {
        let change = JobChange {
            job,
            to: JobState::Cancelled,
            attempt: None,
            detail: "no".into(),
            result: None,
            notice: None,
            told_in: None,
            at: at(3_000),
        };
        store.change(change).await.unwrap();
        prune(&store).await;
    };
    let page = async |filter: JobFilter| {
        let jobs = store.jobs(JobFilter { limit: 3, ..filter }).await?;
        Ok::<Vec<JobId>, StoreError>(jobs.into_iter().map(|job| job.job_id).collect())
    };
    let (mut made, mut of_bob) = (Vec::new(), Vec::new());
    for n in 0..7 {
        made.push(create("ann", 1_000 + n).await);
        of_bob.push(create("bob", 1_000).await);
    }
    let of_ann = JobFilter { creator: Some(("ann".into(), "http".into())), ..JobFilter::default() };
    let before = |job: JobId| JobFilter { before: Some(job), ..of_ann.clone() };
    assert_eq!(page(of_ann.clone()).await.unwrap(), [made[6], made[5], made[4]]);
    create("ann", 1_000).await;
    delete(made[2]).await;
    assert_eq!(page(before(made[4])).await.unwrap(), [made[3], made[1], made[0]]);
    assert_eq!(page(before(made[0])).await.unwrap(), []);
    is_refused(page(before(of_bob[3])).await, of_bob[3]);
    let dated = JobFilter { since: Some(at(1_003)), until: Some(at(1_006)), ..of_ann.clone() };
    assert_eq!(page(dated).await.unwrap(), [made[5], made[4], made[3]]);
    let pending = JobFilter { states: vec![JobState::Pending], since: Some(at(1_001)), ..before(made[4]) };
    assert_eq!(page(pending).await.unwrap(), [made[3], made[1]]);
    assert!(store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().is_some());
    delete(made[4]).await;
    is_refused(page(before(made[4])).await, made[4]);
}

async fn approvals_are_listed_in_pages_while_others_are_asked_and_deleted(store: Everywhere) {
    let ask = async |session: &str, end: bool| {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, input("hello")).await;
        if end {
            let id = approved(&*store, &lease, run).await;
            store.finish_runs(&lease, vec![finished(run, "done")]).await.unwrap();
            return id;
        }
        pause(&*store, &lease, run).await.id
    };
    let delete = async |session: &str| {
        let lease = open(&*store, session).await.lease;
        store.delete_session(&lease, at(9_000)).await.unwrap();
    };
    let page = async |filter: ApprovalFilter| {
        let approvals = store.approvals(ApprovalFilter { limit: 3, ..filter }).await?;
        Ok::<Vec<ApprovalId>, StoreError>(approvals.into_iter().map(|approval| approval.id).collect())
    };
    let mut made = Vec::new();
    let mut waiting = Vec::new();
    for session in ["0", "1", "2", "3", "4", "5", "6"] {
        made.push(ask(session, true).await);
        waiting.push(ask(&format!("waits {session}"), false).await);
    }
    let all = ApprovalFilter { until: Some(at(1_701)), ..ApprovalFilter::default() };
    let before = |id: ApprovalId| ApprovalFilter { before: Some(id), ..all.clone() };
    assert_eq!(page(all.clone()).await.unwrap(), [waiting[6], made[6], waiting[5]]);
    ask("new", false).await;
    delete("5").await;
    assert_eq!(page(before(waiting[5])).await.unwrap(), [waiting[4], made[4], waiting[3]]);
    let open = |id| ApprovalFilter { waiting: true, ..before(id) };
    assert_eq!(page(open(waiting[5])).await.unwrap(), [waiting[4], waiting[3], waiting[2]]);
    assert_eq!(page(open(waiting[2])).await.unwrap(), [waiting[1], waiting[0]]);
    assert_eq!(page(before(made[0])).await.unwrap(), []);
    assert_eq!(page(ApprovalFilter { since: Some(at(1_701)), ..ApprovalFilter::default() }).await.unwrap(), []);
    assert_eq!(page(ApprovalFilter { until: Some(at(1_700)), ..ApprovalFilter::default() }).await.unwrap(), []);
    delete("4").await;
    is_refused(page(before(made[4])).await, made[4]);
}

async fn routine_runs_are_listed_in_pages_while_others_are_claimed_and_deleted(store: Everywhere) {
    for name in ["a", "b", "other"] {
        put(&*store, routine(name)).await;
    }
    let claimed = async |name: &str, key: &str, ms: i64| {
        let new = NewRoutineRun { at: at(ms), ..routine_run(name, key) };
        claim(&*store, new).await.routine_run_id
    };
    let delete = async |id: RoutineRunId| {
        RoutineRunStore::settle(&*store, end(id, RoutineRunStatus::Ok)).await.unwrap();
        prune(&store).await;
    };
    let page = async |filter: RoutineRunFilter| {
        let found = store.routine_runs(RoutineRunFilter { limit: 3, ..filter }).await?;
        Ok::<Vec<RoutineRunId>, StoreError>(found.into_iter().map(|found| found.routine_run_id).collect())
    };
    let (mut made, mut others) = (Vec::new(), Vec::new());
    for (n, name) in (0..).zip(["a", "b", "a", "b", "b", "a", "b"]) {
        made.push(claimed(name, &n.to_string(), 2_000 + n).await);
        others.push(claimed("other", &n.to_string(), 2_000).await);
    }
    let own: Vec<RoutineId> = vec![routine_id("a"), routine_id("b")];
    let own = RoutineRunFilter { routine_ids: Some(own), ..RoutineRunFilter::default() };
    let before = |id: RoutineRunId| RoutineRunFilter { before: Some(id), ..own.clone() };
    assert_eq!(page(own.clone()).await.unwrap(), [made[6], made[5], made[4]]);
    claimed("a", "new", 2_000).await;
    delete(made[2]).await;
    assert_eq!(page(before(made[4])).await.unwrap(), [made[3], made[1], made[0]]);
    assert_eq!(page(before(made[0])).await.unwrap(), []);
    is_refused(page(before(others[3])).await, others[3]);
    let of_b = RoutineRunFilter { routine: Some("b".into()), since: Some(at(2_001)), ..before(made[6]) };
    assert_eq!(page(of_b.clone()).await.unwrap(), [made[4], made[3], made[1]]);
    assert_eq!(page(RoutineRunFilter { until: Some(at(2_003)), ..of_b }).await.unwrap(), [made[1]]);
    let nobody = RoutineRunFilter { routine_ids: Some(Vec::new()), ..RoutineRunFilter::default() };
    assert_eq!(page(nobody).await.unwrap(), []);
    delete(made[4]).await;
    is_refused(page(before(made[4])).await, made[4]);
}

async fn sessions_are_listed_in_pages_while_others_are_used_and_deleted(store: Everywhere) {
    let used = async |session: &str, ms: i64| {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, NewInput { at: at(ms), ..input("hello") }).await;
        store.finish_runs(&lease, vec![finished(run, "done")]).await.unwrap();
    };
    let delete = async |session: &str| {
        let lease = open(&*store, session).await.lease;
        store.delete_session(&lease, at(9_000)).await.unwrap();
    };
    let page = async |after: Option<&SessionCursor>, since: Option<i64>| {
        let (after, since) = (after.cloned(), since.map(at));
        let filter = SessionFilter { after, since, ..SessionFilter::lasting(3) };
        let sessions = store.sessions(filter).await.unwrap();
        let place = |last: &SessionSummary| SessionCursor {
            last_active_at: last.last_active_at,
            session: last.session.clone(),
        };
        let names = sessions.iter().map(|session| session.session.as_str().to_owned()).collect::<Vec<_>>();
        (names, sessions.last().map(place))
    };
    // Most of them have the same date, so that the key decides.
    for (session, ms) in
        [("g", 3_000), ("a", 4_000), ("e", 4_000), ("d", 4_000), ("c", 4_000), ("b", 4_000), ("f", 5_000)]
    {
        used(session, ms).await;
    }
    let (one, cursor) = page(None, None).await;
    assert_eq!(one, ["f", "a", "b"]);
    used("new", 4_000).await; // "new" is behind the cursor, as it was last used at that date
    used("a", 6_000).await;
    delete("d").await;
    delete("b").await; // the cursor's own
    let (two, cursor) = page(cursor.as_ref(), None).await;
    assert_eq!(two, ["c", "e", "new"]);
    let (three, cursor) = page(cursor.as_ref(), None).await;
    assert_eq!(three, ["g"]);
    assert_eq!(page(cursor.as_ref(), None).await.0.len(), 0);
    assert_eq!(page(None, Some(5_000)).await.0, ["a", "f"]);
}

async fn principals_are_listed_in_pages_while_others_are_seen_and_deleted(store: Everywhere) {
    let lease = open(&*store, "s").await.lease;
    let seen = async |channel: &str, id: &str, ms: i64| {
        let asker = Asker { principal: id.into(), ..Asker::default() };
        let message = NewInput { channel: channel.into(), asker, at: at(ms), start: false, ..input("hi") };
        accept(&*store, &lease, message).await;
    };
    let page = async |after: Option<&PrincipalCursor>, since: Option<i64>| {
        let filter = PrincipalFilter { after: after.cloned(), since: since.map(at), limit: 3 };
        let known = store.principals(filter).await.unwrap();
        let place = |last: &KnownPrincipal| PrincipalCursor {
            last_seen_at: last.last_seen_at,
            channel: last.channel.clone(),
            id: last.id.clone(),
        };
        let names = known.iter().map(|known| format!("{}:{}", known.channel, known.id)).collect::<Vec<_>>();
        (names, known.last().map(place))
    };
    for (channel, id, ms) in [
        ("telegram", "1", 4_000),
        ("http", "2", 4_000),
        ("http", "1", 4_000),
        ("telegram", "0", 4_000),
        ("telegram", "9", 3_000),
        ("http", "9", 5_000),
        ("webhook", "1", 1_000),
    ] {
        seen(channel, id, ms).await;
    }
    let (one, cursor) = page(None, None).await;
    assert_eq!(one, ["http:9", "http:1", "http:2"]);
    seen("http", "new", 6_000).await;
    seen("http", "1", 9_000_000).await;
    store.prune(Retention { threads_before: Some(at(2_000)), ..Retention::default() }, 10).await.unwrap();
    let (two, cursor) = page(cursor.as_ref(), None).await;
    assert_eq!(two, ["telegram:0", "telegram:1", "telegram:9"]);
    assert_eq!(page(cursor.as_ref(), None).await.0.len(), 0, "the last one was deleted");
    assert_eq!(page(None, Some(5_000)).await.0, ["http:1", "http:new", "http:9"]);
}
