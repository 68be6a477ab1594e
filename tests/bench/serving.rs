//! The measurements for the backend of a chat bot: the delay before the model call, the age of streamed chunks, and
//! the memory of thousands of runs that wait for a slow model.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Options;
use crate::daemon::Daemon;
use crate::figures::{Mark, Report, quantile_ms};
use crate::http::{Connection, find};
use crate::slow::{STAMP, SlowModel};

/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two chunks of a `drip` answer.
const EVERY_MS: u64 = 100;
/// Connections for messages whose answers nobody waits for.
const SENDERS: usize = 8;

/// The amount of work.
struct Size {
    repetitions: usize,
    marks: u64,
    streams: usize,
    pieces: usize,
    waiting: usize,
}

impl Size {
    fn of(options: &Options) -> Self {
        match options.quick {
            true => Self { repetitions: 1, marks: 100, streams: 50, pieces: 20, waiting: 500 },
            false => Self { repetitions: 3, marks: 400, streams: 200, pieces: 50, waiting: 5000 },
        }
    }
}

/// Measures everything, in the order of the table.
pub(crate) async fn all(options: &Options, report: &mut Report) -> Result<()> {
    let size = Size::of(options);
    asked(options, &size, report).await?;
    pieces(options, &size, report).await?;
    waiting(options, &size, report).await
}

/// Measures the time from the answer "accepted" to the first byte of the model request. The answer takes about as long
/// to reach this client as the request takes to reach the model. The difference is therefore the time of the daemon.
async fn asked(options: &Options, size: &Size, report: &mut Report) -> Result<()> {
    let mut p50 = Vec::new();
    for _ in 0..size.repetitions {
        let model = SlowModel::start()?;
        let daemon = Daemon::start(options, model.address)?;
        let mut connection = Connection::open(daemon.address).await?;
        let mut took = Vec::new();
        for mark in 0..size.marks {
            let accepted = send(&mut connection, &format!("asked-{}", mark % 20), &format!("mark:{mark}")).await?;
            let at = until("the model to be asked", || model.asked(mark)).await?;
            // The first message of each session opens its lane and is not counted.
            if mark >= 20 {
                took.push(at.saturating_duration_since(accepted));
            }
        }
        p50.push(quantile_ms(&mut took, 0.5));
    }
    report.add("from accepted to asking the model, p50", "ms", &p50).mark(Mark::AtMost(1.0));
    Ok(())
}

/// Measures the age of a chunk when a client reads it: through the daemon, and directly from the model.
async fn pieces(options: &Options, size: &Size, report: &mut Report) -> Result<()> {
    let (mut bare, mut through) = (Vec::new(), Vec::new());
    for _ in 0..size.repetitions {
        let model = SlowModel::start()?;
        bare.push(quantile_ms(&mut ages(&model, model.address, size).await?, 0.99));
        let wide = options.with(&["agent.max_concurrent_turns=1000"]);
        let daemon = Daemon::start(&wide, model.address)?;
        through.push(quantile_ms(&mut ages(&model, daemon.address, size).await?, 0.99));
    }
    let floor = crate::figures::median(&bare);
    let streams = size.streams;
    report.add(format!("floor: a piece straight from the model, {streams} streams, p99"), "ms", &bare);
    let name = format!("a piece through the daemon, {streams} streams, p99");
    report.add(name, "ms", &through).over_floor(floor).mark(Mark::AtMost(2.0));
    Ok(())
}

/// The ages of all chunks of concurrent answers.
async fn ages(model: &SlowModel, address: SocketAddr, size: &Size) -> Result<Vec<Duration>> {
    let mut readers = JoinSet::new();
    let (events, mut ages) = (tokio::sync::mpsc::channel(1024), Vec::new());
    let (found, mut stamps) = events;
    for number in 0..size.streams {
        let (found, pieces) = (found.clone(), size.pieces);
        readers.spawn(async move {
            // The answers begin at different times, so that their chunks do not coincide.
            sleep(Duration::from_millis(number as u64 * EVERY_MS / 200)).await;
            read_stream(address, number, pieces, &found).await
        });
    }
    drop(found);
    let all = async {
        while let Some(stamp) = stamps.recv().await {
            ages.push(model.age(stamp));
        }
    };
    timeout(PATIENCE, all).await.context("the streams did not end")?;
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    ensure!(ages.len() == size.streams * size.pieces, "{} pieces of {}", ages.len(), size.streams * size.pieces);
    Ok(ages)
}

