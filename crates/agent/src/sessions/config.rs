//! `[sessions]`

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// `[sessions]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsConfig {
    /// When a conversation begins anew by itself.
    pub reset: ResetMode,
    /// The time of day from which on the first message begins a new conversation, `HH:MM`.
    pub daily_at: String,
    /// The time zone of that, by its IANA name.
    pub zone: String,
    /// Minutes of silence after which a message begins a new conversation. 1 to 525600 (a year).
    pub idle_minutes: u32,
    /// Whether a person is told, with the first answer, that a new conversation has begun by itself.
    pub announce_reset: bool,
    /// What differs for a channel, by its name.
    pub by_channel: BTreeMap<String, ChannelReset>,
    /// Days that conversations are kept after their last use, with all that belongs to them; and jobs and routine runs after
    /// their end. 0: for ever.
    pub keep_days: u32,
    /// Days that events are kept. 0: as long as the run they belong to.
    pub keep_events_days: u32,
    /// Days that long outputs of tools are kept. 0: as long as their run, and as `tools.outputs` has room.
    pub keep_outputs_days: u32,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            reset: ResetMode::None,
            daily_at: "04:00".into(),
            zone: "UTC".into(),
            idle_minutes: 240,
            announce_reset: true,
            by_channel: BTreeMap::new(),
            keep_days: 0,
            keep_events_days: 0,
            keep_outputs_days: 0,
        }
    }
}

/// When a conversation begins anew by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// Never: a person says `/new`.
    #[default]
    None,
    /// With the first message after a time of day.
    Daily,
    /// With the first message after a silence.
    Idle,
    /// With whichever comes first.
    Both,
}

/// `[sessions.by_channel.NAME]`: what differs from `[sessions]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelReset {
    /// In the place of `sessions.reset`.
    pub reset: Option<ResetMode>,
    /// In the place of `sessions.daily_at`.
    pub daily_at: Option<String>,
    /// In the place of `sessions.zone`.
    pub zone: Option<String>,
    /// In the place of `sessions.idle_minutes`.
    pub idle_minutes: Option<u32>,
}

/// Longest time that things are kept, in days: a century, which says the same as for ever.
const MAX_DAYS: u32 = 36_500;

/// Longest silence, in minutes: a year.
const MAX_IDLE_MINUTES: u32 = 525_600;

impl SessionsConfig {
    /// Every problem at once, each beginning with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        check(&mut problems, "", Some(&self.daily_at), Some(&self.zone), Some(self.idle_minutes));
        for (channel, reset) in &self.by_channel {
            let key = format!("by_channel.{channel}.");
            check(&mut problems, &key, reset.daily_at.as_deref(), reset.zone.as_deref(), reset.idle_minutes);
        }
        for (key, days) in [
            ("keep_days", self.keep_days),
            ("keep_events_days", self.keep_events_days),
            ("keep_outputs_days", self.keep_outputs_days),
        ] {
            if days > MAX_DAYS {
                problems.push(format!("sessions.{key}: must be at most {MAX_DAYS}; 0 keeps for ever"));
            }
        }
        problems
    }
}

fn check(problems: &mut Vec<String>, key: &str, daily_at: Option<&str>, zone: Option<&str>, idle_minutes: Option<u32>) {
    if let Some(Err(what)) = daily_at.map(belay_schedule::time_of_day) {
        problems.push(format!("sessions.{key}daily_at: {what}"));
    }
    if let Some(Err(what)) = zone.map(zone_of) {
        problems.push(format!("sessions.{key}zone: {what}"));
    }
    if idle_minutes.is_some_and(|minutes| !(1..=MAX_IDLE_MINUTES).contains(&minutes)) {
        problems.push(format!("sessions.{key}idle_minutes: must be between 1 and {MAX_IDLE_MINUTES}"));
    }
}

/// A zone by its name.
pub(super) fn zone_of(name: &str) -> Result<TimeZone, String> {
    if name == "UTC" {
        return Ok(TimeZone::UTC); // the default, and known without the machine's zones: listing them all takes milliseconds
    }
    TimeZone::get(name)
        .map_err(|_| format!("{name:?} is no time zone: write a name such as \"Europe/Berlin\", or \"UTC\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(SessionsConfig::default().validate().is_empty());
        let config: SessionsConfig = toml::from_str(
            r#"
            daily_at = "4 o'clock"
            zone = "Mars/Olympus"
            idle_minutes = 0
            keep_days = 100000
            [by_channel.telegram]
            daily_at = "24:00"
            idle_minutes = 1000000
            "#,
        )
        .expect("it can be read");
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().filter_map(|line| line.split(": ").next()).collect();
        let expected = [
            "sessions.daily_at",
            "sessions.zone",
            "sessions.idle_minutes",
            "sessions.by_channel.telegram.daily_at",
            "sessions.by_channel.telegram.idle_minutes",
            "sessions.keep_days",
        ];
        assert_eq!(keys, expected);
    }
}
