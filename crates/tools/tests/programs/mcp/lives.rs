//! Lives of servers: one for each run, gone with it, and all that they have started.

use std::time::Duration;

use belay_protocol::{RunProcesses, ToolFailure};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{Bench, Run, is_alive, until};

/// Says its process id, and that of a child which ignores being asked to end.
const PIDS: &str = r#"
child = None
def call(message):
    global child
    if child is None:
        child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000"], stdin=subprocess.DEVNULL)
    say(message, f"{os.getpid()} {child.pid}")
serve([tool("t")], call)
"#;

fn pids(text: &str) -> [&str; 2] {
    let mut pids = text.split(' ');
    [pids.next().unwrap(), pids.next().unwrap()]
}

#[tokio::test]
async fn each_run_has_a_server_of_its_own_for_all_its_calls() {
    let bench = Bench::new();
    let tools = bench.one(PIDS, json!({})).await;
    let (one, two) = (Run::new(), Run::new());
    let first = one.text(&tools[0], json!({})).await;
    assert_eq!(one.text(&tools[0], json!({})).await, first);
    assert_ne!(two.text(&tools[0], json!({})).await, first);
    assert_eq!(bench.sessions.open(), 2);
    bench.sessions.close().await;
}

#[tokio::test]
async fn a_run_that_ends_takes_its_server_along_and_leaves_others_alone() {
    let bench = Bench::new();
    let tools = bench.one(PIDS, json!({})).await;
    let (one, two) = (Run::new(), Run::new());
    let (first, second) = (one.text(&tools[0], json!({})).await, two.text(&tools[0], json!({})).await);
    bench.sessions.end_run(one.id).await;
    for pid in pids(&first) {
        until("the server is gone with what it started", || !is_alive(pid)).await;
    }
    assert!(pids(&second).into_iter().all(is_alive));
    bench.sessions.close().await;
    for pid in pids(&second) {
        until("all are gone", || !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_want_to_end_is_killed() {
    let bench = Bench::new();
    let script = r#"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    serve([tool("t")], lambda message: say(message, f"{os.getpid()} {os.getpid()}"))
finally:
    time.sleep(1000)
"#;
    let tools = bench.one(script, json!({})).await;
    let run = Run::new();
    let text = run.text(&tools[0], json!({})).await;
    bench.sessions.end_run(run.id).await;
    until("it is killed", || !is_alive(pids(&text)[0])).await;
}

#[tokio::test]
async fn a_stopped_run_starts_no_server_and_its_own_is_swept_away() {
    let bench = Bench::new();
    let tools = bench.one(PIDS, json!({})).await;
    let run = Run::new();
    let text = run.text(&tools[0], json!({})).await;
    run.generation.end();
    assert_eq!(run.call(&tools[0], json!({})).await, Err(ToolFailure::Cancelled));

    let stop = CancellationToken::new();
    let sweep = async {
        until("the server of the stopped run is gone", || !is_alive(pids(&text)[0])).await;
        stop.cancel();
    };
    tokio::join!(bench.sessions.keep(stop.clone()), sweep);
    assert_eq!(bench.sessions.open(), 0);
}

#[tokio::test]
async fn a_stop_ends_the_servers_of_its_run_and_a_call_in_progress() {
    let bench = Bench::new();
    let script = r#"
def call(message):
    note(str(os.getpid()))
serve([tool("t")], call)
"#;
    let tools = bench.one(script, json!({})).await;
    let run = Run::new();
    let stop = async {
        until("the call is at work", || bench.notes().len() == 1).await;
        let alive: Vec<_> = bench.processes.alive(run.id).into_iter().map(|running| running.what).collect();
        assert_eq!(alive, ["mcp server s"]);
        bench.processes.end(run.id).await;
    };
    let (failure, ()) = tokio::join!(run.failure(&tools[0], json!({})), stop);
    assert_eq!(failure, "The MCP server s has ended: it was stopped.");
    assert!(!is_alive(&bench.notes()[0]));
    // Nothing of the run starts after that.
    assert_eq!(run.call(&tools[0], json!({})).await, Err(ToolFailure::Cancelled));
    assert!(bench.processes.alive(run.id).is_empty());
}

#[tokio::test]
async fn connections_that_nobody_uses_are_ended() {
    let bench = Bench::with(|sessions| sessions.with_idle_limit(Duration::from_millis(100)));
    let tools = bench.one(PIDS, json!({})).await;
    let text = Run::new().text(&tools[0], json!({})).await;
    let stop = CancellationToken::new();
    let idle = async {
        until("it is ended", || !is_alive(pids(&text)[0])).await;
        stop.cancel();
    };
    tokio::join!(bench.sessions.keep(stop.clone()), idle);
}

#[tokio::test]
async fn what_nobody_closes_ends_when_it_is_dropped() {
    let bench = Bench::new();
    let tools = bench.one(PIDS, json!({})).await;
    let text = Run::new().text(&tools[0], json!({})).await;
    drop((bench, tools));
    for pid in pids(&text) {
        until("the server is gone", || !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn a_server_that_died_is_started_again_but_not_time_and_again() {
    let bench = Bench::new();
    let script = r#"
def call(message):
    if message["params"]["arguments"].get("die"):
        os._exit(3)
    say(message, "ok")
serve([tool("t", "", {"die": {}})], call)
"#;
    let tools = bench.one(script, json!({})).await;
    let run = Run::new();
    for _ in 0..2 {
        let failure = run.failure(&tools[0], json!({ "die": true })).await;
        assert_eq!(failure, "The MCP server s has ended: exit code 3.");
    }
    assert_eq!(run.text(&tools[0], json!({})).await, "ok");
    run.failure(&tools[0], json!({ "die": true })).await;
    let failure = run.failure(&tools[0], json!({})).await;
    assert!(
        failure.starts_with("The MCP server s has ended 3 times in this run and is not started again."),
        "{failure}"
    );
    // Another run has a better chance.
    assert_eq!(Run::new().text(&tools[0], json!({})).await, "ok");
}
