//! The soak: a daemon under a steady load, and its memory, descriptors and files over time.
//!
//! Eight conversations send twenty messages a second together, each tenth with two rounds of a tool. A session has ten
//! messages; the next one has a new connection. So sessions, connections and stored messages accumulate, and nothing
//! else should.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use crate::Options;
use crate::conditions::Conditions;
use crate::daemon::Daemon;
use crate::figures::print;
use crate::growth::Growth;
use crate::http::Connection;
use crate::model::Model;
use crate::scenarios::say;

/// Conversations at the same time.
const CONVERSATIONS: u32 = 8;
/// Time between two messages of a conversation: twenty a second over all.
const EVERY: Duration = Duration::from_millis(400);
/// Messages of a session before a new one begins; the last one calls tools.
const SESSION_MESSAGES: u64 = 10;
/// Least number of lines, and longest time between two of them.
const LINES_MIN: u32 = 30;
const LINE_EVERY_MAX: Duration = Duration::from_secs(60);

/// The daemon at one time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    /// Seconds since the start of the load.
    at_s: f64,
    /// Answered messages since then.
    messages: u64,
    /// Resident memory that belongs to no file, such as the heap.
    anonymous_mib: f64,
    /// Resident memory of files: mapped code and its data.
    file_mib: f64,
    descriptors: f64,
    database_mib: f64,
    wal_mib: f64,
}

/// A quantity that must not grow without end.
struct Bounded {
    name: &'static str,
    unit: &'static str,
    /// Growth that is no sign of a leak, in the unit.
    slack: f64,
    of: fn(&Sample) -> f64,
}

const BOUNDED: [Bounded; 4] = [
    // Sessions stay awake for a minute: a hundred of them, with their caches.
    Bounded { name: "anonymous memory", unit: "MiB", slack: 4.0, of: |sample| sample.anonymous_mib },
    // Code is mapped when it is first used.
    Bounded { name: "file-backed memory", unit: "MiB", slack: 4.0, of: |sample| sample.file_mib },
    // Connections of sessions that begin and end at the moment of a sample.
    Bounded { name: "descriptors", unit: "", slack: 8.0, of: |sample| sample.descriptors },
    // SQLite: a checkpoint begins at 1,000 pages of 4 KiB.
    Bounded { name: "write-ahead log", unit: "MiB", slack: 4.0, of: |sample| sample.wal_mib },
];

/// Runs the load for this long, and prints a line for each interval.
///
/// # Errors
/// An answer was wrong, the daemon ended, or a quantity grows without end.
pub(crate) async fn run(options: &Options, minutes: f64) -> Result<()> {
    let conditions = Conditions::now(&options.belay);
    let model = Model::start()?;
    let daemon = Daemon::start(options, model.address)?;
    let answered: Arc<AtomicU64> = Arc::default();
    let mut clients = JoinSet::new();
    for number in 0..CONVERSATIONS {
        clients.spawn(converse(daemon.address, number, Arc::clone(&answered)));
    }
    let (begin, total) = (Instant::now(), Duration::from_secs_f64(minutes * 60.0));
    let every = (total / LINES_MIN).min(LINE_EVERY_MAX);
    if !options.json {
        print(&format!("{}\n\n{HEAD}", conditions.line()));
    }
    let mut samples = Vec::new();
    let mut at = begin + every;
    // A rounded interval must not lose the last line.
    while at <= begin + total + Duration::from_millis(1) {
        tokio::select! {
            Some(ended) = clients.join_next() => ended.context("a client crashed")??,
            () = sleep_until(at) => {
                let sample = sample(&daemon, begin, answered.load(Relaxed)).context("the daemon cannot be read")?;
                if !options.json {
                    print(&line(&sample));
                }
                samples.push(sample);
                at += every;
            }
        }
    }
    clients.shutdown().await;
    judge(options, &conditions, &samples)
}

