//! Workers in containers, against a stand-in for the container engine: it speaks the protocol by hand over a real
//! Unix socket, takes a connection over as the real one does, and remembers what it was asked. What only a real server
//! can show, that the walls stand, is not seen here; docs/guide/workers.md says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belay_protocol::{Generation, JobToken, LinkId, RunId, WorkerHost, WorkerStart};
use belay_tools::worker::{ContainerHost, ContainerSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the stand-in was asked, and what there is.
#[derive(Default)]
struct State {
    requests: Vec<(String, Value)>,
    /// Containers by id, with their labels.
    containers: BTreeMap<String, Value>,
    /// What was written to standard inputs.
    stdin: Vec<String>,
    /// Requests that are refused: a piece of their line.
    refuse: Option<&'static str>,
}

struct StandIn {
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    /// Whether the container has ended, for those who wait.
    ended: watch::Sender<bool>,
    _tasks: JoinSet<()>,
    dir: tempfile::TempDir,
}

fn stand_in() -> StandIn {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (state, ended) = (Arc::<Mutex<State>>::default(), watch::Sender::new(false));
    let mut tasks = JoinSet::new();
    let (shared, signal) = (state.clone(), ended.clone());
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, shared.clone(), signal.subscribe()));
        }
    });
    StandIn { socket, state, ended, _tasks: tasks, dir }
}

/// Serves one connection, request after request.
async fn serve(stream: UnixStream, state: Arc<Mutex<State>>, mut ended: watch::Receiver<bool>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.unwrap();
        let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        let asked: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let refused = {
            let mut state = state.lock().unwrap();
            state.requests.push((line.clone(), asked.clone()));
            state.refuse.filter(|piece| line.contains(piece))
        };
        if refused.is_some() {
            answer(&mut stream, 404, &json!({"message": "No such image: nothing"})).await;
            continue;
        }
        if line.contains("/attach?") {
            assert!(head.to_ascii_lowercase().contains("connection: upgrade"), "{head}");
            let taken = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
            stream.write_all(taken.as_bytes()).await.unwrap();
            let mut written = String::new();
            stream.read_to_string(&mut written).await.unwrap();
            state.lock().unwrap().stdin.push(written);
            return;
        }
        if line.contains("/wait") {
            ended.wait_for(|ended| *ended).await.unwrap();
            answer(&mut stream, 200, &json!({"StatusCode": 3})).await;
            continue;
        }
        if line.contains("/logs?") {
            let frame =
                |words: &str| [&[2, 0, 0, 0, 0, 0, 0, u8::try_from(words.len()).unwrap()], words.as_bytes()].concat();
            let framed = [frame("belay: the outputs "), frame("cannot be kept\n")].concat();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", framed.len());
            stream.write_all(&[head.as_bytes(), &framed].concat()).await.unwrap();
            continue;
        }
        let (status, said) = act(&line, &asked, &mut state.lock().unwrap());
        answer(&mut stream, status, &said).await;
    }
}

fn act(line: &str, asked: &Value, state: &mut State) -> (u16, Value) {
    let (method, path) = line.split_once(' ').unwrap();
    let path = path.strip_prefix("/v1.41/containers/").expect("the version that we speak");
    let (name, query) = path.split_once('?').unwrap_or((path, ""));
    match (method, name) {
        ("POST", "create") => {
            let id = format!("id{}", state.containers.len());
            state.containers.insert(id.clone(), asked["Labels"].clone());
            (201, json!({"Id": id, "Warnings": []}))
        }
        ("GET", "json") => {
            let of_owner = |labels: &Value| query.contains(labels["belay.owner"].as_str().unwrap_or("?"));
            let found = state.containers.iter().filter(|(_, labels)| of_owner(labels));
            (200, found.map(|(id, labels)| json!({"Id": id, "Labels": labels})).collect())
        }
        ("DELETE", id) => match state.containers.remove(id) {
            Some(_) => (204, Value::Null),
            None => (404, json!({"message": "No such container"})),
        },
        ("POST", name) if name.ends_with("/start") || name.ends_with("/stop") => (204, Value::Null),
        _ => (500, json!({"message": line})),
    }
}

async fn answer(stream: &mut BufReader<UnixStream>, status: u16, body: &Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    // Whoever asked may be gone.
    let _ = stream
        .write_all((if status == 204 { "HTTP/1.1 204 X\r\n\r\n".to_owned() } else { head + &body }).as_bytes())
        .await;
}

impl StandIn {
    fn settings(&self) -> ContainerSettings {
        ContainerSettings {
            socket: self.socket.clone(),
            image: "debian:stable-slim".into(),
            memory_mb: 2048,
            cpu_shares: 1024,
            network: String::new(),
            workspace: self.dir.path().join("workspace"),
            program: "/usr/bin/belay".into(),
            user: (1000, 1000),
            owner: "mine".into(),
        }
    }

    fn host(&self) -> ContainerHost {
        ContainerHost::new(self.settings()).unwrap()
    }

    /// The lines of the requests so far.
    fn lines(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.iter().map(|(line, _)| line.replace("/v1.41/containers/", "")).collect()
    }
}

fn worker() -> WorkerStart {
    WorkerStart {
        run: RunId::new(),
        generation: Generation::default(),
        job: LinkId::new(),
        socket: Path::new("/run/belay/worker.sock").into(),
        token: JobToken::from_bytes([7; JobToken::BYTES]),
        time: Duration::from_secs(60),
    }
}

