use belay_protocol::OutboxId;

use super::*;

#[test]
fn an_own_id_tells_its_thread_and_its_question() {
    let (key, thread, approval) = (OutboxKey::of(OutboxId::new()), digest(&["a@b"]), ApprovalId::new());
    for (thread, asks) in
        [(None, None), (Some(&*thread), None), (Some(&*thread), Some(approval)), (None, Some(approval))]
    {
        let id = own_id(key, thread, asks, "example.org");
        let expected = OwnId { thread: thread.map(str::to_owned), asks };
        assert_eq!(OwnId::parse(&id, "Example.org"), Some(expected), "{id}");
        assert_eq!(OwnId::parse(&id, "example.com"), None);
    }
    for other in ["", "x@example.org", "CAF=abc-0@example.org", "0123-0@example.org"] {
        assert_eq!(OwnId::parse(other, "example.org"), None, "{other}");
    }
}

#[test]
fn a_thread_survives_a_program_without_references() {
    let references = ["first@a".to_owned(), "second@b".to_owned()];
    let first = digest(&["first@a"]);
    assert_eq!(thread_of(None, &references, Some("second@b"), "third@c"), first);
    assert_eq!(thread_of(None, &[], Some("first@a"), "third@c"), first);
    assert_eq!(thread_of(None, &[], None, "first@a"), first);
    let own = OwnId { thread: Some(first.clone()), asks: None };
    assert_eq!(thread_of(Some(&own), &[], Some("own@b"), "third@c"), first);
}

#[test]
fn an_answer_has_the_subject_and_no_strange_header() {
    for (subject, expected) in [("Lunch", "Re: Lunch"), ("RE: Lunch", "RE: Lunch"), ("", SUBJECT), ("äöü", "Re: äöü")]
    {
        let answered = Answered::new("a@b", &["c@d".to_owned()], subject);
        assert_eq!(Answered::parse(&answered.line()), Some(answered.clone()));
        assert_eq!(Answered::subject_of_answer(Some(&answered)), expected);
    }
    assert_eq!(Answered::new("a@b>\r\nBcc: <x@y", &[], "x").id, "");
    assert_eq!(Answered::parse("a@b"), None);
}
