//! Statements that fail inside a transaction of several jobs.

use belay_protocol::{JournalStore, LaneStore, Message, StoreHealth};

use super::*;
use crate::kit::*;

/// A trigger that raises an error at each message whose text has `poison`, until it has done so this often.
fn poison(database: &TestDatabase<'_>, code: &str, times: u32) {
    let trigger = format!(
        "create sequence public.raised;
         create function public.poison() returns trigger language plpgsql as $$ begin
             if new.body like '%poison%' and nextval('public.raised') <= {times} then
                 raise exception 'a trigger of the test' using errcode = '{code}';
             end if;
             return new;
         end $$;
         create trigger poison before insert on belay.messages for each row execute function public.poison()"
    );
    database.sql(&trigger).unwrap();
}

/// Ten messages of ten sessions, the fifth with `poison`: answered together, so that most share a transaction.
async fn ten(store: &SqlStore) -> Vec<bool> {
    let mut leases = Vec::new();
    for n in 0..10 {
        leases.push(open(store, &format!("s{n}")).await.lease);
    }
    let accepted = leases.iter().enumerate().map(|(n, lease)| {
        let text = if n == 4 { "poison" } else { "hi" };
        async move { store.accept(lease, input(text)).await }
    });
    let outcomes = futures(accepted).await;
    outcomes
        .into_iter()
        .inspect(|outcome| assert!(outcome.is_ok() || is_unavailable(outcome), "{outcome:?}"))
        .map(|outcome| outcome.is_ok())
        .collect()
}

/// Polls all futures together.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|cx| {
        for (one, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(output) = one.as_mut().poll(cx) {
                *done = Some(output);
            }
        }
        if all.iter().all(|(_, done)| done.is_some()) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().map(|(_, done)| done.unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_one_job_is_its_own_and_a_passing_one_is_nobodys() {
    for (code, times, fifth) in [
        ("23514", 1_000, false), // a constraint
        ("40P01", 1, true),      // a deadlock: the repetition succeeds
        ("40001", 1, true),
        ("53100", 1_000, false), // a full disk
        ("57014", 1_000, false), // a cancelled statement
        ("25006", 1, true),      // read-only: the next connection is not
        ("57P01", 1, true),      // the end of the session
    ] {
        let Some((store, database)) = postgres().await else { return };
        poison(&database, code, times);
        let mut expected = vec![true; 10];
        expected[4] = fifth;
        assert_eq!(ten(&store).await, expected, "{code}");
        let written = if fifth { "10|10" } else { "9|9" };
        let counts = "select count(*), count(distinct id) from belay.runs";
        assert_eq!(database.sql(counts).unwrap(), written, "{code}");
        store.ping().await.unwrap();
        store.close().await;
    }
}

/// It cannot be told any more, and must not stop all writing for ever. One that only time prevents is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_answered_and_that_the_database_refuses_harms_no_other() {
    for (code, times, kept) in
        [("23514", 1_000, false), ("54000", 1_000, false), ("53100", 4, true), ("40001", 1, true)]
    {
        let Some((store, database)) = postgres().await else { return };
        poison(&database, code, times);
        let lease = open(&store, "s").await.lease;
        let run = accept(&store, &lease, input("hi")).await;
        let other = open(&store, "t").await.lease;
        store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("before")])).await.unwrap();
        let answered = store.checkpoint(&lease, checkpoint(run, vec![Message::assistant("poison")])).await;
        let mut written = store.accept(&other, queued("hi")).await;
        while kept && is_unavailable(&written) {
            written = store.accept(&other, queued("hi")).await; // at once the disk is full, later it is not
        }
        written.unwrap();
        store.ping().await.unwrap();
        let opened = open(&store, "s").await;
        let expected = if kept { vec!["hi", "before", "poison"] } else { vec!["hi", "before"] };
        assert_eq!(texts(&opened.unfinished[0].messages), expected, "{code} {answered:?}");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_fails_its_job_after_the_limit_and_no_other() {
    let Some(Proxied { store, proxy, database }) = proxied(SHORT).await else { return };
    let server = shared().unwrap();
    let (held, free) = (open(&store, "held").await.lease, open(&store, "free").await.lease);
    store.ping().await.unwrap(); // the opening of a lane is answered before its commit, and its row cannot be locked yet
    let name = database.name().to_owned();
    let holder = std::thread::spawn(move || {
        let lock =
            "set application_name = 'holder'; begin; select 1 from belay.sessions where session = 'held' for update;
                    select 1 from belay.threads where session = 'held' for update; select pg_sleep(600)";
        server.sql(&name, lock)
    });
    let asleep = "select count(*) from pg_stat_activity where application_name = 'holder' and wait_event = 'PgSleep'";
    while database.sql(asleep).unwrap() != "1" {
        tokio::task::yield_now().await;
    }
    let (one, other) = tokio::join!(store.accept(&held, input("hi")), store.accept(&free, input("hi")));
    other.unwrap();
    let words = one.unwrap_err().to_string();
    assert!(words.contains("a third of store.statement_timeout_s"), "{words}");
    // The session that holds it ends: the job succeeds.
    let end = "select pg_terminate_backend(pid, 60000) from pg_stat_activity where application_name = 'holder'";
    database.sql(end).unwrap();
    assert!(holder.join().unwrap().is_err());
    accept(&store, &held, input("hi")).await;
    assert_eq!(database.sql("select count(*) from belay.runs").unwrap(), "2");
    store.close().await;
    drop(proxy);
}

/// The insert of the events is sent together with the commit. The server answers that commit with a rollback, and without an
/// error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_event_is_a_failed_commit_and_nothing_is_announced() {
    for (times, done) in [(1_000, false), (1, true)] {
        let Some((store, database)) = postgres().await else { return };
        let (lease, other) = (open(&store, "s").await.lease, open(&store, "other").await.lease);
        store.ping().await.unwrap(); // the openings are committed with it
        let trigger = format!(
            "create sequence public.raised;
             create function public.refuse() returns trigger language plpgsql as $$ begin
                 if new.session = 's' and nextval('public.raised') <= {times} then
                     raise exception 'a trigger of the test' using errcode = '23514';
                 end if;
                 return new;
             end $$;
             create trigger refuse before insert on belay.events for each row execute function public.refuse()"
        );
        database.sql(&trigger).unwrap();
        let mut tip = belay_protocol::EventLog::tip(&store);
        tip.mark_unchanged();
        let mut outbox = belay_protocol::Outbox::committed(&store);
        outbox.mark_unchanged();
        let outcome = store.accept(&lease, input("hi")).await;
        assert_eq!(outcome.is_ok(), done, "{outcome:?}");
        assert!(done || is_unavailable(&outcome), "{outcome:?}");
        assert_eq!(tip.has_changed().unwrap(), done);
        assert!(!outbox.has_changed().unwrap());
        let runs = "select count(*) from belay.runs";
        assert_eq!(database.sql(runs).unwrap(), u8::from(done).to_string());
        tip.mark_unchanged();
        accept(&store, &other, input("hi")).await;
        assert!(tip.has_changed().unwrap());
        let newest = database.sql("select max(seq) from belay.events").unwrap();
        assert_eq!(tip.borrow().0.to_string(), newest, "the number came with the commit");
        assert_eq!(database.sql(runs).unwrap(), (1 + u8::from(done)).to_string());
        store.close().await;
    }
}
