//! `belay stops …`: recordings checked, imported and judged by the real binary.

use std::path::Path;

use anyhow::Result;
use belay_tests::daemon::{Home, Output};
use serde_json::{Value, json};

/// One step that calls a tool and gets an answer.
fn step(tool: &str, result: &str) -> String {
    [
        json!({"turn": true}),
        json!({"tool": {"name": tool, "args": {"path": "a.txt"}}}),
        json!({"tool_result": {"name": tool, "ok": result != "boom", "text": result}}),
    ]
    .map(|event| event.to_string() + "\n")
    .concat()
}

fn verdict(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout.lines().count(), 1, "one line: {output:?}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn write(home: &Home, name: &str, text: &str) -> String {
    let path = home.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
    std::fs::write(&path, text).expect("a file");
    path.to_string_lossy().into_owned()
}

/// What stands between two marks of a document.
fn marked(document: &str, mark: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace");
    let text = std::fs::read_to_string(root.join(document)).expect("the document is there");
    let (_, rest) = text.split_once(&format!("<!-- {mark}")).expect("the mark is there");
    let (_, rest) = rest.split_once("-->\n").expect("the mark ends");
    let (inside, _) = rest.split_once(&format!("<!-- /{mark} -->")).expect("the mark is closed");
    inside.to_owned()
}

#[tokio::test]
async fn the_reference_shows_the_verdict_that_its_command_prints() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace");
    let file = root.join("docs/examples/looping.jsonl");
    let printed = Home::new().run(&["stops", "check", &file.to_string_lossy()], "").await?;
    let command = "$ belay stops check docs/examples/looping.jsonl";
    assert_eq!(
        marked("docs/reference/trajectories.md", "verdict"),
        format!("```text\n{command}\n{}```\n", printed.stdout)
    );
    Ok(())
}

#[tokio::test]
async fn the_guide_shows_the_words_that_its_command_prints() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace");
    let file = root.join("docs/examples/looping.jsonl");
    let printed = Home::new().run(&["stops", "check", &file.to_string_lossy()], "").await?;
    let command = "$ belay stops check docs/examples/looping.jsonl";
    assert_eq!(marked("docs/guide/stops-check.md", "words"), format!("```text\n{command}\n{}```\n", printed.stderr));
    Ok(())
}

#[tokio::test]
async fn sessions_of_other_agents_are_judged_and_explained() -> Result<()> {
    let home = Home::new();
    let record = |payload: Value| json!({"type": "response_item", "payload": payload}).to_string() + "\n";
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "exec_command", "arguments": "{\"cmd\":\"npm test\"}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": format!("Chunk ID: {id}\nWall time: 1 seconds\nProcess exited with code 1\nOutput:\n14 lines\n")});
    let rollout: String =
        (10..19).flat_map(|n| [record(call(&n.to_string())), record(output(&n.to_string()))]).collect();
    let looping = write(&home, "rollout-looping.jsonl", &(rollout + "{\"type\":\"from-the-future\"}\n{\"cut\""));
    let healthy = write(
        &home,
        "session.json",
        &json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]).to_string(),
    );
    let output = home.run(&["stops", "check", &looping, &healthy], "").await?;
    assert_eq!((output.status.code(), output.stdout.lines().count()), (Some(0), 2), "{output:?}");
    for needle in [
        "read 20 records (codex), skipped 2: 1 broken line, 1 from-the-future",
        "rollout-looping.jsonl: would have been struck at step 5 of 9 (strike 1 of 2; a live run gets a recovery turn first): ",
        "(steps 1, 2, 3, 4 and 5)",
        ">  step 5  exec_command  {\"cmd\":\"npm test\"}  14 lines",
        "session.json: would not have stopped in 1 step with 0 tool calls; no call came twice",
    ] {
        assert!(output.stderr.contains(needle), "{needle}: {}", output.stderr);
    }
    assert!(!output.stderr.contains('\u{1b}'), "no colours in a pipe");
    let json = home.run(&["stops", "check", "--json", &looping, "no-such-file", &healthy], "").await?;
    assert_eq!(json.status.code(), Some(65), "{json:?}");
    let lines: Vec<Value> = json.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!((&lines[0]["stopped"], &lines[1]["stopped"]), (&json!(true), &json!(false)), "{json:?}");
    assert_eq!(
        (&lines[0]["explanation"]["at_step"], &lines[0]["explanation"]["same_call"]),
        (&json!(5), &json!([1, 2, 3, 4, 5]))
    );
    let strike = ["strike", "max_strikes", "ends"].map(|key| lines[0]["explanation"][key].clone());
    assert_eq!(strike, [json!(1), json!(2), json!(false)], "{json:?}");
    assert!(lines[0]["read"].as_str().is_some_and(|read| read.starts_with("read 20 records")), "{json:?}");
    assert!(json.stderr.contains("no-such-file") && !json.stderr.contains("would"), "{json:?}");
    let recording = home.run(&["stops", "import", &looping], "").await?;
    assert_eq!(verdict(&home.run(&["stops", "check"], &recording.stdout).await?)["stopped"], true, "{recording:?}");
    let wrong = home.run(&["stops", "check", "--format", "otel", &looping], "").await?;
    assert_eq!(wrong.status.code(), Some(65), "{wrong:?}");
    assert!(wrong.stderr.contains("this is not otel"), "{wrong:?}");
    let directory = home.run(&["stops", "check", &home.path().to_string_lossy()], "").await?;
    assert_eq!(directory.status.code(), Some(65), "{directory:?}");
    write(&home, "set/pathologies/rollout.jsonl", &std::fs::read_to_string(&looping)?);
    write(&home, "set/healthy/session.json", &std::fs::read_to_string(&healthy)?);
    write(&home, "set/package.json", "{}");
    let report = home.run(&["stops", "eval", "--json", &home.path().join("set").to_string_lossy()], "").await?;
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    let figures: Value = serde_json::from_str(&report.stdout)?;
    assert_eq!((&figures["pathologies"], &figures["sets"][0]["plain"]["caught"]), (&json!(1), &json!(1)), "{report:?}");
    assert!(report.stderr.contains("package.json: has no label and is left out"), "{report:?}");
    Ok(())
}

