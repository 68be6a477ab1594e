//! When routines would fire: for the gateway, and for who writes one and has no daemon.

use belay_agent::routines::{Schedule, ScheduleError};
use belay_gateway::RoutineTimes;
use belay_protocol::{RoutineAction, RoutineSpec, Trigger, UnixMillis};
use serde_json::{Value, json};

/// Reads schedules.
pub(crate) struct Times;

impl RoutineTimes for Times {
    fn test(&self, spec: &RoutineSpec, at: &str, now: UnixMillis) -> Result<Value, String> {
        let Trigger::Schedule { when, zone, .. } = &spec.trigger else {
            return Err(format!("the routine {} has no schedule: {}", spec.name, set_off_by(&spec.trigger)));
        };
        let at = date(at, zone)?;
        // As if it were made now, or just before a date that has gone by.
        let made = UnixMillis(now.0.min(at.0 - 1000));
        let schedule = Schedule::parse(when, zone, made).map_err(|error| format!("trigger: {error}"))?;
        let mode = match &spec.action {
            RoutineAction::Lightweight { .. } => "lightweight",
            RoutineAction::FullJob { .. } => "full_job",
        };
        Ok(json!({
            "routine": spec.name,
            "schedule": schedule.text(),
            "fires": schedule.next_after(UnixMillis(at.0 - 1)) == Some(at),
            "at": time(&schedule, at),
            "next": schedule.next_after(at).map(|next| time(&schedule, next)),
            "mode": mode,
        }))
    }

    fn next(&self, spec: &RoutineSpec, from: UnixMillis, count: usize) -> Result<Vec<(UnixMillis, Value)>, String> {
        let Trigger::Schedule { when, zone, .. } = &spec.trigger else { return Ok(Vec::new()) };
        let schedule = match Schedule::parse(when, zone, from) {
            Ok(schedule) => schedule,
            Err(ScheduleError::Past { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(format!("trigger: {error}")),
        };
        let times = std::iter::successors(schedule.next_after(from), |at| schedule.next_after(*at));
        Ok(times.take(count).map(|at| (at, time(&schedule, at))).collect())
    }
}

/// A date as people write it, to the second: with an offset, or as the clock of that zone shows it.
fn date(text: &str, zone: &str) -> Result<UnixMillis, String> {
    // A schedule that fires once at a date knows how it is read, also in the night in which clocks are changed.
    let once = Schedule::parse(&format!("at {text}"), zone, UnixMillis(i64::MIN)).map_err(|error| match error {
        ScheduleError::Zone { .. } => format!("trigger: {error}"),
        error => format!("at: {error}"),
    })?;
    let at = once.next_after(UnixMillis(i64::MIN)).ok_or_else(|| format!("at: {text:?} is beyond the calendar"))?;
    Ok(UnixMillis(at.0.div_euclid(1000) * 1000))
}

fn time(schedule: &Schedule, at: UnixMillis) -> Value {
    json!({ "at": at, "local": schedule.local(at), "zone": schedule.zone() })
}

fn set_off_by(trigger: &Trigger) -> &'static str {
    match trigger {
        Trigger::Schedule { .. } => "a time sets it off",
        Trigger::Event { .. } => "a message of its owner sets it off",
        Trigger::Webhook { .. } => "a call of its webhook sets it off",
        Trigger::System { .. } => "an event that is told sets it off",
        Trigger::Manual => "only a hand sets it off",
    }
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
            let tested = Times.test(&berlin, at, UnixMillis(0)).unwrap();
            assert_eq!((&tested["fires"], &tested["at"]["local"]), (&json!(fires), &json!(local)), "{at}");
        }
        let tested = Times.test(&berlin, "2026-11-27T09:00", UnixMillis(0)).unwrap();
        assert_eq!(tested["next"]["at"], "2026-11-30T08:00:00.000Z");
    }

    #[test]
    fn what_cannot_be_read_says_which_of_the_two_it_is() {
        for (spec, at, part) in [
            (scheduled("0 9 30 2 *", "UTC"), "2026-11-30T09:00", "trigger: "),
            (scheduled("@daily", "Europe/Berlim"), "2026-11-30T09:00", "Europe/Berlin"),
            (scheduled("@daily", "UTC"), "tomorrow", "at: "),
            (scheduled("@daily", "UTC"), "2026-11-30", "at: "),
            (spec(json!({ "kind": "manual" })), "2026-11-30T09:00", "only a hand"),
        ] {
            let problem = Times.test(&spec, at, UnixMillis(0)).unwrap_err();
            assert!(problem.contains(part), "{at}: {problem}");
        }
    }

    #[test]
    fn the_next_times_follow_each_other_and_what_has_no_schedule_has_none() {
        let next = Times.next(&scheduled("@hourly", "UTC"), UnixMillis(1), 3).unwrap();
        assert_eq!(next.iter().map(|(at, _)| at.0 / 3_600_000).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(Times.next(&spec(json!({ "kind": "manual" })), UnixMillis(0), 3).unwrap(), []);
    }
}
