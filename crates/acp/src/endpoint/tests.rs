#![allow(clippy::unwrap_used)]
use super::*;

fn endpoint() -> Endpoint {
    Endpoint::new(AcpArgs { url: None }, Environment::default(), Vec::new())
}

#[test]
fn a_session_that_is_opened_again_keeps_the_order_of_its_prompts() {
    let (endpoint, sent) = (endpoint(), CancellationToken::new());
    assert!(endpoint.line_up("s", sent.clone()).is_none());
    endpoint.open_session("s", None).unwrap();
    assert!(endpoint.line_up("s", sent.clone()).unwrap().is_cancelled(), "nothing is before the first one");
    endpoint.open_session("s", Some("said".into())).unwrap();
    let before = endpoint.line_up("s", CancellationToken::new()).unwrap();
    assert!(!before.is_cancelled());
    sent.cancel();
    assert!(before.is_cancelled());
    assert_eq!(endpoint.remark("s"), Some("said".into()));
}

#[test]
fn the_followed_runs_of_a_session_are_counted_once() {
    let endpoint = endpoint();
    let ((one, _), (other, _), (foreign, _)) =
        (endpoint.open_prompt("s"), endpoint.open_prompt("s"), endpoint.open_prompt("t"));
    assert_eq!(endpoint.followed("s"), 0);
    assert!(endpoint.follows(one, "r") && !endpoint.follows(other, "r") && endpoint.follows(foreign, "q"));
    assert_eq!(endpoint.followed("s"), 1);
    assert!(endpoint.follows(other, "p"));
    assert_eq!(endpoint.followed("s"), 2);
    endpoint.close_prompt(one);
    assert_eq!(endpoint.followed("s"), 1);
}
