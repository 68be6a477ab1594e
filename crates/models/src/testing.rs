//! Helpers for the tests of this crate: sample conversations, and a server that sends scripted answers over a real
//! socket.

#![allow(clippy::unwrap_used)]

pub(crate) mod histories;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Arguments, DeltaSink, Heard, Message, ModelError, ModelInfo, ModelProvider, ModelReply, ModelRequest, Picture,
    Prompt, SamplingSupport, Tool, ToolCall, ToolContext, ToolOutput, ToolResult, ToolSet, ToolSpec, ToolStatus,
};
use reqwest::Client;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{EnvKeys, LlmConfig};

/// Settings from JSON.
pub(crate) fn config(settings: Value) -> LlmConfig {
    serde_json::from_value(settings).unwrap()
}

/// A client like the daemon's.
pub(crate) fn client() -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap());
    crate::http_client(&LlmConfig::default()).unwrap()
}

/// A provider with these settings and the key `sesame`, built like the daemon's.
pub(crate) fn provider(settings: Value) -> Arc<dyn ModelProvider> {
    let keys = EnvKeys { configured: Some("sesame".into()), ..EnvKeys::default() };
    let settings = config(settings);
    let prices = crate::PriceList::of(&settings, &keys);
    crate::build(&settings, &keys, client(), &prices).unwrap()
}

/// Asks one question once, without a retry.
pub(crate) async fn ask_once(provider: &dyn ModelProvider, sink: &mut dyn DeltaSink) -> Result<ModelReply, ModelError> {
    let asked = Asked::new("be brief", true, vec![Message::user("what time is it?")]);
    provider.call(ModelRequest { max_attempts: 1, ..asked.request() }, sink).await
}

pub(crate) fn info() -> ModelInfo {
    let (provider, model) = ("p".into(), "m".into());
    ModelInfo {
        provider,
        model,
        context_tokens: 1000,
        price: None,
        rehearsal: false,
        vision: false,
        sampling: SamplingSupport::ALL,
    }
}

/// A request with the data that it borrows.
pub(crate) struct Asked {
    prompt: Prompt,
    tools: Option<ToolSet>,
    messages: Vec<Arc<Message>>,
}

impl Asked {
    pub(crate) fn new(prompt: &str, with_tools: bool, messages: Vec<Message>) -> Self {
        Self {
            prompt: Prompt::new(prompt),
            tools: with_tools.then(|| ToolSet::new(vec![Arc::new(ClockTool::new())])),
            messages: messages.into_iter().map(Arc::new).collect(),
        }
    }

    pub(crate) fn request(&self) -> ModelRequest<'_> {
        ModelRequest {
            prompt: &self.prompt,
            tools: self.tools.as_ref(),
            messages: &self.messages,
            model: None,
            thinking: None,
            sampling: None,
            format: None,
            calls: None,
            send_pictures: true,
            later_system: true,
            max_tokens: 100,
            max_attempts: 3,
        }
    }

    /// The same with this many tools, each with a long description.
    pub(crate) fn with_tools(self, count: usize) -> Self {
        let tool = |number: usize| {
            let spec = ClockTool::new().0;
            let (name, description) = (format!("clock_{number}"), "tells the \"time\", ".repeat(20));
            Arc::new(ClockTool(ToolSpec::new(name, description, spec.schema))) as Arc<dyn Tool>
        };
        Self { tools: Some(ToolSet::new((0..count).map(tool).collect())), ..self }
    }

    pub(crate) fn has_tools(&self) -> bool {
        self.tools.is_some()
    }

    /// The same, without stored serialised forms.
    pub(crate) fn forgetful(&self) -> Self {
        let messages = self.messages.iter().map(|message| Message::clone(message)).collect();
        Self::new(&self.prompt.text, self.tools.is_some(), messages)
    }
}

struct ClockTool(ToolSpec);

/// A tool that is declared so.
pub(crate) fn declared(spec: ToolSpec) -> Arc<dyn Tool> {
    Arc::new(ClockTool(spec))
}

impl ClockTool {
    fn new() -> Self {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Self(ToolSpec::new("clock", "tells the time", schema))
    }
}

#[async_trait]
impl Tool for ClockTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Map<String, Value>, _: &ToolContext) -> ToolOutput {
        Ok("12:00".into())
    }
}

pub(crate) fn result(id: &str, name: &str, status: ToolStatus, text: &str) -> Message {
    Message::tool(ToolResult { call_id: id.into(), name: name.into(), status, text: text.into() })
}

