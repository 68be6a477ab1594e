//! Decides whether a message begins a new conversation automatically. Pure: two dates and a rule.

use std::collections::HashMap;

use belay_protocol::{ChannelId, UnixMillis};
use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

use super::config::{ResetMode, SessionsConfig, zone_of};
use belay_schedule::time_of_day;

/// The reason for a new conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The configured time of day has passed since a person's last message.
    Daily,
    /// The conversation was silent for too long.
    Idle,
}

impl Why {
    /// The word for hooks and the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Idle => "idle",
        }
    }
}

/// The rules of all channels.
#[derive(Debug)]
pub(crate) struct Resets {
    everywhere: Rule,
    by_channel: HashMap<ChannelId, Rule>,
}

/// When a new conversation begins.
#[derive(Clone, Debug, Default)]
struct Rule {
    daily: Option<(Time, TimeZone)>,
    idle_ms: Option<i64>,
}

impl Resets {
    /// The rules of these settings. Invalid values, which [`SessionsConfig::validate`] reports, are left out.
    pub(crate) fn of(config: &SessionsConfig) -> Self {
        let everywhere = Rule::of(config.reset, &config.daily_at, &config.zone, config.idle_minutes);
        let by_channel = config.by_channel.iter().map(|(channel, own)| {
            let daily_at = own.daily_at.as_ref().unwrap_or(&config.daily_at);
            let zone = own.zone.as_ref().unwrap_or(&config.zone);
            let idle_minutes = own.idle_minutes.unwrap_or(config.idle_minutes);
            let rule = Rule::of(own.reset.unwrap_or(config.reset), daily_at, zone, idle_minutes);
            (ChannelId::new(channel), rule)
        });
        Self { everywhere, by_channel: by_channel.collect() }
    }

    /// Whether a person's message begins a new conversation, if it arrives now through this channel and the last one
    /// was at `spoken_at`.
    pub(crate) fn due(&self, channel: &ChannelId, spoken_at: UnixMillis, now: UnixMillis) -> Option<Why> {
        self.by_channel.get(channel).unwrap_or(&self.everywhere).due(spoken_at, now)
    }
}

impl Rule {
    fn of(mode: ResetMode, daily_at: &str, zone: &str, idle_minutes: u32) -> Self {
        let (daily, idle) = match mode {
            ResetMode::None => (false, false),
            ResetMode::Daily => (true, false),
            ResetMode::Idle => (false, true),
            ResetMode::Both => (true, true),
        };
        Self {
            daily: time_of_day(daily_at).ok().zip(zone_of(zone).ok()).filter(|_| daily),
            idle_ms: idle.then_some(i64::from(idle_minutes) * 60_000),
        }
    }

    fn due(&self, spoken_at: UnixMillis, now: UnixMillis) -> Option<Why> {
        if self.daily.as_ref().and_then(|(time, zone)| last(*time, zone, now)).is_some_and(|last| spoken_at < last) {
            return Some(Why::Daily);
        }
        self.idle_ms.filter(|idle| now.0.saturating_sub(spoken_at.0) >= *idle).map(|_| Why::Idle)
    }
}

/// The last occurrence of a time of day, in a zone. If clocks skip the time on a day, it moves forward by the length of
/// the gap; if it occurs twice, the first occurrence counts. `None`: outside of the range of dates.
fn last(time: Time, zone: &TimeZone, now: UnixMillis) -> Option<UnixMillis> {
    let now_there = Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone());
    let on = |date: jiff::civil::Date| {
        let at = date.to_datetime(time).to_zoned(zone.clone()).ok()?;
        Some(UnixMillis(at.timestamp().as_millisecond()))
    };
    let today = on(now_there.date())?;
    if today <= now { Some(today) } else { on(now_there.date().yesterday().ok()?) }
}

#[cfg(test)]
mod tests {
    use super::super::config::ChannelReset;
    use super::*;

    fn date(text: &str) -> UnixMillis {
        let timestamp: Timestamp = text.parse().expect("a date");
        UnixMillis(timestamp.as_millisecond())
    }

    fn rule(mode: ResetMode, zone: &str) -> Rule {
        Rule::of(mode, "04:00", zone, 60)
    }

