//! The measurements of autonomous work: the cost of ten thousand waiting routines and a thousand queued jobs, and the
//! delay of routines.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use belay_protocol::UnixMillis;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Options;
use crate::daemon::Daemon;
use crate::figures::{Mark, Report, median, milliseconds, quantile_ms};
use crate::floor::two_syncs;
use crate::http::Connection;
use crate::model::Model;
use crate::slow::SlowModel;

/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(120);
/// Connections over which routines and jobs are created.
const MAKERS: usize = 8;
/// Time between two scheduled times in the steady series: twenty per second.
const EVERY_MS: i64 = 50;
/// Routines that are due at the same instant.
const HERD: u64 = 100;
/// A date in the far future.
const FAR: &str = "at 2090-01-01T00:00";
/// Two principals, since one may have at most ten thousand routines.
const TOKENS: [(&str, &str); 2] = [("BELAY_OPERATOR_TOKEN", OPERATOR), ("BELAY_TOKEN", CLIENT)];
const OPERATOR: &str = "bench-operator";
const CLIENT: &str = "bench-client";

/// The amount of work.
struct Size {
    routines: usize,
    /// The number of routines that start one after the other.
    fire: u64,
    looks: usize,
    single: u64,
    messages: usize,
    jobs: usize,
}

impl Size {
    fn of(options: &Options) -> Self {
        match options.quick {
            true => Self { routines: 1000, fire: 200, looks: 100, single: 5, messages: 100, jobs: 200 },
            false => Self { routines: 10_000, fire: 1200, looks: 500, single: 20, messages: 400, jobs: 1000 },
        }
    }
}

/// Measures everything, in the order of the table.
pub(crate) async fn all(options: &Options, report: &mut Report) -> Result<()> {
    let size = Size::of(options);
    if options.wants("routines") {
        schedules(options, &size, report).await?;
        patterns(options, &size, report).await?;
    }
    if options.wants("jobs") {
        jobs(options, &size, report).await?;
    }
    Ok(())
}

/// Adds settings under which only the time limits routines, and two principals.
fn open(options: &Options) -> Options {
    let options = options.with(&[
        "routines.max_concurrent=1000",
        "routines.max_per_person=10000",
        "agent.max_concurrent_turns=1000",
    ]);
    Options { environment: TOKENS.to_vec(), ..options }
}

/// Measures the cost of a tick of the engine, and the delay between the scheduled time of a routine and its model
/// call.
async fn schedules(options: &Options, size: &Size, report: &mut Report) -> Result<()> {
    let model = SlowModel::start()?;
    let empty = looks(&Daemon::start(&open(options), model.address)?, size.looks).await?;
    let daemon = Daemon::start(&open(options), model.address)?;
    let idle = daemon.rss_mib()?;
    let many = size.routines;
    make(&daemon, many, OPERATOR, "/api/v1/routines", |n| routine(&format!("far{n}"), schedule(FAR), "mark:0")).await?;
    let name = format!("{many} routines: a change of one and the look that it sets off, processor time");
    let figure = report.add(name, "ms", &[looks(&daemon, size.looks).await?]).over_floor(empty);
    figure.mark(Mark::AtMost(5.0));
    report.notes.push(format!("The floor of a look is the same change where there is one routine ({empty:.2} ms)."));
    report.add(format!("{many} routines: memory over idle (RSS)"), "MiB", &[daemon.rss_mib()? - idle]);

    let mut alone = Vec::new();
    for mark in 1..=size.single {
        alone.extend(fire(&daemon, &model, &[(mark, in_ms(700))]).await?);
    }
    let name = format!("{many} routines, 1 due: from its time to asking the model, p50");
    report.add(name, "ms", &[quantile_ms(&mut alone, 0.5)]);
    let at = in_ms(3000);
    let herd: Vec<_> = (0..HERD).map(|n| (10_000 + n, at)).collect();
    let mut herd = fire(&daemon, &model, &herd).await?;
    let forced = median(&two_syncs(&options.data, 50)?.into_iter().map(milliseconds).collect::<Vec<_>>()) / 2.0;
    let name = format!("{many} routines, {HERD} due at once: until the last asks the model");
    report.add(name, "ms", &[quantile_ms(&mut herd, 1.0)]).over_floor(forced * HERD as f64);
    report
        .notes
        .push(format!("The floor of {HERD} that are due at once is as many forced writes, one after the other."));

    let from = in_ms(10_000).0;
    let steady: Vec<_> = (0..size.fire).map(|n| (20_000 + n, UnixMillis(from + n as i64 * EVERY_MS))).collect();
    let mut steady = fire(&daemon, &model, &steady).await?;
    let name =
        |share| format!("{many} routines, {} a second: from their time to asking the model, {share}", 1000 / EVERY_MS);
    report.add(name("p50"), "ms", &[quantile_ms(&mut steady, 0.5)]);
    report.add(name("p99"), "ms", &[quantile_ms(&mut steady, 0.99)]).mark(Mark::AtMost(200.0));
    Ok(())
}

