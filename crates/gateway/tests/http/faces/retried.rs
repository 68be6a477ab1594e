//! Streams of retries, which join the run of the first request.

use belay_protocol::StopReason;

use super::{FACES, run_of};
use crate::harness::Harness;

#[tokio::test]
async fn a_retry_of_a_stream_is_told_all_that_was_said_before() {
    for face in FACES {
        let harness = Harness::open().await;
        let body = face.streamed(face.asking("hold"));
        let send = || harness.client.post(harness.url(face.path())).header("Idempotency-Key", "k").json(&body).send();
        let first = send().await.unwrap();
        let run = run_of(&first);
        harness.agent.delta(run, 1, "I look.");
        harness.store.said_before(run, "I look.");
        harness.agent.delta(run, 2, "Now");
        let again = send().await.unwrap();
        harness.agent.delta(run, 2, " I know.");
        harness.agent.finish(run, StopReason::FinalText, "Now I know.");
        let late = send().await.unwrap(); // after the end
        for stream in [first, again, late] {
            assert_eq!(face.read_stream(stream).await.text, "I look.\n\nNow I know.", "{face:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_nobody_could_watch_has_its_texts_before_tool_calls() {
    for face in FACES {
        let harness = Harness::open().await;
        let body = face.streamed(face.asking("hold"));
        let send = || harness.client.post(harness.url(face.path())).header("Idempotency-Key", "k").json(&body).send();
        let first = send().await.unwrap();
        let run = run_of(&first);
        // As where another node has the run.
        harness.agent.leave(run);
        let again = send().await.unwrap();
        harness.store.said_before(run, "I look.");
        let record = belay_protocol::RunReader::run(&*harness.store, run).await.unwrap().unwrap();
        harness.agent.end_elsewhere(record, "Found.");
        for stream in [first, again] {
            assert_eq!(face.read_stream(stream).await.text, "I look.\n\nFound.", "{face:?}");
        }
    }
}
