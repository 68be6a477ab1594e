//! Answers that go on behind the results of the client's tools.

use belay_protocol::{Ack, Body, ClientAnswer, Control, StopReason, StopTarget};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{FACES, run_of};
use crate::harness::{Harness, PATIENCE, parts, start};

/// What the run has got last.
fn given(harness: &Harness) -> ClientAnswer {
    let seen = harness.agent.seen.lock().unwrap();
    let answers = seen.iter().rev().filter_map(|message| match &message.body {
        Body::Control(Control::ClientResults { answer, .. }) => Some(ClientAnswer::clone(answer)),
        _ => None,
    });
    answers.into_iter().next().unwrap()
}

#[tokio::test]
async fn the_words_of_a_fast_model_behind_results_are_streamed_from_the_first_one() {
    for face in FACES {
        let harness = Harness::open().await;
        let asked = face.asking("use weather {}");
        let first = face.ask(&harness, asked.clone()).await;
        let next = face.with_results(asked, &first, "begin Found ", ("", ""));
        // The double has said the first word before it says that the run goes on.
        let stream = face.open(&harness, next.clone()).await;
        let run = run_of(&stream);
        // The same results again, as after a broken connection, while the first stream is still read.
        let again = face.open(&harness, next.clone()).await;
        harness.agent.delta(run, 2, "it.");
        harness.agent.finish(run, StopReason::FinalText, "Found it.");
        for stream in [stream, again] {
            assert_eq!(face.read_stream(stream).await.text, "Found it.", "{face:?}");
        }
        let whole = face.ask(&harness, next).await;
        assert_eq!(face.read(&whole).text, "Found it.", "{face:?}");
    }
}

#[tokio::test]
async fn what_the_user_writes_around_results_belongs_to_them_in_its_order() {
    for face in FACES {
        for (said, expected) in [
            (("in Oslo", ""), "in Oslo"),
            (("", "and tomorrow?"), "and tomorrow?"),
            (("in Oslo", "and tomorrow?"), "in Oslo\n\nand tomorrow?"),
        ] {
            let harness = Harness::open().await;
            let asked = face.asking("use weather {}; weather {}");
            let first = face.ask(&harness, asked.clone()).await;
            let next = face.with_results(asked, &first, "rain", said);
            face.ask(&harness, next.clone()).await;
            let results = given(&harness).results;
            let words: Vec<_> = results.iter().map(|result| (result.text.as_str(), result.said.as_str())).collect();
            let expected = expected.replace("\n\n", if face == super::Face::Messages { "\n" } else { "\n\n" });
            assert_eq!(words, [("rain", ""), ("rain", expected.as_str())], "{face:?} {said:?}");
            let begun = harness.agent.seen.lock().unwrap().len();
            face.ask(&harness, next).await;
            let seen = harness.agent.seen.lock().unwrap()[begun..].to_vec();
            assert!(!seen.iter().any(|message| matches!(message.body, Body::Text(_))), "no run of its own: {face:?}");
        }
    }
}

#[tokio::test]
async fn results_that_are_not_taken_leave_the_run_waiting() {
    for face in FACES {
        let harness = Harness::open().await;
        let asked = face.asking("use weather {}");
        let first = face.ask(&harness, asked.clone()).await;
        let mut wrong = face.with_results(asked.clone(), &first, "rain", ("", ""));
        wrong["tools"][0]["name"] = serde_json::json!("a b");
        wrong["tools"][0]["function"]["name"] = serde_json::json!("a b");
        assert_eq!(harness.post(face.path(), wrong).await.0, 400, "{face:?}");
        let next = face.with_results(asked, &first, "rain", ("", ""));
        assert_eq!(face.read(&face.ask(&harness, next).await).text, "rain", "{face:?}");
    }
}

