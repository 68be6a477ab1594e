//! Deliveries and money: operations of two writers against each other, and random ones of both.

use belay_protocol::{
    ApprovalState, ApprovalStore, Authority, CallCharge, CostKey, CostQuery, Decided, EventKind, Outbox, OutboxId,
    OutboxState, Purpose, RunId, SpendLedger, SpendReader,
};
use belay_store::SqlStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::two::{Two, against, two};
use crate::kit::*;

const ROUNDS: usize = 40;
pub(super) const DAY: i64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_begun_by_one_of_two_and_settled_by_one() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    for n in 0..ROUNDS {
        let message = outbound(&n.to_string(), "hi");
        one.enqueue(message.clone()).await.unwrap();
        let begin =
            |store: SqlStore| async move { store.mark(message.id, OutboxState::Sending, at(0), None).await.is_ok() };
        let (a, b) = against(begin(one.clone()), begin(other.clone())).await;
        assert!(a != b, "round {n}: it is sent once");
        let (a, b) =
            against(one.settle_interrupted(at(0), None, &[]), other.settle_interrupted(at(0), None, &[])).await;
        assert_eq!(a.unwrap().len() + b.unwrap().len(), 1, "round {n}: it is reported once");
    }
}

/// The money of the day, and its tokens and requests.
pub(super) async fn sums(store: &SqlStore) -> (u64, u64, u64) {
    let query = CostQuery { by: CostKey::Day, first_day: DAY, last_day: DAY, only: None, limit: 10 };
    let day = store.costs(query).await.unwrap().pop().unwrap_or_default();
    (day.cost_micro_usd, day.input_tokens, day.calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_is_settled_once_by_two() {
    let Some(Two { one, other, database: _database, .. }) = two().await else { return };
    for n in 1..=ROUNDS as u64 {
        let reserved = one.reserve(reservation(RunId::new(), Purpose::Chat, DAY, 100)).await.unwrap();
        let settle = |store: SqlStore, model: &str| {
            let charge = CallCharge { model: Some(model.into()), ..charge(7) };
            async move {
                store.settle(reserved, charge).await.unwrap();
                store.forget_grants(&"s".into()).await.unwrap(); // committed, and so is the settlement
            }
        };
        against(settle(one.clone(), "a"), settle(other.clone(), "z")).await;
        assert_eq!(sums(&one).await, (7 * n, 100 * n, n), "round {n}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Reserve(u64),
    Settle(usize, u64),
    Mark(usize, u8),
    Interrupted,
    Decide(usize, bool),
    Withdraw(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (1..100u64).prop_map(Op::Reserve),
        (0..4usize, 1..100u64).prop_map(|(which, money)| Op::Settle(which, money)),
        (0..4usize, 0..4u8).prop_map(|(which, state)| Op::Mark(which, state)),
        Just(Op::Interrupted),
        (0..4usize, any::<bool>()).prop_map(|(which, yes)| Op::Decide(which, yes)),
        (0..4usize).prop_map(Op::Withdraw),
    ]
}

/// The rows that both writers work on.
struct Shared {
    reservations: Vec<u64>,
    messages: Vec<OutboxId>,
    approvals: Vec<belay_protocol::ApprovalId>,
}

/// What the operations of one writer have done.
#[derive(Default)]
struct Done {
    reserved: u64,
    begun: Vec<OutboxId>,
    ended: Vec<OutboxId>,
    again: Vec<OutboxId>,
    decided: Vec<belay_protocol::ApprovalId>,
}

async fn act(store: &SqlStore, shared: &Shared, ops: &[Op]) -> Done {
    use belay_protocol::ChildQuestionStore;
    let mut done = Done::default();
    for op in ops {
        match *op {
            Op::Reserve(money) => {
                store.reserve(reservation(RunId::new(), Purpose::Chat, DAY, money)).await.unwrap();
                done.reserved += money;
            }
            Op::Settle(which, money) => store.settle(shared.reservations[which], charge(money)).await.unwrap(),
            Op::Mark(which, state) => {
                let id = shared.messages[which];
                let (state, list) = match state {
                    0 | 1 => (OutboxState::Sending, &mut done.begun),
                    2 => (OutboxState::Sent, &mut done.ended),
                    _ => (OutboxState::Waiting { until: at(1), pieces_sent: 0, unsure_since: None }, &mut done.again),
                };
                if store.mark(id, state, at(0), None).await.is_ok() {
                    list.push(id);
                }
            }
            Op::Interrupted => {
                let settled = store.settle_interrupted(at(0), None, &[]).await.unwrap();
                done.ended.extend(settled.iter().map(|row| row.message.id));
            }
            Op::Decide(which, yes) => {
                let state = if yes { ApprovalState::Approved } else { ApprovalState::Denied };
                let decided = store
                    .decide(shared.approvals[which], state, yes.then_some(Authority::Conversation), "ann", at(1_800))
                    .await
                    .unwrap();
                if let Decided::Now(approval) = decided {
                    done.decided.push(approval.id);
                }
            }
            Op::Withdraw(which) => drop(store.withdraw(shared.approvals[which], at(1_800)).await.unwrap()),
        }
    }
    store.forget_grants(&"s".into()).await.unwrap(); // committed, and so is what was answered before
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_of_two_writers_keep_the_invariants() {
    let Some(Two { one, other, database, .. }) = two().await else { return };
    let lease = open(&one, "s").await.lease;
    let mut runner = TestRunner::default();
    let ops = prop::collection::vec(op(), 1..20);
    let (mut reserved, mut messages) = (0, Vec::new());
    for round in 0..30 {
        let mut shared = Shared { reservations: Vec::new(), messages: Vec::new(), approvals: Vec::new() };
        for n in 0..4 {
            let reservation = reservation(RunId::new(), Purpose::Chat, DAY, 50);
            shared.reservations.push(one.reserve(reservation).await.unwrap());
            let message = outbound(&format!("{round}.{n}"), "hi");
            shared.messages.push(message.id);
            one.enqueue(message).await.unwrap();
            let run = accept(&one, &lease, input("hi")).await;
            shared.approvals.push(pause(&one, &lease, run).await.id);
        }
        let [a, b] = [0, 1].map(|_| ops.new_tree(&mut runner).unwrap().current());
        let (first, second) = against(act(&one, &shared, &a), act(&other, &shared, &b)).await;
        let plan = format!("round {round}: {a:?} against {b:?}");

        let of = |sql: &str| database.sql(sql).unwrap().trim().to_owned();
        reserved += first.reserved + second.reserved + 200;
        let (day, calls) = (sums(&one).await, of("SELECT SUM(settled) FROM reservations"));
        assert_eq!(day.0.to_string(), of("SELECT SUM(micro_usd) FROM reservations"), "{plan}");
        assert_eq!((day.2.to_string(), (day.1 / 100).to_string()), (calls.clone(), calls), "{plan}");
        assert!(day.0 <= reserved + 100 * (round + 1) * 40, "{plan}");

        let count = |lists: [&Vec<OutboxId>; 2], id| lists.into_iter().flatten().filter(|other| **other == id).count();
        for id in &shared.messages {
            let [begun, ended, again] = [
                count([&first.begun, &second.begun], *id),
                count([&first.ended, &second.ended], *id),
                count([&first.again, &second.again], *id),
            ];
            assert!(ended <= 1 && begun <= again + 1, "{id} begun {begun}, again {again}, ended {ended}; {plan}");
        }
        messages.extend(shared.messages);

        for id in &shared.approvals {
            let decided = first.decided.iter().chain(&second.decided).filter(|other| *other == id).count();
            let approval = one.approval(*id).await.unwrap().unwrap();
            let states = kinds(&one, approval.run_id).await.into_iter().filter_map(|kind| match kind {
                EventKind::ApprovalResolved { state, .. } => Some(state.to_string()),
                _ => None,
            });
            let states: Vec<String> = states.collect();
            assert!(decided <= 1 && states.len() <= decided + 1, "{id}: {states:?}; {plan}");
            let last = states.last().map_or("waiting", String::as_str);
            assert_eq!(last, approval.state.word(), "{plan}");
        }
    }
    let grants = database.sql("SELECT COUNT(*) FROM grants").unwrap();
    assert_eq!(grants.trim(), "0", "each round ends with the deletion of the grants");
}
