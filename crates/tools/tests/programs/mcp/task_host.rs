//! A server over HTTP that runs calls as tasks, in either protocol, and does with them what a test says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use belay_protocol::Tool;
use belay_tools::mcp::SurveyMode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{serve, server};
use super::support::Bench;

/// The server. Its tasks outlive the connections.
pub(super) struct TaskHost {
    /// Whether it speaks 2026-07-28.
    is_new: bool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
pub(super) struct Seen {
    /// Methods with their parameters, in order.
    pub(super) asked: Vec<(String, Value)>,
    /// The ids of the next tasks; then they are counted.
    pub(super) ids: VecDeque<String>,
    /// The states of each task, in order; the last one stays.
    pub(super) tasks: BTreeMap<String, VecDeque<Value>>,
    /// The states that the next task has.
    pub(super) next: Vec<Value>,
    /// What `tasks/result` answers.
    pub(super) result: Value,
    /// Whether nobody answers.
    pub(super) is_away: bool,
}

impl TaskHost {
    pub(super) fn new(is_new: bool, next: Vec<Value>) -> Arc<Self> {
        let seen = Seen { next, result: said("done"), ..Seen::default() };
        Arc::new(Self { is_new, seen: Mutex::new(seen) })
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().unwrap())
    }

    /// The parameters of the requests of this method.
    pub(super) fn asked(&self, method: &str) -> Vec<Value> {
        self.change(|seen| {
            seen.asked.iter().filter(|(asked, _)| asked == method).map(|(_, with)| with.clone()).collect()
        })
    }

    /// Starts it, and gives its tool.
    pub(super) async fn tool(self: &Arc<Self>, tasks: &mut JoinSet<()>, bench: &Bench) -> Arc<dyn Tool> {
        let router = Router::new().route("/mcp", any(answer)).with_state(self.clone());
        let address = serve(tasks, router).await;
        let mcp = bench.of(vec![server(format!("http://{address}/mcp"), None)]);
        let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
        assert_eq!(survey.reports[0].trouble, None, "{survey:?}");
        mcp.tools(&survey).remove(0)
    }

    /// A state of a task as this server writes it.
    fn task(&self, id: &str, state: &Value) -> Value {
        let mut task = match self.is_new {
            true => json!({ "ttlMs": 60_000, "pollIntervalMs": 100 }),
            false => json!({ "ttl": 60_000, "pollInterval": 100 }),
        };
        let more =
            json!({ "taskId": id, "createdAt": "2026-11-30T00:00:00Z", "lastUpdatedAt": "2026-11-30T00:00:00Z" });
        for part in [&more, state] {
            task.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        task
    }

    fn result(&self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = params["taskId"].as_str().unwrap_or_default().to_owned();
        let unknown = json!({ "code": -32602, "message": "Failed to retrieve task: Task not found" });
        let meta = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"];
        let is_declared = meta["io.modelcontextprotocol/tasks"].is_object();
        assert!(is_declared || !self.is_new || !method.starts_with("tasks/"), "the extension is declared: {params}");
        Ok(match method {
            "server/discover" if self.is_new => json!({
                "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                "capabilities": { "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
            }),
            "initialize" if !self.is_new => json!({
                "protocolVersion": "2025-11-25", "serverInfo": { "name": "x", "version": "1" },
                "capabilities": { "tools": {}, "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } } },
            }),
            "tools/list" => json!({ "tools": [{
                "name": "t", "inputSchema": { "type": "object" }, "execution": { "taskSupport": "optional" },
            }] }),
            "tools/call" => {
                assert_eq!(params["task"]["ttl"].is_u64(), !self.is_new, "{params}");
                let (id, first) = self.change(|seen| {
                    let id = seen.ids.pop_front().unwrap_or_else(|| format!("task-{}", seen.tasks.len()));
                    let mut states: VecDeque<_> = seen.next.clone().into();
                    let first = states.pop_front().unwrap();
                    seen.tasks.insert(id.clone(), states);
                    (id, first)
                });
                let task = self.task(&id, &first);
                let mut begun = if self.is_new { task } else { json!({ "task": task }) };
                if self.is_new {
                    begun["resultType"] = "task".into();
                }
                begun
            }
            "tasks/get" => {
                let state = self.change(|seen| {
                    let states = seen.tasks.get_mut(&id)?;
                    if states.len() > 1 { states.pop_front() } else { states.front().cloned() }
                });
                self.task(&id, &state.ok_or(unknown)?)
            }
            "tasks/result" if !self.is_new => self.change(|seen| match seen.result.get("error") {
                Some(error) => Err(error.clone()),
                None => Ok(seen.result.clone()),
            })?,
            "tasks/cancel" | "tasks/update" => json!({ "resultType": "complete" }),
            _ => return Err(json!({ "code": -32601, "message": "Method not found" })),
        })
    }
}

/// The result of a call.
pub(super) fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

async fn answer(State(host): State<Arc<TaskHost>>, request: Request) -> Response {
    let is_post = request.method() == Method::POST;
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    match (is_post, message.get("id")) {
        (false, _) => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        (true, None) => return StatusCode::ACCEPTED.into_response(),
        (true, Some(_)) => {}
    }
    if host.change(|seen| seen.is_away) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let params = message["params"].clone();
    host.change(|seen| seen.asked.push((method.clone(), params.clone())));
    let mut answer = match host.result(&method, &params) {
        Ok(result) => json!({ "result": result }),
        Err(error) => json!({ "error": error }),
    };
    (answer["jsonrpc"], answer["id"]) = ("2.0".into(), message["id"].clone());
    axum::Json(answer).into_response()
}