    #[test]
    fn a_conversation_begins_anew_by_the_day_by_silence_by_whichever_is_first_or_never() {
        use ResetMode::{Both, Daily, Idle, None as Never};
        for (mode, spoken, now, expected) in [
            (Never, "2026-01-01T00:00Z", "2026-12-01T00:00Z", None),
            (Daily, "2026-03-10T03:59:59Z", "2026-03-10T04:00:00Z", Some(Why::Daily)),
            (Daily, "2026-03-10T03:00Z", "2026-03-10T03:59:59.999Z", None),
            (Daily, "2026-03-10T04:00Z", "2026-03-11T03:59Z", None),
            (Daily, "2026-03-09T23:00Z", "2026-03-10T12:00Z", Some(Why::Daily)),
            (Daily, "2026-01-01T00:00Z", "2026-03-10T01:00Z", Some(Why::Daily)),
            (Idle, "2026-03-10T03:30Z", "2026-03-10T04:29:59Z", None),
            (Idle, "2026-03-10T03:30Z", "2026-03-10T04:30:00Z", Some(Why::Idle)),
            (Both, "2026-03-10T03:30Z", "2026-03-10T04:01Z", Some(Why::Daily)),
            (Both, "2026-03-10T05:00Z", "2026-03-10T06:00Z", Some(Why::Idle)),
            (Both, "2026-03-10T05:00Z", "2026-03-10T05:59Z", None),
            // A clock that was set back begins no new conversation.
            (Both, "2026-03-12T05:00Z", "2026-03-10T06:00Z", None),
        ] {
            assert_eq!(rule(mode, "UTC").due(date(spoken), date(now)), expected, "{mode:?} {spoken} {now}");
        }
    }

    #[test]
    fn the_time_of_day_is_that_of_the_zone_also_where_clocks_are_changed() {
        // Europe/Berlin goes from 02:00 to 03:00 on 2026-03-29 and from 03:00 to 02:00 on 2026-10-25. America/Havana
        // goes from 00:00 to 01:00 on 2026-03-08 and back from 01:00 to 00:00 on 2026-11-01.
        for (time, zone, now, expected) in [
            ("04:00", "Europe/Berlin", "2026-03-28T12:00Z", "2026-03-28T03:00Z"),
            ("04:00", "Europe/Berlin", "2026-03-29T12:00Z", "2026-03-29T02:00Z"),
            ("02:30", "Europe/Berlin", "2026-03-29T00:59Z", "2026-03-28T01:30Z"),
            ("02:30", "Europe/Berlin", "2026-03-29T12:00Z", "2026-03-29T01:30Z"),
            ("02:30", "Europe/Berlin", "2026-10-25T00:30Z", "2026-10-25T00:30Z"),
            ("02:30", "Europe/Berlin", "2026-10-25T01:45Z", "2026-10-25T00:30Z"),
            ("00:00", "America/Havana", "2026-03-08T12:00Z", "2026-03-08T05:00Z"),
            ("00:30", "America/Havana", "2026-11-01T05:15Z", "2026-11-01T04:30Z"),
            ("04:00", "Pacific/Kiritimati", "2026-06-01T13:59Z", "2026-05-31T14:00Z"),
        ] {
            let zone = zone_of(zone).expect("a zone");
            let time = time_of_day(time).expect("a time");
            assert_eq!(last(time, &zone, date(now)), Some(date(expected)), "{time} {now}");
        }
    }

    #[test]
    fn each_day_begins_one_conversation_and_no_day_none_through_a_whole_year() {
        for zone in ["Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "UTC"] {
            let rule = rule(ResetMode::Daily, zone);
            let (mut now, mut spoken, mut begun) = (date("2026-01-01T12:00Z"), date("2026-01-01T12:00Z"), 0);
            while now < date("2027-01-01T12:00Z") {
                now = UnixMillis(now.0 + 20 * 60_000);
                begun += u32::from(rule.due(spoken, now).is_some());
                spoken = now;
            }
            assert_eq!(begun, 365, "{zone}");
        }
    }

    #[test]
    fn a_channel_may_have_a_rule_of_its_own() {
        let own = ChannelReset { reset: Some(ResetMode::Idle), idle_minutes: Some(5), ..ChannelReset::default() };
        let config = SessionsConfig { by_channel: [("telegram".to_owned(), own)].into(), ..SessionsConfig::default() };
        let resets = Resets::of(&config);
        let (spoken, now) = (date("2026-03-10T05:00Z"), date("2026-03-10T05:05Z"));
        assert_eq!(resets.due(&"telegram".into(), spoken, now), Some(Why::Idle));
        assert_eq!(resets.due(&"http".into(), spoken, now), None);
    }
}
