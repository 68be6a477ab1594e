//! The measurements of messages, and their repetitions.
//!
//! Each conversation has a closed-loop client with a connection of its own. A session has ten messages; then a new one
//! begins. Every answer is checked, since a fast wrong answer would look best. Each repetition starts a daemon with an
//! empty directory; figures are medians over repetitions.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::Options;
use crate::conditions::Conditions;
use crate::daemon::Daemon;
use crate::figures::{Mark, Report, median, milliseconds, quantile_ms};
use crate::floor::{BareHop, Floor, Sizes, two_syncs};
use crate::http::{Connection, find};
use crate::model::{Model, REPLY};
use crate::{attachments, serving, starting, stops, terminal, work};

/// Numbers of concurrent conversations.
const CONVERSATIONS: [usize; 3] = [1, 16, 64];
/// Messages of a session before a new one begins.
const SESSION_MESSAGES: usize = 10;
/// Tool rounds of a message with tools.
const TOOL_ROUNDS: usize = 10;
/// The measured turns of a long session.
const TURNS: [usize; 3] = [1, 50, 200];
/// The path for messages.
const MESSAGES: &str = "/api/v1/messages";

/// The amount of work.
struct Size {
    repetitions: usize,
    /// Messages in total, for each number of conversations.
    messages: [usize; 3],
    cold_starts: usize,
    tool_messages: usize,
    long_sessions: usize,
    syncs: usize,
}

impl Size {
    fn of(options: &Options) -> Self {
        if options.quick {
            Self {
                repetitions: 1,
                messages: [200, 480, 960],
                cold_starts: 3,
                tool_messages: 20,
                long_sessions: 1,
                syncs: 100,
            }
        } else {
            Self {
                repetitions: 3,
                messages: [600, 1600, 3200],
                cold_starts: 7,
                tool_messages: 60,
                long_sessions: 3,
                syncs: 400,
            }
        }
    }
}

/// Measures everything, in the order of the table.
pub(crate) async fn all(options: &Options) -> Result<Report> {
    let size = Size::of(options);
    let model = Model::start()?;
    let conditions = Conditions::now(&options.belay);
    let mut report = Report { conditions, quick: options.quick, ..Report::default() };
    if options.wants("messages") {
        let sizes = start(options, &size, &model, &mut report).await?;
        let floor = floor(options, &size, &model, &sizes).await?;
        report_floor(&floor, &sizes, &mut report);
        load(options, &size, &model, &floor, &mut report).await?;
        tool_rounds(options, &size, &model, &floor, &mut report).await?;
        history(options, &size, &model, &mut report).await?;
    }
    if options.wants("start") {
        starting::all(options, &mut report).await?;
    }
    if options.wants("serving") {
        serving::all(options, &mut report).await?;
    }
    if options.wants("stops") {
        stops::all(options, &mut report).await?;
    }
    if options.wants("attachments") {
        attachments::all(options, &mut report).await?;
    }
    if options.wants("terminal") {
        terminal::all(options, &mut report).await?;
    }
    work::all(options, &mut report).await?;
    Ok(report)
}

/// Measures cold starts and idle memory. Returns the sizes of the bodies.
async fn start(options: &Options, size: &Size, model: &Model, report: &mut Report) -> Result<Sizes> {
    let (mut ready, mut first) = (Vec::new(), Vec::new());
    let (mut idle, mut anonymous, mut file_backed) = (Vec::new(), Vec::new(), Vec::new());
    let mut sizes = Sizes { model_request: 0, answer: 0 };
    for _ in 0..size.cold_starts {
        let daemon = Daemon::start(options, model.address)?;
        ready.push(milliseconds(daemon.ready_after));
        let mut connection = Connection::open(daemon.address).await?;
        let answer = say(&mut connection, "first", "tool:0").await?;
        first.push(milliseconds(daemon.started.elapsed()));
        let model_request = usize::try_from(model.seen.last_bytes.load(Relaxed))?;
        sizes = Sizes { model_request, answer };
    }
    // Idle memory is measured without any message, after the daemon has released the memory of its start.
    for _ in 0..size.repetitions {
        let daemon = Daemon::start(options, model.address)?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        idle.push(daemon.rss_mib()?);
        let memory = daemon.memory()?;
        anonymous.push(memory.anonymous);
        file_backed.push(memory.file_backed);
    }
    report.add("cold start to ready", "ms", &ready).mark(Mark::AtMost(20.0));
    report.add("cold start to the first reply", "ms", &first);
    report.add("idle memory (RSS)", "MiB", &idle).mark(Mark::AtMost(16.0));
    report.add("idle memory, anonymous", "MiB", &anonymous);
    report.add("idle memory, file-backed", "MiB", &file_backed);
    Ok(sizes)
}

