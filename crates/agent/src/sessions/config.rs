//! Settings of `[sessions]`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::titles::TitlesConfig;

/// Values of `[sessions]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsConfig {
    /// When a new conversation begins automatically.
    pub reset: ResetMode,
    /// Time of day, `HH:MM`, after which the first message begins a new conversation.
    pub daily_at: String,
    /// Time zone of `daily_at`, by its IANA name. The settings have it as `agent.timezone`.
    #[serde(skip)]
    pub zone: String,
    /// Silence after which a message begins a new conversation, in minutes. 1 to 525600 (a year).
    pub idle_minutes: u32,
    /// Exceptions for single channels, by name.
    pub by_channel: BTreeMap<String, ChannelReset>,
    /// Titles of conversations.
    pub titles: TitlesConfig,
    /// Days that conversations are kept after their last use, with all their data, and jobs and routine runs after
    /// their end. 0: forever.
    pub keep_days: u32,
    /// Days that events and long outputs of tools are kept. 0: as long as their run, and outputs as long as
    /// `tools.outputs` has space.
    pub keep_details_days: u32,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            reset: ResetMode::None,
            daily_at: "04:00".into(),
            zone: "UTC".into(),
            idle_minutes: 240,
            by_channel: BTreeMap::new(),
            titles: TitlesConfig::default(),
            keep_days: 0,
            keep_details_days: 0,
        }
    }
}

/// When a new conversation begins automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// Never; only with `/new`.
    #[default]
    None,
    /// With the first message after a time of day.
    Daily,
    /// With the first message after a silence.
    Idle,
    /// With whichever comes first.
    Both,
}

/// `[sessions.by_channel.NAME]`: exceptions from `[sessions]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelReset {
    /// Replaces `sessions.reset`.
    pub reset: Option<ResetMode>,
    /// Replaces `sessions.daily_at`.
    pub daily_at: Option<String>,
    /// Replaces `sessions.zone`.
    pub zone: Option<String>,
    /// Replaces `sessions.idle_minutes`.
    pub idle_minutes: Option<u32>,
}

/// Maximum retention, in days: a century, which is practically forever.
const MAX_DAYS: u32 = 36_500;

/// Maximum silence, in minutes: a year.
const MAX_IDLE_MINUTES: u32 = 525_600;

impl SessionsConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = self.titles.validate();
        check(&mut problems, "", Some(&self.daily_at), Some(&self.zone), Some(self.idle_minutes));
        for (channel, reset) in &self.by_channel {
            let key = format!("by_channel.{channel}.");
            check(&mut problems, &key, reset.daily_at.as_deref(), reset.zone.as_deref(), reset.idle_minutes);
        }
        for (key, days) in [("keep_days", self.keep_days), ("keep_details_days", self.keep_details_days)] {
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

/// The time zone with this name.
pub(super) fn zone_of(name: &str) -> Result<TimeZone, String> {
    if name == "UTC" {
        return Ok(TimeZone::UTC); // the default; the system's time zone list takes milliseconds to load
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
            idle_minutes = 0
            keep_days = 100000
            [by_channel.telegram]
            zone = "Mars/Olympus"
            daily_at = "24:00"
            idle_minutes = 1000000
            "#,
        )
        .expect("it can be read");
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().filter_map(|line| line.split(": ").next()).collect();
        let expected = [
            "sessions.daily_at",
            "sessions.idle_minutes",
            "sessions.by_channel.telegram.daily_at",
            "sessions.by_channel.telegram.zone",
            "sessions.by_channel.telegram.idle_minutes",
            "sessions.keep_days",
        ];
        assert_eq!(keys, expected);
    }
}