/// Processor milliseconds of a change of a routine without a trigger. Each change wakes the engine, which looks for
/// due routines.
async fn looks(daemon: &Daemon, times: usize) -> Result<f64> {
    let mut connection = Connection::open(daemon.address).await?.with_token(CLIENT);
    create(&mut connection, "/api/v1/routines", &routine("still", json!({"kind": "manual"}), "mark:0")).await?;
    let before = daemon.cpu()?;
    for time in 0..times {
        let change = if time % 2 == 0 { "disable" } else { "enable" };
        let answer = connection.post(&format!("/api/v1/routines/still/{change}"), b"").await?;
        ensure!(answer.status == 200, "HTTP {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok(milliseconds(daemon.cpu()?.saturating_sub(before)) / times as f64)
}

/// Creates a routine for each of these dates, each with a mark, and measures the delay between the date and the model
/// call.
async fn fire(daemon: &Daemon, model: &SlowModel, dates: &[(u64, UnixMillis)]) -> Result<Vec<Duration>> {
    make(daemon, dates.len(), CLIENT, "/api/v1/routines", |n| {
        let (mark, at) = dates[n];
        routine(&format!("mark{mark}"), schedule(&format!("at {}", at.to_rfc3339())), &format!("mark:{mark}"))
    })
    .await?;
    ensure!(
        dates.iter().all(|(_, at)| at.0 > now().0),
        "routines were made after their dates: this machine is too busy"
    );
    // A reading of the clock, with the monotonic time of that reading.
    let (date, point) = (now(), Instant::now());
    let mut late = Vec::with_capacity(dates.len());
    for (mark, at) in dates {
        let begin = Instant::now();
        let asked = loop {
            if let Some(asked) = model.asked(*mark) {
                break asked;
            }
            let left = Duration::from_millis(u64::try_from(at.0 - now().0).unwrap_or(0));
            ensure!(begin.elapsed() < left + PATIENCE, "the routine of mark {mark} did not fire");
            sleep(Duration::from_millis(5)).await;
        };
        let due = point + Duration::from_millis(u64::try_from(at.0 - date.0)?);
        late.push(asked.saturating_duration_since(due));
    }
    Ok(late)
}

/// Measures a message that matches none of the patterns of other people's routines, or of its own sender's.
async fn patterns(options: &Options, size: &Size, report: &mut Report) -> Result<()> {
    let model = Model::start()?;
    let many = size.routines;
    let mut without = 0.0;
    for (token, whose) in [(None, ""), (Some(OPERATOR), "others"), (Some(CLIENT), "its sender")] {
        let daemon = Daemon::start(&open(options), model.address)?;
        let idle = converse(&daemon, size.messages).await?;
        let Some(token) = token else {
            without = idle.0;
            report.add("floor: a message where no routine waits for one, processor time", "ms", &[without]);
            continue;
        };
        make(&daemon, many, token, "/api/v1/routines", |n| {
            let trigger = json!({"kind": "event", "pattern": format!("(?i)^please see to number {n}\\b")});
            routine(&format!("event{n}"), trigger, "tool:0")
        })
        .await?;
        let (cpu, memory) = converse(&daemon, size.messages).await?;
        let name = format!("a message past {many} patterns of {whose}, processor time");
        report.add(name, "ms", &[cpu]).over_floor(without);
        report.add(format!("{many} patterns of {whose}: memory over none (RSS)"), "MiB", &[memory - idle.1]);
    }
    Ok(())
}

/// Processor milliseconds of the daemon per message, and its memory after all messages.
async fn converse(daemon: &Daemon, messages: usize) -> Result<(f64, f64)> {
    let mut connection = Connection::open(daemon.address).await?.with_token(CLIENT);
    let before = daemon.cpu()?;
    for n in 0..messages {
        let body = json!({"session": format!("talk-{}", n % 20), "text": "Please answer. tool:0", "wait_ms": 30_000});
        let answer = connection.post("/api/v1/messages", body.to_string().as_bytes()).await?;
        ensure!(answer.status == 200, "HTTP {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    }
    Ok((milliseconds(daemon.cpu()?.saturating_sub(before)) / messages as f64, daemon.rss_mib()?))
}

/// Measures memory and threads with queued jobs.
async fn jobs(options: &Options, size: &Size, report: &mut Report) -> Result<()> {
    let model = SlowModel::start()?;
    let one = open(options).with(&["jobs.max_parallel=1", "jobs.max_open_per_user=100000"]);
    let daemon = Daemon::start(&one, model.address)?;
    let job = |n: usize| json!({"task": format!("hold, and then see to number {n}")});
    make(&daemon, 1, CLIENT, "/api/v1/jobs", job).await?;
    let begin = Instant::now();
    while model.held() == 0 {
        ensure!(begin.elapsed() < PATIENCE, "the first job did not ask the model");
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_secs(1)).await;
    let (memory, threads) = (daemon.rss_mib()?, daemon.threads()?);
    make(&daemon, size.jobs, CLIENT, "/api/v1/jobs", job).await?;
    sleep(Duration::from_secs(1)).await;
    let waiting = size.jobs;
    let memory = daemon.rss_mib()? - memory;
    report
        .add(format!("{waiting} jobs that wait: memory over one at work (RSS)"), "MiB", &[memory])
        .mark(Mark::AtMost(20.0));
    let threads = daemon.threads()? - threads;
    report.add(format!("{waiting} jobs that wait: threads more"), "", &[threads]).mark(Mark::AtMost(0.0));
    ensure!(model.held() == 1, "{} jobs are at work at once, and one may be", model.held());
    model.release();
    Ok(())
}

fn schedule(when: &str) -> Value {
    json!({"kind": "schedule", "when": when, "misfire": "skip"})
}

/// A lightweight routine without guardrails.
fn routine(name: &str, trigger: Value, prompt: &str) -> Value {
    json!({
        "name": name,
        "trigger": trigger,
        "action": {"mode": "lightweight", "prompt": prompt},
        "guard": {"cooldown_s": 0, "max_concurrent": 1, "dedup_window_s": 0, "max_failures": 0},
    })
}

/// Creates objects over several concurrent connections, in the name of the principal of this token.
async fn make(
    daemon: &Daemon,
    many: usize,
    token: &'static str,
    path: &'static str,
    body: impl Fn(usize) -> Value,
) -> Result<()> {
    let mut makers = JoinSet::new();
    for maker in 0..MAKERS.min(many) {
        let mut connection = Connection::open(daemon.address).await?.with_token(token);
        let bodies: Vec<Value> = (maker..many).step_by(MAKERS).map(&body).collect();
        makers.spawn(async move {
            for body in bodies {
                create(&mut connection, path, &body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(made) = makers.join_next().await {
        made.context("a maker crashed")??;
    }
    Ok(())
}

async fn create(connection: &mut Connection, path: &str, body: &Value) -> Result<()> {
    let answer = connection.post(path, body.to_string().as_bytes()).await?;
    ensure!(matches!(answer.status, 201 | 202), "HTTP {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(())
}

fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn in_ms(ms: i64) -> UnixMillis {
    UnixMillis(now().0 + ms)
}
