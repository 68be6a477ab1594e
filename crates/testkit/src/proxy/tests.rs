use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{scanner::Scanner, *};

/// A server that sends everything back, and a proxy to it.
async fn echo() -> (TcpProxy, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = TcpProxy::start(listener.local_addr().unwrap().port()).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
            });
        }
    });
    (proxy, tasks)
}

async fn client(proxy: &TcpProxy) -> TcpStream {
    TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
}

/// What comes back until this many bytes or the end.
async fn answer(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = Vec::new();
    let mut stream = stream.take(bytes as u64);
    drop(stream.read_to_end(&mut read).await); // a cut may be a reset
    read
}

fn fault(direction: Direction, action: Action, nth: u64) -> Fault {
    Fault { direction, bytes: b"COMMIT".to_vec(), nth, action }
}

#[tokio::test]
async fn data_passes_and_each_fault_cuts_where_it_should() {
    let (proxy, _tasks) = echo().await;
    for (direction, action, nth, expected) in [
        (Direction::ToServer, Action::CutBefore, 1, &b"abc"[..]),
        (Direction::ToServer, Action::CutBefore, 2, b"abcCOMMITdef"),
        (Direction::ToClient, Action::CutAfter, 1, b"abcCOMMIT"),
        (Direction::ToClient, Action::CutBefore, 1, b"abc"),
    ] {
        let before = proxy.happened();
        let mut stream = client(&proxy).await;
        stream.write_all(b"abc").await.unwrap();
        assert_eq!(answer(&mut stream, 3).await, b"abc");
        proxy.arm(fault(direction, action, nth));
        for piece in [&b"COMM"[..], b"ITdef", b"COMMITghi"] {
            drop(stream.write_all(piece).await); // it may be cut already
            tokio::task::yield_now().await;
        }
        proxy.until_happened(before + 1).await;
        let mut found = b"abc".to_vec();
        found.extend(answer(&mut stream, 100).await);
        // A cut drops what is on its way in the other direction.
        let expected = [expected, b"COMM"].concat();
        assert!(expected.starts_with(&found), "{direction:?} {action:?} {nth}: {}", String::from_utf8_lossy(&found));
    }
}

#[tokio::test]
async fn held_data_comes_after_the_release_and_refused_connections_end() {
    let (proxy, _tasks) = echo().await;
    let mut stream = client(&proxy).await;
    proxy.arm(fault(Direction::ToServer, Action::Hold, 1));
    stream.write_all(b"abcCOMMITdef").await.unwrap();
    proxy.until_happened(1).await;
    proxy.release();
    assert_eq!(answer(&mut stream, 12).await, b"abcCOMMITdef");

    proxy.refuse();
    assert_eq!(answer(&mut client(&proxy).await, 1).await, b"");
    stream.write_all(b"x").await.unwrap();
    assert_eq!(answer(&mut stream, 1).await, b"x", "the others stay");
    proxy.accept();
    proxy.freeze_open();
    stream.write_all(b"y").await.unwrap();
    let mut other = client(&proxy).await;
    other.write_all(b"z").await.unwrap();
    assert_eq!(answer(&mut other, 1).await, b"z");
    proxy.cut_all();
    assert_eq!(answer(&mut stream, 1).await, b"", "what was sent after the freeze is lost");
    proxy.accept();
    proxy.delay(Duration::from_millis(1));
    let mut stream = client(&proxy).await;
    stream.write_all(b"y").await.unwrap();
    assert_eq!(answer(&mut stream, 1).await, b"y");
    assert_eq!(proxy.accepted(), 3);
    proxy.arm(fault(Direction::ToServer, Action::CutBeforeAndRefuse, 1));
    drop(stream.write_all(b"COMMIT").await);
    assert_eq!(answer(&mut stream, 1).await, b"");
    assert_eq!(answer(&mut client(&proxy).await, 1).await, b"");
}

#[test]
fn bytes_are_found_once_also_across_pieces() {
    let mut scanner = Scanner::default();
    for (piece, expected) in [
        ("xab", vec![]),
        ("c", vec![(0, 1)]),
        ("", vec![]),
        ("abcabc", vec![(0, 3), (3, 6)]),
        ("abab", vec![]),
        ("cab", vec![(0, 1)]),
    ] {
        assert_eq!(scanner.find(piece.as_bytes(), b"abc"), expected, "{piece}");
        scanner.pass(piece.as_bytes());
    }
}
