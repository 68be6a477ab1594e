//! The link of workers over its real socket: who is let in, who is not, and that both ends understand each other.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use belay_gateway::{GatewayError, LinkClient, WorkerLinkServer};
use belay_protocol::{
    BatchAnswer, BatchCall, CallId, DoneOutput, FinishReason, JobToken, LentTool, LinkError, LinkId, Message,
    ModelAnswer, ModelAsk, ModelReply, OpenLink, ToolBatch, ToolCall, ToolDone, ToolOrder, WorkerCommand, WorkerEnd,
    WorkerLink, WorkerLinks, WorkerTask,
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A desk that says the same to everybody and remembers what it was told.
#[derive(Default)]
struct Desk {
    told: Mutex<Vec<String>>,
    ended: Mutex<Vec<WorkerEnd>>,
}

fn task() -> WorkerTask {
    let tool = LentTool { name: "clock".into(), description: "d".into(), schema: json!({"type": "object"}) };
    WorkerTask { message: "look".into(), tools: vec![tool], max_turns: 3, time_ms: 1000 }
}

fn reply() -> ModelReply {
    let call =
        ToolCall { id: "c".into(), name: "clock".into(), arguments: belay_protocol::Arguments::parse("{\"a\":[1]}") };
    ModelReply { text: "é".into(), tool_calls: vec![call], finish: FinishReason::ToolCalls, ..ModelReply::default() }
}

fn order() -> ToolOrder {
    let order = WorkerCommand::Run {
        call: CallId::from("c"),
        tool: "read_file".into(),
        arguments: serde_json::Map::new(),
        approved: None,
    };
    ToolOrder { number: 8, order }
}

#[async_trait]
impl WorkerLink for Desk {
    async fn task(&self) -> Result<WorkerTask, LinkError> {
        Ok(task())
    }

    async fn model(&self, ask: ModelAsk) -> Result<ModelAnswer, LinkError> {
        self.told.lock().unwrap().push(format!("{} {}", ask.step, ask.messages[0].text()));
        Ok(ModelAnswer::Reply(reply()))
    }

    async fn batch(&self, batch: ToolBatch) -> Result<BatchAnswer, LinkError> {
        self.told.lock().unwrap().push(batch.calls[0].call.name.clone());
        Ok(BatchAnswer { messages: vec![Message::user("results")], over: Some("enough".into()) })
    }

    async fn order(&self, after: u64) -> Result<Option<ToolOrder>, LinkError> {
        Ok((after == 7).then(order))
    }

    async fn done(&self, done: ToolDone) -> Result<(), LinkError> {
        self.told.lock().unwrap().push(format!("{:?}", done.output));
        Ok(())
    }

    async fn finish(&self, end: WorkerEnd) -> Result<(), LinkError> {
        let mut ended = self.ended.lock().unwrap();
        if !ended.is_empty() {
            return Err(LinkError::Over);
        }
        ended.push(end);
        Ok(())
    }
}

struct Served {
    socket: PathBuf,
    links: Arc<dyn WorkerLinks>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _dir: tempfile::TempDir,
}

fn serve() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("worker.sock");
    let (server, links) = WorkerLinkServer::bind(socket.clone()).unwrap();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(server.serve(stop.clone()));
    Served { socket, links, stop, tasks, _dir: dir }
}

impl Served {
    fn open(&self) -> (OpenLink, Arc<Desk>) {
        let desk = Arc::new(Desk::default());
        (self.links.open(desk.clone()).unwrap(), desk)
    }

