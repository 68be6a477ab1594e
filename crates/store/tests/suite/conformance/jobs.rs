//! Jobs: committed once, begun within the caps, moved along the table.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{
    BootId, ChannelId, Claim, EventKind, HeldJobs, JobAttempt, JobCaps, JobChange, JobChanged, JobCreated, JobFilter,
    JobId, JobNumbers, JobReader, JobRecord, JobState, NewJob, Removed, Retention, RunId, RunsIn, StoreError,
    job_session,
};
use tokio::task::JoinSet;

use super::for_every_store;
use crate::kit::*;

for_every_store! {
    a_job_is_committed_once_by_its_id
    a_burst_of_creates_passes_neither_cap
    a_burst_of_begins_passes_neither_cap
    the_oldest_job_of_those_who_have_a_place_begins
    a_crowd_without_a_place_does_not_stand_in_the_way
    a_held_job_does_not_begin_and_takes_no_place
    a_job_moves_along_the_table_and_nowhere_else
    a_job_that_is_completed_twice_is_told_once
    a_change_for_another_attempt_changes_nothing
    an_attempt_is_changed_by_its_owner_alone
    a_change_whose_notice_cannot_be_kept_is_not_made
    a_stuck_job_begins_again_in_its_place
    only_a_crash_counts_as_one_and_once
    jobs_are_listed_newest_first
    jobs_that_are_not_over_are_counted
    a_run_is_noted_for_its_attempt
    old_jobs_go_with_their_facts_and_others_stay
}

type Store = Arc<dyn Everything>;

const CAPS: JobCaps = JobCaps { at_work: 2, at_work_each: 2, open_each: 10_000, open: 10_000 };

async fn create(store: &Store, job: NewJob) -> JobId {
    match store.create(job, CAPS).await.unwrap() {
        JobCreated::New(record) => record.job_id,
        other => panic!("it is not new: {other:?}"),
    }
}

/// A job of this creator that has a place.
async fn at_work(store: &Store, principal: &str) -> JobRecord {
    let id = create(store, job(principal)).await;
    let caps = JobCaps { at_work: 10_000, at_work_each: 10_000, ..CAPS };
    let begun = store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().expect("a place");
    assert_eq!(begun.job_id, id, "no other waits");
    begun
}

fn to(job: JobId, state: JobState) -> JobChange {
    let (why, result) = (format!("it is {}", state.word()), None);
    JobChange { job, to: state, attempt: None, detail: why, result, notice: None, told_in: None, at: at(3_000) }
}

/// Changes a job, which must be possible.
async fn change(store: &Store, change: JobChange) -> JobRecord {
    match store.change(change).await.unwrap() {
        JobChanged::Now(record) => *record,
        other => panic!("it was not changed: {other:?}"),
    }
}

async fn a_job_is_committed_once_by_its_id(store: Store) {
    let new = job("ann");
    let record = JobRecord {
        job_id: new.id,
        title: "count".into(),
        task: "count the stars".into(),
        state: JobState::Pending,
        detail: String::new(),
        plan: true,
        runs_in: RunsIn::Worker,
        budget: new.budget,
        grants: new.grants.clone(),
        session: job_session(new.id),
        creator: new.creator.clone(),
        channel: "http".into(),
        asked_in: "s".into(),
        reply_to: Some(route("c")),
        parent: new.parent,
        routine_run: None,
        attempt: 0,
        crashes: 0,
        run_id: None,
        result: None,
        created_at: at(1_000),
        started_at: None,
        changed_at: at(1_000),
        ended_at: None,
    };
    let created = store.create(new.clone(), CAPS).await.unwrap();
    assert_eq!(created, JobCreated::New(Box::new(record.clone())));
    let again = NewJob { title: "another".into(), ..new.clone() };
    let none_more = JobCaps { open: 0, open_each: 0, ..CAPS };
    assert_eq!(store.create(again, none_more).await.unwrap(), JobCreated::Known(Box::new(record.clone())));
    assert_eq!(store.job(new.id).await.unwrap(), Some(record));
    assert_eq!(store.job(JobId::new()).await.unwrap(), None);
    let made =
        EventKind::JobChanged { job: new.id, from: None, to: JobState::Pending, attempt: 0, detail: String::new() };
    assert_eq!(facts(&*store, job_session(new.id)).await, [made]);
    // A grant is revoked once and stays in its place; the job has no other.
    for grant in [0, 2] {
        assert!(matches!(store.revoke(new.id, grant, "ann", at(1_500)).await.unwrap(), JobChanged::Not(_)), "{grant}");
    }
    for _ in 0..2 {
        assert!(
            matches!(store.revoke(new.id, 1, "ann", at(1_500)).await.unwrap(), JobChanged::Now(job) if job.grants[0].revoked)
        );
    }
    assert!(store.job(new.id).await.unwrap().unwrap().grants[0].revoked);
    let grant = "run_command: argv=cargo test".to_owned();
    let revoked = EventKind::GrantRevoked { work: format!("job {}", new.id), grant, actor: "ann".into() };
    assert_eq!(facts(&*store, job_session(new.id)).await.pop(), Some(revoked), "told once");
    assert_eq!(store.revoke(JobId::new(), 1, "ann", at(1_500)).await.unwrap(), JobChanged::Unknown);
}

