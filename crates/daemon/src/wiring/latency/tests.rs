use super::*;

fn text(fast: u64, slow: u64) -> String {
    let line = |outcome: &str, le: &str, count| {
        format!("{MODEL_DURATION}_bucket{{outcome=\"{outcome}\",le=\"{le}\"}} {count}\n")
    };
    let of = |outcome| {
        [line(outcome, "1", fast), line(outcome, "5", fast + slow), line(outcome, "+Inf", fast + slow)].concat()
    };
    format!("# HELP x\n{}{}{MODEL_DURATION}_sum 3\n", of("ok"), of("late"))
}

#[tokio::test(start_paused = true)]
async fn each_period_has_the_values_that_were_measured_in_it() {
    let mut day = Day::new();
    assert!(!day.is_due());
    tokio::time::advance(EVERY).await;
    assert!(day.is_due());
    day.keep(&text(5, 0));
    let now = UnixMillis(1_000 * EVERY.as_millis() as i64);
    let all = day.latencies(&text(5, 10), now);
    let model = all.iter().find(|latency| latency.kind == "model_call").unwrap();
    let first =
        LatencyPeriod { at: UnixMillis(now.0 - EVERY.as_millis() as i64), count: 10, p50_ms: 500.0, p95_ms: 950.0 };
    let second = LatencyPeriod { at: now, count: 20, p50_ms: 3000.0, p95_ms: 4800.0 };
    assert_eq!(model.periods, [first, second]);
    assert!(all.iter().all(|latency| latency.kind == "model_call" || latency.periods.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_day_is_kept() {
    let mut day = Day::new();
    for count in 1..=100 {
        tokio::time::advance(EVERY).await;
        day.keep(&text(count, 0));
    }
    assert_eq!(day.0.len(), KEPT + 1);
    assert_eq!(day.latencies(&text(100, 0), UnixMillis(0))[1].periods.len(), KEPT, "nothing since the newest one");
}
