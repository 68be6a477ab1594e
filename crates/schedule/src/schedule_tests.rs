//! Tests schedules: which texts are accepted, which are refused and how, and some times that can be checked by hand.

use belay_protocol::UnixMillis;
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

use crate::bounds::MAX_TEXT_BYTES;
use crate::error::ScheduleError;
use crate::schedule::Schedule;

/// The creation time of the schedules in these tests: a Sunday.
const NOW: &str = "2026-11-22T12:00:00Z";

/// Number of times that a property test examines.
const SAMPLED_TIMES: usize = 40;

fn ms(text: &str) -> UnixMillis {
    UnixMillis(text.parse::<Timestamp>().unwrap().as_millisecond())
}

fn local(zone: &str, at: UnixMillis) -> String {
    let zone = TimeZoneDatabase::bundled().get(zone).unwrap();
    Timestamp::from_millisecond(at.0).unwrap().to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// The first times of a schedule after an instant, in the local time of its zone.
fn times(text: &str, zone: &str, after: &str, limit: usize) -> Vec<String> {
    let schedule = Schedule::parse(text, zone, ms(after)).unwrap_or_else(|error| panic!("{text}: {error}"));
    let found = schedule.between(ms(after), UnixMillis(i64::MAX), limit);
    found.into_iter().map(|at| local(zone, at)).collect()
}

fn refusal(text: &str, zone: &str) -> ScheduleError {
    Schedule::parse(text, zone, ms(NOW)).expect_err(text)
}

#[test]
fn each_form_fires_at_the_times_it_says() {
    for (text, expected) in [
        ("0 9 * * MON-FRI", ["2026-11-23T09:00:00", "2026-11-24T09:00:00", "2026-11-25T09:00:00"]),
        ("*/20 9 * * *", ["2026-11-23T09:00:00", "2026-11-23T09:20:00", "2026-11-23T09:40:00"]),
        ("15,45 8-9 * * *", ["2026-11-23T08:15:00", "2026-11-23T08:45:00", "2026-11-23T09:15:00"]),
        ("30 0 9 * * *", ["2026-11-23T09:00:30", "2026-11-24T09:00:30", "2026-11-25T09:00:30"]),
        ("*/20 * * * * *", ["2026-11-22T12:00:20", "2026-11-22T12:00:40", "2026-11-22T12:01:00"]),
        ("0 0 9 1 1 * 2028-2030", ["2028-01-01T09:00:00", "2029-01-01T09:00:00", "2030-01-01T09:00:00"]),
        ("0 0 9 1 1 * */4", ["2030-01-01T09:00:00", "2034-01-01T09:00:00", "2038-01-01T09:00:00"]),
        ("0 9 * jan,Jul sun", ["2027-01-03T09:00:00", "2027-01-10T09:00:00", "2027-01-17T09:00:00"]),
        ("0 9 L * *", ["2026-11-30T09:00:00", "2026-12-31T09:00:00", "2027-01-31T09:00:00"]),
        ("0 9 LW * ?", ["2026-11-30T09:00:00", "2026-12-31T09:00:00", "2027-01-29T09:00:00"]),
        ("0 9 15W * *", ["2026-12-15T09:00:00", "2027-01-15T09:00:00", "2027-02-15T09:00:00"]),
        ("0 9 * * MON#1", ["2026-12-07T09:00:00", "2027-01-04T09:00:00", "2027-02-01T09:00:00"]),
        ("0 9 * * FRIL", ["2026-11-27T09:00:00", "2026-12-25T09:00:00", "2027-01-29T09:00:00"]),
        ("0 9 * * 5L", ["2026-11-27T09:00:00", "2026-12-25T09:00:00", "2027-01-29T09:00:00"]),
        ("0 9 * * 7", ["2026-11-29T09:00:00", "2026-12-06T09:00:00", "2026-12-13T09:00:00"]),
        ("0 9 * * SAT-SUN", ["2026-11-28T09:00:00", "2026-11-29T09:00:00", "2026-12-05T09:00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00", "2032-02-29T00:00:00", "2036-02-29T00:00:00"]),
        ("@hourly", ["2026-11-22T13:00:00", "2026-11-22T14:00:00", "2026-11-22T15:00:00"]),
        ("@daily", ["2026-11-23T00:00:00", "2026-11-24T00:00:00", "2026-11-25T00:00:00"]),
        ("@Weekly", ["2026-11-29T00:00:00", "2026-12-06T00:00:00", "2026-12-13T00:00:00"]),
        ("@monthly", ["2026-12-01T00:00:00", "2027-01-01T00:00:00", "2027-02-01T00:00:00"]),
        ("@yearly", ["2027-01-01T00:00:00", "2028-01-01T00:00:00", "2029-01-01T00:00:00"]),
        ("every 15m", ["2026-11-22T12:15:00", "2026-11-22T12:30:00", "2026-11-22T12:45:00"]),
        ("Every 1h 30m", ["2026-11-22T13:30:00", "2026-11-22T15:00:00", "2026-11-22T16:30:00"]),
        ("every 2 hours from 2026-11-22T11:10", ["2026-11-22T13:10:00", "2026-11-22T15:10:00", "2026-11-22T17:10:00"]),
        ("every 2h from 2026-12-01 09:00", ["2026-12-01T09:00:00", "2026-12-01T11:00:00", "2026-12-01T13:00:00"]),
    ] {
        assert_eq!(times(text, "UTC", NOW, 3), expected.map(|time| format!("{time}+00:00")), "{text}");
    }
}

#[test]
fn a_day_fits_by_either_day_field_when_both_are_restricted() {
    let expected = ["2026-11-23", "2026-11-27", "2026-11-30", "2026-12-07", "2026-12-13"];
    let expected = expected.map(|date| format!("{date}T09:00:00+00:00"));
    let mut both = times("0 9 13,27 * MON", "UTC", NOW, 5);
    assert_eq!(both, expected);
    both.truncate(1);
    assert_eq!(both, times("0 9 * * MON", "UTC", NOW, 1));
}

#[test]
fn a_schedule_for_one_date_fires_once() {
    for (text, zone, expected) in [
        ("at 2026-12-01T09:00", "Europe/Berlin", "2026-12-01T08:00:00Z"),
        ("at 2026-12-01 09:00:30", "America/New_York", "2026-12-01T14:00:30Z"),
        ("at 2026-12-01T09:00+09:00", "Europe/Berlin", "2026-12-01T00:00:00Z"),
        ("at 2026-12-01T09:00Z", "Europe/Berlin", "2026-12-01T09:00:00Z"),
        ("in 20m", "Europe/Berlin", "2026-11-22T12:20:00Z"),
        ("0 0 9 1 12 * 2026", "Europe/Berlin", "2026-12-01T08:00:00Z"),
        // Skipped in spring, and occurring twice in autumn.
        ("at 2027-03-28T02:30", "Europe/Berlin", "2027-03-28T01:00:00Z"),
        ("at 2027-10-31T02:30", "Europe/Berlin", "2027-10-31T00:30:00Z"),
    ] {
        let schedule = Schedule::parse(text, zone, ms(NOW)).unwrap();
        let found = schedule.between(ms(NOW), UnixMillis(i64::MAX), 3);
        assert_eq!(found, [ms(expected)], "{text}");
        assert_eq!(schedule.next_after(ms(expected)), None, "{text}");
        assert_eq!(schedule.is_once(), !text.starts_with('0'), "{text}");
    }
}

#[test]
fn fixed_times_fire_once_where_clocks_are_changed() {
    // Berlin: 2027-03-28 has no 02:00 to 03:00, 2027-10-31 has it twice.
    for (text, after, expected) in [
        ("30 2 * * *", "2027-03-26T12:00:00Z", ["27T02:30:00+01:00", "28T03:00:00+02:00", "29T02:30:00+02:00"]),
        ("0 2,3 * * *", "2027-03-27T12:00:00Z", ["28T03:00:00+02:00", "29T02:00:00+02:00", "29T03:00:00+02:00"]),
        ("10,50 2 * * *", "2027-03-27T12:00:00Z", ["28T03:00:00+02:00", "29T02:10:00+02:00", "29T02:50:00+02:00"]),
        ("30 2 * * *", "2027-10-29T12:00:00Z", ["30T02:30:00+02:00", "31T02:30:00+02:00", "01T02:30:00+01:00"]),
        ("10,50 2 * * *", "2027-10-30T12:00:00Z", ["31T02:10:00+02:00", "31T02:50:00+02:00", "01T02:10:00+01:00"]),
        // Searched from the second occurrence of an hour.
        ("30 2 * * *", "2027-10-31T01:10:00Z", ["01T02:30:00+01:00", "02T02:30:00+01:00", "03T02:30:00+01:00"]),
    ] {
        let found: Vec<String> = times(text, "Europe/Berlin", after, 3).iter().map(|time| time[8..].into()).collect();
        assert_eq!(found, expected, "{text} after {after}");
    }
}

#[test]
fn interval_like_lines_fire_at_each_time_the_clock_shows() {
    for (text, after, expected) in [
        ("*/30 * * * *", "2027-03-28T00:00:00Z", ["01:30:00+01:00", "03:00:00+02:00", "03:30:00+02:00"]),
        ("*/30 * * * *", "2027-10-31T00:00:00Z", ["02:30:00+02:00", "02:00:00+01:00", "02:30:00+01:00"]),
        ("@hourly", "2027-10-30T23:30:00Z", ["02:00:00+02:00", "02:00:00+01:00", "03:00:00+01:00"]),
        ("0 */2 * * *", "2027-03-27T23:30:00Z", ["04:00:00+02:00", "06:00:00+02:00", "08:00:00+02:00"]),
        // There are a hundred and forty changes in between.
        ("0 */20 3 29 2 ? 2096", NOW, ["03:00:00+01:00", "03:20:00+01:00", "03:40:00+01:00"]),
        ("5,*/30 2 * * *", "2027-10-31T00:30:00Z", ["02:00:00+01:00", "02:05:00+01:00", "02:30:00+01:00"]),
    ] {
        let found: Vec<String> = times(text, "Europe/Berlin", after, 3).iter().map(|time| time[11..].into()).collect();
        assert_eq!(found, expected, "{text} after {after}");
    }
}

#[test]
fn every_counts_elapsed_time_through_the_change() {
    let found = times("every 12h from 2027-03-27T09:00", "Europe/Berlin", "2027-03-27T00:00:00Z", 3);
    assert_eq!(found, ["2027-03-27T09:00:00+01:00", "2027-03-27T21:00:00+01:00", "2027-03-28T10:00:00+02:00"]);
}

#[test]
fn a_refusal_names_the_field_and_what_it_takes() {
    for (text, parts) in [
        ("60 * * * *", ["minute field `60`", "out of bounds", "0-59"]),
        ("0 24 * * *", ["hour field `24`", "out of bounds", "0-23"]),
        ("0 17-9 * * *", ["hour field `17-9`", "range out of bounds", "ranges `9-17`"]),
        ("99 * * * * *", ["second field `99`", "out of bounds", "0-59"]),
        ("0 0 0 * *", ["day of month field `0`", "out of bounds", "1-31"]),
        ("0 0 32 * *", ["day of month field `32`", "out of bounds", "1-31"]),
        ("0 0 1 13 *", ["month field `13`", "out of bounds", "JAN-DEC"]),
        ("0 0 * * 8", ["day of week field `8`", "out of bounds", "SUN-SAT"]),
        ("0 0 * * FRI-MON", ["day of week field `FRI-MON`", "range out of bounds", "ranges"]),
        ("0 0 * * MON#6", ["day of week field `MON#6`", "nth", "MON#1"]),
        ("0 0 * * MONDAY", ["day of week field `MONDAY`", "`MONDAY` has no meaning there", "SUN-SAT"]),
        ("0 0 * * L", ["day of week field `L`", "of which day", "FRIL"]),
        ("0 0 * MON *", ["month field `MON`", "no meaning", "JAN-DEC"]),
        ("MON 0 * * *", ["minute field `MON`", "no meaning", "0-59"]),
        ("*/0 * * * *", ["minute field `*/0`", "zero", "steps"]),
        ("0/15 * * * *", ["minute field `0/15`", "*/15", "steps"]),
        ("1,,2 * * * *", ["minute field `1,,2`", "empty place", "lists"]),
        ("5- * * * *", ["minute field `5-`", "end of range", "ranges"]),
        ("é * * * *", ["minute field `é`", "'é' has no meaning", "0-59"]),
        ("0 0 ?,1 * *", ["day of month field `?,1`", "stands alone", "1-31"]),
        ("0 0 1 * +MON", ["day of week field `+MON`", "'+' has no meaning", "SUN-SAT"]),
        ("0 0 9 1 1 * 1969", ["year field `1969`", "1969 is out of its bounds", "1970-2099"]),
        ("0 0 9 1 1 * 2030-2100", ["year field `2030-2100`", "2100 is out", "1970-2099"]),
        ("* * * * * * * *", ["5 fields", "6 with seconds", "has 8"]),
        ("* * * *", ["5 fields", "7 with", "has 4"]),
    ] {
        let refused = refusal(text, "UTC").to_string();
        for part in parts {
            assert!(refused.contains(part), "{text}: {part:?} is missing in: {refused}");
        }
    }
}

#[test]
fn what_is_no_schedule_is_refused_with_the_forms_that_are() {
    for (text, part) in [
        ("", "the schedule is empty; write a cron line"),
        ("  \n ", "the schedule is empty"),
        ("tomorrow at nine", "`tomorrow at nine` is not a schedule; write a cron line such as `0 9 * * MON-FRI`"),
        ("@fortnightly", "`@fortnightly` is not a schedule"),
        ("@daily please", "`@daily please` is not a schedule"),
        ("0 9 * * \0", "control character '\\0'"),
        ("every", "`` is not a length of time"),
        ("every day", "`day` is not a length of time; write hours, minutes and seconds"),
        ("every 2 days", "`2 days` is not a length of time"),
        ("every -5m", "`-5m` is not a length of time"),
        ("every 5m ago", "`5m ago` is not a length of time"),
        ("every 999ms", "the interval `999ms` is too short; the shortest is 1 s"),
        ("every 0s", "too short"),
        ("every 15m from noon", "`noon` is not a date"),
        ("in a while", "`a while` is not a length of time"),
        ("in 99999999999999h", "is not a length of time"),
        ("at 2026-12-01", "`2026-12-01` is not a date with a time of day; write `2026-12-01T09:00`"),
        ("at 2026-02-30T09:00", "`2026-02-30T09:00` is not a date"),
        ("at 2026-12-01T09:00[Asia/Tokyo]", "is not a date with a time of day"),
        ("at 2026-11-22T11:59", "`at 2026-11-22T11:59` is over: its last time has gone by"),
        ("0 0 9 1 1 * 2020", "`0 0 9 1 1 * 2020` is over"),
        ("0 0 30 2 *", "`0 0 30 2 *` never comes: no day from 1970 to 2099 fits it"),
        ("0 0 31 4,6,9,11 ?", "never comes"),
        ("0 0 0 29 2 * 2027", "never comes"),
        // In the only year of the line, the clock skips the only time of the line.
        ("0 */7 2 28 3 * 2027", "never comes"),
    ] {
        let refused = refusal(text, "Europe/Berlin").to_string();
        assert!(refused.contains(part), "{text:?}: {part:?} is missing in: {refused}");
    }
}

#[test]
fn a_text_longer_than_any_schedule_is_not_looked_at() {
    let long = "* ".repeat(5 * 1024);
    assert_eq!(refusal(&long, "UTC"), ScheduleError::TooLong { bytes: 10 * 1024 });
    let fits = format!("0 9 * * {}", vec!["MON"; 62].join(","));
    assert_eq!(fits.len(), MAX_TEXT_BYTES - 1);
    assert_eq!(times(&fits, "UTC", NOW, 1), ["2026-11-23T09:00:00+00:00"]);
}

#[test]
fn an_unknown_zone_is_refused_with_the_nearest_names() {
    for (zone, part) in [
        ("Europe/Berln", "there is no time zone `Europe/Berln`. Did you mean Europe/Berlin?"),
        ("Tokio", "Did you mean Asia/Tokyo?"),
        ("new york", "Did you mean America/New_York?"),
        ("", "there is no time zone ``. Write a name"),
        ("../../etc/passwd", "there is no time zone `../../etc/passwd`. Write a name"),
        ("+02:00", "there is no time zone `+02:00`."),
    ] {
        let refused = refusal("@daily", zone).to_string();
        assert!(refused.contains(part), "{zone:?}: {part:?} is missing in: {refused}");
    }
    assert!(refusal("@daily", &"x".repeat(100_000)).to_string().len() < 300);
}

#[test]
fn a_schedule_is_stored_complete_and_read_again_the_same() {
    for (text, stored, shown) in [
        ("  0  9 * *\tmon-fri ", "0 9 * * mon-fri", "0 9 * * mon-fri (Europe/Berlin)"),
        ("@Daily", "@Daily", "@Daily (Europe/Berlin)"),
        ("every 15m", "every 15m from 2026-11-22T12:00:00Z", "every 15m from 2026-11-22T12:00:00Z (Europe/Berlin)"),
        (
            "every 2h FROM 2026-12-01 09:00",
            "every 2h from 2026-12-01T08:00:00Z",
            "every 2h from 2026-12-01T08:00:00Z (Europe/Berlin)",
        ),
        ("AT 2026-12-01 09:00", "at 2026-12-01 09:00", "at 2026-12-01 09:00 (Europe/Berlin)"),
        ("in 90s", "at 2026-11-22T12:01:30Z", "at 2026-11-22T12:01:30Z (Europe/Berlin)"),
    ] {
        let schedule = Schedule::parse(text, "europe/BERLIN", ms(NOW)).unwrap();
        assert_eq!((schedule.text(), schedule.zone()), (stored, "Europe/Berlin"));
        assert_eq!(schedule.to_string(), shown);
        let json = serde_json::json!({"text": stored, "zone": "Europe/Berlin"});
        assert_eq!(serde_json::to_value(&schedule).unwrap(), json);
        assert_eq!(serde_json::from_value::<Schedule>(json).unwrap(), schedule, "{text}");
    }
}

#[test]
fn a_text_that_becomes_too_long_with_its_start_is_refused_at_once() {
    let mut accepted = 0;
    for zeros in 0..MAX_TEXT_BYTES {
        if let Ok(schedule) = Schedule::parse(&format!("every {}1h", "0".repeat(zeros)), "UTC", ms(NOW)) {
            let json = serde_json::to_value(&schedule).unwrap();
            assert_eq!(serde_json::from_value::<Schedule>(json).unwrap(), schedule, "{zeros} zeros");
            accepted += 1;
        }
    }
    assert!((1..MAX_TEXT_BYTES - 8).contains(&accepted), "{accepted} are accepted");
}

#[test]
fn a_stored_schedule_may_be_over_but_not_half() {
    let read = |text: &str| serde_json::from_value::<Schedule>(serde_json::json!({"text": text, "zone": "UTC"}));
    assert_eq!(read("at 2020-01-01T00:00Z").unwrap().next_after(ms(NOW)), None);
    for text in ["every 15m", "in 15m"] {
        assert!(read(text).unwrap_err().to_string().contains("does not say from when it counts"), "{text}");
    }
    assert!(read("0 0 30 2 *").unwrap_err().to_string().contains("never comes"));
}

#[test]
fn instants_at_the_ends_of_time_are_answered() {
    for text in ["* * * * *", "30 2 * * *", "every 15m", "at 2026-12-01T09:00"] {
        let schedule = Schedule::parse(text, "Europe/Berlin", ms(NOW)).unwrap();
        assert!(schedule.next_after(UnixMillis(i64::MIN)).is_some(), "{text}");
        assert_eq!(schedule.next_after(UnixMillis(i64::MAX)), None, "{text}");
    }
    let daily = Schedule::parse("@daily", "Pacific/Kiritimati", ms(NOW)).unwrap();
    assert_eq!(local("Pacific/Kiritimati", daily.next_after(UnixMillis(i64::MIN)).unwrap())[..10], *"1970-01-01");
    let newest = daily.last_between(ms(NOW), UnixMillis(i64::MAX)).unwrap();
    assert_eq!(local("Pacific/Kiritimati", newest)[..10], *"2099-12-31");
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    let minute = prop::sample::select(vec!["0", "30", "*/7", "*/30", "5,55", "10-20", "*", "0-59/4"]);
    let hour = prop::sample::select(vec!["*", "0", "2", "*/3", "1-3", "23", "0,12"]);
    let days =
        prop::sample::select(vec!["* * *", "* * MON-FRI", "1,15 * *", "L * *", "* 3,10 SUN", "13 * FRI", "* * SUN#2"]);
    let zones =
        vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Cairo"];
    let line = (minute, hour, days).prop_map(|(minute, hour, days)| format!("{minute} {hour} {days}"));
    let every = (1..100_000_u32).prop_map(|seconds| format!("every {seconds}s"));
    let text = prop_oneof![4 => line, 1 => every];
    (text, prop::sample::select(zones)).prop_map(|(text, zone)| Schedule::parse(&text, zone, ms(NOW)).unwrap())
}

/// Any instant of 2026 and 2027.
fn any_instant() -> impl Strategy<Value = UnixMillis> {
    (ms("2026-01-01T00:00:00Z").0..ms("2028-01-01T00:00:00Z").0).prop_map(UnixMillis)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn times_are_the_same_from_wherever_one_asks(schedule in any_schedule(), from in any_instant(), inside in 0..SAMPLED_TIMES) {
        let times = schedule.between(from, UnixMillis(i64::MAX), SAMPLED_TIMES);
        prop_assert!(times.first().is_some_and(|first| *first > from), "{}", schedule);
        prop_assert!(times.is_sorted_by(|a, b| a < b), "{}: {:?}", schedule, times);
        let asked_at = UnixMillis(times[inside].0 - 1);
        prop_assert_eq!(schedule.next_after(asked_at), Some(times[inside]), "{}", schedule);
        for later in [asked_at.0 + 1, asked_at.0 + 500] {
            prop_assert_eq!(schedule.next_after(UnixMillis(later)), times.get(inside + 1).copied().or_else(|| {
                schedule.next_after(times[inside])
            }), "{}", schedule);
        }
    }

    #[test]
    fn the_newest_time_is_the_last_of_all(schedule in any_schedule(), from in any_instant(), minutes in 0..600_i64) {
        let until = UnixMillis(from.0 + minutes * 60_000);
        let all = schedule.between(from, until, usize::MAX);
        prop_assert_eq!(schedule.last_between(from, until), all.last().copied(), "{}", schedule);
    }

    #[test]
    fn no_text_does_harm(text in any::<String>(), zone in any::<String>()) {
        let _either = Schedule::parse(&text, "UTC", ms(NOW));
        prop_assert!(Schedule::parse("@daily", &zone, ms(NOW)).is_err() || zone.is_ascii());
    }

    #[test]
    fn what_is_accepted_has_a_time_and_is_read_again_the_same(
        text in "(every |at |in |@)?([0-9*]{1,3}[-/,#LW]?[0-9]{0,4}[a-z:T-]{0,2} ?){1,7}",
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin"]),
    ) {
        if let Ok(schedule) = Schedule::parse(&text, zone, ms(NOW)) {
            prop_assert!(schedule.next_after(ms(NOW)).is_some_and(|at| at > ms(NOW)), "{}", schedule);
            let again: Schedule = serde_json::from_str(&serde_json::to_string(&schedule).unwrap()).unwrap();
            prop_assert_eq!(again, schedule);
        }
    }
}
