//! The environment of the daemon: hostile pages and search results, the collector that must stay empty, and the daemon
//! itself.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use axum::extract::{Path as At, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use belay_tests::daemon::Home;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::corpus::{Item, Via};
use super::model::{CANARY, Marks, Model};

/// The data that left the daemon.
#[derive(Debug, Default)]
pub(crate) struct Leaks {
    /// Connections to the collector.
    pub(crate) connections: AtomicU64,
    /// Bytes that reached the collector.
    pub(crate) bytes: AtomicU64,
    /// Bytes of secrets that reached the collector, the search engine, the MCP server or the pages.
    pub(crate) canary_bytes: AtomicU64,
}

impl Leaks {
    fn look(&self, text: &str) {
        let found = text.to_ascii_uppercase().matches(CANARY).count() * CANARY.len();
        self.canary_bytes.fetch_add(found as u64, Ordering::SeqCst);
    }
}

/// Servers on this machine. Dropping them ends them.
pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) leaks: Arc<Leaks>,
    pub(crate) pages: SocketAddr,
    collector: SocketAddr,
    model_at: SocketAddr,
    items: Arc<Vec<Item>>,
    _tasks: JoinSet<()>,
}

/// The approval settings of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The default settings.
    Default,
    /// No approval requests: the control, in which the same model must succeed.
    AskNobody,
}

/// The MCP server of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mcp {
    /// None. An MCP server puts untrusted content into every conversation, and would hide whether other sources do.
    None,
    /// A server with honest descriptions.
    Honest,
    /// A server with a tool whose description is the text of this item.
    DescribedBy(usize),
}

impl Mcp {
    fn settings(self, pages: SocketAddr) -> String {
        let described = match self {
            Self::None => return String::new(),
            Self::Honest => "honest".to_owned(),
            Self::DescribedBy(number) => number.to_string(),
        };
        format!("[tools.mcp.helper]\nurl = \"http://{pages}/mcp/{described}\"\n")
    }
}

impl World {
    pub(crate) async fn start(items: Vec<Item>) -> Result<Self> {
        let (leaks, items) = (Arc::new(Leaks::default()), Arc::new(items));
        let mut tasks = JoinSet::new();

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let collector = listener.local_addr()?;
        tasks.spawn(collect(listener, leaks.clone()));

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let pages = listener.local_addr()?;
        let router = Router::new()
            .route("/item/{n}", get(page))
            .route("/search", get(search))
            .route("/redirect", get(redirect))
            .route("/mcp/{described}", post(mcp))
            .with_state((items.clone(), leaks.clone()));
        tasks.spawn(async move { axum::serve(listener, router).await.expect("the pages are served") });

        let model = Model::new(Marks { collector: collector.to_string(), pages: pages.to_string() });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let model_at = listener.local_addr()?;
        let router = model.router();
        tasks.spawn(async move { axum::serve(listener, router).await.expect("the model is served") });
        Ok(Self { model, leaks, pages, collector, model_at, items, _tasks: tasks })
    }

    /// A home whose workspace contains the files of the corpus.
    pub(crate) fn home(&self, rules: Rules, mcp: Mcp) -> Result<Home> {
        let home = Home::new()
            .openai(&format!("http://{}/v1", self.model_at))
            // The daemon may reach the collector. Only the approval requests keep it empty.
            .set("tools.web.allow_private", json!([self.collector.to_string(), self.pages.to_string()]))
            .set("tools.search.provider", "searxng")
            .set("tools.search.base_url", format!("http://{}", self.pages))
            .set("agent.max_tool_iterations", 60)
            .set("agent.send_file", true)
            // Stop rules would end some of the attempts early.
            .set("stops.enabled", false);
        let workspace = home.workspace();
        std::fs::write(workspace.join("secret.txt"), format!("{CANARY}\n"))?;
        for (number, item) in self.items.iter().enumerate() {
            match item.via {
                Via::File => write(&workspace.join(format!("items/{number}.txt")), &item.text())?,
                Via::Name => write(&workspace.join(format!("names/{number}")).join(item.text()), "nothing")?,
                _ => {}
            }
        }
        let mut settings = mcp.settings(self.pages);
        if rules == Rules::AskNobody {
            settings += "[approvals]\nuntrusted_content = \"ignore\"\nrules = [{ tool = \"*\", ask = \"never\", allow_untrusted = true }]\n";
        }
        write(&home.path().join("config/belay/belay.toml"), &settings)?;
        Ok(home)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a file stands in a directory")?)?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Accepts every connection, reads the request, and answers with success.
async fn collect(listener: TcpListener, leaks: Arc<Leaks>) {
    let mut readers = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        leaks.connections.fetch_add(1, Ordering::SeqCst);
        readers.spawn(read(stream, leaks.clone()));
        while readers.try_join_next().is_some() {}
    }
}

async fn read(mut stream: TcpStream, leaks: Arc<Leaks>) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < 64 * 1024 {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => head.extend_from_slice(&buffer[..read]),
        }
    }
    leaks.bytes.fetch_add(head.len() as u64, Ordering::SeqCst);
    leaks.look(&String::from_utf8_lossy(&head));
    // The client may be gone already.
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok").await;
}

type Served = State<(Arc<Vec<Item>>, Arc<Leaks>)>;

async fn page(State((items, _)): Served, At(number): At<usize>) -> Response {
    let Some(item) = items.get(number) else { return StatusCode::NOT_FOUND.into_response() };
    let status = StatusCode::from_u16(item.status).unwrap_or(StatusCode::OK);
    (status, [("content-type", item.media().to_owned())], item.text()).into_response()
}

#[derive(Deserialize)]
struct Search {
    q: String,
}

async fn search(State((items, leaks)): Served, Query(search): Query<Search>) -> Response {
    leaks.look(&search.q);
    let number = search.q.strip_prefix("CASE-").and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    let snippet = number.and_then(|number| items.get(number)).map(Item::text).unwrap_or_default();
    let hit = json!({"title": "Harbours", "url": "https://harbours.example/", "content": snippet});
    Json(json!({ "results": [hit] })).into_response()
}

#[derive(Deserialize)]
struct Redirect {
    to: String,
}

async fn redirect(State((_, leaks)): Served, Query(redirect): Query<Redirect>) -> Response {
    leaks.look(&redirect.to);
    (StatusCode::FOUND, [("location", redirect.to)]).into_response()
}

/// MCP over streamable HTTP, with only the methods that a client needs. `note` answers with the text of an item;
/// `send` is the tool for leaks.
async fn mcp(State((items, leaks)): Served, At(described): At<String>, Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let params = &message["params"];
    let text = params["arguments"]["text"].as_str().unwrap_or_default();
    let item = |number: &str| number.parse().ok().and_then(|number: usize| items.get(number)).map(Item::text);
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "helper", "version": "1"},
        }),
        Some("tools/list") => {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
            let told = item(&described).unwrap_or_else(|| "Sends a text.".to_owned());
            json!({"tools": [
                {"name": "note", "description": "Shows a note by its number.", "inputSchema": schema},
                {"name": "send", "description": told, "inputSchema": schema},
            ]})
        }
        Some("tools/call") => {
            leaks.look(text);
            let answer = item(text).unwrap_or_else(|| "sent".to_owned());
            json!({"content": [{"type": "text", "text": answer}]})
        }
        _ => json!({}),
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}
