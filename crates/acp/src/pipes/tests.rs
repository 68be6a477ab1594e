#![allow(clippy::unwrap_used)]
use std::pin::pin;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::Instant;

use super::*;

#[test]
fn an_error_does_not_quote_what_was_sent() {
    for (line, expected, kind) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m","data":{"json":"secret"}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}"#,
            Kind::Answer,
        ),
        (r#"{"id":1,"result":{"data":1}}"#, r#"{"id":1,"result":{"data":1}}"#, Kind::Answer),
        (r#"{"method":"session/update","params":{}}"#, r#"{"method":"session/update","params":{}}"#, Kind::Update),
        (r#"{"method":"$/cancel_request"}"#, r#"{"method":"$/cancel_request"}"#, Kind::Other),
    ] {
        assert_eq!(cleaned(line.to_owned()), (expected.to_owned(), kind));
    }
}

#[tokio::test]
async fn nothing_waits_for_a_reader_that_is_gone() {
    let gate = Gate::new();
    for _ in 0..UNREAD_MAX {
        gate.pass().await;
    }
    assert_eq!(gate.unread.available_permits(), 0);
    gate.close();
    gate.pass().await;
}

#[tokio::test(start_paused = true)]
async fn an_unread_line_does_not_hold_the_end_when_the_input_has_closed() {
    let (unread, output) = tokio::io::duplex(1);
    let gate = Gate::new();
    let (mut input, mut output) = (pin!(lines_of(&b"{}\n"[..], gate.clone())), pin!(lines_to(output, gate.clone())));
    assert_eq!(input.next().await.unwrap().unwrap(), "{}");
    let begin = Instant::now();
    let (end, written) = tokio::join!(input.next(), output.send("{}".into()));
    assert!(end.is_none());
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!((LAST_READ_LIMIT..READ_LIMIT).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    drop(unread);
}