#[tokio::test]
async fn a_recording_gets_one_verdict_from_a_file_and_from_standard_input() -> Result<()> {
    let home = Home::new();
    let failing: String = (0..9).map(|n| step(&format!("tool{n}"), "boom")).collect();
    let expected = json!({
        "stopped": true, "reason": "consecutive_errors", "rule": "consecutive_errors", "at_event": 14, "strikes": 1,
        "evidence": {"rule": "consecutive_errors", "count": 5, "threshold": 5},
    });
    let file = write(&home, "failing.jsonl", &failing);
    for (args, input) in [
        (vec!["stops", "check", &file], ""),
        (vec!["stops", "check", "-"], failing.as_str()),
        (vec!["stops", "check"], failing.as_str()),
    ] {
        let mut seen = verdict(&home.run(&args, input).await?);
        let evidence = seen["evidence"].as_object_mut().expect("an object");
        evidence.retain(|key, _| ["rule", "count", "threshold"].contains(&key.as_str()));
        assert_eq!(seen, expected, "{args:?}");
    }
    let healthy: String = (0..9).map(|n| step("read_file", &format!("line {n}"))).collect();
    let quiet = json!({
        "stopped": false, "reason": null, "rule": null, "at_event": null, "strikes": 0, "evidence": {},
    });
    assert_eq!(verdict(&home.run(&["stops", "check"], &healthy).await?), quiet);
    Ok(())
}

