//! Settings of the heartbeat: `[heartbeat]`.

use std::time::Duration;

use belay_protocol::{ReplyRoute, UnixMillis};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::routines::config::ANY_DATE;
use belay_schedule::QuietHours;
use belay_schedule::schedule::Schedule;
use belay_schedule::time_of_day;
use belay_schedule::zone::Zone;

/// Default interval.
const EVERY: &str = "30m";
/// Shortest and longest interval. More frequent work suits a routine or a job, and costs as much there.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(5 * 60), Duration::from_secs(7 * 86_400));
/// Longest `idle_after_s`, in seconds: a year.
const IDLE_MAX_S: u64 = 366 * 86_400;

/// `[heartbeat]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatConfig {
    /// Whether the heartbeat runs.
    pub enabled: bool,
    /// Time between two beats: `30m`, `2h`; 5 minutes to 168 hours (7 days). Absent, unless `at` is set: 30 minutes.
    pub every: Option<String>,
    /// Time of a daily beat, in place of `every`: `HH:MM` in `zone`.
    pub at: Option<String>,
    /// The time zone of `at` and of the quiet hours, as an IANA name. The settings have it as `agent.timezone`.
    #[serde(skip)]
    pub zone: String,
    /// Hours without beats, `HH:MM-HH:MM` in `zone`; they may include midnight. Empty, or two equal times: no quiet
    /// hours.
    pub quiet_hours: String,
    /// The file of the workspace that lists what to check.
    #[serde(skip)]
    pub file: String,
    /// Seconds without a message from people after which beats are skipped. Counts messages in the conversation of
    /// `deliver_to`, or in all conversations when that is not set. At most a year. 0: no limit.
    pub idle_after_s: u64,
    /// Where alerts go. Absent: alerts are recorded and not sent.
    pub deliver_to: Option<DeliverTo>,
    /// The name of the model. Absent: the configured one. The settings have it as `llm.small_model`.
    #[serde(skip)]
    pub model: Option<String>,
    /// Whether the model may call tools that need no approval.
    pub use_tools: bool,
}

/// `heartbeat.deliver_to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliverTo {
    /// The channel.
    pub channel: String,
    /// The conversation in the channel.
    pub conversation: String,
}

impl Default for HeartbeatConfig {
    /// Half an hour between beats, and a day without messages: figures that similar systems use.
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

/// When beats happen.
#[derive(Clone, Debug, PartialEq)]
enum Beats {
    Every { text: String, interval: Duration },
    Daily(jiff::civil::Time),
}

impl HeartbeatConfig {
    /// Returns all problems; each begins with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let beats = self.beats().map_err(|problem| problems.push(problem)).ok();
        // A daily beat is a cron line.
        if self.at.is_some() && !belay_schedule::HAS_CRON {
            let absent = "heartbeat.at: this build of Belay reads no cron lines (feature cron); remove the setting and use \
                          heartbeat.every, or use a build with it: `belay --version --long` lists the parts";
            problems.push(absent.to_owned());
        }
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
        if self.idle_after_s > IDLE_MAX_S {
            problems
                .push(format!("heartbeat.idle_after_s: must be at most {IDLE_MAX_S} (a year); 0 never counts as idle"));
        }
        if self.deliver_to.as_ref().is_some_and(|to| to.channel.is_empty() || to.conversation.is_empty()) {
            problems.push("heartbeat.deliver_to: must name a channel and a conversation in it".to_owned());
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
    // The first time of the schedule lies one interval after the date from which it counts.
    let schedule = Schedule::read(&format!("every {every}"), "UTC", Some(ANY_DATE)).map_err(|_| wrong())?;
    let first = schedule.next_after(ANY_DATE).filter(|_| !every.contains("from")).ok_or_else(wrong)?;
    let interval = Duration::from_millis(u64::try_from(first.0 - ANY_DATE.0).unwrap_or_default());
    if (INTERVALS.0..=INTERVALS.1).contains(&interval) { Ok(interval) } else { Err(wrong()) }
}

/// The settings, parsed.
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
        let zone = Zone::named(&config.zone).map_err(|error| format!("agent.timezone: {error}"))?.time;
        Ok(Self { config, beats, quiet, zone })
    }

    /// The schedule, in the form of a routine's.
    pub(super) fn when(&self) -> String {
        match &self.beats {
            Beats::Every { text, .. } => format!("every {text}"),
            Beats::Daily(at) => format!("{} {} * * *", at.minute(), at.hour()),
        }
    }

    /// The time between two beats. `None`: beats happen at a time of day.
    pub(super) fn interval(&self) -> Option<Duration> {
        match &self.beats {
            Beats::Every { interval, .. } => Some(*interval),
            Beats::Daily(_) => None,
        }
    }

    /// Returns whether an instant lies in the quiet hours.
    pub(super) fn is_quiet(&self, at: UnixMillis) -> bool {
        self.quiet.is_some_and(|quiet| quiet.cover(&self.zone, at))
    }

    /// The route of alerts.
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
    use crate::routines::check;

    fn problems(toml: &str) -> Vec<String> {
        toml::from_str::<HeartbeatConfig>(toml).expect("read").validate()
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(HeartbeatConfig::default().validate().is_empty());
        for (toml, expected) in [
            (r#"every = "30m""#, None),
            (r#"every = "7d""#, Some("heartbeat.every: ")), // a length of time has no days
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
            ("idle_after_s = 40000000", Some("heartbeat.idle_after_s: ")),
            (r#"deliver_to = { channel = "telegram", conversation = "" }"#, Some("heartbeat.deliver_to: ")),
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
