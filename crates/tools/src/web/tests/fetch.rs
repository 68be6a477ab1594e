//! Fetches good, large, slow, compressed and missing pages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belay_protocol::{Tool, ToolFailure};
use futures_util::stream;
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::time::sleep;

use super::support::{Names, Server, fetch, tool};
use crate::testing::context;
use crate::web::FetchUrl;
use crate::web::config::WebConfig;

async fn serve(router: Router, change: impl FnOnce(&mut WebConfig)) -> (Server, FetchUrl) {
    let server = Server::start(router).await;
    let tool = tool(Names::of(&[]), |config| {
        config.allow_private = vec![server.address.to_string()];
        change(config);
    });
    (server, tool)
}

fn failure(seen: Result<String, ToolFailure>) -> String {
    match seen {
        Err(ToolFailure::Failed(text)) => text,
        other => panic!("expected a failure, got {other:?}"),
    }
}

fn typed(kind: &'static str, body: impl Into<Body>) -> Response {
    ([("content-type", kind)], body.into()).into_response()
}

fn pages() -> Router {
    let html = "<title>Harbour</title><h1>Ships</h1><p>See <a href=/list>the list</a>.<script>x()</script>";
    Router::new()
        .route("/page", get(move || async move { typed("text/html; charset=utf-8", html) }))
        .route("/data", get(|| async { typed("application/json", r#"{"ships":3}"#) }))
        .route("/latin", get(|| async { typed("text/plain; charset=latin1", &b"gr\xfcn"[..]) }))
        .route("/tagged", get(|| async { typed("text/plain", "a\u{e0044}\u{e004f}\u{202e}b") }))
        .route("/pdf", get(|| async { typed("application/pdf", "%PDF-1.7") }))
        .route("/png", get(|| async { typed("image/png", png()) }))
        .route("/broken.png", get(|| async { typed("image/png", "no picture") }))
        .route("/bytes", get(|| async { typed("text/plain", "a\0b") }))
        .route("/gone", get(|| async { (StatusCode::NOT_FOUND, "no such <ship>").into_response() }))
        .route("/brotli", get(|| async { ([("content-encoding", "br")], "xyz").into_response() }))
        .route("/hop/{n}", get(hop))
}

fn png() -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(3, 2).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

async fn hop(uri: Uri) -> Response {
    let n: u32 = uri.path().rsplit('/').next().unwrap().parse().unwrap();
    let to = if n == 0 { "/page".to_owned() } else { format!("{}", n - 1) };
    (StatusCode::FOUND, [("location", to)]).into_response()
}

#[tokio::test]
async fn a_page_becomes_readable_text_under_a_header() {
    let (server, tool) = serve(pages(), |_| ()).await;
    let at = server.address;
    for (path, expected) in [
        (
            "/page#part",
            format!(
                "Address: http://{at}/page\nStatus: 200 OK\nType: text/html\nTitle: Harbour\n\n# Ships\n\nSee the list \
                 [1].\n\nLinks:\n[1] http://{at}/list\n"
            ),
        ),
        ("/data", format!("Address: http://{at}/data\nStatus: 200 OK\nType: application/json\n\n{{\"ships\":3}}")),
        ("/latin", format!("Address: http://{at}/latin\nStatus: 200 OK\nType: text/plain\n\ngrün")),
        ("/tagged", format!("Address: http://{at}/tagged\nStatus: 200 OK\nType: text/plain\n\nab")),
    ] {
        assert_eq!(fetch(&tool, &format!("http://{at}{path}")).await, Ok(expected), "{path}");
    }
    let page = fetch(&tool, &format!("http://{at}/hop/1")).await.unwrap();
    let head = format!(
        "Address: http://{at}/page\nStatus: 200 OK\nRedirected from: http://{at}/hop/1\nRedirected from: \
         http://{at}/hop/0\n"
    );
    assert!(page.starts_with(&head), "{page}");
}

#[tokio::test]
async fn a_picture_comes_cleaned() {
    let (server, tool) = serve(pages(), |_| ()).await;
    let url = format!("http://{}/png", server.address);
    let reply = tool.call(json!({ "url": url }).as_object().unwrap(), &context("s")).await.unwrap();
    assert_eq!(reply.text, format!("Address: {url}\nStatus: 200 OK\nType: PNG picture, 3 x 2 pixels\n"));
    assert_eq!(reply.pictures.iter().map(|picture| &*picture.media_type).collect::<Vec<_>>(), ["image/png"]);
    assert!(reply.untrusted);
    let (server, tool) = serve(pages(), |config| config.max_bytes = 10).await;
    let message = failure(fetch(&tool, &format!("http://{}/png", server.address)).await);
    assert!(message.contains("is a picture of more than 10 bytes"), "{message}");
}

#[tokio::test]
async fn an_unreadable_page_is_a_failure_with_the_reason() {
    let (server, tool) = serve(pages(), |_| ()).await;
    for (path, expected) in [
        ("/pdf", "is application/pdf, 8 bytes. Only text and pictures are read"),
        ("/broken.png", "is a picture that cannot be shown: it is not a PNG, JPEG, GIF or WebP picture."),
        ("/bytes", "is bytes that are no text, 3 bytes"),
        ("/gone", "answered 404 Not Found. no such <ship>"),
        ("/brotli", "packed as \"br\""),
        ("/hop/5", "redirects more than 5 times"),
    ] {
        let message = failure(fetch(&tool, &format!("http://{}{path}", server.address)).await);
        assert!(message.contains(expected), "{path}: {message}");
    }
    assert!(fetch(&tool, &format!("http://{}/hop/4", server.address)).await.is_ok());
    drop(server);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_failure() {
    // The socket is bound but does not listen, so no other process can answer on this port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let tool = tool(Names::of(&[]), |config| config.allow_private = vec![address.clone()]);
    let message = failure(fetch(&tool, &format!("http://{address}/")).await);
    assert!(message.contains("cannot be connected to: "), "{message}");
}

#[tokio::test]
async fn a_request_contains_only_the_address_and_the_user_agent() {
    let seen: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let keep = seen.clone();
    let page = move |headers: HeaderMap| async move {
        keep.lock().unwrap().push(headers);
        (StatusCode::FOUND, [("location", "/done"), ("set-cookie", "track=me")])
    };
    let keep = seen.clone();
    let done = move |headers: HeaderMap| async move { keep.lock().unwrap().push(headers) };
    let (server, tool) = serve(Router::new().route("/", get(page)).route("/done", get(done)), |_| ()).await;
    fetch(&tool, &format!("http://{}/", server.address)).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    for headers in seen.iter() {
        let mut names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "accept-encoding", "host", "user-agent"]);
        assert_eq!(headers["user-agent"], concat!("belay/", env!("CARGO_PKG_VERSION")));
        assert_eq!(headers["accept-encoding"], "gzip");
    }
}

#[tokio::test]
async fn a_page_without_an_end_is_cut_at_its_bound() {
    let endless = || async {
        let line = Bytes::from_static(b"more and more of it\n");
        Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(line.clone())))
    };
    let (server, tool) = serve(Router::new().route("/", get(endless)), |config| config.max_bytes = 10_000).await;
    let page = fetch(&tool, &format!("http://{}/", server.address)).await.unwrap();
    assert!(page.contains("Cut: only the first 10000 bytes were read\n"), "{page}");
    assert!(page.len() < 10_500, "{}", page.len());
}

/// A gzip stream of `size` zero bytes, 258 at a time, by RFC 1951 3.2.6 and RFC 1952. It omits the checksum at the end,
/// because no reader gets there.
fn bomb(size: usize) -> Vec<u8> {
    let mut bits = Vec::new();
    let mut put = |value: u32, count: u32| bits.extend((0..count).map(|at| value >> at & 1 == 1));
    put(0b011, 3); // the last block, of fixed codes
    put(0b0000_1100, 8); // the literal 0: code 00110000, its first bit first
    for _ in 0..size / 258 {
        put(0b1010_0011, 8); // length 258: code 11000101, its first bit first
        put(0, 5); // distance 1
    }
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(bits.chunks(8).map(|byte| byte.iter().rev().fold(0u8, |sum, bit| sum << 1 | u8::from(*bit))));
    bytes
}

#[tokio::test]
async fn the_size_limit_applies_to_decompressed_bytes() {
    let packed = Bytes::from(bomb(64 * 1024 * 1024));
    assert!(packed.len() < 500_000);
    let page = move || async move { ([("content-encoding", "gzip"), ("content-type", "text/csv")], packed) };
    let (server, tool) = serve(Router::new().route("/", get(page)), |config| config.max_bytes = 5000).await;
    let message = failure(fetch(&tool, &format!("http://{}/", server.address)).await);
    assert!(message.contains("is bytes that are no text, 5000 bytes"), "{message}");
}

#[tokio::test]
async fn a_page_that_drips_is_left_when_the_time_is_over() {
    let drip = || async {
        let drops = stream::unfold((), |()| async {
            sleep(Duration::from_millis(50)).await; // real time: the server has to be slow
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b".")), ()))
        });
        Body::from_stream(drops)
    };
    let (server, tool) = serve(Router::new().route("/", get(drip)), |config| config.timeout_s = 1).await;
    let message = failure(fetch(&tool, &format!("http://{}/", server.address)).await);
    assert_eq!(message, "The page was not whole within 1 s.");
}

