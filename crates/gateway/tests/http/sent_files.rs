//! Links to sent files: which open, and for how long.

use std::sync::atomic::Ordering;

use belay_protocol::{EventKind, OutboundFile, RunReader as _, RunRecord, SentFile};
use serde_json::Value;

use crate::harness::{FILE, Harness, blank};

const HOUR_MS: i64 = 3600 * 1000;

fn sent(digit: &str) -> SentFile {
    let digest = digit.repeat(64).parse().unwrap();
    let (name, media_type) = ("report.pdf".to_owned(), "application/pdf".to_owned());
    let file = OutboundFile { name, media_type, bytes: FILE.len() as u64, digest, path: String::new() };
    SentFile::new("call".into(), &file, String::new(), None)
}

fn link(run: &Value, at: usize) -> String {
    run["files"][at]["url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_link_opens_a_file_until_its_time_is_up_and_reading_the_run_again_gives_another() {
    let harness = Harness::open().await;
    let run = RunRecord { files: vec![sent("a"), sent("0")], ..blank() };
    harness.store.put(run.clone());
    let path = format!("/api/v1/runs/{}", run.run_id);
    let (_, record) = harness.get(&path).await;
    let (first, missing) = (link(&record, 0), link(&record, 1));
    let get = async |link: &str| harness.client.get(harness.url(link)).send().await.unwrap();
    let served = get(&first).await;
    assert_eq!(
        (served.status().as_u16(), &served.headers()["content-type"]),
        (200, &"application/pdf".parse().unwrap())
    );
    assert_eq!(served.text().await.unwrap(), FILE);
    assert_eq!(get(&missing).await.status().as_u16(), 410, "its bytes are not stored any more");

    harness.clock.0.fetch_add(24 * HOUR_MS - 1, Ordering::Relaxed);
    assert_eq!(get(&first).await.status().as_u16(), 200);
    harness.clock.0.fetch_add(1, Ordering::Relaxed);
    let expired = get(&first).await;
    assert_eq!(expired.status().as_u16(), 410);
    assert!(expired.text().await.unwrap().contains("the link has expired"));
    let (_, record) = harness.get(&path).await;
    assert_eq!(get(&link(&record, 0)).await.status().as_u16(), 200);

    // The links of a run that was deleted, wholly or apart from its key, and a link that nobody has made.
    harness.store.put(RunRecord { files: Vec::new(), ..run.clone() });
    assert_eq!(get(&link(&record, 0)).await.status().as_u16(), 410);
    harness.store.remove(run.run_id);
    assert_eq!(get(&link(&record, 0)).await.status().as_u16(), 410);
    assert_eq!(get("/api/v1/files/AAAA").await.status().as_u16(), 404);
}

#[tokio::test]
async fn lists_events_and_waits_have_links_too() {
    let harness = Harness::open().await;
    let run = RunRecord { files: vec![sent("a")], ..blank() };
    harness.store.put(run.clone());
    harness.store.fact(&run, EventKind::FileSent { file: run.files[0].clone() });
    let (_, list) = harness.get("/api/v1/runs").await;
    let (_, waited) = harness.get(&format!("/api/v1/runs/{}/wait?timeout_ms=0", run.run_id)).await;
    for record in [&list["runs"][0], &waited] {
        assert!(link(record, 0).starts_with("/api/v1/files/"), "{record}");
    }
    let stored = harness.store.run(run.run_id).await.unwrap().unwrap();
    assert_eq!(stored.files[0].url, None, "the store has none");
}
