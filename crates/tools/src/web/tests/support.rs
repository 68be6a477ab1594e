//! Test servers on this machine, host names for them, and calls of the tool.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use belay_protocol::{Tool, ToolFailure};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::picture::Pictures;
use crate::testing::{context, install_tls};
use crate::web::FetchUrl;
use crate::web::config::WebConfig;
use crate::web::resolve::Resolve;

/// Longest wait for an expected event. It only determines how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A web server on a loopback address. It stops when it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(router: Router) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), router)
    }

    pub(super) fn on(listener: TcpListener, router: Router) -> Self {
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, _tasks: tasks }
    }
}

/// Counts incoming connections of any client.
pub(super) struct Collector {
    pub(super) port: u16,
    seen: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Collector {
    /// Listens on every address of this machine at a free port, because the tests check that no name of this machine is
    /// reached.
    pub(super) async fn everywhere() -> Self {
        let listener = match TcpListener::bind("[::]:0").await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(), // a machine without IPv6
        };
        Self::on(listener)
    }

    pub(super) fn on(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        let count = seen.clone();
        tasks.spawn(async move {
            while let Ok((_connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { port, seen, _tasks: tasks }
    }

    /// The number of connections before a test connection that this function opens. Connections are accepted in order,
    /// so when the test connection is counted, all earlier ones are.
    pub(super) async fn connections(&self, at: IpAddr) -> usize {
        let before = self.seen.load(Ordering::SeqCst);
        let _own = TcpStream::connect((at, self.port)).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.seen.load(Ordering::SeqCst) == before {
            assert!(Instant::now() < deadline, "the collector does not accept");
            sleep(Duration::from_millis(5)).await; // real time: another task has to run
        }
        // The test connection was the last.
        self.seen.load(Ordering::SeqCst) - 1
    }
}

/// A table of host names. Each query takes the next answer; the last answer is repeated.
#[derive(Default)]
pub(super) struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(super) asked: Mutex<Vec<String>>,
}

impl Names {
    pub(super) fn of(table: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
        let row = |(name, answers): &(&str, &[&[&str]])| ((*name).to_owned(), answers.iter().map(parse).collect());
        Arc::new(Self { answers: Mutex::new(table.iter().map(row).collect()), asked: Mutex::default() })
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let Some(list) = answers.get_mut(name) else {
            return Err(io::Error::other("no such name"));
        };
        Ok(if list.len() > 1 { list.remove(0) } else { list[0].clone() })
    }
}

/// The tool with these changes to its settings.
pub(super) fn tool(names: Arc<Names>, change: impl FnOnce(&mut WebConfig)) -> FetchUrl {
    install_tls();
    let mut config = WebConfig::default();
    change(&mut config);
    FetchUrl::new(&config, names, Pictures::new()).unwrap()
}

/// Fetches a URL and returns the text of the result.
pub(super) async fn fetch(tool: &FetchUrl, url: &str) -> Result<String, ToolFailure> {
    let arguments = json!({ "url": url });
    let reply = tool.call(arguments.as_object().unwrap(), &context("s")).await?;
    assert!(reply.untrusted, "every page is of the outside");
    Ok(reply.text)
}