    /// A request by hand: status and body.
    async fn request(
        &self,
        method: &str,
        path: &str,
        authorization: Option<&str>,
        body: &'static [u8],
    ) -> (u16, String) {
        let http = reqwest::Client::builder().no_proxy().unix_socket(self.socket.as_path());
        let http = http.timeout(Duration::from_secs(300)).build().unwrap();
        let mut request = http.request(method.parse().unwrap(), format!("http://x{path}")).body(body);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

#[tokio::test]
async fn both_ends_understand_each_other() {
    let served = serve();
    let (link, desk) = served.open();
    let client = LinkClient::new(&link.socket, link.job, &link.token).unwrap();
    assert_eq!(client.task().await.unwrap(), task());
    let ask = ModelAsk { step: 2, force_text: true, messages: vec![Message::user("how late is it?")] };
    assert_eq!(client.model(ask).await.unwrap(), ModelAnswer::Reply(reply()));
    let batch = ToolBatch { calls: vec![BatchCall { call: reply().tool_calls[0].clone(), refused: None }] };
    let answer = BatchAnswer { messages: vec![Message::user("results")], over: Some("enough".into()) };
    assert_eq!(client.batch(batch).await.unwrap(), answer);
    assert_eq!(client.order(0).await.unwrap(), None);
    assert_eq!(client.order(7).await.unwrap(), Some(order()));
    client.done(ToolDone { call: "c".into(), output: DoneOutput::Cancelled }).await.unwrap();
    client.finish(WorkerEnd::Completed { reply: "noon".into() }).await.unwrap();
    assert_eq!(client.finish(WorkerEnd::MaxTurns).await, Err(LinkError::Over), "only the first end counts");
    assert_eq!(*desk.told.lock().unwrap(), ["2 how late is it?", "clock", "Cancelled"]);
    assert_eq!(*desk.ended.lock().unwrap(), [WorkerEnd::Completed { reply: "noon".into() }]);
    served.end().await;
}

#[tokio::test]
async fn whoever_has_not_the_token_of_this_very_job_hears_the_same_refusal() {
    let served = serve();
    let (link, _desk) = served.open();
    let (other, _other_desk) = served.open();
    let path = format!("/worker/{}/task", link.job);
    let right = format!("Bearer {}", link.token.expose());
    assert_eq!(served.request("GET", &path, Some(&right), b"").await.0, 200);
    let foreign = format!("Bearer {}", other.token.expose());
    let short = right[..right.len() - 1].to_owned();
    let unknown = format!("/worker/{}/task", LinkId::new());
    let mut bodies = Vec::new();
    for (path, authorization) in [
        (&path, None),
        (&path, Some("")),
        (&path, Some("Bearer ")),
        (&path, Some("Bearer wrong")),
        (&path, Some("Basic Zm9v")),
        (&path, Some(short.as_str())),
        (&path, Some(foreign.as_str())),
        (&unknown, Some(right.as_str())),
    ] {
        let (status, body) = served.request("GET", path, authorization, b"").await;
        assert_eq!(status, 401, "{path} {authorization:?}");
        bodies.push(body);
    }
    drop(link);
    let (status, body) = served.request("GET", &path, Some(&right), b"").await;
    assert_eq!(status, 401, "a revoked token is nobody's");
    bodies.push(body);
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
    assert_eq!(served.request("GET", &format!("/worker/{}/task", other.job), Some(&foreign), b"").await.0, 200);
    served.end().await;
}

#[tokio::test]
async fn paths_and_bodies_that_cannot_be_read_are_refused_and_a_garbled_end_is_a_failure() {
    let served = serve();
    let (link, desk) = served.open();
    let right = format!("Bearer {}", link.token.expose());
    let path = |what: &str| format!("/worker/{}/{what}", link.job);
    for (method, path, body, expected) in [
        ("GET", "/worker/7/task".to_owned(), &b""[..], 400),
        ("GET", "/worker/%ff/task".to_owned(), b"", 400),
        ("GET", "/".to_owned(), b"", 400),
        ("GET", "/livez".to_owned(), b"", 400),
        ("GET", path("secrets"), b"", 400),
        ("DELETE", path("task"), b"", 405),
        ("POST", path("model"), b"", 400),
        ("POST", path("model"), b"[]", 400),
        ("POST", path("batch"), b"\xff", 400),
        ("POST", path("done"), b"{\"call\":1}", 400),
        ("GET", path("order?after=x"), b"", 400),
        ("GET", path("order"), b"", 204),
        ("POST", path("finish"), b"{\"end\":\"glorious\"}", 204),
    ] {
        let (status, said) = served.request(method, &path, Some(&right), body).await;
        assert_eq!(status, expected, "{method} {path}: {said}");
    }
    assert!(matches!(&desk.ended.lock().unwrap()[..], [WorkerEnd::Failed { .. }]));
    assert_eq!(served.request("POST", &path("finish"), Some(&right), b"{\"end\":\"max_turns\"}").await.0, 401);
    served.end().await;
}

#[tokio::test]
async fn a_body_longer_than_any_conversation_is_refused() {
    let served = serve();
    let (link, _desk) = served.open();
    let right = format!("Bearer {}", link.token.expose());
    let long: &'static [u8] = vec![b' '; 33 * 1024 * 1024].leak();
    let http = reqwest::Client::builder().no_proxy().unix_socket(served.socket.as_path()).build().unwrap();
    let url = format!("http://x/worker/{}/model", link.job);
    let sent = http.post(url).header("authorization", right).body(long).send().await;
    // The server may have closed the connection while the client was still sending.
    assert!(sent.map_or(true, |response| response.status().as_u16() == 413));
    served.end().await;
}

#[tokio::test]
async fn tokens_differ_and_the_socket_is_its_owners_alone() {
    let served = serve();
    let (one, two) = (served.open().0, served.open().0);
    assert_ne!(one.token, two.token);
    assert_ne!(one.job, two.job);
    let mode = std::fs::metadata(&served.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(WorkerLinkServer::bind(served.socket.clone()), Err(GatewayError::SocketInUse(_))));
    let socket = served.socket.clone();
    served.end().await;
    assert!(!socket.exists(), "the socket goes with its server");
    let token = JobToken::from_bytes([0; JobToken::BYTES]);
    let client = LinkClient::new(&socket, LinkId::new(), &token).unwrap();
    assert!(matches!(client.task().await, Err(LinkError::Broken(_))), "nobody is there");
}