#[tokio::test]
async fn rules_and_limits_can_be_others() -> Result<()> {
    let home = Home::new();
    let recording: String = (0..4).map(|n| step("read_file", &format!("line {n}"))).collect();
    let own = write(&home, "rules.toml", "[[rules]]\nname = \"few\"\nwhen = { tool_calls = 3 }\nthen = \"stop\"\n");
    let limited = ["stops", "check", "--with-limits", "--set", "limits.tool_calls=2"];
    for (args, expected) in [
        (vec!["stops", "check"], (json!(null), json!(null))),
        (vec!["stops", "check", "--rules", &own], (json!("tool_calls"), json!(7))),
        (limited.to_vec(), (json!("tool_calls"), json!(4))),
        (vec!["stops", "check", "--set", "limits.tool_calls=2"], (json!(null), json!(null))),
    ] {
        let seen = verdict(&home.run(&args, &recording).await?);
        let seen = (seen["reason"].clone(), seen["at_event"].clone());
        assert_eq!(seen, expected, "{args:?}");
    }
    for (text, needle) in [
        ("errors_stopp = 3", "errors_stopp: unknown key; did you mean errors_stop?"),
        ("max_strikes = 0", "max_strikes"),
        ("nonsense", "nonsense"),
    ] {
        let broken = write(&home, "broken.toml", text);
        let output = home.run(&["stops", "check", "--rules", &broken], "").await?;
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        assert!(output.stderr.contains(needle) && output.stderr.contains("broken.toml"), "{output:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_no_recording_is_refused_with_its_line() -> Result<()> {
    let home = Home::new();
    for (input, needle) in [
        ("{\"turn\":true}\n\n{\"tol\":{}}\n", "standard input: line 3: there is no event `tol`; did you mean `tool`?"),
        ("{\"turn\":true}\n{\"turn\":tru\n", "line 2, column 11: not JSON: EOF"),
        ("{\"rows\":[]}\n", "no known form: expected"),
        ("{\"tool\":{}}\n", "is read with --format NAME"),
    ] {
        let output = home.run(&["stops", "check"], input).await?;
        assert_eq!((output.status.code(), output.stdout.as_str()), (Some(65), ""), "{output:?}");
        assert!(output.stderr.contains(needle), "{needle}: {output:?}");
    }
    let missing = home.run(&["stops", "check", "no-such-file.jsonl"], "").await?;
    assert_eq!(missing.status.code(), Some(65), "{missing:?}");
    assert!(missing.stderr.contains("no-such-file.jsonl"), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn a_line_without_end_is_refused_at_sixteen_mebibytes() -> Result<()> {
    let home = Home::new();
    let long = format!("{{\"turn\":true}}\n{{\"text\":\"{}", "x".repeat(17 * 1024 * 1024));
    let output = home.run(&["stops", "check"], &long).await?;
    assert_eq!(output.status.code(), Some(65), "{}", output.stderr);
    assert!(output.stderr.contains("line 2: longer than 16 MiB"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn each_form_is_imported_to_what_check_reads() -> Result<()> {
    let home = Home::new();
    let openai = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": "{\"p\": 1}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "a"},
    ]);
    let anthropic = json!({"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "ls", "input": {"p": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a"}]},
    ]});
    let swe_agent = json!({"history": [{"role": "user", "content": "go"}], "trajectory": [
        {"action": "ls 1", "observation": "a", "thought": "", "response": ""},
    ]});
    let tau_bench = json!([{"traj": openai, "reward": 1.0}, {"traj": openai, "reward": 0.0}]);
    let mini_swe_agent = json!({"info": {"mini_version": "1.17.4"}, "trajectory_format": "mini-swe-agent-1", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "```bash\nls 1\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na</output>"},
    ]});
    let first = ["{\"reset\":true}", "{\"user\":\"go\"}", "{\"turn\":true}"];
    for (name, file, index) in [
        ("openai", openai.clone(), None),
        ("anthropic", anthropic, None),
        ("swe-agent", swe_agent, None),
        ("mini-swe-agent", mini_swe_agent, None),
        ("tau-bench", tau_bench, Some("1")),
    ] {
        let path = write(&home, &format!("{name}.json"), &file.to_string());
        for forced in [false, true] {
            let mut args = vec!["stops", "import", path.as_str()];
            args.extend(index.into_iter().flat_map(|index| ["--index", index]));
            args.extend(if forced { vec!["--format", name] } else { vec![] });
            let output = home.run(&args, "").await?;
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let lines: Vec<_> = output.stdout.lines().collect();
            assert_eq!((&lines[..3], lines.len()), (&first[..], 5), "{name}: {output:?}");
            let tool = if name == "mini-swe-agent" { "bash" } else { "ls" };
            assert!(lines[3].starts_with(&format!("{{\"tool\":{{\"name\":\"{tool}\",\"args\":{{")), "{output:?}");
            let result = json!({"tool_result": {"name": tool, "ok": true, "text": "a"}});
            assert_eq!(serde_json::from_str::<Value>(lines[4])?, result, "{name}");
            assert_eq!(verdict(&home.run(&["stops", "check"], &output.stdout).await?)["stopped"], false);
        }
    }
    let many = home.path().join("tau-bench.json").to_string_lossy().into_owned();
    let unsure = home.run(&["stops", "import", &many], "").await?;
    assert_eq!(unsure.status.code(), Some(2), "{unsure:?}");
    assert!(unsure.stderr.contains("--index 0 to 1"), "{unsure:?}");
    let into = home.path().join("out").to_string_lossy().into_owned() + "/";
    let all = home.run(&["stops", "import", &many, "-o", &into], "").await?;
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    assert_eq!(std::fs::read_dir(&into)?.count(), 2);
    let other = home.run(&["stops", "import", "--format", "swe-agent", &many], "").await?;
    assert_eq!(other.status.code(), Some(65), "{other:?}");
    assert!(other.stderr.contains("this is not swe-agent: expected"), "{other:?}");
    Ok(())
}