#[tokio::test]
async fn of_two_results_of_a_call_the_first_counts() {
    for face in FACES {
        let harness = Harness::open().await;
        let asked = face.asking("use weather {}");
        let first = face.ask(&harness, asked.clone()).await;
        let mut next = face.with_results(asked.clone(), &first, "rain", ("", ""));
        let second = face.with_results(asked, &first, "snow", ("", ""));
        let newest = |body: &serde_json::Value| body[face.list()].as_array().unwrap().last().unwrap().clone();
        match face {
            super::Face::Messages => {
                let blocks = newest(&second)["content"].as_array().unwrap().clone();
                let list = next[face.list()].as_array_mut().unwrap();
                list.last_mut().unwrap()["content"].as_array_mut().unwrap().extend(blocks);
            }
            _ => next[face.list()].as_array_mut().unwrap().push(newest(&second)),
        }
        face.ask(&harness, next).await;
        let texts: Vec<_> = given(&harness).results.into_iter().map(|result| result.text).collect();
        assert_eq!(texts, ["rain"], "{face:?}");
    }
}

#[tokio::test]
async fn results_for_a_run_that_was_stopped_get_its_line_and_begin_nothing() {
    for face in FACES {
        let harness = Harness::open().await;
        let asked = face.asking("use weather {}");
        let first = face.ask(&harness, asked.clone()).await;
        let run = harness.newest_run().await;
        harness.post(&format!("/api/v1/runs/{run}/stop"), serde_json::json!({})).await;
        let begun = harness.agent.seen.lock().unwrap().len();
        let (status, answer) = harness.post(face.path(), face.with_results(asked, &first, "rain", ("", ""))).await;
        let seen = harness.agent.seen.lock().unwrap()[begun..].to_vec();
        assert!(!seen.iter().any(|message| matches!(message.body, Body::Text(_))), "no run of its own: {face:?}");
        assert!(status < 500, "{face:?}: {status} {answer}");
        assert_eq!(harness.newest_run().await, run, "{face:?}");
    }
}

#[tokio::test]
async fn tools_that_are_too_large_are_refused_by_name_and_a_larger_body_as_a_whole() {
    for face in FACES {
        let harness = Harness::with(|parts| parts.config.max_body_bytes = 1 << 20).await;
        for (bytes, expected) in [(600 << 10, 400), (1100 << 10, 413)] {
            let mut body = face.asking("hi");
            let schema = serde_json::json!({"type": "object", "description": "x".repeat(bytes)});
            match face {
                super::Face::Chat => body["tools"][0]["function"]["parameters"] = schema,
                super::Face::Responses => body["tools"][0]["parameters"] = schema,
                super::Face::Messages => body["tools"][0]["input_schema"] = schema,
            }
            let (status, answer) = harness.post(face.path(), body).await;
            assert_eq!(status, expected, "{face:?}: {answer}");
            assert!(answer.to_string().len() < 1000, "{face:?}");
        }
        assert!(harness.agent.seen.lock().unwrap().is_empty(), "{face:?}");
    }
}

#[tokio::test]
async fn a_stream_that_is_closed_while_its_results_are_taken_ends_its_run() {
    for face in FACES {
        let harness = Harness::open().await;
        let asked = face.asking("use weather {}");
        let first = face.ask(&harness, asked.clone()).await;
        let run = harness.newest_run().await;
        // Another gateway over the same store, whose agent is this test.
        let (_ready, seen) = tokio::sync::watch::channel(true);
        let bound = belay_gateway::Gateway::bind(parts(&harness.store, &harness.clock, seen)).await;
        let (gateway, channel) = bound.unwrap();
        let url = format!("http://{}{}", gateway.addr().unwrap(), face.path());
        let stop = CancellationToken::new();
        let mut stream = start(&channel, CancellationToken::new()).await;
        let served = tokio::spawn(gateway.serve(stop.clone()));
        let mut next = async || tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap();

        let body = face.streamed(face.with_results(asked, &first, "rain", ("", "")));
        let asking = tokio::spawn(harness.client.post(url).json(&body).send());
        next().await.ack.send(Ack::Watch(None));
        let given = next().await; // its answer never comes
        assert!(matches!(given.inbound.body, Body::Control(Control::ClientResults { .. })), "{face:?}");
        asking.abort();
        let told = next().await.inbound.body;
        assert_eq!(told, Body::Control(Control::Stop(StopTarget::RunOfGoneClient(run))), "{face:?}");
        stop.cancel();
        tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
    }
}
