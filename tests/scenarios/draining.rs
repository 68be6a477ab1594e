//! The end of a daemon with many readers, and what work needs while clients hold everything else.

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, client};
use belay_tests::model_server::{Answer, ModelServer};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// More than the turns that run side by side, so that some readers follow runs that wait.
const STREAMS: usize = 66;

#[tokio::test]
async fn a_drain_ends_the_stream_of_each_reader_and_leaves_nothing_to_its_limits() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url).set("agent.drain_s", 1).set("agent.max_concurrent_turns", 64);
    // On a slow machine the first run would time out before the last one is sent, and a waiting one would begin.
    let home = home.set("llm.idle_timeout_s", 3600);
    let daemon = home.start().await?;
    let mut streams = JoinSet::new();
    for n in 0..STREAMS {
        let run = daemon.send(&format!("s{n}"), "talk for ever").await?;
        let (http, url) = (client(), format!("{}/api/v1/runs/{run}/events", daemon.url));
        let response = http.get(url).send().await?;
        streams.spawn(async move { (run, response.text().await) });
    }
    let everything = client().get(format!("{}/api/v1/events", daemon.url)).send().await?;
    let silent = TcpStream::connect(daemon.url.trim_start_matches("http://")).await?;
    model.seen(64).await;
    let output = daemon.shut_down().await?;
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    for late in ["did not end in time", "could not be delivered in time", "are aborted"] {
        assert!(!output.stderr.contains(late), "{}", output.stderr);
    }
    let mut ends = Vec::new();
    while let Some(stream) = streams.join_next().await {
        let (run, text) = stream?;
        let text = text.with_context(|| format!("the stream of {run} broke"))?;
        ends.extend(text.split("\n\n").find(|event| event.contains("run_ended")).map(str::to_owned));
    }
    assert_eq!(ends.len(), 64, "two runs wait for the next start: {ends:#?}");
    everything.text().await?;
    drop(silent);
    Ok(())
}

/// The soft and the hard limit of open files of a process.
fn limit_of(pid: u32) -> Result<Rlimit> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).context("the limit")?;
    let mut numbers = files.split_whitespace().map(|number| number.parse().ok());
    let (current, maximum) = (numbers.next().context("soft")?, numbers.next().context("hard")?);
    Ok(Rlimit { current, maximum })
}

#[tokio::test]
async fn a_turn_waits_for_its_instructions_while_no_file_descriptors_are_left() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("kindly")).await;
    let home = Home::new().openai(&model.base_url);
    std::fs::create_dir_all(home.workspace())?;
    std::fs::write(home.workspace().join("AGENTS.md"), "Speak like a gardener.")?;
    let mut daemon = home.start().await?;
    let pid = Pid::from_raw(i32::try_from(daemon.pid())?);
    // The request after it uses the same connection.
    daemon.request("GET", "/healthz", None).await?;
    let before = limit_of(daemon.pid())?;
    // Its first descriptors stay open, so that it cannot get another one. Those that it has are not affected.
    let lowered = Rlimit { current: Some(3), ..before };
    prlimit(pid, Resource::Nofile, lowered).context("its limit is lowered")?;
    let run = daemon.send("alice", "hello").await?;
    daemon.logged("a run waits for its instructions").await?;
    assert_eq!(model.requests().len(), 0, "nothing works without them");
    prlimit(pid, Resource::Nofile, before).context("its limit is raised again")?;
    let finished = daemon.finished(&run).await?;
    assert_eq!(finished["reply"], "kindly", "{finished}");
    assert!(model.requests()[0].to_string().contains("Speak like a gardener."), "{:?}", model.requests());
    daemon.signal(Signal::TERM)?;
    daemon.ended().await?;
    Ok(())
}