/// How many of each creator are in these states.
async fn by_creator(store: &Store, states: &[JobState]) -> HashMap<(ChannelId, String), usize> {
    let filter = JobFilter { states: states.to_vec(), limit: 1_000, ..JobFilter::default() };
    let mut counts = HashMap::new();
    for job in store.jobs(filter).await.unwrap() {
        *counts.entry((job.channel, job.creator.principal)).or_default() += 1;
    }
    counts
}

/// Two hundred jobs asked for at once: by two people through two channels each.
async fn burst(store: &Store, caps: JobCaps) -> Vec<JobCreated> {
    let mut creating = JoinSet::new();
    for n in 0..200 {
        let new = NewJob {
            channel: if n % 2 == 0 { "http".into() } else { "telegram".into() },
            ..job(if n % 4 < 2 { "ann" } else { "bob" })
        };
        let store = store.clone();
        creating.spawn(async move { store.create(new, caps).await.unwrap() });
    }
    creating.join_all().await
}

async fn a_burst_of_creates_passes_neither_cap(store: Store) {
    let created = burst(&store, JobCaps { open_each: 10, open: 35, ..CAPS }).await;
    let new = created.iter().filter(|created| matches!(created, JobCreated::New(_))).count();
    assert_eq!(new, 35);
    let counts = by_creator(&store, &[]).await;
    assert!(counts.len() == 4 && counts.values().all(|count| *count <= 10), "{counts:?}");
    burst(&store, JobCaps { open_each: 10, open: 1_000, ..CAPS }).await;
    let counts = by_creator(&store, &[JobState::Pending]).await;
    assert!(counts.len() == 4 && counts.values().all(|count| *count == 10), "{counts:?}");

    // A job that is over counts no longer.
    let refused = store.create(job("ann"), JobCaps { open_each: 10, ..CAPS }).await.unwrap();
    assert!(matches!(&refused, JobCreated::TooMany(words) if words.contains("10 of your jobs")), "{refused:?}");
    let all = store.create(job("ann"), JobCaps { open: 40, ..CAPS }).await.unwrap();
    assert!(matches!(&all, JobCreated::TooMany(words) if words.contains("40 jobs")), "{all:?}");
    let filter = JobFilter { limit: 1_000, ..JobFilter::default() };
    let jobs = store.jobs(filter).await.unwrap();
    let of_ann = jobs.into_iter().find(|job| job.creator.principal == "ann" && job.channel == "http".into());
    change(&store, to(of_ann.unwrap().job_id, JobState::Cancelled)).await;
    let created = store.create(job("ann"), JobCaps { open_each: 10, open: 40, ..CAPS }).await.unwrap();
    assert!(matches!(created, JobCreated::New(_)), "{created:?}");
}

async fn a_burst_of_begins_passes_neither_cap(store: Store) {
    burst(&store, CAPS).await;
    let caps = JobCaps { at_work: 7, at_work_each: 2, ..CAPS };
    let begin = async |caps| {
        let mut beginning = JoinSet::new();
        for _ in 0..200 {
            let store = store.clone();
            beginning
                .spawn(async move { store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap() });
        }
        beginning.join_all().await.into_iter().flatten().collect::<Vec<_>>()
    };
    let begun = begin(caps).await;
    assert_eq!(begun.len(), 7);
    assert!(begun.iter().all(|job| (job.state, job.attempt) == (JobState::InProgress, 1)), "{begun:?}");
    let counts = by_creator(&store, &[JobState::InProgress]).await;
    assert!(counts.values().all(|count| *count <= 2), "{counts:?}");
    assert_eq!(begin(caps).await, []);
    assert_eq!(begin(JobCaps { at_work: 100, ..caps }).await.len(), 1, "the eighth: two of each");

    // One that is over gives its place at once, one that is stuck keeps it.
    change(&store, to(begun[0].job_id, JobState::Stuck)).await;
    assert_eq!(
        store.begin_next(JobCaps { at_work: 8, ..caps }, HeldJobs::default(), boot(), at(3_000)).await.unwrap(),
        None
    );
    change(&store, to(begun[1].job_id, JobState::Failed)).await;
    assert_eq!(begin(JobCaps { at_work: 8, ..caps }).await.len(), 1);
}

