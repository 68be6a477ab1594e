//! Jobs and routines from the command line: made, watched, taken back, and tested.

use anyhow::Result;
use belay_tests::daemon::{Home, PATIENCE, client};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// The secret of a webhook, and its SHA-256.
const SECRET: &str = "open sesame";
const DIGEST: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

#[tokio::test]
async fn a_job_is_made_watched_shown_and_accepted_from_the_command_line() -> Result<()> {
    let works = Answer::call("calculate", json!({"expression": "6*7"}));
    let done = Answer::call("terminate", json!({"status": "success", "summary": "forty-two"}));
    let model = ModelServer::start(vec![works], done).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let watched = home.run(&["jobs", "create", "--watch", "--title", "Multiply", "-"], "6 by 7\n").await?;
    assert!(watched.status.success(), "{watched:?}");
    let lines: Vec<&str> = watched.stdout.lines().collect();
    assert_eq!(lines.last(), Some(&"forty-two"), "{watched:?}");
    assert!(lines.len() >= 2 && !watched.stdout.contains('\u{1b}'), "a line for each change: {watched:?}");

    let listed = home.run(&["jobs", "--json"], "").await?;
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    let job = &listed["jobs"][0];
    assert_eq!((&job["title"], &job["task"], &job["attempt"]), (&json!("Multiply"), &json!("6 by 7"), &json!(1)));
    let id = job["job_id"].as_str().unwrap_or_default();
    let shown = home.run(&["jobs", "show", id], "").await?;
    assert!(shown.stdout.contains("last action") && shown.stdout.ends_with("forty-two\n"), "{shown:?}");
    // Whoever comes late is told how it ended.
    let late = home.run(&["jobs", "watch", id], "").await?;
    assert!(late.status.success() && late.stdout.ends_with("forty-two\n"), "{late:?}");
    let accepted = home.run(&["jobs", "accept", id], "").await?;
    assert!(accepted.status.success() && accepted.stdout.contains("accepted"), "{accepted:?}");
    assert_eq!(home.run(&["jobs", "cancel", id], "").await?.status.code(), Some(1), "it is over");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_taken_back_ends_its_watch_with_1() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let made = home.run(&["jobs", "create", "wait for ever"], "").await?;
    let id = made.stdout.trim();
    let watch = ["jobs", "watch", "--json", id];
    let cancel = async {
        model.seen(1).await;
        home.run(&["jobs", "cancel", id], "").await
    };
    let (watched, cancelled) = tokio::join!(home.run(&watch, ""), cancel);
    assert!(cancelled?.status.success());
    let watched = watched?;
    let last: Value = serde_json::from_str(watched.stdout.lines().last().unwrap_or_default())?;
    assert_eq!((watched.status.code(), &last["state"]), (Some(1), &json!("cancelled")), "{watched:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_routine_in_a_file_is_tested_without_a_daemon() -> Result<()> {
    let home = Home::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/routines/morning-report.toml");
    for (at, code, part) in [
        ("2026-12-01T09:00", 0, "fires at Tue 2026-12-01 09:00:00 +01:00 (Europe/Berlin, 2026-12-01T08:00:00.000Z)"),
        ("2026-12-01T08:00Z", 0, "fires next at Wed 2026-12-02 09:00:00 +01:00"),
        ("2026-12-05T09:00", 1, "does not fire at Sat"),
        ("whenever", 65, "at: "),
    ] {
        let tested = home.run(&["routines", "test", "--file", file, "--at", at], "").await?;
        let said = format!("{}{}", tested.stdout, tested.stderr);
        assert!(tested.status.code() == Some(code) && said.contains(part), "{at}: {tested:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_webhook_sets_a_routine_off_once_and_what_it_did_is_listed() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("The build is red: a test fails.")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let file = home.path().join("build.toml");
    std::fs::write(
        &file,
        format!(
            "name = \"build\"\ntrigger = {{ kind = \"webhook\", path = \"ci\", secret_sha256 = \"{DIGEST}\" }}\n\
             action = {{ mode = \"lightweight\", prompt = \"Say what is wrong.\" }}\n"
        ),
    )?;
    let made = home.run(&["routines", "create", "--file", &file.to_string_lossy()], "").await?;
    assert!(made.status.success() && made.stdout.contains("POST /hooks/ci"), "{made:?}");

    let call = async |secret: &str| -> Result<(u16, Value)> {
        let request = client().post(format!("{}/hooks/ci", daemon.url)).header("X-Webhook-Secret", secret);
        let answer = request.header("X-Delivery-Id", "build-17").body("exit code 101").send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    assert_eq!(call("a guess").await?.0, 401);
    let (status, first) = call(SECRET).await?;
    assert_eq!((status, &first["routine"]), (200, &json!("build")));
    assert_eq!(call(SECRET).await?.1["routine_run_id"], first["routine_run_id"], "delivered twice, fired once");

    let routine_run = first["routine_run_id"].as_str().unwrap_or_default();
    let begun = std::time::Instant::now();
    let ended = loop {
        let (_, routine_run) = daemon.request("GET", &format!("/api/v1/routine-runs/{routine_run}"), None).await?;
        if routine_run["status"] != "running" || begun.elapsed() > PATIENCE {
            break routine_run;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!((&ended["status"], &ended["trigger"]), (&json!("attention"), &json!("webhook")), "{ended}");
    let runs = home.run(&["routines", "runs", "build"], "").await?;
    assert!(runs.stdout.contains("The build is red") && runs.stdout.lines().count() == 2, "{runs:?}");
    let asked = model.requests().pop().unwrap_or_default().to_string();
    assert!(asked.contains("exit code 101") && asked.contains("<untrusted source="), "{asked}");

    let off = home.run(&["routines", "disable", "build"], "").await?;
    assert!(off.status.success(), "{off:?}");
    let listed = home.run(&["routines"], "").await?;
    assert!(listed.stdout.contains("build") && listed.stdout.contains("off"), "{listed:?}");
    daemon.shut_down().await?;
    Ok(())
}