/// Measures the floor, with the same clients and bodies.
async fn floor(options: &Options, size: &Size, model: &Model, sizes: &Sizes) -> Result<Floor> {
    let mut floor = Floor::default();
    let mut syncs = two_syncs(&options.data, size.syncs)?;
    floor.sync_ms = quantile_ms(&mut syncs, 0.5);
    for (conversations, messages) in CONVERSATIONS.into_iter().zip(size.messages) {
        let (mut p50, mut p99, mut rate) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..size.repetitions {
            let hop = BareHop::start(model.address, sizes)?;
            let mut run = converse(hop.address, conversations, messages).await?;
            p50.push(quantile_ms(&mut run.latencies, 0.5));
            p99.push(quantile_ms(&mut run.latencies, 0.99));
            rate.push(run.rate());
        }
        floor.hops_p50_ms.insert(conversations, median(&p50));
        floor.hops_p99_ms.insert(conversations, median(&p99));
        floor.hops_rate.insert(conversations, median(&rate));
    }
    Ok(floor)
}

fn report_floor(floor: &Floor, sizes: &Sizes, report: &mut Report) {
    report.add("floor: two fdatasync of 4 KiB", "ms", &[floor.sync_ms]);
    for conversations in CONVERSATIONS {
        let name = plural(conversations);
        report.add(format!("floor: two bare hops, {name}, p50"), "ms", &[floor.hops_p50_ms[&conversations]]);
        report.add(format!("floor: two bare hops, {name}, throughput"), "msg/s", &[floor.hops_rate[&conversations]]);
    }
    report.notes.push(format!(
        "A message: {} bytes to the model, {} bytes back to the client. Its floor is two bare hops with these bodies and two forced writes;\nthe floor of a throughput is the hops alone.",
        sizes.model_request, sizes.answer
    ));
}

/// Measures throughput, latency, processor time and memory, by number of conversations.
async fn load(options: &Options, size: &Size, model: &Model, floor: &Floor, report: &mut Report) -> Result<()> {
    for (conversations, messages) in CONVERSATIONS.into_iter().zip(size.messages) {
        let (mut rate, mut p50, mut p99, mut cpu, mut peak) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..size.repetitions {
            let daemon = Daemon::start(options, model.address)?;
            // The first messages open connections and fill caches; the measurement begins after them.
            converse(daemon.address, conversations, conversations * 2).await?;
            daemon.reset_peak()?;
            let before = daemon.cpu()?;
            let mut run = converse(daemon.address, conversations, messages).await?;
            cpu.push(milliseconds(daemon.cpu()?.saturating_sub(before)) / as_f64(run.latencies.len()));
            peak.push(daemon.peak_mib()?);
            rate.push(run.rate());
            p50.push(quantile_ms(&mut run.latencies, 0.5));
            p99.push(quantile_ms(&mut run.latencies, 0.99));
        }
        let name = plural(conversations);
        let bare_p50 = floor.hops_p50_ms[&conversations] + floor.sync_ms;
        let bare_p99 = floor.hops_p99_ms[&conversations] + floor.sync_ms;
        let figure =
            report.add(format!("{name}: throughput"), "msg/s", &rate).over_floor(floor.hops_rate[&conversations]);
        if conversations == 64 {
            figure.mark(Mark::AtLeast(2000.0));
        }
        let figure = report.add(format!("{name}: added latency p50"), "ms", &p50).over_floor(bare_p50);
        if conversations == 1 {
            figure.mark(Mark::Floors(2.0));
        }
        report.add(format!("{name}: added latency p99"), "ms", &p99).over_floor(bare_p99);
        report.add(format!("{name}: processor time a message"), "ms", &cpu).mark(Mark::AtMost(0.5));
        let figure = report.add(format!("{name}: peak memory (RSS)"), "MiB", &peak);
        if conversations == 64 {
            figure.mark(Mark::AtMost(40.0));
        }
    }
    Ok(())
}

/// Measures a message with ten tool rounds, and the time of each round beyond that of a message without tools.
async fn tool_rounds(options: &Options, size: &Size, model: &Model, floor: &Floor, report: &mut Report) -> Result<()> {
    let (mut whole, mut each, mut cpu) = (vec![], vec![], vec![]);
    for _ in 0..size.repetitions {
        let daemon = Daemon::start(options, model.address)?;
        let mut connection = Connection::open(daemon.address).await?;
        say(&mut connection, "warm", "tool:2").await?;
        let (mut plain, mut tools) = (vec![], vec![]);
        let mut tools_cpu = Duration::ZERO;
        for number in 0..size.tool_messages {
            let begin = Instant::now();
            say(&mut connection, &format!("plain-{number}"), "tool:0").await?;
            plain.push(begin.elapsed());
            let (before, asked) = (daemon.cpu()?, model.seen.requests.load(Relaxed));
            let begin = Instant::now();
            say(&mut connection, &format!("tools-{number}"), &format!("tool:{TOOL_ROUNDS}")).await?;
            tools.push(begin.elapsed());
            tools_cpu += daemon.cpu()?.saturating_sub(before);
            let calls = model.seen.requests.load(Relaxed) - asked;
            ensure!(calls == TOOL_ROUNDS as u64 + 1, "{TOOL_ROUNDS} tool rounds took {calls} model calls");
        }
        let (plain, tools) = (quantile_ms(&mut plain, 0.5), quantile_ms(&mut tools, 0.5));
        whole.push(tools);
        each.push((tools - plain) / as_f64(TOOL_ROUNDS));
        cpu.push(milliseconds(tools_cpu) / as_f64(size.tool_messages));
    }
    report.add("ten tool rounds: whole message", "ms", &whole);
    report.add("ten tool rounds: processor time", "ms", &cpu);
    let figure = report.add("ten tool rounds: each round", "ms", &each).over_floor(floor.hops_p50_ms[&1]);
    figure.mark(Mark::AtMost(0.6));
    Ok(())
}

