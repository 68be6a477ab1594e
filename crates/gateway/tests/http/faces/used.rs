//! The usage of an answer, which is its own part of the usage of the run.

use serde_json::json;

use super::{FACES, Face};
use crate::harness::Harness;
use crate::responses::PATH;

#[tokio::test]
async fn the_usage_of_an_answer_behind_results_begins_there() {
    for face in FACES {
        for streams in [false, true] {
            let harness = Harness::open().await;
            let asked = face.asking("use weather {}");
            let first = face.ask(&harness, asked.clone()).await;
            assert_eq!(face.read(&first).used, (5, 2), "{face:?}");
            let next = face.with_results(asked, &first, "rain", ("", ""));
            // The run has used 8 and 3 in all. The same results again get the same answer.
            for _ in 0..2 {
                let answer = match streams {
                    true => face.read_stream(face.open(&harness, next.clone()).await).await,
                    false => face.read(&face.ask(&harness, next.clone()).await),
                };
                assert_eq!((answer.text.as_str(), answer.used), ("rain", (3, 1)), "{face:?} {streams}");
            }
        }
    }
}

#[tokio::test]
async fn a_response_that_is_read_again_has_its_own_usage_and_fields() {
    let harness = Harness::open().await;
    let mut asked = Face::Responses.asking("use weather {}");
    asked["metadata"] = json!({"part": "1"});
    let first = Face::Responses.ask(&harness, asked.clone()).await;
    let again = Face::Responses.with_results(asked, &first, "use weather {}", ("", ""));
    let second = Face::Responses.ask(&harness, again.clone()).await;
    let mut last = Face::Responses.with_results(again, &second, "rain", ("", ""));
    last["metadata"] = json!({});
    let third = Face::Responses.ask(&harness, last).await;
    for (response, used, part) in
        [(first, (5, 2), json!("1")), (second, (0, 0), json!("1")), (third, (3, 1), json!(null))]
    {
        let (status, shown) = harness.get(&format!("{PATH}/{}", response["id"].as_str().unwrap())).await;
        assert_eq!(
            (status, &shown["metadata"]["part"], &shown["output"]),
            (200, &part, &response["output"]),
            "{shown}"
        );
        assert_eq!(Face::Responses.read(&shown).used, used, "{shown}");
    }
    let notes = belay_protocol::RunReader::client_notes(&*harness.store, harness.newest_run().await).await.unwrap();
    assert_eq!(notes.len(), 2, "a note that is repeated is kept once: {notes:?}");
}
