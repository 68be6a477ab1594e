//! The hooks of the guide do what they say, and the guide says what is.

use std::fs;
use std::path::{Path, PathBuf};

use belay_protocol::{HookFailure, HookKind};

use super::*;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[tokio::test]
async fn the_guard_refuses_changes_and_goes_on() {
    let script = docs().join("examples/hooks/guard.py");
    let settings = json!({"hooks": [
        {"name": "guard", "on": "before_tool_call", "command": ["python3", script]},
    ]});
    let set = set(&toml::to_string(&settings).expect("it is TOML"));
    let guard = hook(&set);
    for (tool, arguments, expected) in [
        ("write_file", json!({"path": "drafts/a.md"}), HookAnswer::Continue),
        (
            "write_file",
            json!({"path": "notes.md"}),
            HookAnswer::Refuse("files are written in drafts/ only; choose a path there".into()),
        ),
        (
            "run_command",
            json!({"command": "make"}),
            changed(json!({"arguments": {"command": "make", "timeout_s": 60}})),
        ),
        ("run_command", json!({"command": "make", "timeout_s": 5}), HookAnswer::Continue),
    ] {
        let event = event(json!({"tool": tool, "arguments": arguments}));
        let answer = timeout(LIMIT, guard.call(&event)).await.expect("in time");
        assert_eq!(answer, Ok(expected), "{:?}", event.data);
    }
}

#[tokio::test]
async fn the_keeper_keeps_each_event_on_a_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kept.jsonl");
    let settings = json!({"hooks": [{
        "name": "keep",
        "on": "agent_end",
        "command": ["sh", docs().join("examples/hooks/keep.sh")],
        "env": {"KEEP": file},
    }]});
    let set = set(&toml::to_string(&settings).expect("it is TOML"));
    for number in 0..3 {
        let answer = timeout(LIMIT, hook(&set).call(&event(json!(number)))).await.expect("in time");
        assert_eq!(answer, Ok(HookAnswer::Continue));
    }
    let text = fs::read_to_string(file).expect("it was kept");
    let kept: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("one object")).collect();
    assert_eq!(kept.iter().map(|event| event["data"].clone()).collect::<Vec<_>>(), [json!(0), json!(1), json!(2)]);
}

#[test]
fn the_table_of_the_guide_has_each_point_with_its_kind_its_time_and_its_failure() {
    let guide = fs::read_to_string(docs().join("develop/writing-a-hook.md")).expect("the guide is there");
    let rows: Vec<Vec<&str>> = guide
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for point in HookPoint::ALL {
        let name = format!("`{}`", point.word());
        let row = rows.iter().find(|row| row[0].split(", ").any(|cell| cell == name));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        let may = match point.kind() {
            HookKind::Observe => "observe",
            HookKind::Change => "change",
            HookKind::Decide => "refuse",
        };
        let failure = match point.default_failure() {
            HookFailure::Open => "open",
            HookFailure::Closed => "closed",
        };
        let time = format!("{} s, {failure}", point.default_timeout().as_secs());
        assert_eq!((row[2], row[3]), (may, time.as_str()), "{name}");
    }
}

#[test]
fn the_settings_of_the_guide_are_valid() {
    let guide = fs::read_to_string(docs().join("develop/writing-a-hook.md")).expect("the guide is there");
    let blocks: Vec<&str> = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let names: Vec<Vec<String>> = blocks
        .iter()
        .map(|text| set(text).bound().iter().map(|bound| bound.hook.name().to_owned()).collect())
        .collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], ["guard"]);
    assert!(names[1].iter().all(|name| name == "no-keys" || name == "book"), "{names:?}");
}
