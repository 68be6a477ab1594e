//! The brakes for processes, over every kind; `make brakes` stops 10,000, `make soak` 1,000.

use std::process::Command;

/// Only what is left counts here: how long it takes says more about what else the machine does.
#[test]
fn a_hundred_stops_leave_no_process_no_zombie_and_no_late_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_belay-brakes")).args(["--stops", "100", "--times", "off"]).output();
    let output = output.expect("it was built with this test");
    let table = String::from_utf8_lossy(&output.stdout);
    let sums = "0 survivors, 0 zombies, 0 late starts, 0 neighbours lost";
    assert!(output.status.success() && table.contains("100 stops in ") && table.trim_end().ends_with(sums), "{table}");
}
