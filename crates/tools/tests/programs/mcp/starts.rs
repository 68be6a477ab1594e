//! Servers that start slowly: how many at a time, how long, and what happens when they come after the start.

use std::path::Path;
use std::time::Duration;

use belay_tools::mcp::Mcp;
use serde_json::json;

use super::support::{Bench, Run, is_alive, offered, until};

/// Waits for the file `go` beside the script before it says anything, and notes its process id.
const SLOW: &str = r#"
note(str(os.getpid()))
while not os.path.exists(os.path.join(here, "go")):
    time.sleep(0.01)
"#;

fn slow(bench: &Bench, name: &str, then: &str, start_timeout_s: u64) -> Mcp {
    let file = bench.path("mcp-tools.json");
    let slow = bench.script(name, &format!("{SLOW}{then}"), json!({ "start_timeout_s": start_timeout_s }));
    let quick = bench.script("quick", "serve([tool('t')])", json!({}));
    // The quick one is asked by the start before, so that no start waits for it.
    bench.mcp(&[slow, quick]).remembering(file).waiting(Duration::from_millis(50))
}

/// Makes the server `quick` known.
async fn with_quick(bench: &Bench) {
    let quick = bench.script("quick", "serve([tool('t')])", json!({}));
    bench.mcp(&[quick]).remembering(bench.path("mcp-tools.json")).recall().await.unwrap();
}

fn go(directory: &Path) {
    std::fs::write(directory.join("go"), "").unwrap();
}

#[tokio::test]
async fn a_server_that_comes_after_the_start_is_offered_when_it_comes_and_known_then() {
    let bench = Bench::new();
    with_quick(&bench).await;
    let mcp = slow(&bench, "s", "serve([tool('t'), tool('u')], lambda message: say(message, 'at last'))", 30);
    let (survey, _) = mcp.recall().await.unwrap();
    assert_eq!((offered(&mcp, &survey), mcp.starting()), (vec!["mcp_quick_t".to_owned()], vec!["s".to_owned()]));
    assert_eq!(survey.reports.iter().map(|report| &*report.server).collect::<Vec<_>>(), ["quick"]);
    go(&bench.path("s"));
    let mut arrivals = mcp.arrivals();
    let arrival = arrivals.next().await.unwrap().unwrap();
    let names: Vec<_> = arrival.tools.iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!((names, &arrival.report.trouble), (vec!["mcp_s_t".to_owned(), "mcp_s_u".to_owned()], &None));
    assert_eq!(Run::new().text(&arrival.tools[0], json!({})).await, "at last");
    assert!(arrivals.next().await.is_none() && mcp.starting().is_empty());
    bench.sessions.close().await;

    let next = slow(&bench, "s", "serve([tool('t'), tool('u')], lambda message: say(message, 'at last'))", 30);
    let (survey, _) = next.recall().await.unwrap();
    assert_eq!(offered(&next, &survey), ["mcp_quick_t", "mcp_s_t", "mcp_s_u"], "the next start knows it");
}

#[tokio::test]
async fn a_server_that_comes_late_pins_its_own_tools_only() {
    let bench = Bench::new();
    with_quick(&bench).await;
    let mcp = slow(&bench, "s", "serve([tool('t')])", 30);
    mcp.recall().await.unwrap();
    // The operator takes the approval of the other server back.
    std::fs::remove_file(bench.path("mcp-pins.json")).unwrap();
    go(&bench.path("s"));
    mcp.arrivals().next().await.unwrap().unwrap();
    let pins: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(bench.path("mcp-pins.json")).unwrap()).unwrap();
    assert_eq!(pins["servers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["s"]);
}

#[tokio::test]
async fn a_late_server_that_dies_or_never_comes_is_left_out_with_the_reason() {
    for (then, limit, expected) in [
        ("os._exit(7)", 30, "has ended: exit code 7"),
        ("serve([], on={'tools/list': lambda m: os._exit(8)})", 30, "has ended: exit code 8"),
        // What it did not answer depends on whether the machine has begun to run it by then.
        ("", 1, " within 1 s"),
    ] {
        let bench = Bench::new();
        with_quick(&bench).await;
        let mcp = slow(&bench, "s", then, limit);
        let (survey, _) = mcp.recall().await.unwrap();
        assert_eq!(offered(&mcp, &survey), ["mcp_quick_t"]);
        if limit > 1 {
            go(&bench.path("s"));
        }
        let mut arrivals = mcp.arrivals();
        let arrival = arrivals.next().await.unwrap().unwrap();
        let trouble = arrival.report.trouble.unwrap_or_default();
        assert!(trouble.contains(expected) && arrival.tools.is_empty(), "{trouble}");
        assert!(arrivals.next().await.is_none() && mcp.starting().is_empty());
    }
}

#[tokio::test]
async fn a_late_server_ends_with_the_daemon() {
    let bench = Bench::new();
    with_quick(&bench).await;
    let mcp = slow(&bench, "s", "", 30);
    mcp.recall().await.unwrap();
    until("it has begun", || bench.notes().len() == 1).await;
    let pid = bench.notes()[0].clone();
    assert!(is_alive(&pid));
    bench.processes.shutdown().await;
    until("it is gone", || !is_alive(&pid)).await;
    let arrival = mcp.arrivals().next().await.unwrap().unwrap();
    assert!(arrival.report.trouble.is_some() && arrival.tools.is_empty());
}

#[tokio::test]
async fn at_most_four_programs_start_at_a_time_and_all_come() {
    let bench = Bench::new();
    // Each notes its beginning and its end, and is busy for a while in between.
    let script = r#"
log = os.path.join(os.path.dirname(here), "log")
def tell(word):
    with open(log, "a") as file:
        file.write(word + "\n")
tell("+")
time.sleep(0.2)
# The connection is closed after the list, and nothing after that is sure to run.
serve([], on={"tools/list": lambda message: (tell("-"), answer(message, {"tools": [tool("t")]}))})
"#;
    let names: Vec<String> = (0..7).map(|n| format!("s{n}")).collect();
    let servers: Vec<_> = names.iter().map(|name| bench.script(name, script, json!({}))).collect();
    let mcp = bench.mcp(&servers).waiting(Duration::from_secs(3600));
    let (survey, _) = mcp.recall().await.unwrap();
    assert_eq!(offered(&mcp, &survey).len(), 7, "{survey:?}");
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    let at_once = log.lines().scan(0, |running, word| {
        *running += if word == "+" { 1 } else { -1 };
        Some(*running)
    });
    assert!(at_once.max() <= Some(4), "{log}");
}