async fn the_oldest_job_of_those_who_have_a_place_begins(store: Store) {
    let first = create(&store, job("ann")).await;
    let second = create(&store, job("ann")).await;
    let other = create(&store, job("bob")).await;
    let caps = JobCaps { at_work: 5, at_work_each: 1, ..CAPS };
    let begin =
        async || store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().map(|job| job.job_id);
    assert_eq!([begin().await, begin().await, begin().await], [Some(first), Some(other), None]);
    change(&store, to(first, JobState::Completed)).await;
    assert_eq!([begin().await, begin().await], [Some(second), None]);
}

async fn a_crowd_without_a_place_does_not_stand_in_the_way(store: Store) {
    let working = at_work(&store, "ann").await;
    let mut creating = JoinSet::new();
    for _ in 0..2_000 {
        let store = store.clone();
        creating.spawn(async move { create(&store, job("ann")).await });
    }
    creating.join_all().await;
    let last = create(&store, job("bob")).await;
    let caps = JobCaps { at_work: 5, at_work_each: 1, ..CAPS };
    let begun = store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().map(|job| job.job_id);
    assert_eq!(begun, Some(last));
    assert_eq!(store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap(), None);
    change(&store, to(working.job_id, JobState::Completed)).await;
    assert!(store.begin_next(caps, HeldJobs::default(), boot(), at(2_000)).await.unwrap().is_some());
}

async fn a_held_job_does_not_begin_and_takes_no_place(store: Store) {
    put(&*store, routine("tick")).await;
    let claim = store.claim(routine_run("tick", "one"), 9).await.unwrap();
    let Claim::Claimed(tick) = claim else { panic!("not claimed: {claim:?}") };
    let ann = create(&store, job("ann")).await;
    let of_tick = create(&store, NewJob { routine_run: Some(tick.routine_run_id), ..job("bob") }).await;
    let bob = create(&store, job("bob")).await;
    let begin = async |creators: &[(Option<&str>, &str)], routines: &[&str]| {
        let creators = creators.iter().map(|(channel, id)| (channel.map(Into::into), (*id).to_owned())).collect();
        let held = HeldJobs { creators, routines: routines.iter().map(|name| (*name).to_owned()).collect() };
        store.begin_next(JobCaps { at_work: 9, ..CAPS }, held, boot(), at(2_000)).await.unwrap().map(|job| job.job_id)
    };
    assert_eq!(begin(&[(None, "ann"), (Some("http"), "bob")], &[]).await, None);
    assert_eq!(begin(&[(Some("http"), "ann")], &["tick"]).await, Some(bob));
    assert_eq!(begin(&[(None, "ann")], &["tock"]).await, Some(of_tick));
    assert_eq!(begin(&[(Some("telegram"), "ann")], &["tick"]).await, Some(ann));
}

/// A job that has come to this state.
async fn standing(store: &Store, state: JobState) -> JobRecord {
    use JobState::{Accepted, Cancelled, Completed, Failed, InProgress, Pending, Stuck, Submitted};
    let path: &[JobState] = match state {
        Pending => {
            let id = create(store, job("ann")).await;
            return store.job(id).await.unwrap().expect("just made");
        }
        InProgress => &[],
        Completed => &[Completed],
        Submitted => &[Completed, Submitted],
        Accepted => &[Completed, Submitted, Accepted],
        Failed => &[Failed],
        Stuck => &[Stuck],
        Cancelled => &[Cancelled],
    };
    let mut record = at_work(store, "ann").await;
    for state in path {
        record = change(store, to(record.job_id, *state)).await;
    }
    record
}

