//! Tests which times fire after a late tick, a pause, and a jump of the clock.

use belay_protocol::{Misfire, UnixMillis};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::misfire::{Due, GRACE, MAX_ON_TIME, due};
use crate::schedule::Schedule;

const POLICIES: [Misfire; 3] = [Misfire::Skip, Misfire::Once, all(3)];

const fn all(most: u32) -> Misfire {
    Misfire::All(most)
}

/// An instant of 22 November 2026, or of another day of that month: `09:30`, `09:30:15`, `23 09:30`.
fn at(text: &str) -> UnixMillis {
    let (day, time) = text.split_once(' ').unwrap_or(("22", text));
    let seconds = if time.len() == 5 { ":00" } else { "" };
    let text = format!("2026-11-{day}T{time}{seconds}Z");
    UnixMillis(text.parse::<Timestamp>().unwrap().as_millisecond())
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, "UTC", at("01 00:00")).unwrap()
}

#[test]
fn the_policy_decides_about_missed_times_and_a_late_tick_is_no_miss() {
    let none: &[&str] = &[];
    for (policy, claimed, now, fire, settled, skipped) in [
        // Nothing is due yet, or nothing is due any more.
        (Misfire::Once, "08:00", "08:59:59", none, "08:00", false),
        (Misfire::Skip, "09:00", "09:00:30", none, "09:00", false),
        // On time, at both ends of the grace.
        (Misfire::Skip, "08:00", "09:00", &["09:00"], "09:00", false),
        (Misfire::Once, "08:00", "09:00:15", &["09:00"], "09:00", false),
        (Misfire::Skip, "08:00", "09:01:00", &["09:00"], "09:00", false),
        // One is missed.
        (Misfire::Skip, "08:00", "09:01:01", none, "09:00", true),
        (Misfire::Once, "08:00", "09:01:01", &["09:00"], "09:00", false),
        (all(3), "08:00", "09:01:01", &["09:00"], "09:00", false),
        // Many are missed, none is on time.
        (Misfire::Skip, "03:00", "09:30", none, "09:00", true),
        (Misfire::Once, "03:00", "09:30", &["09:00"], "09:00", true),
        (all(3), "03:00", "09:30", &["07:00", "08:00", "09:00"], "09:00", true),
        (all(6), "03:00", "09:30", &["04:00", "05:00", "06:00", "07:00", "08:00", "09:00"], "09:00", false),
        (all(200), "07:00", "09:30", &["08:00", "09:00"], "09:00", false),
        // Many are missed, and one is on time.
        (Misfire::Skip, "03:00", "09:00:20", &["09:00"], "09:00", true),
        (Misfire::Once, "03:00", "09:00:20", &["09:00"], "09:00", true),
        (all(2), "03:00", "09:00:20", &["07:00", "08:00", "09:00"], "09:00", true),
    ] {
        let hourly = schedule("@hourly");
        let expected = Due {
            fire: fire.iter().map(|time| at(time)).collect(),
            claimed: at(settled),
            skipped,
            next: hourly.next_after(at(settled)),
        };
        let found = due(&hourly, policy, GRACE, at(claimed), at(now));
        assert_eq!(found, expected, "{policy:?}, claimed {claimed}, now {now}");
        assert!(found.next.is_some_and(|next| next > at(now)), "{policy:?}, claimed {claimed}, now {now}");
    }
}

#[test]
fn times_denser_than_the_ticks_all_fire_under_every_policy() {
    let dense = schedule("every 10s from 2026-11-22T08:00Z");
    for policy in POLICIES {
        let found = due(&dense, policy, GRACE, at("09:00"), at("09:00:35"));
        let expected = ["09:00:10", "09:00:20", "09:00:30"].map(at);
        assert_eq!((found.fire.as_slice(), found.skipped), (&expected[..], false), "{policy:?}");
    }
}

