//! The measurements of a stop: requested over HTTP, in a chat and by the command line; while the model streams, while a
//! command runs, and while 64 other conversations are busy.
//!
//! Each stop has two times, both from the request on: to its acknowledgement, and to the event that ends the run. A
//! second connection reads that event; it is open before the stop is requested. Each stopped run has a session of its
//! own. The ways to stop take turns, so that all of them meet the same conditions. A run that does not end as `stopped`
//! is a failure.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use belay_tests::socket::Socket;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Options;
use crate::daemon::Daemon;
use crate::figures::{Mark, Report, quantile_ms};
use crate::floor::two_syncs;
use crate::http::Connection;
use crate::slow::{SlowModel, started};

/// Longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);
/// Busy conversations beside the stopped one.
const BUSY: u64 = 64;
/// Messages of a busy session before a new one begins.
const SESSION_MESSAGES: usize = 10;
/// The operator's guide: a stop is answered when the runs have ended, or after 100 ms.
const ACKNOWLEDGED: Mark = Mark::AtMost(100.0);

/// The way of the request.
#[derive(Clone, Copy)]
enum Door {
    /// `POST /api/v1/runs/ID/stop`.
    Http,
    /// The message `/stop` in the same conversation, over a WebSocket.
    Chat,
    /// The program `belay stop RUN`, from its start to its end.
    Cli,
}

const DOORS: [(Door, &str); 3] =
    [(Door::Http, "over HTTP"), (Door::Chat, "by /stop in a chat"), (Door::Cli, "by belay stop")];

/// What the daemon does when the stop is requested.
#[derive(Clone, Copy)]
struct Situation {
    name: &'static str,
    /// The word of the model's script that makes the run do it.
    script: &'static str,
    /// The number of other conversations.
    busy: u64,
}

const SITUATIONS: [Situation; 3] = [
    Situation { name: "model streams", script: "stream", busy: 0 },
    Situation { name: "command runs", script: "execute", busy: 0 },
    Situation { name: "model streams, 64 busy conversations", script: "stream", busy: BUSY },
];

/// The times of one stop, from its request.
struct Stop {
    acknowledged: Duration,
    ended: Duration,
    /// Whether the acknowledgement names a run or a process that has not ended yet.
    early: bool,
}

/// The figures of one way in one situation: one value for each repetition, in milliseconds.
#[derive(Default)]
struct Samples {
    acknowledged: [Vec<f64>; 2],
    ended: [Vec<f64>; 2],
}

/// Measures everything, in the order of the table.
pub(crate) async fn all(options: &Options, report: &mut Report) -> Result<()> {
    let (repetitions, stops) = if options.quick { (1, 15) } else { (3, 100) };
    let (mut early, mut total) = (0, 0);
    let bare = bare_exchange().await? + quantile_ms(&mut two_syncs(&options.data, 100)?, 0.5) / 2.0;
    let start = start_of_the_program(options)?;
    report.add("floor of a stop: a bare HTTP exchange and one fdatasync of 4 KiB", "ms", &[bare]);
    report.add("floor of belay stop: the same and belay --version", "ms", &[bare + start]);
    for situation in SITUATIONS {
        let mut samples: [Samples; 3] = Default::default();
        for _ in 0..repetitions {
            let times = measure(options, situation, stops).await?;
            for (samples, times) in samples.iter_mut().zip(times) {
                total += times.len();
                early += times.iter().filter(|stop| stop.early).count();
                let mut acknowledged: Vec<_> = times.iter().map(|stop| stop.acknowledged).collect();
                let mut ended: Vec<_> = times.iter().map(|stop| stop.ended).collect();
                for (number, share) in [0.5, 0.99].into_iter().enumerate() {
                    samples.acknowledged[number].push(quantile_ms(&mut acknowledged, share));
                    samples.ended[number].push(quantile_ms(&mut ended, share));
                }
            }
        }
        for ((door, name), samples) in DOORS.into_iter().zip(&samples) {
            let name = |what: &str| format!("stop {name}, {}: {what}", situation.name);
            let floor = if matches!(door, Door::Cli) { bare + start } else { bare };
            let [p50, p99] = &samples.acknowledged;
            report.add(name("acknowledged, p50"), "ms", p50).over_floor(floor);
            let figure = report.add(name("acknowledged, p99"), "ms", p99).over_floor(floor);
            if !matches!(door, Door::Cli) {
                figure.mark(ACKNOWLEDGED);
            }
            for (share, samples) in ["p50", "p99"].into_iter().zip(&samples.ended) {
                report.add(name(&format!("run ended, {share}")), "ms", samples).over_floor(floor);
            }
        }
    }
    report.notes.push(format!(
        "A stop: {early} of {total} acknowledgements named a run or a process that had not ended yet. A command runs in the sandbox of the settings.\nEach p99 is of {stops} stops. The floors are medians."
    ));
    Ok(())
}

