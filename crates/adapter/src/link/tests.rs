//! Tests of the link.

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

fn frame() -> ToAdapter {
    ToAdapter::Error { detail: "x".to_owned() }
}

#[tokio::test]
async fn the_end_of_a_connection_says_which_frames_the_adapter_may_have_seen() {
    let link = Link::default();
    assert!(link.ask("none", &frame()).is_none(), "no adapter is connected");
    let (first, _queue) = link.open(Ready::default());
    let (seen, unseen) = (link.ask("seen", &frame()).expect("sent"), link.ask("unseen", &frame()).expect("sent"));
    assert!(link.ask("seen", &frame()).is_none(), "twice at once");
    link.begin_writing(first, "seen");
    let (second, _newer) = link.open(Ready::default());
    link.close(first); // the older connection has no say any more
    assert!(matches!(
        (seen.answer(LIMIT).await, unseen.answer(LIMIT).await),
        (Some(Answer::Lost), Some(Answer::NotWritten))
    ));
    let answered = link.ask("again", &frame()).expect("the newer connection is open");
    link.answer(first, "again", Answer::LookedUp(Some(true)));
    link.answer(second, "again", Answer::LookedUp(None));
    assert!(matches!(answered.answer(LIMIT).await, Some(Answer::LookedUp(None))));
}

#[tokio::test]
async fn an_adapter_that_does_not_read_gets_a_bounded_number_of_frames() {
    let link = Link::default();
    let (_, queue) = link.open(Ready::default());
    (0..QUEUE + 5).for_each(|_| link.offer(&frame()));
    assert!(link.ask("late", &frame()).is_none());
    assert_eq!(queue.len(), QUEUE);
}

#[tokio::test]
async fn a_frame_whose_wait_was_cancelled_can_be_sent_again() {
    let link = Link::default();
    let (_, _queue) = link.open(Ready::default());
    drop(link.ask("key", &frame()).expect("sent").answer(LIMIT));
    assert!(link.ask("key", &frame()).is_some());
}