#[tokio::test]
async fn a_cancelled_call_ends() {
    let (asked, mut heard) = tokio::sync::mpsc::channel(1);
    let silent = move || async move {
        asked.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let (server, tool) = serve(Router::new().route("/", get(silent)), |_| ()).await;
    let context = context("s");
    let arguments = json!({ "url": format!("http://{}/", server.address) });
    let stop = async {
        heard.recv().await.unwrap();
        context.cancel.cancel();
    };
    let (seen, ()) = tokio::join!(tool.call(arguments.as_object().unwrap(), &context), stop);
    assert_eq!(seen, Err(ToolFailure::Cancelled));
    // A call that was cancelled before it began sends no request.
    assert_eq!(tool.call(arguments.as_object().unwrap(), &context).await, Err(ToolFailure::Cancelled));
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn a_person_is_shown_where_a_call_would_go() {
    let tool = tool(Names::of(&[]), |_| ());
    let arguments = json!({ "url": "https://Example.com/a?b=c#d" });
    let weight = tool.preview(arguments.as_object().unwrap(), &"s".into()).await.unwrap();
    assert_eq!(weight.summary, "GET https://example.com/a?b=c");
    assert_eq!(weight.bound, [("url".to_owned(), "https://example.com/a?b=c".to_owned())]);
    assert_eq!(weight.covers.as_deref(), Some("fetch_url https://example.com"));
    let spec = tool.spec();
    assert!(spec.untrusted && spec.idempotent && spec.effect.waits_for_disk());
}
