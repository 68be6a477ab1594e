//! `clock`: the date and time, in any time zone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Clock, Effect, Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolSpec};
use belay_text::near::{did_you_mean, nearest_names};
use jiff::Timestamp;
use jiff::tz::{TimeZone, db};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::arguments;

/// Longest time zone name that is looked up, in bytes. The longest name in the database has 32.
const MAX_ZONE_BYTES: usize = 64;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// IANA name, such as `Asia/Tokyo`; UTC without it.
    #[serde(default)]
    timezone: Option<String>,
}

/// The tool `clock`.
pub(crate) struct ClockTool {
    spec: ToolSpec,
    clock: Arc<dyn Clock>,
}

impl ClockTool {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let description = "Tells the date, weekday and time, in UTC or in a time zone.";
        let spec = arguments::spec::<Arguments>("clock", description, Effect::None, Duration::from_secs(5));
        let spec = ToolSpec { kind: Some(ToolKind::Clock), deferred: true, ..spec };
        Self { spec, clock }
    }
}

#[async_trait]
impl Tool for ClockTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        let Arguments { timezone } = arguments::read(arguments)?;
        let now = Timestamp::from_millisecond(self.clock.now().0)
            .map_err(|_| ToolFailure::failed("The clock of this machine is far off; the time is not known."))?;
        let name = match timezone.as_deref().map(str::trim) {
            None | Some("") => return Ok(show(now, TimeZone::UTC).into()),
            Some(name) => name.to_owned(),
        };
        // The first look-up of a zone reads the system's zone files, which blocks.
        let zone = tokio::task::spawn_blocking(move || zone(&name)).await;
        let zone = zone.map_err(|_| ToolFailure::failed("The time zones could not be read."))??;
        Ok(show(now, zone).into())
    }
}

/// Finds a zone in the system's time zone database, or in the bundled one if the system has none.
fn zone(name: &str) -> Result<TimeZone, ToolFailure> {
    let database = db();
    if name.len() <= MAX_ZONE_BYTES
        && let Ok(zone) = database.get(name)
    {
        return Ok(zone);
    }
    let shown: String = name.chars().take(MAX_ZONE_BYTES).filter(|c| !c.is_control()).collect();
    let names: Vec<String> = database.available().map(|name| name.to_string()).collect();
    let near = nearest_names(&shown.replace(' ', "_"), &names, 3);
    Err(ToolFailure::failed(format!("There is no time zone {shown:?}.{}", did_you_mean(&near))))
}

fn show(now: Timestamp, zone: TimeZone) -> String {
    let name = zone.iana_name().unwrap_or("UTC").to_owned();
    let local = now.to_zoned(zone);
    if name == "UTC" {
        return local.strftime("%A, %Y-%m-%d %H:%M:%S UTC").to_string();
    }
    format!("{} (UTC{}, {name})", local.strftime("%A, %Y-%m-%d %H:%M:%S %Z"), local.strftime("%:z"))
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZoneDatabase;
    use serde_json::json;

    use super::*;
    use crate::testing::{FixedClock, call, failure};

    /// 2026-11-20T19:43:00Z.
    const NOW: i64 = 1_795_203_780_000;

    #[tokio::test]
    async fn the_time_is_shown_in_the_requested_zone() {
        let tool = ClockTool::new(Arc::new(FixedClock(NOW)));
        for (arguments, expected) in [
            (json!({}), "Friday, 2026-11-20 19:43:00 UTC"),
            (json!({"timezone": null}), "Friday, 2026-11-20 19:43:00 UTC"),
            (json!({"timezone": ""}), "Friday, 2026-11-20 19:43:00 UTC"),
            (json!({"timezone": "UTC"}), "Friday, 2026-11-20 19:43:00 UTC"),
            (json!({"timezone": "Asia/Tokyo"}), "Saturday, 2026-11-21 04:43:00 JST (UTC+09:00, Asia/Tokyo)"),
            (json!({"timezone": " europe/berlin "}), "Friday, 2026-11-20 20:43:00 CET (UTC+01:00, Europe/Berlin)"),
            (json!({"timezone": "Asia/Kathmandu"}), "Saturday, 2026-11-21 01:28:00 +0545 (UTC+05:45, Asia/Kathmandu)"),
        ] {
            assert_eq!(call(&tool, arguments.clone()).await, Ok(expected.to_owned()), "{arguments}");
        }
    }

    #[tokio::test]
    async fn an_unknown_zone_is_refused_with_the_nearest_names() {
        let tool = ClockTool::new(Arc::new(FixedClock(NOW)));
        for (zone, expected) in [
            ("Tokyo", "Asia/Tokyo"),
            ("Asia/Tokio", "Asia/Tokyo"),
            ("new york", "America/New_York"),
            ("Europe/Berln", "Europe/Berlin"),
            ("../../etc/passwd", "There is no time zone \"../../etc/passwd\"."),
            ("/etc/localtime", "There is no time zone"),
        ] {
            let text = failure(call(&tool, json!({ "timezone": zone })).await);
            assert!(text.contains(expected), "{zone}: {text}");
        }
        let long = failure(call(&tool, json!({ "timezone": "x".repeat(100_000) })).await);
        assert!(long.len() < 300, "{long}");
    }

    #[tokio::test]
    async fn a_date_beyond_the_calendar_is_a_failure() {
        let tool = ClockTool::new(Arc::new(FixedClock(i64::MAX)));
        failure(call(&tool, json!({})).await);
    }

    #[tokio::test]
    async fn arguments_that_do_not_fit_are_a_failure() {
        let tool = ClockTool::new(Arc::new(FixedClock(NOW)));
        for arguments in [json!({"zone": "UTC"}), json!({"timezone": 1})] {
            assert!(failure(call(&tool, arguments).await).contains("do not match"));
        }
    }

    #[test]
    fn time_zones_are_built_in_for_machines_without_their_own() {
        assert!(TimeZoneDatabase::bundled().get("Asia/Tokyo").is_ok());
    }
}