/// Measures whether a turn costs more after two hundred turns in the same session.
async fn history(options: &Options, size: &Size, model: &Model, report: &mut Report) -> Result<()> {
    let mut at: [Vec<f64>; TURNS.len()] = Default::default();
    let mut ratio = Vec::new();
    let mut sent = 0;
    let last = TURNS[TURNS.len() - 1];
    for _ in 0..size.repetitions {
        let daemon = Daemon::start(options, model.address)?;
        let mut connection = Connection::open(daemon.address).await?;
        say(&mut connection, "warm", "tool:0").await?;
        // A single turn is a noisy sample. Each turn is therefore the median over several sessions.
        let mut turns: [Vec<f64>; TURNS.len()] = Default::default();
        for session in 0..size.long_sessions {
            for turn in 1..=last {
                let begin = Instant::now();
                say(&mut connection, &format!("long-{session}"), "tool:0").await?;
                let took = milliseconds(begin.elapsed());
                if let Some(index) = TURNS.iter().position(|wanted| window(*wanted).contains(&turn)) {
                    turns[index].push(took);
                }
            }
            sent = model.seen.last_messages.load(Relaxed);
        }
        for (all, these) in at.iter_mut().zip(&turns) {
            all.push(median(these));
        }
        ratio.push(median(&turns[TURNS.len() - 1]) / median(&turns[0]));
    }
    for (turn, samples) in TURNS.into_iter().zip(&at) {
        report.add(format!("turn {turn} of a session"), "ms", samples);
    }
    report.add(format!("turn {last} over turn 1"), "times", &ratio).mark(Mark::AtMost(1.3));
    report.notes.push(format!(
        "Turn {last} sent {sent} messages to the model. Each turn is the median of it and its neighbours (±2)."
    ));
    Ok(())
}

/// The turns that are measured for `turn`: the turn itself and its neighbours.
fn window(turn: usize) -> std::ops::RangeInclusive<usize> {
    turn.saturating_sub(2).max(1)..=(turn + 2).min(TURNS[TURNS.len() - 1])
}

/// The result of one load.
struct Run {
    latencies: Vec<Duration>,
    took: Duration,
}

impl Run {
    fn rate(&self) -> f64 {
        as_f64(self.latencies.len()) / self.took.as_secs_f64()
    }
}

/// Sends this number of messages, over this number of concurrent conversations.
async fn converse(address: SocketAddr, conversations: usize, messages: usize) -> Result<Run> {
    let mut connections = Vec::with_capacity(conversations);
    for _ in 0..conversations {
        connections.push(Connection::open(address).await?);
    }
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        clients.spawn(async move {
            let mut latencies = Vec::with_capacity(messages / conversations);
            for message in 0..messages / conversations {
                let session = format!("bench-{number}-{}-{messages}", message / SESSION_MESSAGES);
                let begin = Instant::now();
                say(&mut connection, &session, "tool:0").await?;
                latencies.push(begin.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::with_capacity(messages);
    while let Some(client) = clients.join_next().await {
        latencies.extend(client??);
    }
    Ok(Run { latencies, took: begin.elapsed() })
}

/// Sends one message, checks the answer, and returns its size in bytes.
pub(crate) async fn say(connection: &mut Connection, session: &str, script: &str) -> Result<usize> {
    let body = format!(r#"{{"session":"{session}","text":"Please answer. {script}","wait_ms":30000}}"#);
    let answer = connection.post(MESSAGES, body.as_bytes()).await?;
    if answer.status == 200 && find(&answer.body, REPLY.as_bytes()).is_some() {
        return Ok(answer.body.len());
    }
    let text = String::from_utf8_lossy(&answer.body);
    let run: Value = serde_json::from_str(&text).with_context(|| format!("HTTP {}: {text}", answer.status))?;
    bail!("{script} was not answered as it should be: HTTP {}: {run}", answer.status)
}

fn plural(conversations: usize) -> String {
    if conversations == 1 { "1 conversation".into() } else { format!("{conversations} conversations") }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
