//! `[heartbeat]`

use std::time::Duration;

use belay_protocol::{ReplyRoute, UnixMillis};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::routines::check;
use crate::routines::config::ANY_DATE;
use belay_schedule::QuietHours;
use belay_schedule::schedule::Schedule;
use belay_schedule::time_of_day;
use belay_schedule::zone::Zone;

/// How often it beats where the settings do not say.
const EVERY: &str = "30m";
/// Shortest and longest interval. A look that is taken more often is work for a routine or a job, and costs as much.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(7 * 86_400));
/// Longest silence that may be set, in seconds: a year.
const IDLE_MAX_S: u64 = 366 * 86_400;

/// `[heartbeat]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatConfig {
    /// Whether it beats.
    pub enabled: bool,
    /// The time between two beats: `30m`, `2h`; 5 minutes to 168 hours (7 days). Absent, unless `at` is set: 30 minutes.
    pub every: Option<String>,
    /// Instead of that, one beat a day, at this time of the zone: `HH:MM`.
    pub at: Option<String>,
    /// The zone of `at` and of the quiet hours, by its IANA name.
    pub zone: String,
    /// From when to when it does not beat, `HH:MM-HH:MM` as the clock of the zone shows it; may go over midnight. Empty, or
    /// with both times the same: there are no such hours.
    pub quiet_hours: String,
    /// The list of what is to be watched: a file of the workspace.
    pub file: String,
    /// Seconds of silence of people after which it does not beat, in the conversation of `deliver_to`, or in all where that is
    /// not set. At most a year; 0: it beats however long nobody has spoken.
    pub idle_after_s: u64,
    /// Where it says what needs attention. Absent: it is recorded, and nobody is told.
    pub deliver_to: Option<DeliverTo>,
    /// The model it asks, by its name; absent: the configured one.
    pub model: Option<String>,
    /// Whether it may call tools: those that need nobody's yes.
    pub use_tools: bool,
}

/// `heartbeat.deliver_to`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliverTo {
    /// The channel.
    pub channel: String,
    /// The conversation within it.
    pub conversation: String,
}

impl Default for HeartbeatConfig {
    /// Half an hour, and a day of silence: what such systems have been run with elsewhere.
    fn default() -> Self {
        Self {
            enabled: false,
            every: None,
            at: None,
            zone: "UTC".into(),
            quiet_hours: "22:00-07:00".into(),
            file: "HEARTBEAT.md".into(),
            idle_after_s: 86_400,
            deliver_to: None,
            model: None,
            use_tools: true,
        }
    }
}

/// When it beats.
#[derive(Clone, Debug, PartialEq)]
enum Beats {
    Every { text: String, interval: Duration },
    Daily(jiff::civil::Time),
}

impl HeartbeatConfig {
    /// Every problem at once, each beginning with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let beats = self.beats().map_err(|problem| problems.push(problem)).ok();
        let quiet = QuietHours::read(&self.quiet_hours);
        if let Err(what) = &quiet {
            problems.push(format!("heartbeat.quiet_hours: {what}"));
        }
        if let (Some(Beats::Daily(at)), Ok(Some(quiet))) = (beats, quiet)
            && quiet.has(at)
        {
            let hours = &self.quiet_hours;
            problems.push(format!("heartbeat.at: it lies in the quiet hours, {hours}, so that it would never run"));
        }
        if let Err(error) = Zone::named(&self.zone) {
            problems.push(format!("heartbeat.zone: {error}"));
        }
        if !check::is_path(&self.file) {
            problems.push("heartbeat.file: must be the path of a file within the workspace, without `..`".to_owned());
        }
        if self.idle_after_s > IDLE_MAX_S {
            problems
                .push(format!("heartbeat.idle_after_s: must be at most {IDLE_MAX_S} (a year); 0 never counts as idle"));
        }
        if self.deliver_to.as_ref().is_some_and(|to| to.channel.is_empty() || to.conversation.is_empty()) {
            problems.push("heartbeat.deliver_to: must name a channel and a conversation in it".to_owned());
        }
        if self.model.as_ref().is_some_and(String::is_empty) {
            problems
                .push("heartbeat.model: must be the name of a model; leave it out for the configured one".to_owned());
        }
        problems
    }

    fn beats(&self) -> Result<Beats, String> {
        match (&self.every, &self.at) {
            (Some(_), Some(_)) => {
                Err("heartbeat.at: there is heartbeat.every too; it beats by one of them, so leave the other out"
                    .into())
            }
            (None, Some(at)) => time_of_day(at).map(Beats::Daily).map_err(|what| format!("heartbeat.at: {what}")),
            (every, None) => {
                let text = every.clone().unwrap_or_else(|| EVERY.to_owned());
                let interval = interval_of(&text).map_err(|what| format!("heartbeat.every: {what}"))?;
                Ok(Beats::Every { text, interval })
            }
        }
    }
}