/// One of each kind of message, with content that is hard to serialise.
pub(crate) fn sample_history() -> Vec<Message> {
    let call = |id: &str, name: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: Arguments::parse(arguments),
    };
    vec![
        Message::user("what \"time\"\n is it? 🕰"),
        Message::assistant_calls("", vec![call("c1", "clock", r#"{"zone":"UTC"}"#), call("c 2", "bad name", "{\"a")]),
        result("c1", "clock", ToolStatus::Success, "12:00"),
        result("c 2", "bad name", ToolStatus::Error, "no such tool"),
        Message::system("two steps are left"),
        Message::assistant("noon"),
    ]
}

/// Two results of one batch with three pictures, one result without, and a message of the person after them.
pub(crate) fn history_with_pictures() -> Vec<Message> {
    let picture = |media_type: &str, base64: &str| Picture { media_type: media_type.into(), base64: base64.into() };
    let call = |id: &str, name: &str| ToolCall { id: id.into(), name: name.into(), arguments: Arguments::parse("{}") };
    vec![
        Message::user("look at both"),
        Message::assistant_calls("", vec![call("c1", "take picture"), call("c2", "clock"), call("c3", "read_file")]),
        result("c1", "take picture", ToolStatus::Success, "")
            .with_pictures(vec![picture("image/png", "UE5H"), picture("image/jpeg", "SlBH")]),
        result("c2", "clock", ToolStatus::Success, "12:00"),
        result("c3", "read_file", ToolStatus::Success, "[a.png]").with_pictures(vec![picture("image/png", "QQ==")]),
        Message::user("and?"),
    ]
}

/// A conversation with this many messages.
pub(crate) fn long_history(messages: usize) -> Vec<Message> {
    let text = |n: usize| format!("message {n} says \"something\" of no great length\n");
    (0..messages).map(|n| if n % 2 == 0 { Message::user(text(n)) } else { Message::assistant(text(n)) }).collect()
}

/// A sink with a reader.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RecordingSink {
    pub(crate) text: String,
    pub(crate) reasoning: String,
}

impl DeltaSink for RecordingSink {
    fn text(&mut self, piece: &str) -> Heard {
        self.text.push_str(piece);
        Heard::Somebody
    }

    fn reasoning(&mut self, piece: &str) -> Heard {
        self.reasoning.push_str(piece);
        Heard::Somebody
    }
}

/// One answer of a [`Server`].
#[derive(Clone, Debug)]
pub(crate) struct Script {
    head: String,
    body: Vec<u8>,
    /// Number of bytes of the body in one write.
    slice: usize,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// End the body as HTTP requires and keep the connection.
    Finish,
    /// Keep the connection open and send nothing more.
    Hang,
    /// Close the connection.
    Close,
}

impl Script {
    fn new(head: String, body: &str) -> Self {
        Self { head, body: body.as_bytes().to_vec(), slice: usize::MAX, then: Then::Finish }
    }

    /// An answer with this status and type. `kind` may contain further headers after line breaks.
    pub(crate) fn http(status: u16, kind: &str, body: &str) -> Self {
        Self::new(format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n"), body)
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::http(status, "application/json", body)
    }

    /// A complete event stream.
    pub(crate) fn sse(body: &str) -> Self {
        Self::http(200, "text/event-stream; charset=utf-8", body)
    }

    /// No answer at all.
    pub(crate) fn hang() -> Self {
        Self { then: Then::Hang, ..Self::new(String::new(), "") }
    }

    /// Sends this many bytes of the body at a time.
    pub(crate) fn sliced(self, slice: usize) -> Self {
        Self { slice, ..self }
    }

    pub(crate) fn bytes(self, body: Vec<u8>) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn then_hang(self) -> Self {
        Self { then: Then::Hang, ..self }
    }

    pub(crate) fn then_close(self) -> Self {
        Self { then: Then::Close, ..self }
    }
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    scripts: Mutex<VecDeque<Script>>,
}

/// A server on 127.0.0.1 that sends its scripted answers in order, over any number of connections.
pub(crate) struct Server {
    url: String,
    seen: Arc<Seen>,
    hung_up: watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub(crate) async fn start(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Seen { scripts: Mutex::new(scripts.into()), ..Seen::default() });
        let (tell, hung_up) = watch::channel(0);
        let accepting = tokio::spawn({
            let seen = seen.clone();
            async move {
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((socket, _)) = listener.accept().await {
                    let (seen, tell) = (seen.clone(), tell.clone());
                    connections.spawn(async move {
                        // An error means that the client has closed the connection, which is counted.
                        let _ = serve(socket, &seen).await;
                        tell.send_modify(|count| *count += 1);
                    });
                }
            }
        });
        Self { url, seen, hung_up, accepting }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Heads and bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits until this many connections have ended.
    pub(crate) async fn wait_hung_up(&mut self, count: usize) {
        tokio::time::timeout(Duration::from_secs(60), self.hung_up.wait_for(|n| *n >= count)).await.unwrap().unwrap();
    }

    /// Connections that have ended.
    pub(crate) fn hung_up(&self) -> usize {
        *self.hung_up.borrow()
    }
}

async fn serve(mut socket: TcpStream, seen: &Seen) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    loop {
        let Some(request) = read_request(&mut socket).await? else { return Ok(()) };
        seen.requests.lock().unwrap().push(request);
        let Some(script) = seen.scripts.lock().unwrap().pop_front() else { return Ok(()) };
        if !script.head.is_empty() {
            let head = format!("{}transfer-encoding: chunked\r\n\r\n", script.head);
            socket.write_all(head.as_bytes()).await?;
            for piece in script.body.chunks(script.slice.min(script.body.len()).max(1)) {
                socket.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
                socket.write_all(piece).await?;
                socket.write_all(b"\r\n").await?;
            }
        }
        match script.then {
            Then::Finish => socket.write_all(b"0\r\n\r\n").await?,
            Then::Close => return Ok(()),
            Then::Hang => {
                socket.read_u8().await?;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = socket.read(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some(end) = text.find("\r\n\r\n") {
            let length =
                text[..end].lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Ok(Some(text.into_owned()));
            }
        }
    }
}
