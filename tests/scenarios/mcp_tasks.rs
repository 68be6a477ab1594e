//! Calls that run as tasks of an MCP server, which outlives the daemon: a kill, a stop, a server that forgets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use belay_tests::daemon::{Daemon, Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// A server with one tool, each call of which is a task.
struct Server {
    /// Whether it speaks 2026-07-28.
    is_new: bool,
    seen: Mutex<Seen>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    asked: Vec<String>,
    /// The result of each task; `None`: it runs.
    tasks: BTreeMap<String, Option<Value>>,
}

impl Server {
    async fn start(is_new: bool) -> Result<(Arc<Self>, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        let server = Arc::new_cyclic(|server: &std::sync::Weak<Self>| {
            let router = Router::new().route("/mcp", any(answer)).with_state(server.clone());
            let mut serving = JoinSet::new();
            serving.spawn(async move {
                let _ = axum::serve(listener, router).await;
            });
            Self { is_new, seen: Mutex::default(), _serving: serving }
        });
        Ok((server, url))
    }

    fn asked(&self, method: &str) -> usize {
        self.change(|seen| seen.asked.iter().filter(|asked| *asked == method).count())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().expect("no panic"))
    }

    /// Ends all tasks.
    fn finish(&self) {
        let result = json!({ "content": [{ "type": "text", "text": "the work is done" }] });
        self.change(|seen| seen.tasks.values_mut().for_each(|end| *end = Some(result.clone())));
    }

    fn result(&self, method: &str, params: &Value) -> Result<Value, Value> {
        let task = |id: &str, end: Option<&Value>| {
            let status = if end.is_some() { "completed" } else { "working" };
            let mut task = json!({ "taskId": id, "status": status, "createdAt": "", "lastUpdatedAt": "" });
            let (ttl, every) = if self.is_new { ("ttlMs", "pollIntervalMs") } else { ("ttl", "pollInterval") };
            (task[ttl], task[every]) = (600_000.into(), 100.into());
            if let Some(end) = end.filter(|_| self.is_new) {
                task["result"] = end.clone();
            }
            task
        };
        let unknown = || json!({ "code": -32602, "message": "Task not found" });
        let id = params["taskId"].as_str().unwrap_or_default();
        self.change(|seen| match method {
            "server/discover" if self.is_new => Ok(json!({
                "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                "capabilities": { "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
            })),
            "initialize" if !self.is_new => Ok(json!({
                "protocolVersion": "2025-11-25", "serverInfo": { "name": "x", "version": "1" },
                "capabilities": { "tools": {}, "tasks": { "requests": { "tools": { "call": {} } } } },
            })),
            "tools/list" => Ok(json!({ "tools": [{
                "name": "work", "description": "Works.", "inputSchema": { "type": "object" },
                "execution": { "taskSupport": "required" },
            }] })),
            "tools/call" => {
                let id = format!("task-{}", seen.tasks.len());
                seen.tasks.insert(id.clone(), None);
                let mut begun = task(&id, None);
                begun["resultType"] = "task".into();
                Ok(if self.is_new { begun } else { json!({ "task": begun }) })
            }
            "tasks/get" => seen.tasks.get(id).map(|end| task(id, end.as_ref())).ok_or_else(unknown),
            "tasks/result" if !self.is_new => seen.tasks.get(id).cloned().flatten().ok_or_else(unknown),
            "tasks/cancel" => seen.tasks.get(id).map(|_| json!({ "resultType": "complete" })).ok_or_else(unknown),
            _ => Err(json!({ "code": -32601, "message": "Method not found" })),
        })
    }
}

async fn answer(State(server): State<std::sync::Weak<Server>>, request: Request) -> Response {
    let is_post = request.method() == Method::POST;
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(server) = server.upgrade().filter(|_| is_post) else {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    if message.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    server.change(|seen| seen.asked.push(method.clone()));
    let mut answer = match server.result(&method, &message["params"]) {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": error }),
    };
    (answer["jsonrpc"], answer["id"]) = ("2.0".into(), message["id"].clone());
    axum::Json(answer).into_response()
}

fn home(url: &str, model: &ModelServer) -> Home {
    Home::new().openai(&model.base_url).settings(&format!("[tools.mcp.far]\nurl = \"{url}\"\n"))
}

async fn until(what: &str, so: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(std::time::Duration::from_millis(20)).await; // polling a real process: there is no clock to pause
    }
    Ok(())
}

