use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use belay_protocol::Drawn;
use futures_util::future::join_all;

use super::*;

/// A budget of a day.
type Budget = (i64, Option<Purpose>);

/// Budgets in memory, by the rules of the store.
#[derive(Default)]
struct Budgets {
    granted: Mutex<BTreeMap<Budget, BTreeMap<BootId, u64>>>,
    draws: AtomicU64,
    /// How the next requests to give back end.
    outages: Mutex<VecDeque<Outage>>,
}

/// A request that fails.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// Nothing was written.
    Before,
    /// The answer was lost.
    After,
}

impl Budgets {
    /// The money in all slices of a budget.
    fn total(&self, budget: Budget) -> u64 {
        self.granted.lock().unwrap().get(&budget).map_or(0, |of| of.values().sum())
    }
}

#[async_trait]
impl BudgetSlices for Budgets {
    async fn draw(&self, draw: Draw) -> Result<Drawn, StoreError> {
        tokio::task::yield_now().await;
        self.draws.fetch_add(1, Ordering::Relaxed);
        let budget = (draw.utc_day, draw.budget);
        let room = draw.limit.saturating_sub(self.total(budget));
        let wanted = if room <= draw.limit / 10 { draw.need } else { draw.want };
        let granted = if room < draw.least { 0 } else { wanted.min(room) };
        *self.granted.lock().unwrap().entry(budget).or_default().entry(draw.boot).or_default() += granted;
        Ok(Drawn { granted, left: room - granted })
    }

    async fn give_back(&self, day: i64, budget: Option<Purpose>, boot: BootId, keep: u64) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        let outage = self.outages.lock().unwrap().pop_front();
        let lost = || StoreError::Unavailable("the database is away".into());
        if matches!(outage, Some(Outage::Before)) {
            return Err(lost());
        }
        let mut granted = self.granted.lock().unwrap();
        let slice = granted.entry((day, budget)).or_default().entry(boot).or_default();
        *slice = keep.min(*slice);
        outage.map_or(Ok(()), |_| Err(lost()))
    }

    async fn reconcile(&self, _: i64) -> Result<u64, StoreError> {
        Ok(0)
    }
}

fn node(budgets: &Arc<Budgets>) -> Slices {
    Slices::new(SliceSource { slices: budgets.clone(), boot: BootId::new() })
}

fn call(each: u64, wanted: u32) -> Call {
    Call { each, wanted, priced: true }
}

#[tokio::test]
async fn calls_of_eight_nodes_never_pass_a_limit_and_use_nearly_all_of_it() {
    for seed in 1..=20u64 {
        let budgets = Arc::new(Budgets::default());
        let limits = [(None, 10_000), (Some(Purpose::Job), 4_000)];
        let spent = AtomicU64::new(0);
        let nodes: Vec<Slices> = (0..8).map(|_| node(&budgets)).collect();
        join_all(nodes.iter().enumerate().map(async |(n, node)| {
            let mut random = seed * 1_000 + n as u64;
            for _ in 0..100 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (each, wanted) = (1 + (random >> 33) % 60, 1 + (random >> 50) as u32 % 3);
                let Ok(requests) = node.pay(1, &limits, call(each, wanted)).await else { continue };
                let reserved = each * u64::from(requests);
                let cost = reserved * ((random >> 20) % 101) / 100;
                node.replace(1, &[None, Some(Purpose::Job)], reserved, cost);
                spent.fetch_add(cost, Ordering::Relaxed);
            }
        }))
        .await;
        let spent = spent.into_inner();
        assert!(spent <= 4_000 && spent > 3_200, "{seed}: {spent}");
        for node in &nodes {
            node.give_back().await.unwrap();
            node.give_back().await.unwrap(); // nothing is left
        }
        for budget in [None, Some(Purpose::Job)] {
            assert_eq!(budgets.total((1, budget)), spent, "{seed} {budget:?}");
        }
    }
}

