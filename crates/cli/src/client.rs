//! The commands for a running daemon: over its control socket, or over HTTP with a token.

mod agent;
mod approvals;
mod channels;
mod chat;
mod connection;
mod console;
mod context;
mod costs;
mod events;
mod facts;
mod freeze;
mod grants;
mod heartbeat;
mod ids;
mod jobs;
mod local_time;
mod login;
mod login_answer;
mod login_page;
mod logs;
mod memory;
mod names;
mod nodes;
mod pages;
mod people;
mod routines;
mod runs;
mod said;
mod screen;
mod send;
mod sessions;
mod shutdown;
mod status;
mod stop;
#[cfg(test)]
mod testing;
mod tools;
mod top;
mod watch;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belay_program::output::Tone;
use serde_json::Value as Json;

pub use agent::agent;
pub use approvals::{
    answer as approvals_answer, approve as approvals_approve, how_to_answer, list as approvals_list,
    show as approvals_show, waits_for,
};
pub use channels::channels;
pub use chat::chat;
pub use connection::{Client, nobody_answers};
pub use console::console;
pub use context::show as context_show;
pub use costs::costs;
pub use events::{Events, Place};
pub use freeze::{freeze, thaw};
pub use heartbeat::{now as heartbeat_now, show as heartbeat_show};
pub use ids::{IdKind, whole_id};
pub use jobs::{list as jobs_list, one as jobs_one};
pub use login::{login as mcp_login, logout as mcp_logout};
pub use logs::logs;
pub use memory::{list as memory_list, one as memory_one};
pub use nodes::nodes;
pub use people::people;
pub use reqwest::Method;
pub use routines::{RoutineTester, list as routines_list, one as routines_one};
pub use runs::{list as runs_list, show as runs_show};
pub use said::Said;
pub use screen::AnswerScreen;
pub use send::{send, verdict};
pub use sessions::{list as sessions_list, one as sessions_one};
pub use shutdown::shutdown;
pub use status::status;
pub use stop::stop;
pub use tools::{list as tools_list, one as tools_one};
pub use top::top;

/// The string at a JSON pointer; empty if there is none.
pub fn text<'a>(value: &'a Json, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

/// The number at a JSON pointer; 0 if there is none.
pub fn number(value: &Json, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Json::as_u64).unwrap_or_default()
}

/// The tone of a run's status.
fn tone_of(status: &str) -> Tone {
    match status {
        "completed" => Tone::Good,
        "failed" => Tone::Bad,
        "stopped" | "paused" => Tone::Warn,
        _ => Tone::Plain,
    }
}

/// Formats an amount in millionths of a US dollar; four decimal places below a dollar, because most runs cost less.
fn dollars(micro_usd: u64) -> String {
    let digits = if micro_usd < 1_000_000 { 4 } else { 2 };
    format!("${:.digits$}", micro_usd as f64 / 1e6)
}

/// Formats a duration for people.
fn duration_text(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        s => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Time since a date of an answer (RFC 3339 in UTC, as the daemon writes it).
fn since(rfc3339: &str) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    now.checked_sub(Duration::from_secs(seconds_of(rfc3339)?))
}

/// Time until a date of an answer; `None` when it has passed.
fn until(rfc3339: &str) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Duration::from_secs(seconds_of(rfc3339)?).checked_sub(now)
}

/// Seconds since 1970 of `2026-11-20T19:43:00.123Z`.
pub fn seconds_of(rfc3339: &str) -> Option<u64> {
    let mut parts = rfc3339.get(..19)?.split(['-', 'T', ':']).map(|part| part.parse::<i64>().ok());
    let mut next = || parts.next().flatten();
    let (year, month, day, h, m, s) = (next()?, next()?, next()?, next()?, next()?, next()?);
    // Days from civil: Howard Hinnant, http://howardhinnant.github.io/date_algorithms.html
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    u64::try_from(days * 86_400 + h * 3600 + m * 60 + s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_durations_are_formatted_for_people() {
        assert_eq!([dollars(0), dollars(120), dollars(1_234_567)], ["$0.0000", "$0.0001", "$1.23"]);
        let said = [5, 61, 3_700, 90_000].map(|s| duration_text(Duration::from_secs(s)));
        assert_eq!(said, ["5 s", "1 min", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn dates_are_read_as_they_are_written() {
        for ms in [0, 951_782_400_000, 1_795_203_780_123, 4_102_444_799_000] {
            let written = belay_protocol::UnixMillis(ms).to_rfc3339();
            assert_eq!(seconds_of(&written), u64::try_from(ms / 1000).ok(), "{written}");
        }
        assert_eq!(seconds_of("yesterday"), None);
    }
}
