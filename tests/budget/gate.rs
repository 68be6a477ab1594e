//! The gate itself: it fails when a message costs a query that its rows do not have.

use std::process::Command;

/// Runs the real daemon for some seconds, and as often as the budget does before a difference counts.
#[test]
fn an_added_query_fails_and_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_belay-budget")).args(["--with-added-query", "--quiet"]).output();
    let output = output.expect("the budget starts");
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{printed}{error}");
    let failed: Vec<_> = printed.lines().filter(|line| line.starts_with("FAILED")).collect();
    assert!(failed.iter().any(|line| line.contains("message") && line.contains("read-statements")), "{printed}{error}");
    assert!(printed.contains("make budget UPDATE=1"), "{printed}");
}
