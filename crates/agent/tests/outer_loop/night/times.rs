//! When routines are to fire, worked out by another way than the one that is tested: minute by minute.

use std::collections::BTreeSet;

use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;

const MINUTE_MS: i64 = 60_000;

/// What sets a routine of the night off.
#[derive(Clone, Debug)]
pub(super) enum When {
    /// A time on the clock of a zone.
    Clock {
        zone: &'static str,
        minutes: Vec<i8>,
        /// `None`: every hour.
        hours: Option<Vec<i8>>,
        /// Whether it is written with `*`, so that it fires whenever the clock shows a fitting time.
        wild: bool,
    },
    Every {
        seconds: u64,
    },
    /// Once, at this instant.
    At(i64),
    Message,
    Webhook,
    Event,
    Hand,
}

impl When {
    pub(super) fn clock(zone: &'static str, minutes: Vec<i8>, hours: Option<Vec<i8>>, wild: bool) -> Self {
        Self::Clock { zone, minutes, hours, wild }
    }

    /// As it is written, and the zone.
    pub(super) fn text(&self) -> (String, String) {
        let list = |numbers: &[i8]| numbers.iter().map(i8::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Clock { zone, minutes, hours, .. } => {
                let hours = match hours.as_deref() {
                    None => "*".to_owned(),
                    Some([0, 3, ..]) => "*/3".to_owned(),
                    Some(hours) => list(hours),
                };
                (format!("{} {hours} * * *", list(minutes)), (*zone).to_owned())
            }
            Self::Every { seconds } => (format!("every {seconds}s"), "UTC".to_owned()),
            Self::At(ms) => (format!("at {}", instant(*ms)), "UTC".to_owned()),
            Self::Message | Self::Webhook | Self::Event | Self::Hand => (String::new(), String::new()),
        }
    }

    /// Its times after `from` up to and including `until`; none for what has no schedule.
    pub(super) fn between(&self, from: i64, until: i64) -> BTreeSet<i64> {
        match self {
            Self::Clock { zone, minutes, hours, wild } => {
                let zone = TimeZone::get(zone).expect("a zone");
                let fits = |hour: &i8, minute: &i8| {
                    minutes.contains(minute) && hours.as_ref().is_none_or(|hours| hours.contains(hour))
                };
                match wild {
                    true => whenever(&zone, fits, from, until),
                    false => once_each(&zone, fits, from, until),
                }
            }
            Self::Every { seconds } => {
                let step = usize::try_from(*seconds * 1000).expect("a night");
                (from..=until).step_by(step).skip(1).collect()
            }
            Self::At(ms) => Some(*ms).filter(|ms| (from + 1..=until).contains(ms)).into_iter().collect(),
            Self::Message | Self::Webhook | Self::Event | Self::Hand => BTreeSet::new(),
        }
    }
}

fn instant(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).expect("a date")
}

fn shown(zone: &TimeZone, ms: i64) -> DateTime {
    instant(ms).to_zoned(zone.clone()).datetime()
}

/// Whole minutes after `from` up to and including `until`.
fn minutes(from: i64, until: i64) -> impl Iterator<Item = i64> {
    let first = (from.div_euclid(MINUTE_MS) + 1) * MINUTE_MS;
    (first..=until).step_by(60_000)
}

/// Every minute at which the clock shows a fitting time.
fn whenever(zone: &TimeZone, fits: impl Fn(&i8, &i8) -> bool, from: i64, until: i64) -> BTreeSet<i64> {
    let fitting = |ms: &i64| {
        let shown = shown(zone, *ms);
        fits(&shown.hour(), &shown.minute())
    };
    minutes(from, until).filter(fitting).collect()
}

/// For each fitting time of each day the first minute at which the clock shows it or has passed it.
fn once_each(zone: &TimeZone, fits: impl Fn(&i8, &i8) -> bool, from: i64, until: i64) -> BTreeSet<i64> {
    // From two days before, so that what is shown for the second time after `from` is known to have been shown before.
    let early = from - 2 * 86_400_000;
    let first_day = shown(zone, early).date();
    let wanted = (0..6).flat_map(|day| {
        let day = first_day.checked_add(jiff::Span::new().days(day)).expect("a day");
        let fits = &fits;
        (0..24_i8).flat_map(move |hour| {
            (0..60_i8).filter(move |minute| fits(&hour, minute)).map(move |minute| day.at(hour, minute, 0, 0))
        })
    });
    let mut clock: Vec<(i64, DateTime)> = minutes(early, until).map(|ms| (ms, shown(zone, ms))).collect();
    let mut highest = date(1, 1, 1).at(0, 0, 0, 0);
    // What the clock has shown at most by then: set back, it does not show it again.
    for (_, shown) in &mut clock {
        highest = highest.max(*shown);
        *shown = highest;
    }
    let reached = |wanted: DateTime| clock.get(clock.partition_point(|(_, shown)| *shown < wanted)).map(|(ms, _)| *ms);
    wanted.filter_map(reached).filter(|ms| *ms > from).collect()
}

#[test]
fn the_second_way_knows_what_happens_when_clocks_are_changed() {
    let ms = |text: &str| text.parse::<Timestamp>().expect("a date").as_millisecond();
    let times = |hours: Option<Vec<i8>>, wild, day: &str| {
        let when = When::clock("Europe/Berlin", vec![30], hours, wild);
        let (from, until) = (ms(&format!("{day}T00:00:00Z")), ms(&format!("{day}T02:59:00Z")));
        when.between(from, until).into_iter().map(|ms| instant(ms).strftime("%H:%M").to_string()).collect::<Vec<_>>()
    };
    // Spring: 02:30 is skipped. Autumn: it is shown at 00:30 and at 01:30 UTC.
    assert_eq!(times(Some(vec![2]), false, "2026-03-29"), ["01:00"]);
    assert_eq!(times(Some(vec![2]), false, "2026-10-25"), ["00:30"]);
    assert_eq!(times(None, true, "2026-03-29"), ["00:30", "01:30", "02:30"]);
    assert_eq!(times(None, true, "2026-10-25"), ["00:30", "01:30", "02:30"]);
}
