//! Internal addresses in every spelling: all are refused, and no connection is made (SSRF).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belay_protocol::{Tool, ToolFailure};
use serde_json::json;
use tokio::net::TcpListener;

use super::support::{Collector, Names, Server, fetch, tool};
use crate::web::FetchUrl;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Hosts to try at the collector's port, and a word of the refusal.
const HOSTS: &[(&str, &str)] = &[
    // This machine, by IPv4 address.
    ("127.0.0.1", "loopback"),
    ("127.0.0.1.", "loopback"),
    ("127.1", "loopback"),
    ("127.0.1", "loopback"),
    ("127.00.00.01", "loopback"),
    ("127.0.0.2", "loopback"),
    ("127.127.127.127", "loopback"),
    ("127.255.255.254", "loopback"),
    ("2130706433", "loopback"),
    ("017700000001", "loopback"),
    ("0177.0.0.1", "loopback"),
    ("0177.0.0.01", "loopback"),
    ("00000177.0.0.1", "loopback"),
    ("0177.1", "loopback"),
    ("0x7f000001", "loopback"),
    ("0X7F000001", "loopback"),
    ("0x7f.0.0.1", "loopback"),
    ("0x7F.1", "loopback"),
    ("0x7f.0x0.0x0.0x1", "loopback"),
    ("0x7f.0.01", "loopback"),
    ("0x000000007f.1", "loopback"),
    ("127.0x0.0.1", "loopback"),
    ("0", "unspecified"),
    ("0x0", "unspecified"),
    ("00", "unspecified"),
    ("0.0.0.0", "unspecified"),
    ("0.1.2.3", "unspecified"),
    ("0.0.0.0.", "unspecified"),
    // The same with escapes and look-alike characters.
    ("%31%32%37.0.0.1", "loopback"),
    ("127%2e0%2e0%2e1", "loopback"),
    ("%30x7f.1", "loopback"),
    ("１２７.０.０.１", "loopback"),
    ("127．0．0．1", "loopback"),
    ("127。0。0。1", "loopback"),
    ("127｡0｡0｡1", "loopback"),
    ("①②⑦.⓪.⓪.①", "loopback"),
    ("¹²⁷.⁰.⁰.¹", "loopback"),
    ("𝟏𝟐𝟕.𝟎.𝟎.𝟏", "loopback"),
    ("𝟭𝟮𝟳.𝟢.𝟘.𝟷", "loopback"),
    ("０ｘ７ｆ.１", "loopback"),
    ("127.0.0\u{200b}.1", "loopback"),
    ("127\u{ad}.0.0.1", "loopback"),
    ("١٢٧.٠.٠.١", ""),
    ("127.0.0.1%00.good.example", "invalid"),
    ("127.0.0.1%2f.good.example", ""),
    ("127.0.0.1%20", ""),
    ("127.0.0.1%09", ""),
    ("256.0.0.1", ""),
    ("127.0.0.1.1", ""),
    ("127.0.0.0x100", ""),
    ("4294967296", ""),
    // This machine, by name.
    ("localhost", "a name of this machine"),
    ("localhost.", "a name of this machine"),
    ("localhost..", ""),
    ("LOCALHOST", "a name of this machine"),
    ("LocalHost", "a name of this machine"),
    ("%6c%6f%63alhost", "a name of this machine"),
    ("ｌｏｃａｌｈｏｓｔ", "a name of this machine"),
    ("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "a name of this machine"),
    ("loc\u{ad}alhost", "a name of this machine"),
    ("local\u{200b}host", "a name of this machine"),
    ("a.localhost", "a name of this machine"),
    ("a.b.localhost.", "a name of this machine"),
    ("localhost.localdomain", "a name of this machine"),
    ("ip6-localhost", "a name of this machine"),
    ("intranet", "a name of this machine"),
    ("wiki", "a name of this machine"),
    ("printer.local", "a name of this machine"),
    ("printer.local。", "a name of this machine"),
    ("router.lan", "a name of this machine"),
    ("nas.home.arpa", "a name of this machine"),
    ("metadata.google.internal", "a name of this machine"),
    ("host.docker.internal", "a name of this machine"),
    ("kubernetes.default.svc.cluster.local", "a name of this machine"),
    ("hidden.onion", "a name of this machine"),
    // This machine, by IPv6.
    ("[::1]", "loopback"),
    ("[0:0:0:0:0:0:0:1]", "loopback"),
    ("[0000::0001]", "loopback"),
    ("[::0.0.0.1]", "loopback"),
    ("[::]", "unspecified"),
    ("[0::0]", "unspecified"),
    ("[::ffff:127.0.0.1]", "loopback"),
    ("[::ffff:7f00:1]", "loopback"),
    ("[::FFFF:7F00:0001]", "loopback"),
    ("[0:0:0:0:0:ffff:127.0.0.1]", "loopback"),
    ("[::ffff:0.0.0.0]", "unspecified"),
    ("[::127.0.0.1]", "tunnel"),
    ("[::7f00:1]", "tunnel"),
    ("[::ffff:0:127.0.0.1]", "reserved"),
    ("[64:ff9b::127.0.0.1]", "loopback"),
    ("[64:ff9b::7f00:1]", "loopback"),
    ("[64:ff9b:1::7f00:1]", "tunnel"),
    ("[2002:7f00:1::]", "tunnel"),
    ("[2002:7f00:0001::1]", "tunnel"),
    ("[2001::7f00:1]", "tunnel"),
    ("[2001:0:7f00:1::80ff:fffe]", "tunnel"),
    ("[::1%25lo]", "no address"),
    ("[::1%lo]", "no address"),
    ("[fe80::1%25eth0]", "no address"),
    ("[[::1]]", "no address"),
    ("[::1", "no address"),
    ("[::ffff:127.1]", "no address"),
    // Private networks.
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("167772161", "private"),
    ("0x0a000001", "private"),
    ("012.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("172.1048577", "private"),
    ("192.168.0.1", "private"),
    ("3232235777", "private"),
    ("0xc0.0xa8.0x01.0x01", "private"),
    ("192.168.257", "private"),
    ("[::ffff:10.0.0.1]", "private"),
    ("[::ffff:c0a8:101]", "private"),
    ("[fc00::1]", "private"),
    ("[fd12:3456:789a::1]", "private"),
    ("[fec0::1]", "private"),
    ("[fe80::1]", "link-local"),
    ("[64:ff9b::10.0.0.1]", "private"),
    ("100.64.0.1", "provider"),
    ("100.127.255.254", "provider"),
    // The metadata services of clouds.
    ("169.254.169.254", "link-local"),
    ("169.254.170.2", "link-local"),
    ("2852039166", "link-local"),
    ("0xA9FEA9FE", "link-local"),
    ("0251.0376.0251.0376", "link-local"),
    ("169.254.43518", "link-local"),
    ("[::ffff:169.254.169.254]", "link-local"),
    ("[::ffff:a9fe:a9fe]", "link-local"),
    ("[64:ff9b::a9fe:a9fe]", "link-local"),
    ("[fd00:ec2::254]", "private"),
    ("100.100.100.200", "provider"),
    ("168.63.129.16", "cloud"),
    ("192.0.0.192", "protocols"),
    // Everything else that is not public.
    ("192.0.2.1", "documentation"),
    ("192.88.99.1", "tunnel"),
    ("198.18.0.1", "measurements"),
    ("198.19.255.255", "measurements"),
    ("198.51.100.1", "documentation"),
    ("203.0.113.1", "documentation"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("240.0.0.1", "reserved"),
    ("255.255.255.255", "reserved"),
    ("[100::1]", "discards"),
    ("[2001:db8::1]", "documentation"),
    ("[3fff::1]", "documentation"),
    ("[5f00::1]", "reserved"),
    ("[ff02::1]", "multicast"),
    ("[ff05::1:3]", "multicast"),
    // Names that resolve to internal addresses.
    ("loopback.example", "loopback"),
    ("loopback.example.", "loopback"),
    ("loopback6.example", "loopback"),
    ("zero.example", "unspecified"),
    ("private.example", "private"),
    ("metadata.example", "link-local"),
    ("mapped.example", "loopback"),
    ("nat64.example", "loopback"),
    ("sixtofour.example", "tunnel"),
    ("unique-local.example", "private"),
    ("mixed.example", "loopback"),
    ("mixed-last.example", "loopback"),
    ("empty.example", "no address"),
    ("unknown.example", "cannot be resolved"),
];

/// Complete URLs; `P` is the collector's port.
const URLS: &[(&str, &str)] = &[
    // The part before the @ is not the host.
    ("http://good.example@127.0.0.1:P/", "user or password"),
    ("http://good.example:80@127.0.0.1:P/", "user or password"),
    ("http://127.0.0.1:P@good.example/", "user or password"),
    ("http://me:sesame@8.8.8.8/", "user or password"),
    ("http://a@b@127.0.0.1:P/", "user or password"),
    ("http://good.example%00@127.0.0.1:P/", "user or password"),
    ("http://@127.0.0.1:P/", "loopback"),
    ("http://:@127.0.0.1:P/", "loopback"),
    ("http://good.example%40127.0.0.1:P/", "invalid"),
    ("http://127.0.0.1:P#@good.example/", "loopback"),
    ("http://127.0.0.1:P?@good.example/", "loopback"),
    ("http://127.0.0.1:P/@good.example/", "loopback"),
    ("http://127.0.0.1:P;@good.example/", ""),
    // Programs parse these URLs differently.
    ("http://good.example\\@127.0.0.1:P/", "backslash"),
    ("http:\\\\127.0.0.1:P\\", "backslash"),
    ("http://127.0.0.1:P\\.good.example/", "backslash"),
    ("http:/127.0.0.1:P/", "loopback"),
    ("http:127.0.0.1:P/", "loopback"),
    ("http:///127.0.0.1:P/", "loopback"),
    ("http://////127.0.0.1:P/", "loopback"),
    ("HTTP://127.0.0.1:P/", "loopback"),
    ("hTTpS://127.0.0.1:P/", "loopback"),
    ("  http://127.0.0.1:P/  ", "loopback"),
    ("ht\ttp://127.0.0.1:P/", "control characters"),
    ("http://127.0.\n0.1:P/", "control characters"),
    ("http://127.0.0.1\r\n:P/", "control characters"),
    ("http://127.0.0.1:P/ HTTP/1.1\r\nHost: x", "control characters"),
    ("http://127.0.0.1 good.example:P/", "control characters"),
    ("\u{0}http://127.0.0.1:P/", "control characters"),
    ("\u{1f}http://127.0.0.1:P/", "control characters"),
    ("http://127.0.0.1\u{2028}:P/", "control characters"),
    ("http://127.0.0.1\u{a0}:P/", "control characters"),
    ("//127.0.0.1:P/", "no address"),
    ("127.0.0.1:P", "no address"),
    ("localhost:P", "kind localhost:"),
    ("/etc/passwd", "no address"),
    ("", "no address"),
    ("http://", "no address"),
    ("http://:P/", "no address"),
    ("http:///", "no address"),
    // Other schemes.
    ("file:///etc/passwd", "kind file:"),
    ("file://127.0.0.1/etc/passwd", "kind file:"),
    ("FILE:/etc/passwd", "kind file:"),
    ("gopher://127.0.0.1:P/_GET%20/", "kind gopher:"),
    ("ftp://127.0.0.1:P/", "kind ftp:"),
    ("dict://127.0.0.1:P/d:x", "kind dict:"),
    ("ldap://127.0.0.1:P/", "kind ldap:"),
    ("tftp://127.0.0.1:P/x", "kind tftp:"),
    ("ws://127.0.0.1:P/", "kind ws:"),
    ("wss://127.0.0.1:P/", "kind wss:"),
    ("data:text/html,<script>x</script>", "kind data:"),
    ("javascript:fetch('http://127.0.0.1:P/')", "kind javascript:"),
    ("jar:http://127.0.0.1:P!/x", "kind jar:"),
    ("view-source:http://127.0.0.1:P/", "kind view-source:"),
    ("blob:http://127.0.0.1:P/x", "kind blob:"),
    ("about:blank", "kind about:"),
    ("unix:/run/docker.sock", "kind unix:"),
    ("http+unix://%2Frun%2Fdocker.sock/info", "kind http+unix:"),
    // Ports of other services.
    ("http://good.example:22/", "Port 22"),
    ("http://good.example:25/", "Port 25"),
    ("http://good.example:6379/", "Port 6379"),
    ("http://good.example:0/", "Port 0"),
    ("http://good.example:65536/", "no address"),
    ("http://good.example:-1/", "no address"),
    ("http://good.example:80:P/", "no address"),
];

fn names() -> Arc<Names> {
    Names::of(&[
        ("loopback.example", &[&["127.0.0.1"]]),
        ("loopback.example.", &[&["127.0.0.1"]]),
        ("loopback6.example", &[&["::1"]]),
        ("zero.example", &[&["0.0.0.0"]]),
        ("private.example", &[&["10.0.0.1"]]),
        ("metadata.example", &[&["169.254.169.254"]]),
        ("mapped.example", &[&["::ffff:127.0.0.1"]]),
        ("nat64.example", &[&["64:ff9b::7f00:1"]]),
        ("sixtofour.example", &[&["2002:7f00:1::"]]),
        ("unique-local.example", &[&["fd00::1"]]),
        ("mixed.example", &[&["127.0.0.1", "8.8.8.8"]]),
        ("mixed-last.example", &[&["8.8.8.8", "2606:4700:4700::1111", "::1"]]),
        ("empty.example", &[&[]]),
    ])
}

fn all(port: u16) -> Vec<(String, &'static str)> {
    let hosts = HOSTS.iter().map(|(host, why)| (format!("http://{host}:{port}/canary"), *why));
    let urls = URLS.iter().map(|(url, why)| (url.replace(":P", &format!(":{port}")), *why));
    hosts.chain(urls).collect()
}

/// The tool with the collector's port allowed, so that only the address can be the reason of a refusal.
fn tool_for(collector: &Collector, names: Arc<Names>, allow_private: &[String]) -> FetchUrl {
    tool(names, |config| {
        config.ports.push(collector.port);
        config.allow_private = allow_private.to_vec();
    })
}

fn refusal(seen: Result<String, ToolFailure>, url: &str) -> String {
    match seen {
        Err(ToolFailure::Failed(text)) => text,
        other => panic!("{url:?}: {other:?}"),
    }
}

#[tokio::test]
async fn no_spelling_of_an_inner_address_is_connected_to() {
    let collector = Collector::everywhere().await;
    let tool = tool_for(&collector, names(), &[]);
    let rows = all(collector.port);
    assert!(rows.len() >= 120, "{}", rows.len());
    let mut wrong = Vec::new();
    for (url, why) in &rows {
        let message = refusal(fetch(&tool, url).await, url);
        let previewed = tool.preview(json!({ "url": url }).as_object().unwrap(), &"s".into()).await;
        // A name is only refused after it is resolved. Everything else is refused before a person is asked.
        let by_name = url.contains(".example") && message.contains("leads to");
        let by_name = by_name || message.contains("cannot be resolved") || message.contains("has no address");
        if !message.contains(why) || previewed.is_ok() != by_name {
            wrong.push(format!("{url:?} ({why}): {message} / {previewed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(collector.connections(HERE).await, 0);
}

async fn go(State(to): State<Arc<Vec<String>>>, Path(at): Path<usize>) -> Response {
    let status = [StatusCode::FOUND, StatusCode::MOVED_PERMANENTLY, StatusCode::TEMPORARY_REDIRECT][at % 3];
    match HeaderValue::from_bytes(to[at].as_bytes()) {
        Ok(location) => (status, [("location", location)]).into_response(),
        Err(_) => StatusCode::NO_CONTENT.into_response(),
    }
}

#[tokio::test]
async fn no_redirect_leads_to_an_inner_address() {
    let collector = Collector::everywhere().await;
    let rows: Vec<(String, &str)> = all(collector.port);
    // Excludes URLs that are no valid header value, and texts that a redirect would resolve relative to the page.
    let sendable: Vec<String> = rows
        .into_iter()
        .filter(|(url, why)| HeaderValue::from_bytes(url.as_bytes()).is_ok() && *why != "no address")
        .map(|(url, _)| url)
        .collect();
    assert!(sendable.len() >= 120, "{}", sendable.len());
    let to = Arc::new(sendable.clone());
    let front = Server::start(Router::new().route("/go/{at}", get(go)).with_state(to)).await;
    let tool = tool_for(&collector, names(), &[front.address.to_string()]);
    let own = format!("http://{}/", front.address);
    for (at, url) in sendable.iter().enumerate() {
        let message = refusal(fetch(&tool, &format!("http://{}/go/{at}", front.address)).await, url);
        // In a redirect, some of them are paths of the server itself.
        assert!(!message.contains("answered") || message.starts_with(&own), "{url}: {message}");
    }
    assert_eq!(collector.connections(HERE).await, 0);
}

/// Proves that the two tests above can fail: with an exception, the same names reach the same collector.
#[tokio::test]
async fn addresses_with_an_exception_are_connected_to() {
    for (host, allow_private) in
        [("127.0.0.1", "127.0.0.0/8"), ("2130706433", "127.0.0.1"), ("loopback.example", "127.0.0.1/32")]
    {
        let collector = Collector::everywhere().await;
        let tool = tool_for(&collector, names(), &[allow_private.to_owned()]);
        let message = refusal(fetch(&tool, &format!("http://{host}:{}/", collector.port)).await, host);
        assert!(message.contains("did not answer as a web server does"), "{message}");
        assert_eq!(collector.connections(HERE).await, 1, "{host}");
    }
}

/// Two servers with the same port on two loopback addresses: one stands for a public address, the other for an internal
/// one.
async fn twins() -> (TcpListener, TcpListener) {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(second) = TcpListener::bind(("127.0.0.2", first.local_addr().unwrap().port())).await {
            return (first, second);
        }
    }
    panic!("no port is free at both addresses");
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_asked_once_and_reached_where_it_was_checked() {
    let (public, inner) = twins().await;
    let port = public.local_addr().unwrap().port();
    let _server = Server::on(public, Router::new().route("/", get(|| async { "the checked one" })));
    let collector = Collector::on(inner);
    let rebinding = Names::of(&[("rebind.example", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let tool = tool(rebinding.clone(), |config| {
        config.ports.push(port);
        config.allow_private = vec!["127.0.0.1/32".into()];
    });
    let url = format!("http://rebind.example:{port}/");
    let page = fetch(&tool, &url).await.unwrap();
    assert!(page.ends_with("the checked one"), "{page}");
    assert_eq!(*rebinding.asked.lock().unwrap(), ["rebind.example"]);
    // The next call resolves the name again and gets the second answer.
    assert!(refusal(fetch(&tool, &url).await, &url).contains("loopback"));
    assert_eq!(rebinding.asked.lock().unwrap().len(), 2);
    assert_eq!(collector.connections("127.0.0.2".parse().unwrap()).await, 0);
}

#[tokio::test]
async fn each_hop_of_a_redirect_is_checked_anew() {
    let (public, inner) = twins().await;
    let port = public.local_addr().unwrap().port();
    let moved = || async { (StatusCode::FOUND, [("location", "/second")]) };
    let _server = Server::on(public, Router::new().route("/", get(moved)));
    let collector = Collector::on(inner);
    let rebinding = Names::of(&[("rebind.example", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let tool = tool(rebinding, |config| {
        config.ports.push(port);
        config.allow_private = vec!["127.0.0.1/32".into()];
    });
    let url = format!("http://rebind.example:{port}/");
    assert!(refusal(fetch(&tool, &url).await, &url).contains("loopback"));
    assert_eq!(collector.connections("127.0.0.2".parse().unwrap()).await, 0);
}