/// Median milliseconds of a request to a bare server.
async fn bare_exchange() -> Result<f64> {
    let model = SlowModel::start()?;
    let mut connection = Connection::open(model.address).await?;
    let mut samples = Vec::new();
    for _ in 0..200 {
        let begin = Instant::now();
        connection.post("/v1/chat/completions", b"mark:0").await?;
        samples.push(begin.elapsed());
    }
    Ok(quantile_ms(&mut samples, 0.5))
}

/// Median milliseconds that the program needs to start and end.
fn start_of_the_program(options: &Options) -> Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..20 {
        let begin = Instant::now();
        let output = Command::new(&options.belay).arg("--version").output();
        ensure!(output.with_context(|| format!("cannot start {}", options.belay.display()))?.status.success());
        samples.push(begin.elapsed());
    }
    Ok(quantile_ms(&mut samples, 0.5))
}

/// Stops this number of runs by each way.
async fn measure(options: &Options, situation: Situation, stops: u64) -> Result<[Vec<Stop>; 3]> {
    let model = SlowModel::start()?;
    let wide =
        options.with(&["agent.max_concurrent_turns=1000", r#"approvals.rules=[{tool="run_command",ask="never"}]"#]);
    let daemon = Daemon::start(&wide, model.address)?;
    let mut tester = Tester {
        connection: Connection::open(daemon.address).await?,
        socket: Socket::open_at(&daemon.address.to_string()).await?,
        daemon: &daemon,
        model: &model,
    };
    let load = Load::start(&daemon, situation.busy).await?;
    let mut times: [Vec<Stop>; 3] = Default::default();
    for number in 0..stops {
        for (index, (door, _)) in DOORS.into_iter().enumerate() {
            let number = 1 + number * DOORS.len() as u64 + index as u64;
            times[index].push(tester.stop(door, situation.script, number).await?);
        }
    }
    load.end()?;
    Ok(times)
}

/// The client that starts runs and stops them.
struct Tester<'a> {
    connection: Connection,
    socket: Socket,
    daemon: &'a Daemon,
    model: &'a SlowModel,
}

impl Tester<'_> {
    /// Starts a run, waits until it does what the script says, and stops it.
    async fn stop(&mut self, door: Door, script: &str, number: u64) -> Result<Stop> {
        let session = format!("stop-{number}");
        let run = self.start(&session, &format!("{script}:{number}")).await?;
        let reader = Connection::open(self.daemon.address).await?;
        let mut events = reader.events(&format!("/api/v1/runs/{run}/events")).await?;
        events.until("run_started").await?;
        let file = self.daemon.workspace().join(started(number));
        let begin = Instant::now();
        while self.model.asked(number).is_none() && !file.exists() {
            ensure!(begin.elapsed() < PATIENCE, "run {run} did not get to its \"{script}\"; is there a sandbox here?");
            sleep(Duration::from_millis(1)).await;
        }
        let ended = async {
            events.until(r#""type":"run_ended""#).await?;
            let at = Instant::now();
            events.until(r#""status":"stopped""#).await?;
            anyhow::Ok(at)
        };
        let begin = Instant::now();
        let both = async { tokio::try_join!(self.request(door, &session, &run), ended) };
        let ((at, early), ended) = timeout(PATIENCE, both).await.context("a run was not stopped")??;
        Ok(Stop { acknowledged: at.duration_since(begin), ended: ended.duration_since(begin), early })
    }

    /// Sends a message. Returns the id of its run.
    async fn start(&mut self, session: &str, text: &str) -> Result<String> {
        let body = json!({"session": session, "text": text}).to_string();
        let answer = self.connection.post("/api/v1/messages", body.as_bytes()).await?;
        let accepted: Value = serde_json::from_slice(&answer.body)?;
        ensure!(answer.status == 202, "HTTP {}: {accepted}", answer.status);
        Ok(accepted["run_id"].as_str().context("no run_id")?.to_owned())
    }

    /// Requests the stop. Returns the time of its acknowledgement, and whether it names something that has not ended.
    async fn request(&mut self, door: Door, session: &str, run: &str) -> Result<(Instant, bool)> {
        let (text, at) = match door {
            Door::Http => {
                let answer = self.connection.post(&format!("/api/v1/runs/{run}/stop"), b"").await?;
                (String::from_utf8_lossy(&answer.body).into_owned(), Instant::now())
            }
            Door::Chat => {
                let message = json!({"sessionKey": session, "message": "/stop", "idempotencyKey": session});
                (self.socket.call("chat.send", message).await?.to_string(), Instant::now())
            }
            Door::Cli => {
                let output = self.daemon.client(&["stop", run])?.output().await?;
                let at = Instant::now();
                ensure!(output.status.success(), "belay stop: {}", String::from_utf8_lossy(&output.stderr));
                (String::from_utf8_lossy(&output.stdout).into_owned(), at)
            }
        };
        let early = match door {
            Door::Http => !text.contains(r#""still_running":[]"#),
            Door::Chat => text.contains("Still ending"),
            Door::Cli => text.contains("is still ending"),
        };
        let stopped = text.contains(run) || text.contains("Interrupted.");
        ensure!(stopped || early, "the stop of {run} was answered by {text}");
        Ok((at, early))
    }
}

/// Conversations that are busy until they are ended. They have a thread of their own, which delays no measured time.
struct Load {
    thread: JoinHandle<Result<()>>,
    stop: CancellationToken,
}

impl Load {
    /// Starts this number of conversations, and waits until they have had as many answers.
    async fn start(daemon: &Daemon, conversations: u64) -> Result<Self> {
        let (stop, answered) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let (address, until, count) = (daemon.address, stop.clone(), Arc::clone(&answered));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let clients = async move {
            let mut clients = JoinSet::new();
            for number in 0..conversations {
                clients.spawn(converse(address, number, until.clone(), Arc::clone(&count)));
            }
            while let Some(client) = clients.join_next().await {
                client.context("a busy client crashed")??;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("busy".into()).spawn(move || runtime.block_on(clients))?;
        let (load, begin) = (Self { thread, stop }, Instant::now());
        while answered.load(Relaxed) < conversations && !load.thread.is_finished() {
            ensure!(begin.elapsed() < PATIENCE, "the busy conversations got no answers");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(load)
    }

    /// Ends the conversations, each after its answer.
    fn end(self) -> Result<()> {
        self.stop.cancel();
        self.thread.join().map_err(|_panic| anyhow!("the thread of the busy clients crashed"))?
    }
}

async fn converse(address: SocketAddr, number: u64, stop: CancellationToken, answered: Arc<AtomicU64>) -> Result<()> {
    let mut connection = Connection::open(address).await?;
    for message in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let session = format!("busy-{number}-{}", message / SESSION_MESSAGES);
        let body = json!({"session": session, "text": "mark:0", "wait_ms": 30_000}).to_string();
        let answer = connection.post("/api/v1/messages", body.as_bytes()).await?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200, "a busy conversation: HTTP {}: {text}", answer.status);
        answered.fetch_add(1, Relaxed);
    }
    Ok(())
}
