use super::*;

const SECOND: Duration = Duration::from_secs(1);
const KEYED: UnsureRule = UnsureRule { repeat: Repeat::Harmless { for_: Duration::from_secs(100) }, looks_up: false };
const ASKED: UnsureRule = UnsureRule { repeat: Repeat::Ambiguous, looks_up: true };
const BOTH: UnsureRule = UnsureRule { looks_up: true, ..KEYED };
const NEITHER: UnsureRule = UnsureRule { repeat: Repeat::Ambiguous, looks_up: false };

fn at(seconds: i64) -> UnixMillis {
    UnixMillis(seconds * 1000)
}

fn attempt(unsure_since: Option<i64>) -> Attempt {
    Attempt { began: at(50), unsure_since: unsure_since.map(at), pieces_sent: 1, is_last: false, backoff: SECOND }
}

fn ambiguous(pieces_sent: u32) -> DeliverError {
    DeliverError::Ambiguous { detail: String::new(), pieces_sent }
}

fn retry(pieces_sent: u32) -> DeliverError {
    DeliverError::Retry { after: None, detail: String::new(), pieces_sent }
}

/// The state in few words.
fn words(ended: (OutboxState, Option<&'static str>)) -> String {
    match ended {
        (OutboxState::Waiting { until, pieces_sent, unsure_since }, None) => {
            let since = unsure_since.map_or("known".to_owned(), |since| format!("unsure since {}", since.0 / 1000));
            format!("at {} ms behind {pieces_sent}, {since}", until.0)
        }
        (OutboxState::Ambiguous, Some("ambiguous")) => "ambiguous".into(),
        (OutboxState::Failed, Some("failed")) => "failed".into(),
        other => format!("{other:?}"),
    }
}

#[test]
fn an_attempt_begins_as_the_channel_can_settle_an_unknown_result() {
    use Beginning::{GiveUp, LookUp, Send};
    for (rule, since, now, is_last, expected) in [
        (NEITHER, None, 0, false, Send),
        (ASKED, None, 0, true, Send),
        (NEITHER, Some(0), 0, false, GiveUp),
        (KEYED, Some(0), 99, false, Send),
        (KEYED, Some(0), 99, true, Send),
        (KEYED, Some(0), 100, false, GiveUp),
        (KEYED, Some(10), 9, false, GiveUp), // the clock was set back
        (ASKED, Some(0), 0, false, LookUp),
        (BOTH, Some(0), 99, false, Send),
        (BOTH, Some(0), 99, true, LookUp),
        (BOTH, Some(0), 100, false, LookUp),
    ] {
        assert_eq!(rule.begin(since.map(at), at(now), is_last), expected, "{rule:?} {since:?} {now} {is_last}");
    }
}

#[test]
fn the_result_of_an_attempt_decides_what_follows() {
    let refused = || DeliverError::Refused { detail: String::new() };
    for (rule, since, error, now, expected) in [
        // As before there were keys.
        (NEITHER, None, ambiguous(1), 60, "ambiguous"),
        (NEITHER, None, retry(2), 60, "at 61000 ms behind 2, known"),
        (NEITHER, None, refused(), 60, "failed"),
        // A key: the first unknown result counts.
        (KEYED, None, ambiguous(1), 60, "at 61000 ms behind 1, unsure since 50"),
        (KEYED, Some(10), ambiguous(1), 60, "at 61000 ms behind 1, unsure since 10"),
        // Another piece than that of the earlier unknown result.
        (KEYED, Some(10), ambiguous(2), 60, "at 61000 ms behind 2, unsure since 50"),
        // Only what is certain ends the doubt.
        (KEYED, Some(10), retry(1), 60, "at 61000 ms behind 1, unsure since 10"),
        (KEYED, Some(10), retry(2), 60, "at 61000 ms behind 2, known"),
        (KEYED, Some(10), refused(), 60, "ambiguous"),
        // The memory of the platform ends.
        (KEYED, Some(10), ambiguous(1), 108, "at 109000 ms behind 1, unsure since 10"),
        (KEYED, Some(9), ambiguous(1), 108, "at 108500 ms behind 1, unsure since 9"),
        (KEYED, Some(8), ambiguous(1), 108, "ambiguous"),
        (BOTH, Some(8), ambiguous(1), 108, "at 109000 ms behind 1, unsure since 8"),
        (ASKED, None, ambiguous(1), 60, "at 61000 ms behind 1, unsure since 50"),
    ] {
        let case = format!("{rule:?} {since:?} {error:?} {now}");
        assert_eq!(words(rule.after(attempt(since), &error, at(now))), expected, "{case}");
    }
}

#[test]
fn the_last_attempt_is_the_end() {
    let last = |since| Attempt { is_last: true, ..attempt(since) };
    for (since, error, expected) in [
        (None, ambiguous(1), "ambiguous"),
        (None, retry(1), "failed"),
        (Some(10), retry(1), "ambiguous"),
        (Some(10), retry(2), "failed"),
    ] {
        assert_eq!(words(BOTH.after(last(since), &error, at(60))), expected, "{since:?} {error:?}");
    }
    let asked = |attempt| words(UnsureRule::not_asked(attempt, None, at(60)));
    assert_eq!(asked(attempt(Some(10))), "at 61000 ms behind 1, unsure since 10");
    assert_eq!(asked(last(Some(10))), "ambiguous");
    let after = UnsureRule::not_asked(attempt(Some(10)), Some(9 * SECOND), at(60));
    assert_eq!(words(after), "at 69000 ms behind 1, unsure since 10");
}

#[test]
fn a_platform_cannot_block_a_conversation_for_ever() {
    let after = Some(Duration::from_millis(u64::MAX));
    let error = DeliverError::Retry { after, detail: String::new(), pieces_sent: 1 };
    let a_day = "at 86400000 ms behind 1, known";
    assert_eq!(words(NEITHER.after(attempt(None), &error, at(0))), a_day);
    assert_eq!(words(UnsureRule::not_asked(attempt(None), after, at(0))), a_day);
}
