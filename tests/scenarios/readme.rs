//! The conversations of the README, and the lines of the guide for programs: they are taken from the pages and run
//! against a real daemon.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home, Output, PATIENCE, binary};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

const PAGE: &str = include_str!("../../docs/guide/programs.md");

/// The lines of the section's shell blocks, comments left out.
fn lines() -> Result<Vec<&'static str>> {
    let section = PAGE.split("\n## Use it from your program\n").nth(1).context("the section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    Ok(blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect())
}

/// Runs a line as a shell does, with `$U`, `$H` and `$RUN` set, and `belay` on the path.
async fn shell(home: &Home, daemon: &Daemon, run: &str, line: &str) -> Result<Output> {
    let mut command = Command::new("sh");
    let bin = binary();
    let folder = bin.parent().context("a folder")?.display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["-c", line]).env_clear().env("PATH", format!("{folder}:{path}")).env("HOME", home.path());
    command.env("U", &daemon.url).env("H", "Content-Type: application/json").env("RUN", run);
    // The commands find the daemon as they do for its owner: by its socket.
    command.env("XDG_RUNTIME_DIR", home.path()).env("XDG_DATA_HOME", home.path().join("data"));
    command.env("XDG_CONFIG_HOME", home.path().join("config")).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.with_context(|| format!("{line}: no end"))??;
    Ok(Output {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn json(line: &str, output: &Output) -> Result<Value> {
    serde_json::from_str(&output.stdout).with_context(|| format!("{line} was answered with {output:?}"))
}

/// The events of a stream: kind and data.
fn events(stdout: &str) -> Vec<(String, Value)> {
    let event = |block: &str| {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some((field("event:").unwrap_or_default().to_owned(), serde_json::from_str(field("data:")?).ok()?))
    };
    stdout.split("\n\n").filter_map(event).collect()
}

#[tokio::test]
async fn each_line_for_programs_does_what_the_guide_says() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let (mut run, mut checked) = (String::new(), 0);
    for line in lines()? {
        if line.starts_with("H=") {
            ensure!(line.contains("'Content-Type: application/json'") && line.contains("U=http://"), "{line}");
            continue;
        }
        let output = shell(&home, &daemon, &run, line).await?;
        ensure!(output.status.success(), "{line}: {output:?}");
        checked += 1;
        let words = |part: &str| line.contains(part);
        if words("/api/v1/messages") {
            let answer = json(line, &output)?;
            assert_eq!(answer["status"], "completed", "{answer}");
            assert!(answer["reply"].as_str().is_some_and(|reply| reply.contains("391")), "{answer}");
            run = answer["run_id"].as_str().context("a run")?.to_owned();
        } else if words("/wait?") {
            let answer = json(line, &output)?;
            assert_eq!((answer["run_id"].as_str(), answer["status"].as_str()), (Some(&*run), Some("completed")));
        } else if words("/events") {
            let kinds: Vec<Value> = events(&output.stdout).into_iter().map(|(_, data)| data["type"].clone()).collect();
            assert_eq!((&kinds[0], kinds.last()), (&"run_accepted".into(), Some(&"run_ended".into())), "{kinds:?}");
        } else if words("/stop") {
            // It has ended: a stop is then an answer and no error.
            assert_eq!(json(line, &output)?["still_running"], Value::Array(vec![]), "{output:?}");
        } else if words("/stream") {
            let streams: Vec<_> = events(&output.stdout).into_iter().map(|(_, data)| data["stream"].clone()).collect();
            for stream in ["lifecycle", "assistant", "tool"] {
                assert!(streams.contains(&stream.into()), "{stream}: {streams:?}");
            }
        } else if words("/api/v1/agent") {
            assert_eq!(json(line, &output)?["status"], "accepted", "{output:?}");
        } else if words("belay agent") {
            assert_eq!(output.stdout.matches("391").count(), 1, "{output:?}");
        } else {
            anyhow::bail!("nobody checks what this line does: {line}");
        }
    }
    assert_eq!(checked, 7, "every line of the section");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_commands_for_a_shell_do_what_the_guide_says() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let stalled = daemon.send("bob", "rehearse stall").await?;
    daemon.until(&stalled, "running").await?;
    for (named, line, expected) in [
        ("`belay send --wait TEXT`", "belay send --wait 'calculate 17*23'".to_owned(), "391"),
        (
            "`belay ask TEXT` (without a daemon)",
            "belay ask --set llm.provider=rehearsal 'calculate 17*23'".to_owned(),
            "391",
        ),
        ("`belay status`", "belay status".to_owned(), "rehearsal"),
        ("`belay runs`", "belay runs".to_owned(), "completed"),
        ("`belay stop RUN`", format!("belay stop {stalled}"), ""),
    ] {
        ensure!(
            PAGE.split_whitespace().collect::<Vec<_>>().join(" ").contains(named),
            "docs/guide/programs.md does not name {named}"
        );
        let output = shell(&home, &daemon, "", &line).await?;
        assert!(output.status.success() && output.stdout.contains(expected), "{line}: {output:?}");
    }
    daemon.until(&stalled, "stopped").await?;
    daemon.shut_down().await?;
    Ok(())
}

const README: &str = include_str!("../../README.md");

/// The lines of the README below a command, up to the end of the block. Ids are replaced.
fn below(command: &str) -> Result<Vec<String>> {
    let block = README.split(&format!("```text\n$ {command}\n")).nth(1).context("no such command in the README")?;
    Ok(block.split("\n```").next().unwrap_or_default().lines().map(without_ids).collect())
}

/// The line with `ID` in the place of each id.
fn without_ids(line: &str) -> String {
    let is_id = |word: &str| word.len() == 36 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let words = line.split_inclusive(|c: char| !c.is_ascii_hexdigit() && c != '-');
    words
        .map(|word| match word.get(..36).filter(|id| is_id(id)) {
            Some(id) => format!("ID{}", &word[id.len()..]),
            None => word.to_owned(),
        })
        .collect()
}

#[tokio::test]
async fn a_picture_is_shown_as_the_readme_says() -> Result<()> {
    let expected = below("belay ask --set llm.provider=rehearsal --image sunset.png 'what is this?'")?;
    let home = Home::new();
    let picture = home.path().join("sunset.png");
    image::RgbImage::from_pixel(640, 400, image::Rgb([250, 150, 90])).save(&picture)?;
    let picture = picture.to_string_lossy().into_owned();
    let ask = ["ask", "--set", "llm.provider=rehearsal", "--image", &picture, "what is this?"];
    let output = home.run(&ask, "").await?;
    assert_eq!(output.stdout.lines().collect::<Vec<_>>(), expected, "{output:?}");
    Ok(())
}

#[tokio::test]
async fn the_result_of_a_job_comes_to_its_conversation_as_the_readme_says() -> Result<()> {
    let expected = below("belay run --set llm.provider=rehearsal")?;
    let home = Home::new();
    let mut daemon = home.start_with(Stdio::piped()).await?;
    let mut seen = Vec::new();
    for typed in ["/job calculate 6*7", "what did the job find?"] {
        daemon.type_line(typed).await?;
        seen.push(typed.to_owned());
        let printed = daemon.printed("6*7 = 42").await?;
        seen.extend(printed.iter().map(|line| without_ids(line)));
    }
    assert_eq!(seen, expected);
    daemon.shut_down().await?;
    Ok(())
}

const COMMANDS: &str = include_str!("../../docs/reference/commands.md");

#[tokio::test]
async fn every_tool_that_can_be_offered_has_a_row_in_the_table_of_tools() -> Result<()> {
    let home = Home::new()
        .set("agent.terminate", true)
        .set("agent.send_message", true)
        .set("tools.shell.enabled", true)
        .set("tools.search.provider", "searxng")
        .set("tools.search.base_url", "http://127.0.0.1:9")
        .set("workers.enabled", true);
    let daemon = home.start().await?;
    let (status, answer) = daemon.request("GET", "/api/v1/tools", None).await?;
    let names: Vec<&str> =
        answer["tools"].as_array().context("a list")?.iter().filter_map(|tool| tool["name"].as_str()).collect();
    for expected in
        ["fetch_url", "web_search", "send_message", "terminate", "spawn_subagent", "run_in_worker", "run_shell"]
    {
        ensure!(names.contains(&expected), "{status}: {expected} is missing among {names:?}");
    }
    let missing: Vec<_> = names.iter().filter(|name| !COMMANDS.contains(&format!("\n| `{name}` |"))).collect();
    ensure!(missing.is_empty(), "docs/reference/commands.md has no row for {missing:?}");
    daemon.shut_down().await?;
    Ok(())
}