async fn a_job_moves_along_the_table_and_nowhere_else(store: Store) {
    for from in JobState::ALL.iter().copied() {
        for next in JobState::ALL.iter().copied() {
            // A pending one is begun by whoever counts places, before any other.
            let before = standing(&store, from).await;
            assert_eq!(before.state, from);
            let notice = outbound(&format!("{from:?} to {next:?}"), "told");
            let result = Some("42".to_owned());
            let wanted = JobChange { notice: Some(notice), result, ..to(before.job_id, next) };
            let told_before = facts(&*store, before.session.clone()).await.len();
            let changed = store.change(wanted).await.unwrap();
            let events = facts(&*store, before.session.clone()).await.split_off(told_before);
            if !from.may_become(next) || next == JobState::InProgress {
                assert_eq!(changed, JobChanged::Not(Box::new(before.clone())), "{from:?} to {next:?}");
                assert_eq!((store.job(before.job_id).await.unwrap(), events), (Some(before), Vec::new()));
            } else if from != next {
                let expected = JobRecord {
                    state: next,
                    detail: format!("it is {}", next.word()),
                    result: Some("42".into()),
                    changed_at: at(3_000),
                    ended_at: next.is_over().then_some(at(3_000)),
                    ..before.clone()
                };
                assert_eq!(changed, JobChanged::Now(Box::new(expected.clone())), "{from:?} to {next:?}");
                assert_eq!(store.job(before.job_id).await.unwrap(), Some(expected.clone()));
                let (job, attempt, why) = (before.job_id, before.attempt, expected.detail);
                assert_eq!(events, [EventKind::JobChanged { job, from: Some(from), to: next, attempt, detail: why }]);
            }
            let begun = store.job(before_id(&changed)).await.unwrap().expect("still there");
            if begun.state == JobState::Pending {
                change(&store, to(begun.job_id, JobState::Cancelled)).await;
            }
        }
    }
    assert_eq!(store.change(to(JobId::new(), JobState::Failed)).await.unwrap(), JobChanged::Unknown);
    assert_eq!(told(&*store).await.len(), 12, "as many as there are legal changes to another state");
}

fn before_id(changed: &JobChanged) -> JobId {
    match changed {
        JobChanged::Now(job) | JobChanged::Not(job) => job.job_id,
        JobChanged::Unknown => panic!("there is such a job"),
    }
}

async fn a_job_that_is_completed_twice_is_told_once(store: Store) {
    let job = at_work(&store, "ann").await.job_id;
    let completed = |text: &str, late| JobChange {
        notice: Some(outbound("c", text)),
        result: Some(text.into()),
        at: at(late),
        ..to(job, JobState::Completed)
    };
    let first = change(&store, completed("first", 3_000)).await;
    assert_eq!((first.result.as_deref(), first.ended_at), (Some("first"), Some(at(3_000))));
    assert_eq!(change(&store, completed("second", 4_000)).await, first);
    assert_eq!(told(&*store).await, ["first"]);
    assert_eq!(facts(&*store, job_session(job)).await.len(), 3, "made, begun, completed");
    let submitted = change(&store, JobChange { at: at(5_000), ..to(job, JobState::Submitted) }).await;
    assert_eq!((submitted.result.as_deref(), submitted.ended_at), (Some("first"), Some(at(3_000))));
}

async fn a_change_for_another_attempt_changes_nothing(store: Store) {
    let job = at_work(&store, "ann").await;
    let late = JobChange { attempt: Some(attempt(2)), ..to(job.job_id, JobState::Completed) };
    assert_eq!(store.change(late).await.unwrap(), JobChanged::Not(Box::new(job.clone())));
    let own = JobChange { attempt: Some(attempt(1)), ..to(job.job_id, JobState::Completed) };
    assert_eq!(change(&store, own).await.state, JobState::Completed);
}

/// The same attempt, which another daemon took over.
async fn an_attempt_is_changed_by_its_owner_alone(store: Store) {
    let job = at_work(&store, "ann").await;
    let by = |owner, state| JobChange { attempt: Some(JobAttempt { number: 1, owner }), ..to(job.job_id, state) };
    let (late, now) = (boot(), BootId::new());
    assert_eq!(store.reclaim(now).await.unwrap().len(), 1);
    for state in [JobState::Completed, JobState::Stuck, JobState::Failed, JobState::Cancelled] {
        let refused = store.change(by(late, state)).await.unwrap();
        assert!(matches!(&refused, JobChanged::Not(job) if job.state == JobState::InProgress), "{refused:?}");
    }
    change(&store, by(now, JobState::Stuck)).await;
    let refused = store.begin_again(job.job_id, late, at(4_000)).await.unwrap();
    assert!(matches!(&refused, JobChanged::Not(job) if job.state == JobState::Stuck), "{refused:?}");
    let again = store.begin_again(job.job_id, now, at(4_000)).await.unwrap();
    assert!(matches!(&again, JobChanged::Now(job) if job.attempt == 2), "{again:?}");

    // Its owner can still end it during an orderly shutdown, and the answer to a repetition is the same.
    store.suspend(now).await.unwrap();
    let own = JobChange { attempt: Some(JobAttempt { number: 2, owner: now }), ..to(job.job_id, JobState::Completed) };
    let ended = change(&store, own.clone()).await;
    assert_eq!(change(&store, own).await, ended);
    assert_eq!(store.reclaim(BootId::new()).await.unwrap(), []);

    // A person can change it, also while another node works on it.
    let job = at_work(&store, "ann").await.job_id;
    change(&store, to(job, JobState::Cancelled)).await;
}

