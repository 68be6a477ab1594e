//! The daemon as an MCP server: over its route, through `belay mcp serve`, and as a server of another Belay's tools.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, timeout};

/// A program's end of `belay mcp serve`.
struct Pipes {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    next: u64,
}

impl Pipes {
    fn open(home: &Home) -> Result<Self> {
        let mut command = home.command(&["mcp", "serve"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let input = child.stdin.take().context("stdin")?;
        let output = BufReader::new(child.stdout.take().context("stdout")?).lines();
        Ok(Self { child, input, output, next: 0 })
    }

    async fn say(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    async fn hear(&mut self) -> Result<Value> {
        let line = timeout(PATIENCE, self.output.next_line()).await.context("no answer")??;
        Ok(serde_json::from_str(&line.context("the output has ended")?)?)
    }

    /// Asks, and waits for the answer.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params).await?;
        let answer = self.hear().await?;
        ensure!(answer["id"] == json!(id), "{answer}");
        Ok(answer)
    }

    async fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.say(&message.to_string()).await?;
        Ok(self.next)
    }

    async fn hello(&mut self) -> Result<Value> {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let answer = self.ask("initialize", params).await?;
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
        Ok(answer)
    }

    /// Calls a tool that works, and gives its result.
    async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await?;
        ensure!(answer["result"]["isError"] == json!(false), "{answer}");
        Ok(answer["result"]["structuredContent"].clone())
    }

    /// Ends the input, and waits for the end of the program.
    async fn close(self) -> Result<Option<i32>> {
        let Self { mut child, input, .. } = self;
        drop(input);
        Ok(timeout(PATIENCE, child.wait()).await.context("it does not end with its input")??.code())
    }
}

fn home() -> Home {
    Home::new().set("gateway.mcp", true)
}

#[tokio::test]
async fn a_program_that_starts_the_relay_has_the_daemons_tools_and_keeps_them_over_a_restart() -> Result<()> {
    let home = home();
    let daemon = home.start().await?;
    let mut pipes = Pipes::open(&home)?;
    let hello = pipes.hello().await?;
    assert_eq!(hello["result"]["serverInfo"]["name"], "belay", "{hello}");
    let run =
        pipes.call("send_message", json!({ "session": "s", "text": "calculate 2*21", "wait_ms": 20_000 })).await?;
    assert!(run["reply"].as_str().unwrap_or_default().ends_with("2*21 = 42"), "{run}");

    for (line, code) in [("{", -32700), ("[]", -32600), ("nonsense", -32700)] {
        pipes.say(line).await?;
        let answer = pipes.hear().await?;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(code)), "{line}: {answer}");
    }
    pipes.say(&format!("\"{}\"", "x".repeat(5 * 1024 * 1024))).await?;
    let long = pipes.hear().await?;
    assert!(long["error"]["message"].as_str().unwrap_or_default().contains("longer than 4194304 bytes"), "{long}");
    let unknown = pipes.ask("no/such/method", json!({})).await?;
    assert!(unknown["error"]["code"].is_i64(), "{unknown}");

    daemon.shut_down().await?;
    let away = pipes.ask("tools/list", json!({})).await?;
    let words = away["error"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("the daemon does not answer") && words.contains("belay run"), "{away}");
    let daemon = home.start().await?;
    let talk = pipes.call("read_conversation", json!({ "session": "s" })).await?;
    assert_eq!(talk["messages"][0]["text"], "calculate 2*21", "the session was begun anew without a word: {talk}");

    // Its input ends while a call waits: the program ends, and the run of that call, which asked for it, is stopped.
    let arguments = json!({ "session": "w", "text": "rehearse stall 600", "wait_ms": 600_000, "stop_on_cancel": true });
    pipes.send("tools/call", json!({ "name": "send_message", "arguments": arguments })).await?;
    let run = running(&daemon, "w").await?;
    assert_eq!(pipes.close().await?, Some(0));
    assert_eq!(daemon.until(&run, "stopped").await?["reason"], "client_gone");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_request_has_no_answer_and_others_go_on() -> Result<()> {
    let home = home();
    let daemon = home.start().await?;
    let mut pipes = Pipes::open(&home)?;
    pipes.hello().await?;
    let arguments = json!({ "session": "c", "text": "rehearse stall 600", "wait_ms": 600_000 });
    let id = pipes.send("tools/call", json!({ "name": "send_message", "arguments": arguments })).await?;
    let run = running(&daemon, "c").await?; // a call that is cancelled before it is taken makes no run
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    pipes.say(&cancel.to_string()).await?;
    let sessions = pipes.call("list_sessions", json!({})).await?;
    assert!(sessions["sessions"].is_array(), "{sessions}");
    assert_eq!(pipes.close().await?, Some(0));
    assert_eq!(daemon.run(&run).await?["status"], "running", "nobody said that it should end with its call");
    Ok(())
}