#[tokio::test]
async fn a_worker_is_made_without_rights_handed_its_token_waited_for_and_removed() {
    let server = stand_in();
    let (host, start) = (server.host(), worker());
    assert_eq!(host.ready(), Ok(()));
    let (job, token) = (start.job.to_string(), start.token.expose().to_owned());
    let mut process = host.start(start).await.unwrap();
    server.ended.send_replace(true);
    assert_eq!(process.ended().await, "exit code 3; its last words: belay: the outputs cannot be kept");
    process.end().await;
    assert_eq!(
        server.lines(),
        [
            format!("POST create?name=belay-worker-{job}"),
            "POST id0/attach?stream=1&stdin=1".into(),
            "POST id0/start".into(),
            "POST id0/wait".into(),
            "GET id0/logs?stderr=1&tail=10".into(),
            "POST id0/stop?t=2".into(),
            "DELETE id0?force=1&v=1".into(),
        ]
    );
    assert!(server.state.lock().unwrap().containers.is_empty(), "nothing is left");
    let mut shape = server.state.lock().unwrap().requests[0].1.clone();
    let created: u64 = shape["Labels"]["belay.created"].take().as_str().unwrap().parse().unwrap();
    assert!(created > 1_600_000_000_000);
    assert!(!shape.to_string().contains(&token), "the token is on no command line and in no environment");
    let bind = |source: &Path, target: &str, readonly: bool| json!({"Type": "bind", "Source": source, "Target": target, "ReadOnly": readonly});
    let expected = json!({
        "Image": "debian:stable-slim",
        "Entrypoint": ["/belay/worker"],
        "Cmd": ["worker", "--job", job, "--socket", "/belay/link"],
        "Env": ["HOME=/tmp", "TMPDIR=/tmp"],
        "User": "1000:1000",
        "WorkingDir": "/workspace",
        "Labels": {"belay.owner": "mine", "belay.job": job, "belay.created": null},
        "AttachStdin": true, "OpenStdin": true, "StdinOnce": true, "StopTimeout": 2, "NetworkDisabled": true,
        "HostConfig": {
            "Memory": 2_147_483_648_u64, "MemorySwap": 2_147_483_648_u64, "CpuShares": 1024, "PidsLimit": 256,
            "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "ReadonlyRootfs": true, "Init": true,
            "NetworkMode": "none",
            "Tmpfs": {"/tmp": "rw,nosuid,nodev,mode=1777,size=512m"},
            "Mounts": [
                bind(&server.dir.path().join("workspace"), "/workspace", false),
                bind(Path::new("/usr/bin/belay"), "/belay/worker", true),
                bind(Path::new("/run/belay/worker.sock"), "/belay/link", true),
            ],
        },
    });
    assert_eq!(shape, expected);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(300);
    while server.state.lock().unwrap().stdin.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the token was not handed over");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.state.lock().unwrap().stdin, [format!("{token}\n")]);
}

#[tokio::test]
async fn a_worker_that_is_dropped_is_ended_and_waited_for() {
    let server = stand_in();
    let host = server.host();
    drop(host.start(worker()).await.unwrap());
    host.close().await;
    assert!(server.state.lock().unwrap().containers.is_empty(), "{:?}", server.lines());
}

#[tokio::test]
async fn a_network_is_given_where_the_settings_name_one() {
    let server = stand_in();
    let host = ContainerHost::new(ContainerSettings { network: "walled".into(), ..server.settings() }).unwrap();
    let _process = host.start(worker()).await.unwrap();
    let shape = server.state.lock().unwrap().requests[0].1.clone();
    assert_eq!((&shape["HostConfig"]["NetworkMode"], &shape["NetworkDisabled"]), (&json!("walled"), &json!(false)));
}

#[tokio::test]
async fn what_the_server_refuses_is_said_in_its_words_and_leaves_nothing() {
    for refuse in ["create", "attach", "start"] {
        let server = stand_in();
        server.state.lock().unwrap().refuse = Some(refuse);
        let why = server.host().start(worker()).await.err().unwrap();
        assert_eq!(why, "the container engine says 404: No such image: nothing", "{refuse}");
        assert!(server.state.lock().unwrap().containers.is_empty(), "{refuse}");
    }
}

#[tokio::test]
async fn a_run_that_was_stopped_meanwhile_starts_nothing() {
    let server = stand_in();
    let start = worker();
    start.generation.end();
    assert_eq!(server.host().start(start).await.err().unwrap(), "the run was stopped");
    assert!(!server.lines().iter().any(|line| line.contains("/start")), "{:?}", server.lines());
    assert!(server.state.lock().unwrap().containers.is_empty());
}

#[tokio::test]
async fn only_this_owners_containers_are_removed_at_the_start() {
    let server = stand_in();
    for (id, owner) in [("a", "mine"), ("b", "theirs"), ("c", "mine")] {
        server.state.lock().unwrap().containers.insert(id.into(), json!({"belay.owner": owner}));
    }
    assert_eq!(server.host().reap().await, Ok(2));
    let left: Vec<_> = server.state.lock().unwrap().containers.keys().cloned().collect();
    assert_eq!(left, ["b"]);
}

#[test]
fn without_a_server_or_for_root_there_are_no_containers() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ContainerSettings {
        socket: dir.path().join("nobody.sock"),
        image: "i".into(),
        memory_mb: 64,
        cpu_shares: 2,
        network: String::new(),
        workspace: "/w".into(),
        program: "/p".into(),
        user: (1000, 1000),
        owner: "mine".into(),
    };
    let why = ContainerHost::new(settings.clone()).unwrap().ready().unwrap_err();
    assert!(why.contains("nobody.sock"), "{why}");
    let why = ContainerHost::new(ContainerSettings { user: (0, 0), ..settings }).unwrap().ready().unwrap_err();
    assert!(why.contains("root"), "{why}");
}