async fn a_change_whose_notice_cannot_be_kept_is_not_made(store: Store) {
    let job = at_work(&store, "ann").await;
    let notice = outbound("c", "told before");
    store.enqueue(notice.clone()).await.unwrap();
    let refused = store.change(JobChange { notice: Some(notice), ..to(job.job_id, JobState::Failed) }).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(store.job(job.job_id).await.unwrap(), Some(job.clone()));
    assert_eq!(facts(&*store, job.session).await.len(), 2, "made and begun");
}

async fn a_stuck_job_begins_again_in_its_place(store: Store) {
    let job = at_work(&store, "ann").await;
    store.note_run(job.job_id, 1, RunId::new()).await.unwrap();
    let early = store.begin_again(job.job_id, boot(), at(4_000)).await.unwrap();
    assert!(matches!(early, JobChanged::Not(_)), "{early:?}");
    change(&store, to(job.job_id, JobState::Stuck)).await;
    let again = store.begin_again(job.job_id, boot(), at(4_000)).await.unwrap();
    let expected = JobRecord { attempt: 2, changed_at: at(4_000), ..job.clone() };
    assert_eq!(again, JobChanged::Now(Box::new(expected)), "with no run yet, and begun first when it was");
    assert_eq!(store.begin_again(JobId::new(), boot(), at(4_000)).await.unwrap(), JobChanged::Unknown);
    let last = facts(&*store, job.session).await.pop();
    let (from, why) = (Some(JobState::Stuck), String::new());
    assert_eq!(
        last,
        Some(EventKind::JobChanged { job: job.job_id, from, to: JobState::InProgress, attempt: 2, detail: why })
    );
}