#[test]
fn a_clock_that_jumps_forward_makes_misfires() {
    let hourly = schedule("@hourly");
    for (now, once) in [("10:00:05", "10:00"), ("10:30", "10:00"), ("23 09:10", "23 09:00"), ("29 09:10", "29 09:00")] {
        let found = due(&hourly, Misfire::Once, GRACE, at("09:00"), at(now));
        assert_eq!(found.fire, [at(once)], "{now}");
        let again = due(&hourly, Misfire::Once, GRACE, found.claimed, at(now));
        assert_eq!((again.fire.len(), again.next), (0, found.next), "{now}");
    }
}

#[test]
fn a_clock_that_jumps_back_fires_nothing_twice() {
    let hourly = schedule("@hourly");
    for policy in POLICIES {
        for now in ["08:30", "08:00", "03:00:10", "21 12:00", "01 00:00"] {
            let found = due(&hourly, policy, GRACE, at("09:00"), at(now));
            let expected = Due { fire: vec![], claimed: at("09:00"), skipped: false, next: Some(at("10:00")) };
            assert_eq!(found, expected, "{policy:?} at {now}");
        }
    }
}

#[test]
fn a_date_that_was_missed_fires_once_or_is_passed_over() {
    let once = schedule("at 2026-11-22T09:00Z");
    for (policy, fire, skipped) in [(Misfire::Skip, vec![], true), (Misfire::Once, vec![at("09:00")], false)] {
        let found = due(&once, policy, GRACE, at("08:00"), at("23 12:00"));
        assert_eq!(found, Due { fire, claimed: at("09:00"), skipped, next: None });
    }
}

#[test]
fn a_month_of_missed_seconds_is_reckoned_by_halving() {
    let seconds = schedule("* * * * * *");
    let found = due(&seconds, all(2), GRACE, at("01 00:00"), at("30 00:00"));
    assert_eq!(found.fire.first(), Some(&at("29 23:58:58")));
    assert_eq!(found.fire.len(), 2 + 61);
    let long = due(&seconds, Misfire::Skip, GRACE * 5, at("01 00:00"), at("30 00:00"));
    assert_eq!(long.fire.len(), MAX_ON_TIME);
    assert_eq!(long.next, Some(UnixMillis(long.claimed.0 + 1000)));
}

#[test]
fn policies_are_written_as_people_write_them() {
    for (policy, text) in [(Misfire::Skip, "\"skip\""), (Misfire::Once, "\"once\""), (all(5), "{\"all\":5}")] {
        assert_eq!(serde_json::to_string(&policy).unwrap(), text);
        assert_eq!(serde_json::from_str::<Misfire>(text).unwrap(), policy);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A clock that runs and jumps arbitrarily. Each tick computes, claims and fires.
    #[test]
    fn however_the_clock_jumps_no_time_fires_twice(
        text in prop::sample::select(vec!["@hourly", "*/5 * * * *", "30 2 * * *", "every 7m"]),
        policy in prop::sample::select(POLICIES.to_vec()),
        jumps in prop::collection::vec(-5_000_000..20_000_000_i64, 1..30),
    ) {
        let schedule = schedule(text);
        let mut claimed = at("01 00:00");
        let mut now = claimed;
        let mut fired = Vec::new();
        for jump in jumps {
            now = UnixMillis(now.0 + jump);
            let found = due(&schedule, policy, GRACE, claimed, now);
            prop_assert!(found.claimed >= claimed);
            prop_assert!(found.fire.iter().all(|time| *time > claimed && *time <= now && *time <= found.claimed));
            prop_assert!(found.next > Some(now.max(found.claimed)));
            if policy != Misfire::Skip {
                prop_assert_eq!(found.fire.is_empty(), schedule.next_after(claimed) > Some(now));
            }
            claimed = found.claimed;
            fired.extend(found.fire);
        }
        prop_assert!(fired.is_sorted_by(|a, b| a < b), "{:?}", fired);
    }
}
