//! Servers in the sandbox. Needs bubblewrap, as the tests of the sandbox do.

use std::net::TcpListener;
use std::path::Path;

use belay_protocol::RunProcesses;
use belay_tools::mcp::SurveyMode;
use belay_tools::sandbox::{Sandbox, SandboxConfig};
use serde_json::{Value, json};

use super::support::{Bench, Run, ask_python, python, until};

/// Tries what it should not, and says which of it went through.
const TRIES: &str = r#"
import socket
def tried(what):
    try:
        what()
        return True
    except OSError:
        return False
def call(message):
    wanted = message["params"]["arguments"]
    say(message, json.dumps({
        "reads a secret": tried(lambda: open(wanted["secret"]).read()),
        "calls a port": tried(lambda: socket.create_connection(("127.0.0.1", wanted["port"]), 5).close()),
        "writes beside itself": tried(lambda: open("beside", "w").close()),
        "writes elsewhere": tried(lambda: open("/etc/belay-mcp-test", "w").close()),
    }))
serve([tool("t", "", {"secret": {}, "port": {}})], call)
"#;

#[tokio::test]
async fn a_server_in_the_sandbox_reaches_what_the_sandbox_grants_and_goes_with_its_run() {
    let (dir, hidden) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let secret = hidden.path().join("key");
    std::fs::write(&secret, "secret").unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = SandboxConfig {
        hide: vec![hidden.path().to_owned()],
        // The interpreter may be installed in a home directory, which is hidden.
        show: vec![ask_python("sys.base_prefix").into(), ask_python("sys.prefix").into()],
        ..SandboxConfig::default()
    };
    let sandbox = Sandbox::probe(&config, dir.path(), Path::new(env!("CARGO_BIN_EXE_belay-launch")));
    let sandbox = sandbox.unwrap_or_else(|missing| panic!("this test needs bubblewrap: {missing}"));
    let bench = Bench::walled(dir, sandbox);

    let arguments = json!({ "secret": secret, "port": port.local_addr().unwrap().port() });
    let tried = async |name: &str, settings: Value| {
        // Its path as it is inside: below the workspace, where it starts.
        let (name, mut server) = bench.script(name, TRIES, settings);
        server.command = vec![python(), "-u".into(), format!("{name}/server.py")];
        let mcp = bench.mcp(&[(name, server)]);
        let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
        assert_eq!(survey.reports[0].trouble, None, "{survey:?}");
        let run = Run::new();
        let text = run.text(&mcp.tools(&survey)[0], arguments.clone()).await;
        assert!(!bench.processes.alive(run.id).is_empty());
        bench.processes.end(run.id).await;
        until("it is gone", || bench.processes.alive(run.id).is_empty()).await;
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let found = tried("inside", json!({ "sandbox": true })).await;
    let expected = json!({
        "reads a secret": false, "calls a port": false, "writes beside itself": true, "writes elsewhere": false,
    });
    assert_eq!(found, expected);
    // Outside it can do what is tried: the walls are what keeps it from that.
    let outside = tried("outside", json!({ "sandbox": false })).await;
    assert_eq!([&outside["reads a secret"], &outside["calls a port"]], [true, true]);
    let _ = std::fs::remove_file("/etc/belay-mcp-test"); // root may write it outside
}

#[tokio::test]
async fn a_server_that_ends_for_want_of_the_network_says_what_to_set_and_what_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = Path::new(env!("CARGO_BIN_EXE_belay-launch"));
    let sandbox = Sandbox::probe(&SandboxConfig::default(), dir.path(), launcher);
    let sandbox = sandbox.unwrap_or_else(|missing| panic!("this test needs bubblewrap: {missing}"));
    let bench = Bench::walled(dir, sandbox);
    // What npx writes, but for the minutes that it takes.
    let script = "for n in $(seq 12); do echo \"npm error $n\" >&2; done; exit 1";
    let mcp = bench.mcp(&[bench.script("s", "", json!({ "command": ["sh", "-c", script], "sandbox": true }))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let report = &survey.reports[0];
    let trouble = report.trouble.as_deref().unwrap();
    assert!(trouble.starts_with("has ended: exit code 1"), "{trouble}");
    assert!(trouble.contains("needs network = true in [tools.mcp.s] and in [tools.sandbox]"), "{trouble}");
    let lines: Vec<String> = (3..=12).map(|n| format!("npm error {n}")).collect();
    assert_eq!(report.last_words, lines.join("\n"));
}

#[tokio::test]
async fn a_program_that_the_sandbox_hides_is_told_as_that() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let launcher = Path::new(env!("CARGO_BIN_EXE_belay-launch"));
    let config = SandboxConfig { hide: vec![home.path().to_owned()], ..SandboxConfig::default() };
    let sandbox = Sandbox::probe(&config, dir.path(), launcher);
    let sandbox = sandbox.unwrap_or_else(|missing| panic!("this test needs bubblewrap: {missing}"));
    let bench = Bench::walled(dir, sandbox);
    let program = home.path().join("server");
    std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
    let (program, place) = (program.to_str().unwrap(), home.path().display());
    let link = bench.path("link");
    std::os::unix::fs::symlink(program, &link).unwrap();
    let hint = format!("exists, but the sandbox hides it: name {place} in tools.sandbox.show");
    for (name, command, expected) in [
        ("program", json!([program]), format!("cannot be started: {program} {hint}")),
        ("linked", json!(["./link"]), format!("cannot be started: {program} {hint}")),
        ("argument", json!(["sh", program]), "has ended: exit code ".into()),
        (
            "inside",
            json!(["sh", "-c", "no-such-program"]),
            "has ended: exit code 127. It runs in the sandbox, and a program that it starts is missing".into(),
        ),
    ] {
        let mcp = bench.mcp(&[bench.script(name, "", json!({ "command": command, "sandbox": true }))]);
        let survey = mcp.survey(SurveyMode::Only).await.unwrap();
        let trouble = survey.reports[0].trouble.as_deref().unwrap();
        assert!(trouble.starts_with(&expected), "{name}: {trouble}");
        assert!(trouble.contains("tools.sandbox.show") && !trouble.contains("network"), "{name}: {trouble}");
    }
}

#[tokio::test]
async fn more_network_than_the_sandbox_grants_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = Path::new(env!("CARGO_BIN_EXE_belay-launch"));
    let sandbox = Sandbox::probe(&SandboxConfig::default(), dir.path(), launcher);
    let sandbox = sandbox.unwrap_or_else(|missing| panic!("this test needs bubblewrap: {missing}"));
    let bench = Bench::walled(dir, sandbox);
    let mcp = bench.mcp(&[bench.script("s", "", json!({ "sandbox": true, "network": true }))]);
    let survey = mcp.survey(SurveyMode::Only).await.unwrap();
    let expected = "cannot be started: it is to run in the sandbox, and the sandbox gives no network: \
                    tools.sandbox.network is false";
    assert_eq!(survey.reports[0].trouble.as_deref(), Some(expected));
}
