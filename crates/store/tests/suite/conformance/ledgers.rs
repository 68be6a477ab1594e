//! Money.

use belay_protocol::{
    CallCharge, CostKey, CostQuery, CostRow, FinishedRun, NewInput, Purpose, RunId, SessionKey, StoreError, UnixMillis,
};

use crate::kit::*;

super::for_every_store! {
    a_day_costs_what_is_settled_and_what_is_reserved
    money_is_kept_apart_by_what_it_goes_for
    amounts_are_bounded_and_sums_do_not_overflow
    an_unknown_reservation_cannot_be_settled
    a_session_costs_what_its_runs_cost
    costs_are_summed_by_day_person_model_and_purpose
}

async fn a_day_costs_what_is_settled_and_what_is_reserved(store: Shared) {
    let run = RunId::new();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 0);
    let first = store.reserve(reservation(run, Purpose::Chat, 20_000, 100)).await.unwrap();
    let second = store.reserve(reservation(run, Purpose::Chat, 20_000, 50)).await.unwrap();
    store.reserve(reservation(run, Purpose::Chat, 20_001, 7)).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(store.spent(20_000).await.unwrap().total(), 150);
    store.settle(first, charge(30)).await.unwrap();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 80, "a settlement counts at once");
    store.settle(second, charge(90)).await.unwrap();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 120, "a call may cost more than was reserved");
    store.settle(second, charge(90)).await.unwrap();
    assert_eq!(store.spent(20_000).await.unwrap().total(), 120, "settling again changes nothing");
    assert_eq!(store.spent(20_001).await.unwrap().total(), 7);
}

async fn money_is_kept_apart_by_what_it_goes_for(store: Shared) {
    let run = RunId::new();
    let job = store.reserve(reservation(run, Purpose::Job, 5, 100)).await.unwrap();
    for (purpose, day, micro_usd) in [(Purpose::Routine, 5, 30), (Purpose::Heartbeat, 6, 1), (Purpose::Job, 5, 7)] {
        store.reserve(reservation(run, purpose, day, micro_usd)).await.unwrap();
    }
    store.settle(job, charge(40)).await.unwrap();
    let spent = store.spent(5).await.unwrap();
    assert_eq!(spent.each().collect::<Vec<_>>(), [(Purpose::Job, 47), (Purpose::Routine, 30)]);
    assert_eq!(store.spent(6).await.unwrap().of(Purpose::Heartbeat), 1);
}

async fn amounts_are_bounded_and_sums_do_not_overflow(store: Shared) {
    for _ in 0..3 {
        store.reserve(reservation(RunId::new(), Purpose::Chat, 1, u64::MAX)).await.unwrap();
    }
    assert_eq!(store.spent(1).await.unwrap().total(), 3_000_000_000_000_000);
}

async fn an_unknown_reservation_cannot_be_settled(store: Shared) {
    let known = store.reserve(reservation(RunId::new(), Purpose::Chat, 1, 5)).await.unwrap();
    for unknown in [0, known + 1, u64::MAX] {
        let outcome = store.settle(unknown, charge(1)).await;
        // PostgreSQL may answer before it has looked for the reservation.
        assert!(
            matches!(outcome, Ok(()) | Err(StoreError::NotFound(_) | StoreError::Unavailable(_))),
            "{unknown}: {outcome:?}"
        );
        store.settle(known, charge(3)).await.unwrap();
        assert_eq!(store.spent(1).await.unwrap().total(), 3, "{unknown}: {outcome:?}");
    }
}