#[tokio::test]
async fn a_slice_pays_many_calls_with_one_draw() {
    let budgets = Arc::new(Budgets::default());
    let node = node(&budgets);
    for _ in 0..100 {
        assert_eq!(node.pay(1, &[(None, 6_400)], call(1, 1)).await.unwrap(), 1);
    }
    assert_eq!(budgets.draws.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_call_sends_fewer_requests_when_the_budget_ends_and_is_refused_after_it() {
    let node = node(&Arc::new(Budgets::default()));
    let limits = [(None, 100)];
    assert_eq!(node.pay(1, &limits, call(30, 5)).await.unwrap(), 3);
    let refused = node.pay(1, &limits, call(30, 1)).await;
    let shortage = Shortage { budget: None, spent_micro_usd: 90, limit_micro_usd: 100, needed_micro_usd: 30 };
    assert!(matches!(&refused, Err(Unpaid::Limit(found)) if *found == shortage), "{refused:?}");
    assert!(node.has_room(1, None));
    assert_eq!(node.pay(1, &limits, call(10, 1)).await.unwrap(), 1);
    assert!(!node.has_room(1, None));
    assert!(node.pay(1, &limits, call(0, 1)).await.is_err(), "nor a free one");
    assert_eq!(node.pay(1, &limits, Call { priced: false, ..call(0, 1) }).await.unwrap(), 1);
    assert_eq!(node.pay(2, &limits, call(100, 1)).await.unwrap(), 1, "the next day");
    assert!(matches!(node.pay(1, &limits, call(1, 1)).await, Err(Unpaid::Midnight)));
}

/// Runs the node's upkeep for this time.
async fn keep(node: &Slices, time: Duration) {
    let _ = tokio::time::timeout(time, node.return_idle()).await; // it never returns
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_slice_is_given_back_a_minute_after_its_last_call_and_the_other_node_spends_it() {
    let budgets = Arc::new(Budgets::default());
    let (idle, other) = (node(&budgets), node(&budgets));
    let limits = [(None, 640)];
    assert_eq!(idle.pay(1, &limits, call(8, 60)).await.unwrap(), 60);
    keep(&idle, IDLE - SECOND).await;
    idle.replace(1, &[None], 480, 100); // the call was slow and cheap
    keep(&idle, IDLE - SECOND).await;
    assert_eq!(budgets.total((1, None)), 480, "its minute is not over");
    let refused = other.pay(1, &limits, call(200, 3)).await;
    assert!(matches!(&refused, Err(Unpaid::Limit(found)) if found.spent_micro_usd == 480), "{refused:?}");
    keep(&idle, 2 * SECOND).await;
    assert_eq!(budgets.total((1, None)), 100);
    assert_eq!(other.pay(1, &limits, call(180, 3)).await.unwrap(), 3, "all but what was spent");
    assert!(idle.pay(1, &limits, call(1, 1)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn money_is_given_back_once_after_an_outage_in_which_the_outcome_was_unknown() {
    for outages in [vec![Outage::Before; 3], vec![Outage::After; 3], vec![Outage::Before, Outage::After]] {
        let budgets = Arc::new(Budgets::default());
        let node = node(&budgets);
        let limits = [(None, 6_400), (Some(Purpose::Job), 640)];
        for _ in 0..5 {
            assert_eq!(node.pay(1, &limits, call(10, 1)).await.unwrap(), 1);
        }
        budgets.outages.lock().unwrap().extend(outages.iter().copied());
        keep(&node, IDLE + SECOND).await;
        // The next call draws while the outcome is unknown.
        let paid = loop {
            match node.pay(1, &limits, call(30, 1)).await {
                Err(Unpaid::Store(_)) => {}
                paid => break paid,
            }
        };
        assert_eq!(paid.unwrap(), 1, "{outages:?}");
        keep(&node, 2 * IDLE).await;
        for (budget, limit) in limits {
            assert_eq!(budgets.total((1, budget)), 80, "{outages:?}: the spent money, and nothing else, of {limit}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_draw_whose_call_was_dropped_is_given_back() {
    let budgets = Arc::new(Budgets::default());
    let node = node(&budgets);
    let limits = [(None, 6_400)];
    assert_eq!(node.pay(1, &limits, call(100, 1)).await.unwrap(), 1);
    let mut dropped = Box::pin(node.pay(1, &limits, call(50, 1)));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    *budgets.granted.lock().unwrap().get_mut(&(1, None)).unwrap().get_mut(&node.boot()).unwrap() += 50;
    keep(&node, 2 * IDLE).await;
    assert_eq!(budgets.total((1, None)), 100);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_knows_of_no_money_looks_again_after_a_minute() {
    let budgets = Arc::new(Budgets::default());
    let (poor, other) = (node(&budgets), node(&budgets));
    let limits = [(None, 100)];
    assert_eq!(other.pay(1, &limits, call(100, 1)).await.unwrap(), 1);
    assert!(poor.pay(1, &limits, call(1, 1)).await.is_err());
    assert!(!poor.has_room(1, None));
    other.replace(1, &[None], 100, 10);
    keep(&other, IDLE + SECOND).await;
    assert!(poor.has_room(1, None));
    assert_eq!(poor.pay(1, &limits, call(90, 1)).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn money_that_could_not_be_given_back_pays_the_next_call() {
    let budgets = Arc::new(Budgets::default());
    let node = node(&budgets);
    let limits = [(None, 100)];
    assert_eq!(node.pay(1, &limits, call(100, 1)).await.unwrap(), 1);
    node.replace(1, &[None], 100, 10);
    budgets.outages.lock().unwrap().push_back(Outage::Before);
    keep(&node, IDLE + SECOND).await;
    assert_eq!(budgets.total((1, None)), 100, "the store has failed");
    assert_eq!(node.pay(1, &limits, call(90, 1)).await.unwrap(), 1);
    assert_eq!(budgets.total((1, None)), 100);
}
