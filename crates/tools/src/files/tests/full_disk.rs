//! Writes to a full disk: a file system of 64 KiB that only this test can see.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::*;

/// Variable with the path of the small file system, for the second process of the test.
const SMALL_DISK: &str = "BELAY_TEST_SMALL_DISK";

/// Runs itself again in a separate mount namespace, where the actual test takes place.
#[tokio::test]
async fn a_full_disk_leaves_the_old_file_as_it_was_and_nothing_else() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return write_too_much(Path::new(&disk)).await;
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64k,mode=700 tmpfs \"$0\" && exec \"$@\"";
    let test = "files::tests::full_disk::a_full_disk_leaves_the_old_file_as_it_was_and_nothing_else";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(SMALL_DISK, disk.path())
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}

async fn write_too_much(disk: &Path) {
    let workspace = Arc::new(Workspace::open(disk).unwrap());
    let write = WriteFile::new(workspace, &ToolsConfig::default());
    call(&write, json!({"path": "kept.txt", "content": "as it was"})).await.unwrap();
    let message = failure(call(&write, json!({"path": "kept.txt", "content": "x".repeat(100_000)})).await);
    assert!(message.contains("the disk is full. Nothing was changed."), "{message}");
    assert_eq!(std::fs::read_to_string(disk.join("kept.txt")).unwrap(), "as it was");
    assert_eq!(std::fs::read_dir(disk).unwrap().count(), 1);
    call(&write, json!({"path": "kept.txt", "content": "x".repeat(20_000)})).await.unwrap();
}