fn interval_of(every: &str) -> Result<Duration, String> {
    let wrong = || {
        let (least, most) = (INTERVALS.0.as_secs() / 60, INTERVALS.1.as_secs() / 3600);
        format!("{every:?} must be a length of time such as \"30m\" or \"2h\", from {least} minutes to {most} hours")
    };
    // One interval after what it counts from is the first time.
    let schedule = Schedule::read(&format!("every {every}"), "UTC", Some(ANY_DATE)).map_err(|_| wrong())?;
    let first = schedule.next_after(ANY_DATE).filter(|_| !every.contains("from")).ok_or_else(wrong)?;
    let interval = Duration::from_millis(u64::try_from(first.0 - ANY_DATE.0).unwrap_or_default());
    if (INTERVALS.0..=INTERVALS.1).contains(&interval) { Ok(interval) } else { Err(wrong()) }
}

/// The settings, read once.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Its settings.
    pub config: HeartbeatConfig,
    beats: Beats,
    quiet: Option<QuietHours>,
    zone: TimeZone,
}

impl Heartbeat {
    /// Reads the settings.
    ///
    /// # Errors
    /// The first problem that [`HeartbeatConfig::validate`] names.
    pub fn of(config: HeartbeatConfig) -> Result<Self, String> {
        if let Some(problem) = config.validate().into_iter().next() {
            return Err(problem);
        }
        let beats = config.beats()?;
        let quiet = QuietHours::read(&config.quiet_hours)?;
        let zone = Zone::named(&config.zone).map_err(|error| error.to_string())?.time;
        Ok(Self { config, beats, quiet, zone })
    }

    /// Its schedule, as routines write it.
    pub(super) fn when(&self) -> String {
        match &self.beats {
            Beats::Every { text, .. } => format!("every {text}"),
            Beats::Daily(at) => format!("{} {} * * *", at.minute(), at.hour()),
        }
    }

    /// The time between two beats; `None`: it beats at a time of day.
    pub(super) fn interval(&self) -> Option<Duration> {
        match &self.beats {
            Beats::Every { interval, .. } => Some(*interval),
            Beats::Daily(_) => None,
        }
    }

    /// Whether an instant lies in the quiet hours.
    pub(super) fn is_quiet(&self, at: UnixMillis) -> bool {
        self.quiet.is_some_and(|quiet| quiet.cover(&self.zone, at))
    }

    /// Where it says what needs attention.
    pub fn route(&self) -> Option<ReplyRoute> {
        let DeliverTo { channel, conversation } = self.config.deliver_to.as_ref()?;
        Some(ReplyRoute {
            channel: channel.as_str().into(),
            conversation: conversation.as_str().into(),
            reply_to: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(toml: &str) -> Vec<String> {
        toml::from_str::<HeartbeatConfig>(toml).expect("read").validate()
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(HeartbeatConfig::default().validate().is_empty());
        for (toml, expected) in [
            (r#"every = "30m""#, None),
            (r#"every = "7d""#, Some("heartbeat.every: ")), // lengths of time have no days
            (r#"every = "168h""#, None),
            (r#"every = "169h""#, Some("heartbeat.every: ")),
            (r#"every = "4m59s""#, Some("heartbeat.every: ")),
            (r#"every = "30m from 2026-12-01T09:00""#, Some("heartbeat.every: ")),
            (r#"every = "often""#, Some("heartbeat.every: ")),
            (r#"at = "08:00""#, None),
            (r#"at = "8""#, Some("heartbeat.at: ")),
            (r#"at = "06:59""#, Some("heartbeat.at: it lies in the quiet hours")),
            (r#"at = "07:00""#, None),
            (
                r#"at = "08:00"
                every = "1h""#,
                Some("heartbeat.at: there is heartbeat.every too"),
            ),
            (r#"quiet_hours = "22-7""#, Some("heartbeat.quiet_hours: ")),
            (r#"quiet_hours = """#, None),
            (r#"zone = "Mars/Olympus""#, Some("heartbeat.zone: there is no time zone")),
            (r#"file = "../secrets""#, Some("heartbeat.file: ")),
            ("idle_after_s = 40000000", Some("heartbeat.idle_after_s: ")),
            (r#"deliver_to = { channel = "telegram", conversation = "" }"#, Some("heartbeat.deliver_to: ")),
            (r#"model = """#, Some("heartbeat.model: ")),
        ] {
            let found = problems(toml);
            match expected {
                None => assert_eq!(found, Vec::<String>::new(), "{toml}"),
                Some(part) => assert!(found.len() == 1 && found[0].starts_with(part), "{toml}: {found:?}"),
            }
        }
    }

    #[test]
    fn its_schedule_is_written_as_routines_write_it() {
        let read = |toml: &str| Heartbeat::of(toml::from_str(toml).expect("read")).expect("settings");
        let half = read("");
        assert_eq!((half.when().as_str(), half.interval()), ("every 30m", Some(Duration::from_secs(1800))));
        let daily = read(r#"at = "08:05""#);
        assert_eq!((daily.when().as_str(), daily.interval()), ("5 8 * * *", None));
        assert!(check::schedule_of(&super::super::spec::spec_of(&daily)).is_ok_and(|schedule| schedule.is_some()));
    }
}