async fn only_a_crash_counts_as_one_and_once(store: Store) {
    let job = at_work(&store, "ann").await.job_id;
    create(&store, crate::kit::job("ann")).await; // waits, and cannot crash
    let reclaim = async |boot| {
        let jobs = store.reclaim(boot).await.unwrap();
        jobs.into_iter().map(|job| (job.job_id, job.crashes)).collect::<Vec<_>>()
    };
    assert_eq!(reclaim(boot()).await, [(job, 0)], "it has begun it");
    let second = BootId::new();
    assert_eq!(reclaim(second).await, [(job, 1)]);
    assert_eq!(reclaim(second).await, [(job, 1)], "the same boot asks again");
    let third = BootId::new();
    assert_eq!(reclaim(third).await, [(job, 2)], "twice in a row");
    store.suspend(second).await.unwrap(); // no longer its job
    store.suspend(third).await.unwrap();
    assert_eq!(reclaim(BootId::new()).await, [(job, 2)], "an orderly end is no crash");
    assert_eq!(reclaim(BootId::new()).await, [(job, 3)], "and says nothing about the next");
    store.note_progress(job).await.unwrap();
    assert_eq!(reclaim(BootId::new()).await, [(job, 1)], "no longer in a row");
    change(&store, to(job, JobState::Stuck)).await;
    assert_eq!(reclaim(BootId::new()).await, [(job, 2)], "a stuck one has its place");
    change(&store, to(job, JobState::Failed)).await;
    assert_eq!(reclaim(BootId::new()).await, []);
    let unknown = store.note_progress(JobId::new()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
}

async fn jobs_are_listed_newest_first(store: Store) {
    let working = at_work(&store, "ann").await.job_id;
    let here = create(&store, job("ann")).await;
    let there = create(&store, NewJob { asked_in: "t".into(), ..job("ann") }).await;
    let list = async |filter: JobFilter| {
        let jobs = store.jobs(filter).await.unwrap();
        jobs.into_iter().map(|job| job.job_id).collect::<Vec<_>>()
    };
    assert_eq!(list(JobFilter::default()).await, [there, here, working]);
    assert_eq!(list(JobFilter { limit: 1, ..JobFilter::default() }).await, [there]);
    let asked_in = Some("s".into());
    assert_eq!(list(JobFilter { asked_in: asked_in.clone(), ..JobFilter::default() }).await, [here, working]);
    let states = vec![JobState::InProgress, JobState::Stuck];
    assert_eq!(list(JobFilter { states: states.clone(), ..JobFilter::default() }).await, [working]);
    assert_eq!(list(JobFilter { states, asked_in: Some("t".into()), limit: 5, ..JobFilter::default() }).await, []);
    let both = vec![JobState::Pending, JobState::InProgress];
    assert_eq!(list(JobFilter { states: both, ..JobFilter::default() }).await, [there, here, working]);
    // The same name in another channel is somebody else.
    let elsewhere = create(&store, NewJob { channel: "elsewhere".into(), ..job("ann") }).await;
    let bobs = create(&store, job("bob")).await;
    let of = |who: &str, channel: ChannelId| JobFilter { creator: Some((who.into(), channel)), ..JobFilter::default() };
    let channel = job("ann").channel;
    assert_eq!(list(of("ann", channel.clone())).await, [there, here, working]);
    assert_eq!(list(of("ann", "elsewhere".into())).await, [elsewhere]);
    assert_eq!(list(of("bob", channel.clone())).await, [bobs]);
    assert_eq!(list(of("carl", channel)).await, []);
}

async fn jobs_that_are_not_over_are_counted(store: Store) {
    assert_eq!(JobReader::numbers(&*store).await.unwrap(), JobNumbers::default());
    // The one that waits last: it would begin in the place of another.
    for state in JobState::ALL.iter().rev() {
        standing(&store, *state).await;
    }
    create(&store, NewJob { at: at(9_000), ..job("bob") }).await;
    let expected = JobNumbers {
        pending: 2,
        in_progress: 1,
        stuck: 1,
        oldest_pending_at: Some(job("ann").at), // the older of the two
    };
    assert_eq!(JobReader::numbers(&*store).await.unwrap(), expected);
}

async fn a_run_is_noted_for_its_attempt(store: Store) {
    let job = at_work(&store, "ann").await.job_id;
    let (first, late) = (RunId::new(), RunId::new());
    store.note_run(job, 1, first).await.unwrap();
    store.note_run(job, 2, late).await.unwrap();
    assert_eq!(store.job(job).await.unwrap().and_then(|job| job.run_id), Some(first));
    let unknown = store.note_run(JobId::new(), 1, late).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
}

async fn old_jobs_go_with_their_facts_and_others_stay(store: Store) {
    let over = at_work(&store, "ann").await;
    let lease = open(&*store, over.session.as_str()).await.lease;
    turn(&*store, &lease, "count").await;
    change(&store, to(over.job_id, JobState::Completed)).await;
    let cancelled = create(&store, job("ann")).await; // never had a session
    change(&store, to(cancelled, JobState::Cancelled)).await;
    let kept = create(&store, NewJob { at: at(2_500), ..job("ann") }).await; // its id is still recognised
    change(&store, to(kept, JobState::Cancelled)).await;
    let later = at_work(&store, "bob").await.job_id;
    change(&store, JobChange { at: at(9_000), ..to(later, JobState::Failed) }).await;
    let waiting = create(&store, job("ann")).await;

    let old = Retention {
        threads_before: Some(at(5_000)),
        events_before: None,
        ended_routine_runs_before: None,
        ephemeral_before: None,
        keys_before: at(2_400),
    };
    let expected = store.prunable(old).await.unwrap();
    assert_eq!((expected.jobs, expected.sessions, expected.routine_runs), (2, 1, 0));
    let mut removed = Removed::default();
    loop {
        let piece = store.prune(old, 3).await.unwrap();
        if piece.is_nothing() {
            break;
        }
        removed.add(piece);
    }
    assert_eq!((removed.jobs, removed.sessions, removed.threads), (2, 1, 1));
    let left = store.jobs(JobFilter::default()).await.unwrap();
    assert_eq!(left.iter().map(|job| job.job_id).collect::<Vec<_>>(), [waiting, later, kept]);
    for gone in [over.job_id, cancelled] {
        assert_eq!(facts(&*store, job_session(gone)).await, []);
    }
    assert_eq!(facts(&*store, job_session(kept)).await.len(), 2);
}
