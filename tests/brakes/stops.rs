//! Executes the stops: starts a tree, waits until it is ready, stops it, and checks the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belay_exec::{CgroupUse, Launch, Processes, ProcessesConfig, Running, Stdin};
use belay_protocol::{Generation, RunId};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdin;
use tokio::task::JoinSet;

use crate::Options;
use crate::figures::{Report, Row};
use crate::kinds::{KINDS, Kind};

/// Longest wait for anything except a stop. A slower machine cannot be measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// State that all stops share.
struct Bench {
    processes: Processes,
    neighbour: Running,
    /// The number of words so far.
    words: AtomicU64,
}

/// The result of one stop.
struct Stopped {
    acknowledged: Duration,
    empty: Duration,
    survivors: usize,
    late_starts: usize,
    neighbour_lives: bool,
}

/// Executes the requested number of stops, kind by kind.
pub(crate) async fn all(options: &Options) -> Result<Report> {
    ensure!(options.together > 0, "--together: at least 1");
    let begin = Instant::now();
    let processes = Processes::new(ProcessesConfig { cgroup: options.cgroup, ..ProcessesConfig::default() })?;
    ensure!(
        options.cgroup == CgroupUse::Auto || !processes.has_groups(),
        "there are control groups though there shall be none"
    );
    let sleeper = sh("sleep 100000");
    let neighbour = processes.start(sleeper, RunId::new(), &Generation::default(), "neighbour").await?;
    let groups = processes.has_groups();
    let bench = Arc::new(Bench { processes, neighbour, words: AtomicU64::new(0) });
    let mut rows = Vec::new();
    for (index, kind) in KINDS.iter().enumerate() {
        let stops = options.stops / KINDS.len() + usize::from(index < options.stops % KINDS.len());
        rows.push(bench.clone().stops_of(kind, stops, options.together).await.context(kind.name)?);
    }
    let killed = bench.processes.counts().killed;
    bench.processes.shutdown().await;
    Ok(Report { rows, groups, killed, took: begin.elapsed() })
}

impl Bench {
    /// Executes this number of stops of one kind, `together` at a time.
    async fn stops_of(self: Arc<Self>, kind: &'static Kind, stops: usize, together: usize) -> Result<Row> {
        let mut row = Row::new(kind);
        let left = Arc::new(AtomicUsize::new(stops));
        let mut workers = JoinSet::new();
        // A stop that waits for the grace period uses little processor time, so that more of them run together.
        let together = if kind.waits_for_grace() { together * 4 } else { together };
        for _ in 0..together {
            let (bench, left) = (self.clone(), left.clone());
            workers.spawn(async move {
                let mut done = Vec::new();
                let take = |left: usize| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    done.push(bench.stop(kind).await?);
                }
                anyhow::Ok(done)
            });
        }
        while let Some(done) = workers.join_next().await {
            for stopped in done?? {
                row.acknowledged.push(stopped.acknowledged);
                row.empty.push(stopped.empty);
                row.survivors += stopped.survivors;
                row.late_starts += stopped.late_starts;
                row.neighbours_lost += usize::from(!stopped.neighbour_lives);
            }
        }
        row.zombies = lasting_zombies().await;
        Ok(row)
    }

    /// Starts the trees of the kind, stops them, and checks the result.
    async fn stop(&self, kind: &'static Kind) -> Result<Stopped> {
        // As a number of seconds, the word is more than eleven days.
        let word = format!("1000000.{}{:09}", std::process::id(), self.words.fetch_add(1, Ordering::Relaxed));
        let mut trees = Vec::new();
        let runs: Vec<_> = (0..kind.runs).map(|_| (RunId::new(), Generation::default())).collect();
        for (run, generation) in &runs {
            for _ in 0..kind.trees {
                let running = self.processes.start(kind.launch(&word), *run, generation, kind.name).await?;
                trees.push(Tree::ready(running, kind).await?);
            }
        }
        let begin = Instant::now();
        let racing = async {
            let (run, generation) = &runs[0];
            if kind.races {
                self.processes.start(kind.launch(&word), *run, generation, "racer").await.ok()
            } else {
                None
            }
        };
        let stopping = async {
            // The same order as in the agent: first prevent new starts, then end the processes.
            runs.iter().for_each(|(_, generation)| generation.end());
            let mut stopping: Vec<_> = runs.iter().map(|(run, _)| self.processes.stop(*run)).collect();
            for one in &mut stopping {
                one.signalled().await;
            }
            let acknowledged = begin.elapsed();
            let late = self.processes.start(kind.launch(&word), runs[0].0, &runs[0].1, "late").await;
            for one in stopping {
                one.empty().await;
            }
            (acknowledged, begin.elapsed(), late.ok())
        };
        let (racer, (acknowledged, empty, late)) = tokio::join!(racing, stopping);
        // A process that was started just before the stop belongs to the run; its starter sees that it has ended.
        if let Some(mut racer) = racer {
            racer.wait().await;
        }
        let survivors = with_word(&word);
        for mut tree in trees {
            tree.ends().await?;
        }
        let late_starts = usize::from(late.is_some());
        Ok(Stopped { acknowledged, empty, survivors, late_starts, neighbour_lives: lives(self.neighbour.pid()) })
    }
}

/// A tree that is ready, with its pipes.
struct Tree {
    stdout: BufReader<tokio::process::ChildStdout>,
    stderr: tokio::process::ChildStderr,
    _stdin: Option<ChildStdin>,
    _running: Running,
}

impl Tree {
    async fn ready(mut running: Running, kind: &Kind) -> Result<Self> {
        let (stdout, stderr) = running.take_output().context("its output")?;
        let mut tree = Self { stdout: BufReader::new(stdout), stderr, _stdin: running.take_stdin(), _running: running };
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, tree.stdout.read_line(&mut line)).await.context("it is never ready")??;
        if line != "ready\n" {
            let mut words = String::new();
            tokio::time::timeout(PATIENCE, tree.stderr.read_to_string(&mut words)).await??;
            anyhow::bail!("it cannot be what it is on this machine: {line}{words}");
        }
        let begin = Instant::now();
        while kind.stands_still && state(tree._running.pid()) != Some('T') {
            ensure!(begin.elapsed() < PATIENCE, "it does not stand still");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(tree)
    }

    /// Waits until its pipes are closed, which happens when no process holds them.
    async fn ends(&mut self) -> Result<()> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let both = async { tokio::try_join!(self.stdout.read_to_end(&mut out), self.stderr.read_to_end(&mut err)) };
        tokio::time::timeout(PATIENCE, both).await.context("somebody holds its pipes still")??;
        Ok(())
    }
}

fn sh(script: &str) -> Launch {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    Launch {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), path)],
        directory: "/".into(),
        stdin: Stdin::Null,
        isolated: false,
        sealed: None,
    }
}

/// The ids of all processes.
fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The number of processes with this word in their command line.
fn with_word(word: &str) -> usize {
    let has = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(word.len()).any(|part| part == word.as_bytes())
    };
    pids().filter(has).count()
}

/// The state of a process, and its parent.
fn stat(pid: u32) -> Option<(char, u32)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn state(pid: u32) -> Option<char> {
    Some(stat(pid)?.0)
}

fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The number of zombies that remain. A process that has lost every tie to its tree is reaped after a few seconds,
/// when no doubt about it is left.
async fn lasting_zombies() -> usize {
    let begin = Instant::now();
    while zombies() > 0 && begin.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    zombies()
}

/// The number of zombies of this process.
fn zombies() -> usize {
    pids().filter(|pid| stat(*pid) == Some(('Z', std::process::id()))).count()
}
