//! `belay mcp serve`: the daemon's `/mcp` for programs that start their MCP servers themselves and talk to them over
//! pipes.
//!
//! It only relays: each line of standard input is one message, which is sent to the daemon as one request. Each answer
//! is one line of standard output. One loop owns the session, the pending requests and the output. It ends with its
//! input.

mod answers;
mod post;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use futures_util::StreamExt;
use serde_json::Value as Json;
use tokio::io::{AsyncWriteExt, Stdout};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use crate::args::{ClientArgs, ServeArgs};
use crate::client::Client;
use post::{ClientMessage, DaemonLink, Ended};

/// Longest message of the client in bytes. 4 MiB: four times the daemon's default limit.
const LINE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Most pending requests. One more is answered with an error at once, so that a cancellation is still read.
const REQUESTS_MAX: usize = 64;

/// Capacity of the queue of output lines. When it is full, the requests that produce answers wait.
const OUTPUT_CAPACITY: usize = 16;

/// How long pending requests may take after the input has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Longest time in which a client may leave a line unread. 60 s, as for the daemon's own connections.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Longest time for requests that no client waits for: a notification, the end of a session.
const ASIDE_LIMIT: Duration = Duration::from_secs(10);

/// Relays until the input ends.
///
/// # Errors
/// No daemon answers (69), it does not offer MCP (69), or it refuses this user (1).
pub async fn serve(args: &ServeArgs, env: &Environment) -> Result<Exit, Failure> {
    let client = Client::find(&ClientArgs { url: args.url.clone(), json: false }, env)?;
    let line = DaemonLink::open(client).await?;
    let (output, mut written) = mpsc::channel(OUTPUT_CAPACITY);
    let mut relay = Relay::new(line, output);
    let mut input = FramedRead::new(tokio::io::stdin(), LinesCodec::new_with_max_length(LINE_MAX_BYTES));
    let mut stdout = tokio::io::stdout();
    let mut deadline: Option<Instant> = None;
    let mut skipped = false;
    loop {
        if let Some(refusal) = relay.refusals.pop_front() {
            if write(&mut stdout, &refusal).await.is_err() {
                break; // nobody reads any more
            }
            continue;
        }
        tokio::select! {
            biased; // pending output is written before anything new begins
            Some(answer) = written.recv() => {
                if write(&mut stdout, &answer).await.is_err() {
                    break;
                }
            }
            Some(ended) = relay.tasks.join_next() => {
                if let Ok(ended) = ended { // otherwise it was cancelled
                    relay.settle(ended).await;
                }
            }
            line = input.next(), if deadline.is_none() && !relay.opening => match line {
                Some(Ok(line)) => relay.take(&line).await,
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    skipped = true;
                    relay.refuse(&Json::Null, -32700, &format!("a message is longer than {LINE_MAX_BYTES} bytes"));
                }
                // After an error the reader returns `None` once, and then continues after the long line.
                None if skipped => skipped = false,
                Some(Err(LinesCodecError::Io(_))) | None => deadline = Some(Instant::now() + LAST_ANSWERS),
            },
            () = until(deadline) => break,
        }
        if deadline.is_some() && relay.tasks.is_empty() && relay.refusals.is_empty() && written.is_empty() {
            break;
        }
    }
    relay.tasks.shutdown().await;
    // This tells the daemon that nobody waits for its remaining answers.
    let _ = timeout(ASIDE_LIMIT, relay.line.close()).await;
    Ok(Exit::Fine)
}

/// Writes one line. A reader that reads nothing for this time is gone.
async fn write(stdout: &mut Stdout, message: &Json) -> std::io::Result<()> {
    timeout(READ_LIMIT, async {
        stdout.write_all(format!("{message}\n").as_bytes()).await?;
        stdout.flush().await
    })
    .await?
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The state of the loop.
struct Relay {
    line: DaemonLink,
    output: mpsc::Sender<Json>,
    /// Error answers of the relay itself. One line of input makes at most one, and the next line is read after it is
    /// written.
    refusals: VecDeque<Json>,
    tasks: JoinSet<Ended>,
    /// Pending requests, by their id as JSON.
    pending: HashMap<String, AbortHandle>,
    /// Whether the client's `initialize` is not answered yet: later messages need the session.
    opening: bool,
}

impl Relay {
    fn new(line: DaemonLink, output: mpsc::Sender<Json>) -> Self {
        let (tasks, pending) = (JoinSet::new(), HashMap::new());
        Self { line, output, refusals: VecDeque::new(), tasks, pending, opening: false }
    }

    /// Handles one line of the client.
    async fn take(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let message = match serde_json::from_str::<Json>(line) {
            Ok(message) if message.is_object() => message,
            Ok(_) => return self.refuse(&Json::Null, -32600, "a message is one JSON object"),
            Err(error) => return self.refuse(&Json::Null, -32700, &format!("a line is not JSON: {error}")),
        };
        let post = ClientMessage::of(message);
        match post.id() {
            None => self.notify(post).await,
            Some(id) if self.tasks.len() >= REQUESTS_MAX => {
                let id = id.clone();
                self.refuse(&id, -32000, "too many requests are under way; wait for one to be answered");
            }
            Some(_) => self.begin(post),
        }
    }

    /// Sends a request; its task ends when it is answered.
    fn begin(&mut self, post: ClientMessage) {
        self.opening |= post.is_initialize();
        let key = post.id().map(Json::to_string).unwrap_or_default();
        let task = self.tasks.spawn(self.line.send(post, Some(self.output.clone())));
        self.pending.insert(key, task);
    }

    /// Sends a message without an answer, in order: a client's "initialized" must arrive before its next request.
    async fn notify(&mut self, post: ClientMessage) {
        if let Some(task) = post.cancels().and_then(|id| self.pending.remove(&id.to_string())) {
            // Before the notification, because a cancelled request has no answer: the daemon just ends it. Without a
            // session, closing the connection cancels the request.
            task.abort();
        }
        let sent = self.line.send(post, None);
        // If the daemon is away, the next request reports it, because a request has an answer.
        let _ = timeout(ASIDE_LIMIT, sent).await;
    }

    /// Handles the end of a request.
    async fn settle(&mut self, ended: Ended) {
        match ended {
            Ended::Answered { id } => {
                self.pending.remove(&id.to_string());
            }
            Ended::Opened { id, initialize, session } => {
                self.pending.remove(&id.to_string());
                self.opening = false;
                self.line.begin(initialize, session);
            }
            Ended::Unopened { id } => {
                self.pending.remove(&id.to_string());
                self.opening = false;
            }
            // The daemon was restarted, or has dropped the session. The client need not know.
            Ended::Lost { post, session } => {
                if !post.is_repeated() && self.line.reopen(&session).await {
                    return self.begin(post.repeated());
                }
                let id = post.id().cloned().unwrap_or_default();
                self.pending.remove(&id.to_string());
                self.refuse(&id, -32000, "the daemon does not know this session any more; start the server again");
            }
        }
    }

    /// Queues an error answer of the relay itself.
    fn refuse(&mut self, id: &Json, code: i32, message: &str) {
        self.refusals.push_back(post::error(id, code, message));
    }
}