/// Begins a run whose call a person approves, and waits until its task is polled.
async fn begun(daemon: &Daemon, server: &Server) -> Result<String> {
    let run = daemon.send("alice", "do the work").await?;
    daemon.until(&run, "paused").await?;
    daemon.post(json!({ "session": "alice", "text": "yes" })).await?;
    let polled = server.asked("tasks/get");
    until("it is polled", || server.asked("tasks/get") > polled).await?;
    Ok(run)
}

/// The results of tools in the conversation, as the model has seen them.
fn results(model: &ModelServer) -> Vec<String> {
    let requests = model.requests();
    let all = |request: &Value| -> Vec<String> {
        let messages = request["messages"].as_array().into_iter().flatten();
        let results = messages.filter(|message| message["role"] == "tool");
        results.map(|result| result["content"].as_str().unwrap_or_default().to_owned()).collect()
    };
    requests.iter().map(all).max_by_key(Vec::len).unwrap_or_default()
}

#[tokio::test]
async fn a_call_that_runs_as_a_task_continues_after_a_kill_and_is_not_made_again() -> Result<()> {
    for is_new in [false, true] {
        let (server, url) = Server::start(is_new).await?;
        let script = vec![Answer::call("mcp_far_work", json!({}))];
        let model = ModelServer::start(script, Answer::text("finished")).await;
        let home = home(&url, &model);
        let daemon = home.start().await?;
        let run = begun(&daemon, &server).await?;
        daemon.kill().await?;

        let before = server.asked("tasks/get");
        let daemon = home.start().await?;
        until("it is polled again", || server.asked("tasks/get") > before).await?;
        assert_eq!(daemon.run(&run).await?["status"], "running", "nobody is asked again");
        server.finish();
        let run = daemon.finished(&run).await?;
        assert_eq!((&run["status"], &run["reply"]), (&json!("completed"), &json!("finished")), "{run}");
        let results = results(&model);
        ensure!(results.len() == 1 && results[0].contains("the work is done"), "{results:?}");
        ensure!(results[0].contains("<untrusted"), "{results:?}");
        assert_eq!((server.asked("tools/call"), server.asked("tasks/cancel")), (1, 0));
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_task_that_its_server_has_forgotten_has_an_unknown_outcome() -> Result<()> {
    let (server, url) = Server::start(false).await?;
    let script = vec![Answer::call("mcp_far_work", json!({}))];
    let model = ModelServer::start(script, Answer::text("it is not known")).await;
    let home = home(&url, &model);
    let daemon = home.start().await?;
    let run = begun(&daemon, &server).await?;
    daemon.kill().await?;
    server.change(|seen| seen.tasks.clear());

    let daemon = home.start().await?;
    let ended = daemon.finished(&run).await?;
    assert_eq!(ended["reply"], "it is not known", "{ended}");
    let results = results(&model);
    ensure!(results.len() == 1 && results[0].contains("outcome is unknown"), "{results:?}");
    let events = daemon.events(&run).await?;
    let finished = events.iter().find(|event| event["type"] == "tool_finished").context("an end")?;
    assert_eq!(finished["status"], "outcome_unknown", "{finished}");
    assert_eq!(server.asked("tools/call"), 1, "nothing is called again");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_stop_cancels_the_task_at_its_server() -> Result<()> {
    for is_new in [false, true] {
        let (server, url) = Server::start(is_new).await?;
        let script = vec![Answer::call("mcp_far_work", json!({}))];
        let model = ModelServer::start(script, Answer::text("no")).await;
        let daemon = home(&url, &model).start().await?;
        let run = begun(&daemon, &server).await?;
        daemon.post(json!({ "session": "alice", "text": "/stop" })).await?;
        daemon.until(&run, "stopped").await?;
        // By the end of the call, and once more by the end of the run.
        until("the server is told", || server.asked("tasks/cancel") >= 1).await?;
        let events = daemon.events(&run).await?;
        let ends: Vec<_> = events.iter().filter(|event| event["type"] == "tool_finished").collect();
        assert_eq!((ends.len(), &ends[0]["status"]), (1, &json!("cancelled")), "{ends:?}");
        daemon.shut_down().await?;
    }
    Ok(())
}