#[tokio::test]
async fn a_labelled_set_is_judged_wherever_its_labels_stand() -> Result<()> {
    let home = Home::new();
    let failing: String = (0..12).map(|n| step(&format!("tool{n}"), "boom")).collect();
    let healthy: String = (0..6).map(|n| step("read_file", &format!("line {n}"))).collect();
    write(&home, "set/rows/a.jsonl", &failing);
    write(&home, "set/rows/b.jsonl", &healthy);
    let rows =
        "{\"file\":\"a.jsonl\",\"label\":\"pathology\",\"onset\":1}\n{\"file\":\"b.jsonl\",\"label\":\"healthy\"}\n";
    write(&home, "set/rows/labels.jsonl", rows);
    write(&home, "set/header.jsonl", &format!("{{\"label\":{{\"kind\":\"pathology\",\"onset\":1}}}}\n{failing}"));
    write(&home, "set/healthy/c.jsonl", &healthy);
    write(&home, "set/side.jsonl", &failing);
    write(&home, "set/side.label.json", "{\"label\":\"pathology\",\"onset\":1}");
    write(&home, "set/nobody-knows.jsonl", &healthy);
    let set = home.path().join("set").to_string_lossy().into_owned();
    let output = home.run(&["stops", "eval", "--json", &set], "").await?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.contains("nobody-knows.jsonl: has no label and is left out"), "{output:?}");
    let report: Value = serde_json::from_str(&output.stdout)?;
    assert_eq!((&report["pathologies"], &report["healthy"]), (&json!(3), &json!(2)));
    let belay = &report["sets"][0];
    let seen = ["caught", "false_stops", "wasted_median", "wasted_p90"].map(|key| belay["plain"][key].clone());
    assert_eq!((belay["name"].as_str(), seen), (Some("belay"), [json!(3), json!(0), json!(4), json!(4)]));
    assert_eq!((report["sets"].as_array().map(Vec::len), belay.get("mutated")), (Some(1), None));

    let disabled = write(&home, "disabled.toml", "enabled = false\n");
    let args = ["stops", "eval", "--rules", &disabled, "--without", "words", "--failures", &set];
    let table = home.run(&args, "").await?;
    assert!(table.stdout.contains("0.0 % (0/3)") && table.stdout.contains("without words"), "{table:?}");
    assert_eq!(table.stdout.matches("miss").count(), 3, "{table:?}");
    assert!(!table.stdout.contains('\u{1b}') && !table.stderr.contains('\u{1b}'), "no colours in a pipe");
    let page = home.run(&["stops", "eval", "--markdown", &set], "").await?;
    assert!(page.stdout.contains("| belay | 100.0 % (3/3) | 0.0 % (0/2) | 0 | 4 | 4 |"), "{page:?}");

    write(&home, "set/rows/labels.jsonl", "{\"file\":\"gone.jsonl\",\"label\":\"healthy\"}\n");
    let broken = home.run(&["stops", "eval", &set], "").await?;
    assert_eq!(broken.status.code(), Some(65), "{broken:?}");
    assert!(broken.stderr.contains("gone.jsonl"), "{broken:?}");
    Ok(())
}

#[tokio::test]
async fn a_run_of_the_daemon_can_be_judged_and_read_as_a_recording() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "calculate 6*7").await?;
    let id = run["run_id"].as_str().unwrap_or_default();
    let (status, recording) = daemon.request("GET", &format!("/api/v1/runs/{id}/trajectory"), None).await?;
    let recording = recording.as_str().unwrap_or_default().to_owned();
    assert_eq!(status, 200);
    let lines: Vec<&str> = recording.lines().collect();
    assert_eq!(lines[..3], ["{\"reset\":true}", "{\"user\":\"calculate 6*7\"}", "{\"turn\":true}"], "{recording}");
    assert!(lines.iter().any(|line| line.starts_with("{\"tool\":{\"name\":\"calculate\"")), "{recording}");
    let judged = verdict(&home.run(&["stops", "check", "--run", id], "").await?);
    assert_eq!(judged["stopped"], false);
    assert_eq!(verdict(&home.run(&["stops", "check"], &recording).await?), judged);
    let nobody = home.run(&["stops", "check", "--run", "01930000-0000-7000-8000-000000000000"], "").await?;
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn what_is_no_recording_is_refused_with_the_next_step() -> Result<()> {
    let home = Home::new();
    let junk = write(&home, "junk.txt", "not a recording\n");
    let empty = write(&home, "empty.jsonl", "\n");
    for (file, what) in
        [(&*junk, "line 1, column 2: not JSON: expected ident"), (&empty, "is empty"), ("-", "is empty")]
    {
        let refused = home.run(&["stops", "check", file], "").await?;
        assert_eq!((refused.status.code(), &*refused.stdout), (Some(65), ""), "{refused:?}");
        for part in [what, "--format", "docs/guide/stops-check.md"] {
            assert!(refused.stderr.contains(part), "{part}: {refused:?}");
        }
    }
    Ok(())
}