/// Prints the judgement of each quantity.
fn judge(options: &Options, conditions: &Conditions, samples: &[Sample]) -> Result<()> {
    let judged = judged(samples);
    let growing: Vec<_> = judged.iter().filter(|(_, growth)| growth.grows).map(|(it, _)| it.name).collect();
    if options.json {
        let verdicts: Vec<_> =
            judged.iter().map(|(it, growth)| json!({"name": it.name, "unit": it.unit, "growth": growth})).collect();
        let whole = json!({
            "conditions": conditions, "samples": samples, "verdicts": verdicts, "passed": growing.is_empty(),
        });
        print(&serde_json::to_string_pretty(&whole)?);
    } else {
        print(
            "\nThe medians of the middle and the last third of the time. The last one must not be more than a tenth and a fixed\namount above the middle one; the database grows with its messages and has no limit.\n",
        );
        for (it, Growth { middle, last, limit, grows }) in &judged {
            let met = if *grows { "GROWS" } else { "ok" };
            let line = format!("{:18} {middle:8.1} {last:8.1} {:4} at most {limit:8.1}  {met}", it.name, it.unit);
            print(&line);
        }
    }
    if !growing.is_empty() {
        bail!(
            "growth without end: {}. Run it for longer to see whether it ends, then look for what is kept for each message",
            growing.join(", ")
        );
    }
    Ok(())
}

fn judged(samples: &[Sample]) -> Vec<(&'static Bounded, Growth)> {
    let of_one = |it: &'static Bounded| {
        let values: Vec<f64> = samples.iter().map(it.of).collect();
        (it, Growth::of(&values, it.slack))
    };
    BOUNDED.iter().map(of_one).collect()
}

const HEAD: &str = "    time  messages  anonymous MiB  file-backed MiB  descriptors  database MiB  WAL MiB";

fn line(sample: &Sample) -> String {
    let Sample { at_s, messages, anonymous_mib, file_mib, descriptors, database_mib, wal_mib } = sample;
    format!(
        "{:>8} {messages:9} {anonymous_mib:14.1} {file_mib:16.1} {descriptors:12.0} {database_mib:13.1} {wal_mib:8.1}",
        clock(*at_s)
    )
}

/// Hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn sample(daemon: &Daemon, begin: Instant, messages: u64) -> Result<Sample> {
    let memory = daemon.memory()?;
    let (database, wal) = daemon.store_bytes();
    Ok(Sample {
        at_s: begin.elapsed().as_secs_f64(),
        messages,
        anonymous_mib: memory.anonymous,
        file_mib: memory.file_backed,
        descriptors: daemon.descriptors()? as f64,
        database_mib: database as f64 / f64::from(1 << 20),
        wal_mib: wal as f64 / f64::from(1 << 20),
    })
}

/// One conversation, until it is dropped. Ends only with an error.
async fn converse(address: SocketAddr, number: u32, answered: Arc<AtomicU64>) -> Result<()> {
    // The conversations take turns.
    let mut ticks = interval_at(Instant::now() + EVERY * number / CONVERSATIONS, EVERY);
    // A daemon that cannot keep up gets fewer messages, not a burst.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for session in 0_u64.. {
        let mut connection = Connection::open(address).await?;
        for message in 1..=SESSION_MESSAGES {
            ticks.tick().await;
            let script = if message == SESSION_MESSAGES { "tool:2" } else { "tool:0" };
            say(&mut connection, &format!("soak-{number}-{session}"), script).await?;
            answered.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bounded_quantity_is_judged_and_the_database_may_grow() {
        let flat = Sample {
            at_s: 0.0,
            messages: 0,
            anonymous_mib: 20.0,
            file_mib: 20.0,
            descriptors: 20.0,
            database_mib: 20.0,
            wal_mib: 20.0,
        };
        for (change, grows) in [
            ((|sample, by| sample.anonymous_mib += by) as fn(&mut Sample, f64), &["anonymous memory"][..]),
            (|sample, by| sample.file_mib += by, &["file-backed memory"]),
            (|sample, by| sample.descriptors += by, &["descriptors"]),
            (|sample, by| sample.wal_mib += by, &["write-ahead log"]),
            (|sample, by| sample.database_mib += by, &[]),
        ] {
            let mut samples = [flat; 30];
            for (sample, by) in samples.iter_mut().zip(0_u32..) {
                change(sample, f64::from(by) * 2.0);
            }
            let growing: Vec<_> =
                judged(&samples).into_iter().filter(|(_, growth)| growth.grows).map(|(it, _)| it.name).collect();
            assert_eq!(growing, grows);
        }
    }

    #[test]
    fn a_time_has_hours_minutes_and_seconds() {
        for (seconds, expected) in [(0.0, "0:00:00"), (59.9, "0:00:59"), (3_661.0, "1:01:01"), (90_000.0, "25:00:00")] {
            assert_eq!(clock(seconds), expected);
        }
    }
}