/// Reads one `drip` answer and forwards the stamp of each chunk as it arrives.
async fn read_stream(
    address: SocketAddr,
    number: usize,
    pieces: usize,
    found: &tokio::sync::mpsc::Sender<u64>,
) -> Result<()> {
    let body = format!(
        r#"{{"model":"belay","stream":true,"user":"drip-{number}","messages":[{{"role":"user","content":"drip:{pieces}:{EVERY_MS}"}}]}}"#
    );
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let begins = format!("\"content\":\"{STAMP}");
    let mut buffer = Vec::with_capacity(16 << 10);
    while find(&buffer, b"[DONE]").is_none() {
        if stream.read_buf(&mut buffer).await? == 0 {
            bail!("a stream ended before its last piece: {}", String::from_utf8_lossy(&buffer));
        }
        while let Some(at) = find(&buffer, begins.as_bytes()) {
            let digits = at + begins.len();
            let Some(end) = buffer[digits..].iter().position(|byte| *byte == b' ') else { break };
            let stamp = std::str::from_utf8(&buffer[digits..digits + end])?.parse().context("a stamp")?;
            buffer.drain(..digits + end);
            if found.send(stamp).await.is_err() {
                bail!("nobody counts any more");
            }
        }
    }
    Ok(())
}

/// Measures the memory while thousands of runs wait for the model, each in a conversation of its own.
async fn waiting(options: &Options, size: &Size, report: &mut Report) -> Result<()> {
    let model = SlowModel::start()?;
    let wide = options.with(&["agent.max_concurrent_turns=10000", "queue.max_messages_per_sender=10000"]);
    let daemon = Daemon::start(&wide, model.address)?;
    // As in a daemon that has been at work: the server has answered once.
    send(&mut Connection::open(daemon.address).await?, "first", "mark:0").await?;
    until("the model to be asked", || model.asked(0)).await?;
    sleep(Duration::from_millis(500)).await;
    let mut senders = JoinSet::new();
    let (address, runs) = (daemon.address, size.waiting);
    for sender in 0..SENDERS {
        senders.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for number in (sender..runs).step_by(SENDERS) {
                send(&mut connection, &format!("waits-{number}"), "hold").await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    until("all runs to ask", || (model.held() == runs).then_some(())).await?;
    sleep(Duration::from_secs(1)).await;
    let memory = daemon.rss_mib()?;
    model.release();
    let mut connection = Connection::open(daemon.address).await?;
    let begin = Instant::now();
    while !status(&mut connection).await?.contains("0 running, 0 queued") {
        ensure!(begin.elapsed() < PATIENCE, "the runs did not end once the model had answered");
        sleep(Duration::from_millis(50)).await;
    }
    report
        .add(format!("memory with {runs} runs that wait for the model (RSS)"), "MiB", &[memory])
        .mark(Mark::AtMost(200.0));
    Ok(())
}

/// Sends a message without waiting for its answer. Returns the time of its acceptance.
async fn send(connection: &mut Connection, session: &str, text: &str) -> Result<Instant> {
    let body = format!(r#"{{"session":"{session}","text":"{text}"}}"#);
    let answer = connection.post("/api/v1/messages", body.as_bytes()).await?;
    let at = Instant::now();
    ensure!(answer.status == 202, "HTTP {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(at)
}

async fn status(connection: &mut Connection) -> Result<String> {
    let answer = connection.post("/api/v1/messages", br#"{"session":"operator","text":"/status"}"#).await?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

/// Polls until there is a value.
async fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(begin.elapsed() < PATIENCE, "waited too long for {what}");
        sleep(Duration::from_micros(200)).await;
    }
}