/// Waits until a run of that session is at work.
async fn running(daemon: &Daemon, session: &str) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let path = format!("/api/v1/runs?session={session}&status=running");
    while Instant::now() < deadline {
        let (_, runs) = daemon.request("GET", &path, None).await?;
        if let Some(id) = runs["runs"][0]["run_id"].as_str() {
            return Ok(id.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // polling a real process: there is no clock to pause
    }
    bail!("no run of {session} began")
}

#[tokio::test]
async fn without_a_daemon_or_where_it_is_off_the_relay_says_so_and_ends() -> Result<()> {
    let home = Home::new();
    let nobody = home.run(&["mcp", "serve"], "").await?;
    assert_eq!((nobody.status.code(), nobody.stdout.as_str()), (Some(69), ""), "{nobody:?}");
    assert!(nobody.stderr.contains("no daemon is running here") && nobody.stderr.contains("belay run"), "{nobody:?}");
    let daemon = home.start().await?;
    let off = home.run(&["mcp", "serve"], "").await?;
    assert_eq!((off.status.code(), off.stdout.as_str()), (Some(69), ""), "{off:?}");
    assert!(off.stderr.contains("set gateway.mcp = true"), "{off:?}");
    let url = daemon.url.clone();
    drop(daemon);

    let locked = self::home().env("BELAY_TOKEN", "secret");
    let daemon = locked.start().await?;
    assert_ne!(url, daemon.url);
    let stranger = home.run(&["mcp", "serve", "--url", &daemon.url], "").await?;
    assert_eq!((stranger.status.code(), stranger.stderr.contains("BELAY_TOKEN")), (Some(1), true), "{stranger:?}");
    Ok(())
}

#[tokio::test]
async fn another_belay_uses_the_tools_over_http_and_over_pipes() -> Result<()> {
    let home = home().env("BELAY_TOKEN", "secret");
    let daemon = home.start().await?;
    let other = Home::new().env("REMOTE_TOKEN", "secret").env("BELAY_URL", &daemon.url).env("BELAY_TOKEN", "secret");
    let program = belay_tests::daemon::binary().display().to_string();
    let pipes = format!(
        "tools.mcp.pipes={{command=[\"{program}\", \"mcp\", \"serve\"], env_from=[\"BELAY_URL\", \"BELAY_TOKEN\"], sandbox=false}}"
    );
    let http = format!("tools.mcp.http={{url=\"{}/mcp\", token_env=\"REMOTE_TOKEN\"}}", daemon.url);
    let listed = other.run(&["mcp", "list", "--json", "--set", &pipes, "--set", &http], "").await?;
    assert!(listed.status.success(), "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    for server in listed["servers"].as_array().context("servers")? {
        let names: Vec<_> = server["tools"].as_array().context("tools")?.iter().map(|tool| &tool["tool"]).collect();
        let expected = ["list_sessions", "read_conversation", "run_status", "send_message", "stop_run"];
        let mut names: Vec<_> = names.iter().filter_map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{server}");
    }
    assert_eq!(listed["servers"].as_array().map(Vec::len), Some(2), "{listed}");
    Ok(())
}

/// A server that waits for a file before it says anything.
const SLOW: &str = r#"
import json, os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "t", "description": "Says it.", "inputSchema": {"type": "object"}}]},
    }
    if message.get("method") in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"#;

/// Waits for real until a start does not wait any longer: 10 s.
#[tokio::test]
async fn a_server_that_needs_longer_than_the_start_is_shown_as_starting_and_offered_when_it_comes() -> Result<()> {
    let home = Home::new();
    let (script, go) = (home.path().join("slow.py"), home.path().join("go"));
    std::fs::write(&script, SLOW)?;
    let server = |more: &str, program: &str| format!("{{command=[{program}], sandbox=false{more}}}");
    let slow = format!("\"python3\", {script:?}, {go:?}");
    let settings = format!(
        "[tools.mcp]\nslow = {}\nbroken = {}\n",
        server(", start_timeout_s=600", &slow),
        server("", "\"python3\", \"-c\", \"raise SystemExit(3)\"")
    );
    let home = home.settings(&settings);
    let daemon = home.start().await?;
    let state = async |name: &str| -> Result<Value> {
        let (_, servers) = daemon.request("GET", "/api/v1/mcp", None).await?;
        let servers = servers["servers"].as_array().context("servers")?.clone();
        Ok(servers.into_iter().find(|server| server["server"] == name).unwrap_or_default())
    };
    let broken = state("broken").await?;
    ensure!(broken["state"] == "left_out" && broken["detail"] == "has ended: exit code 3", "{broken}");
    ensure!(state("slow").await?["state"] == "starting", "{}", state("slow").await?);
    let status = home.run(&["status"], "").await?;
    ensure!(status.stdout.contains("mcp:slow is still starting"), "{status:?}");
    std::fs::write(&go, "")?;
    let deadline = Instant::now() + PATIENCE;
    while state("slow").await?["state"] != "ok" {
        ensure!(Instant::now() < deadline, "it does not come: {}", state("slow").await?);
        tokio::time::sleep(Duration::from_millis(20)).await; // polling a real process: there is no clock to pause
    }
    let (_, tools) = daemon.request("GET", "/api/v1/tools", None).await?;
    ensure!(tools.to_string().contains("mcp_slow_t"), "{tools}");
    daemon.shut_down().await?;
    Ok(())
}
