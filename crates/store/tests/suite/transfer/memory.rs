//! The memory of a migration does not grow with the store.

use std::process::Command;

use belay_protocol::Message;
use belay_store::transfer::migrate;
use belay_store::{StoreUrl, parse_url};
use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::{database, file, path};
use crate::kit::*;

/// The variables with the addresses, for the process whose memory is measured.
const ADDRESSES: [&str; 2] = ["TRANSFER_FROM", "TRANSFER_TO"];

/// A message of the larger store has about 500 bytes: 100,000 have 50 MB.
const MESSAGES: [u32; 2] = [5_000, 100_000];

/// The growth that is allowed between the two, in KiB. The messages alone would take 50,000.
const GROWTH_MAX: u64 = 12_000;

/// A store with so many messages, of which every twentieth is in the full-text index: that takes the most time.
async fn with_messages(messages: u32, name: &str, directory: &TempDir) -> StoreUrl {
    let url = file(directory, name);
    let store = super::open_store(&url).await.unwrap();
    open(&store, "s").await;
    store.close().await;
    let conn = Connection::open(path(&url)).unwrap();
    let sql = "INSERT INTO messages (thread, position, turn, role, scope, at, index_row, body)
               SELECT id, ?1, 1, 'user', 'thread', 1, CASE WHEN ?1 % 20 = 0 THEN ?1 END, ?2 FROM threads";
    conn.execute_batch("BEGIN").unwrap();
    let mut insert = conn.prepare(sql).unwrap();
    for n in 1..=messages {
        let words = format!("message {n} {}", "with some words of no meaning ".repeat(16));
        insert.execute(params![n, serde_json::to_string(&Message::user(words)).unwrap()]).unwrap();
    }
    conn.execute_batch("INSERT INTO thread_index SELECT thread, MAX(position) FROM messages GROUP BY thread; COMMIT")
        .unwrap();
    url
}

/// The largest resident memory of a process that migrates, in KiB.
async fn peak(from: String, to: String) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "transfer::memory::measured", "--ignored", "--nocapture"]);
    child.env(ADDRESSES[0], from).env(ADDRESSES[1], to);
    let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.split_once("VmHWM:")).unwrap_or_else(|| panic!("no peak: {text}"));
    line.1.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "a part of the test below, in a process of its own"]
fn measured() {
    let [from, to] = ADDRESSES.map(|name| parse_url(&std::env::var(name).unwrap()).unwrap());
    assert!(migrate(&from, &to, &mut |_| ()).unwrap().is_equal());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("\n{}", status.lines().find(|line| line.starts_with("VmHWM:")).unwrap());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_messages_need_no_more_memory_than_five_thousand() {
    let directory = tempfile::tempdir().unwrap();
    let mut peaks = Vec::new();
    for messages in MESSAGES {
        let original = with_messages(messages, &format!("{messages}.db"), &directory).await;
        // The copy reads the pages of SQLite, and the verification those of PostgreSQL.
        let target = file(&directory, &format!("{messages}-target.db"));
        let server = database().await;
        let target = server.as_ref().map_or_else(
            || format!("sqlite://{}", path(&target).display()),
            |(_, database)| format!("{}?sslmode=disable", database.url()),
        );
        peaks.push(peak(format!("sqlite://{}", path(&original).display()), target).await);
    }
    println!("the peaks of few and of many messages in KiB: {peaks:?}");
    assert!(peaks[1] < peaks[0] + GROWTH_MAX, "{peaks:?}");
}
