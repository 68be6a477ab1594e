//! Computes when routines fire: for the gateway, and for tests of a routine without a daemon.

use belay_automation::routines::{Upcoming, preview, problems, test_at};
use belay_gateway::{RoutineTest, RoutineTime, RoutineTimes};
use belay_protocol::{RoutineSpec, Trigger, UnixMillis};
use belay_schedule::Schedule;
use serde_json::{Value, json};

/// Uses the schedule parser.
pub(crate) struct Times;

/// Tests a routine for `belay routines test --file`.
pub(crate) fn tested(spec: &RoutineSpec, at: &str) -> Result<Value, String> {
    Times.test(spec, at).map(|tested| json!(tested))
}

impl RoutineTimes for Times {
    fn test(&self, spec: &RoutineSpec, at: &str) -> Result<RoutineTest, String> {
        let problems = problems(spec);
        if !problems.is_empty() {
            return Err(problems.join("\n"));
        }
        let (when, zone) = match &spec.trigger {
            Trigger::Schedule { when, zone, .. } => (when.as_str(), zone.as_str()),
            _ => ("", "UTC"), // refused below
        };
        let tested = test_at(spec, date(at, zone)?)?;
        Ok(RoutineTest {
            routine: spec.name.clone(),
            schedule: when.to_owned(),
            fires: tested.fires,
            at: time(tested.at),
            next: tested.next.map(time),
            mode: tested.mode,
        })
    }

    fn next(&self, spec: &RoutineSpec, from: UnixMillis, count: usize) -> Result<Vec<RoutineTime>, String> {
        if !matches!(spec.trigger, Trigger::Schedule { .. }) {
            return Ok(Vec::new());
        }
        Ok(preview(spec, from, count)?.into_iter().map(time).collect())
    }
}

fn time(Upcoming { at, local, zone }: Upcoming) -> RoutineTime {
    RoutineTime { at, local, zone }
}

/// Parses a date: with an offset, or in local time of that zone.
fn date(text: &str, zone: &str) -> Result<UnixMillis, String> {
    // A one-time schedule defines how such a date is read, also in the night of a clock change.
    let once = Schedule::parse(&format!("at {text}"), zone, UnixMillis(i64::MIN)).map_err(|e| format!("at: {e}"))?;
    once.next_after(UnixMillis(i64::MIN)).ok_or_else(|| format!("at: {text:?} is beyond the calendar"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn spec(trigger: Value) -> RoutineSpec {
        let action = json!({ "mode": "lightweight", "prompt": "look" });
        serde_json::from_value(json!({ "name": "tick", "trigger": trigger, "action": action })).unwrap()
    }

    fn scheduled(when: &str, zone: &str) -> RoutineSpec {
        spec(json!({ "kind": "schedule", "when": when, "zone": zone }))
    }

    #[test]
    fn a_date_is_read_in_the_zone_of_the_routine_unless_it_has_an_offset() {
        let berlin = scheduled("0 9 * * MON-FRI", "Europe/Berlin");
        for (at, fires, local) in [
            ("2026-11-30T09:00", true, "Mon 2026-11-30 09:00:00 +01:00"),
            ("2026-11-30T09:00:00.400", true, "Mon 2026-11-30 09:00:00 +01:00"),
            ("2026-11-30T08:00Z", true, "Mon 2026-11-30 09:00:00 +01:00"),
            ("2026-11-30T09:00Z", false, "Mon 2026-11-30 10:00:00 +01:00"),
            ("2026-11-29T09:00", false, "Sun 2026-11-29 09:00:00 +01:00"),
        ] {
            let tested = Times.test(&berlin, at).unwrap();
            assert_eq!((tested.fires, &*tested.at.local), (fires, local), "{at}");
        }
        let tested = Times.test(&berlin, "2026-11-27T09:00").unwrap();
        assert_eq!(tested.next.unwrap().at.to_rfc3339(), "2026-11-30T08:00:00.000Z");
    }

    #[test]
    fn what_cannot_be_read_says_which_of_the_two_it_is() {
        for (spec, at, part) in [
            (scheduled("0 9 30 2 *", "UTC"), "2026-11-30T09:00", "trigger.when: "),
            (scheduled("@daily", "Europe/Berlim"), "2026-11-30T09:00", "Europe/Berlin"),
            (scheduled("@daily", "UTC"), "tomorrow", "at: "),
            (scheduled("@daily", "UTC"), "2026-11-30", "at: "),
            (spec(json!({ "kind": "manual" })), "2026-11-30T09:00", "hand alone"),
        ] {
            let problem = Times.test(&spec, at).unwrap_err();
            assert!(problem.contains(part), "{at}: {problem}");
        }
    }

    #[test]
    fn the_next_times_follow_each_other_and_what_has_no_schedule_has_none() {
        let next = Times.next(&scheduled("@hourly", "UTC"), UnixMillis(1), 3).unwrap();
        assert_eq!(next.iter().map(|time| time.at.0 / 3_600_000).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(Times.next(&spec(json!({ "kind": "manual" })), UnixMillis(0), 3).unwrap(), []);
    }
}