async fn costs_are_summed_by_day_person_model_and_purpose(store: Shared) {
    const DAY: i64 = 86_400_000;
    // Two runs of days 1 and 2 that cost nothing, and one that has cost something, whose calls are in the ledger.
    let lease = open(&*store, "s").await.lease;
    let mut of_ledger = RunId::new();
    for (n, (day, cost)) in [(1, 0), (2, 0), (2, 7)].into_iter().enumerate() {
        let run_id = RunId::from(uuid::Uuid::from_u128((u128::try_from(day * DAY).unwrap() << 80) | n as u128));
        let run = accept(&*store, &lease, NewInput { run_id, at: UnixMillis(day * DAY), ..queued("hello") }).await;
        let free = FinishedRun { cost_micro_usd: cost, messages: Vec::new(), ..finished(run, "done") };
        store.finish_runs(&lease, vec![free]).await.unwrap();
        of_ledger = run;
    }
    let first = store.reserve(reservation(of_ledger, Purpose::Chat, 2, 500)).await.unwrap();
    for micro_usd in [9, 7] {
        store.settle(first, CallCharge { requests: 2, ..charge(micro_usd) }).await.unwrap(); // its usage counts once
    }
    let other = store.reserve(reservation(RunId::new(), Purpose::Title, 3, 500)).await.unwrap();
    store.settle(other, CallCharge { model: Some("other".into()), ..charge(90) }).await.unwrap();
    let unused = store.reserve(reservation(RunId::new(), Purpose::Job, 3, 500)).await.unwrap();
    store.settle(unused, CallCharge::default()).await.unwrap();
    store.reserve(reservation(RunId::new(), Purpose::Job, 4, 40)).await.unwrap(); // still open

    let query = CostQuery { by: CostKey::Day, first_day: 1, last_day: 3, only: None, limit: 10 };
    let eve = Some(("http".into(), "eve".to_owned()));
    let sender = Some(("http".into(), input("x").asker.principal));
    let person = format!("http:{}", input("x").asker.principal);
    for (query, expected) in [
        (query.clone(), vec!["1970-01-04 90 100 10 1", "1970-01-03 7 110 15 3", "1970-01-02 0 10 5 1"]),
        (
            CostQuery { first_day: 3, last_day: 9, ..query.clone() },
            vec!["1970-01-05 40 0 0 0", "1970-01-04 90 100 10 1"],
        ),
        (CostQuery { by: CostKey::Purpose, ..query.clone() }, vec!["title 90 100 10 1", "chat 7 120 20 4"]),
        (
            CostQuery { by: CostKey::DayPurpose, ..query.clone() },
            vec!["1970-01-04 title 90 100 10 1", "1970-01-03 chat 7 110 15 3", "1970-01-02 chat 0 10 5 1"],
        ),
        (CostQuery { by: CostKey::Model, ..query.clone() }, vec!["other 90 100 10 1", "m 7 100 10 2", " 0 20 10 2"]),
        (CostQuery { by: CostKey::Person, ..query.clone() }, vec![" 90 100 10 1", "PERSON 7 120 20 4"]),
        (CostQuery { by: CostKey::Person, limit: 1, ..query.clone() }, vec![" 90 100 10 1"]),
        (CostQuery { by: CostKey::Model, only: sender, ..query.clone() }, vec!["m 7 100 10 2", " 0 20 10 2"]),
        (CostQuery { only: eve, ..query.clone() }, vec![]),
        (CostQuery { first_day: 8, last_day: i64::MAX, ..query.clone() }, vec![]),
    ] {
        let rows = store.costs(query.clone()).await.unwrap();
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                let CostRow { key, cost_micro_usd, input_tokens, output_tokens, calls, .. } = row;
                format!("{key} {cost_micro_usd} {input_tokens} {output_tokens} {calls}")
            })
            .collect();
        let expected: Vec<_> = expected.iter().map(|row| row.replace("PERSON", &person)).collect();
        assert_eq!(rows, expected, "{query:?}");
    }
}

async fn a_session_costs_what_its_runs_cost(store: Shared) {
    assert_eq!(store.session_spent(&SessionKey::new("s")).await.unwrap(), 0);
    for session in ["s", "s", "t"] {
        let lease = open(&*store, session).await.lease;
        let run = accept(&*store, &lease, input("hi")).await;
        store.finish_runs(&lease, vec![finished(run, "done")]).await.unwrap();
    }
    assert_eq!(store.session_spent(&SessionKey::new("s")).await.unwrap(), 14, "two runs of 7");
}
