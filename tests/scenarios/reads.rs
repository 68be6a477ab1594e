//! What operators read: costs, ends, runs by reason and date, verdicts of other rules, settings, events.

use anyhow::{Context, Result};
use belay_tests::daemon::{Home, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::time::timeout;

/// A home whose model costs a dollar for a million tokens read, and two for a million written. A day may cost 5 dollars,
/// and chats one of them.
fn priced(model: &ModelServer) -> Home {
    Home::new().openai(&model.base_url).settings(
        "[llm.price_usd]\ninput = 1\noutput = 2\n[limits]\nusd_per_day = 5.0\nusd_per_day_for = { chat = 1.0 }\n",
    )
}

fn words(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The next line that contains a text.
async fn line_with(lines: &mut Lines<BufReader<impl AsyncRead + Unpin>>, text: &str) -> Result<String> {
    let found = async {
        loop {
            let line = lines.next_line().await?.with_context(|| format!("the output ended without {text:?}"))?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    };
    timeout(PATIENCE, found).await.with_context(|| format!("no line with {text:?}"))?
}

#[tokio::test]
async fn costs_are_kept_by_day_person_model_and_purpose() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("four words of answer")).await;
    let home = priced(&model);
    let daemon = home.start().await?;
    let runs = [daemon.ask("alice", "hello").await?, daemon.ask("bob", "hello again").await?];
    let sum = |field: &str| runs.iter().map(|run| run.pointer(field).and_then(Value::as_u64).unwrap_or(0)).sum::<u64>();
    let (cost, input, output) = (sum("/cost_micro_usd"), sum("/usage/input"), sum("/usage/output"));
    assert!(cost > 0 && input > 0 && output > 0, "{runs:?}");
    let figures = json!({"cost_micro_usd": cost, "input_tokens": input, "output_tokens": output, "calls": 2});

    let today = runs[0]["accepted_at"].as_str().context("a date")?[..10].to_owned();
    for (by, key) in [("day", today.as_str()), ("model", "scripted"), ("purpose", "chat")] {
        let (status, report) = daemon.request("GET", &format!("/api/v1/costs?by={by}&since=2d"), None).await?;
        let mut row = figures.clone();
        row["key"] = key.into();
        assert_eq!((status, &report["rows"]), (200, &json!([row])), "{by}");
        assert_eq!(report["today"]["by_purpose"]["chat"], cost, "{report}");
        let caps = json!([
            {"purpose": null, "limit_micro_usd": 5_000_000, "spent_micro_usd": cost},
            {"purpose": "chat", "limit_micro_usd": 1_000_000, "spent_micro_usd": cost},
        ]);
        assert_eq!(report["caps"], caps);
        assert_eq!(report["open_reservations"], json!({"calls": 0, "cost_micro_usd": 0}));
    }
    let (_, report) = daemon.request("GET", "/api/v1/costs?by=person", None).await?;
    assert!(report["rows"][0]["key"].as_str().is_some_and(|key| key.starts_with("http:")), "{report}");
    let (status, refused) = daemon.request("GET", "/api/v1/costs?since=yesterday", None).await?;
    assert_eq!(status, 422, "{refused}");

    // The sums survive the daemon, and the command shows them.
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    let printed = home.run(&["costs", "--by", "model", "--since", "7d"], "").await?;
    let lines = words(&printed.stdout);
    assert_eq!(lines[0], "MODEL COST READ WRITTEN CALLS", "{printed:?}");
    assert!(
        lines[1].starts_with("scripted $0.0") && lines[1].ends_with(&format!(" {input} {output} 2")),
        "{printed:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("budget chat $0.0") && line.ends_with(" of $1.00")),
        "{printed:?}"
    );
    let printed = home.run(&["costs", "--by", "purpose", "--json"], "").await?;
    let report: Value = serde_json::from_str(&printed.stdout)?;
    assert_eq!(report["rows"][0]["cost_micro_usd"], cost);
    let refused = home.run(&["costs", "--since", "soon"], "").await?;
    assert!(refused.stderr.contains("since: must be a date"), "{refused:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_model_without_a_price_has_tokens_and_no_cost() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    let (_, report) = daemon.request("GET", "/api/v1/costs?by=model", None).await?;
    let expected = json!([{
        "key": "", "cost_micro_usd": 0, "calls": run["usage"]["model_calls"],
        "input_tokens": run["usage"]["input"], "output_tokens": run["usage"]["output"],
    }]);
    assert_eq!(report["rows"], expected);
    let printed = home.run(&["costs", "--by", "model"], "").await?.stdout;
    assert!(words(&printed)[1].starts_with("without a price $0.0000"), "{printed}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn runs_are_found_by_reason_and_date_and_followed() -> Result<()> {
    let model = ModelServer::start(vec![Answer::text("one"), Answer::Stall], Answer::text("later")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let done = daemon.ask("alice", "hello").await?;
    let stalled = daemon.send("bob", "hello").await?;
    model.seen(2).await; // a run that is stopped before its request leaves the silent answer to the next one
    daemon.request("POST", &format!("/api/v1/runs/{stalled}/stop?wait_ms=10000"), None).await?;
    let stopped = daemon.finished(&stalled).await?;
    let reason = stopped["reason"].as_str().context("a reason")?.to_owned();
    let listed = async |query: &str| -> Result<Vec<String>> {
        let (status, answer) = daemon.request("GET", &format!("/api/v1/runs?{query}"), None).await?;
        assert_eq!(status, 200, "{query}: {answer}");
        let ids = answer["runs"].as_array().context("runs")?.iter();
        Ok(ids.map(|run| run["run_id"].as_str().unwrap_or_default().to_owned()).collect())
    };
    let done = done["run_id"].as_str().context("an id")?.to_owned();
    assert_eq!(listed("reason=final_text").await?, std::slice::from_ref(&done));
    assert_eq!(listed(&format!("reason={reason}&since=1h")).await?, std::slice::from_ref(&stalled));
    assert_eq!(listed("since=1h").await?, [stalled.clone(), done.clone()]);
    assert!(listed("until=1h").await?.is_empty());
    assert_eq!(daemon.request("GET", "/api/v1/runs?reason=boredom", None).await?.0, 422);

    let (_, report) = daemon.request("GET", "/api/v1/ends?by=hour&since=1h", None).await?;
    let count = |reason: &str| {
        let ends = report["ends"].as_array().into_iter().flatten().filter(|end| end["reason"] == reason);
        ends.filter_map(|end| end["count"].as_u64()).sum::<u64>()
    };
    assert_eq!((count("final_text"), count(&reason)), (1, 1), "{report}");
    assert_eq!(daemon.request("GET", "/api/v1/ends?by=hour&since=90d", None).await?.0, 422);
    let (_, report) = daemon.request("GET", "/api/v1/ends?by=hour&since=1h&models=true", None).await?;
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    let ends = report["ends"].as_array().cloned().unwrap_or_default();
    let answered = ends.iter().find(|end| end["reason"] == "final_text").context("an answer")?;
    assert_eq!(answered["model"], status["model"]["model"], "the model that answered: {report}");

    // The list, the oldest first, and then each run that ends.
    let mut command = home.command(&["runs", "--since", "1h", "--follow"]);
    let mut followed = command.stdout(std::process::Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(followed.stdout.take().context("stdout")?).lines();
    assert!(line_with(&mut lines, &done[..13]).await?.contains("final_text"));
    assert!(line_with(&mut lines, &stalled[..13]).await?.contains(&reason));
    daemon.ask("carol", "hello").await?;
    assert!(line_with(&mut lines, "carol").await?.contains("completed"));
    followed.kill().await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn runs_are_judged_by_other_rules() -> Result<()> {
    let call = || Answer::call("calculate", json!({"expression": "1 + 1"}));
    let model = ModelServer::start(vec![call(), call(), Answer::text("two")], Answer::text("hello")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let busy = daemon.ask("alice", "add twice").await?;
    let calm = daemon.ask("bob", "hello").await?;
    assert_eq!((&busy["status"], &calm["status"]), (&json!("completed"), &json!("completed")), "{busy} {calm}");
    let judged = async |body: Value| daemon.request("POST", "/api/v1/judge", Some(body)).await;

    let rules = "[[rules]]\nname = \"few\"\nwhen = { tool_calls = 2 }\nthen = \"stop\"\n";
    let (status, report) = judged(json!({"last": 10, "rules": rules})).await?;
    assert_eq!((status, &report["complete"]), (200, &json!(true)), "{report}");
    let of = |report: &Value, run: &Value| {
        let mut runs = report["runs"].as_array().cloned().unwrap_or_default().into_iter();
        runs.find(|judged| judged["run_id"] == run["run_id"]).unwrap_or_default()
    };
    let would = &of(&report, &busy)["would"];
    assert_eq!(
        json!([would["stopped"], would["reason"], would["rule"], would["step"], would["evidence"]["count"]]),
        json!([true, "tool_calls", "few", 2, 2]),
        "{report}"
    );
    assert_eq!(of(&report, &busy)["reason"], "final_text", "the run itself has not changed");
    assert_eq!(of(&report, &calm)["would"]["stopped"], false, "{report}");

    let (_, report) = judged(json!({"runs": [calm["run_id"]], "rules": ""})).await?;
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(1), "{report}");
    for (body, word) in [
        (json!({"rules": "looop = 1"}), "unknown key"),
        (json!({"rules": "[[rules]]\nname = 1"}), "name"),
        (json!({"rules": "= ="}), "TOML"),
        (json!({"rules": "", "last": 201}), "1 to 200"),
        (json!({"rules": "", "last": 1, "runs": []}), "either"),
        (json!({"rules": "", "runs": []}), "1 to 200"),
        (json!({"last": 1}), "rules"),
    ] {
        let (status, refused) = judged(body.clone()).await?;
        let message = refused.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        assert!(status == 422 && message.contains(word), "{body}: {refused}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn settings_are_shown_with_their_origins_and_what_is_wrong_with_the_files_now() -> Result<()> {
    let home = Home::new().settings("[llm]\nmax_tokens = 1234\n[llm.extra_body]\nsecretive = \"hush\"\n");
    let daemon = home.start().await?;
    let (status, report) = daemon.request("GET", "/api/v1/settings", None).await?;
    assert_eq!(status, 200, "{report}");
    let setting = |report: &Value, key: &str| report["settings"][key].clone();
    assert_eq!(setting(&report, "llm.max_tokens")["value"], 1234);
    let origin = setting(&report, "llm.max_tokens")["origin"].as_str().unwrap_or_default().to_owned();
    assert!(origin.contains("config/belay/belay.toml"), "{origin}");
    assert_eq!(setting(&report, "llm.provider")["origin"], "--set llm.provider");
    assert!(!report.to_string().contains("hush"), "{report}");
    assert_eq!((&report["changed"], &report["problems"]), (&json!([]), &json!([])));

    let home = home.settings("[llm]\nmax_tokens = 99\n");
    let (_, report) = daemon.request("GET", "/api/v1/settings", None).await?;
    assert_eq!(setting(&report, "llm.max_tokens")["value"], 99);
    assert!(report["changed"].as_array().is_some_and(|keys| keys.contains(&json!("llm.max_tokens"))), "{report}");
    let _home = home.settings("[llm]\nmax_toookens = 99\n");
    let (_, report) = daemon.request("GET", "/api/v1/settings", None).await?;
    assert!(report["problems"][0].as_str().is_some_and(|line| line.contains("max_toookens")), "{report}");
    assert_eq!(setting(&report, "llm.max_tokens")["value"], 1234, "the settings of the start");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn models_and_answered_questions_are_listed() -> Result<()> {
    let call = Answer::call("calculate", json!({"expression": "1 + 1"}));
    let model = ModelServer::start(vec![call.clone(), Answer::text("no then"), call], Answer::text("two")).await;
    let rules = "[[approvals.rules]]\ntool = \"calculate\"\nask = \"always\"\n";
    let home = Home::new().openai(&model.base_url).settings(rules);
    let daemon = home.start().await?;
    let (status, models) = daemon.request("GET", "/api/v1/models", None).await?;
    let first = json!({"name": "scripted by openai", "cooling_until": null, "reason": null});
    assert_eq!((status, &models["candidates"], &models["trouble"]), (200, &json!([first]), &Value::Null), "{models}");
    assert!(models["model"]["vision"].is_boolean());
    assert_eq!(daemon.request("GET", "/api/v1/mcp", None).await?, (200, json!({"servers": []})));

    let mut answered = Vec::new();
    for decision in ["deny", "approve"] {
        let run = daemon.send(decision, "add").await?;
        let id = daemon.until(&run, "paused").await?["waiting_for"]["approval"].as_str().context("an id")?.to_owned();
        let (status, body) =
            daemon.request("POST", &format!("/api/v1/approvals/{id}"), Some(json!({"decision": decision}))).await?;
        assert_eq!(status, 200, "{body}");
        daemon.until(&run, "completed").await?;
        answered.push(id);
    }
    for (state, expected) in
        [("denied", vec![&answered[0]]), ("used", vec![&answered[1]]), ("waiting", vec![]), ("expired", vec![])]
    {
        let (status, list) = daemon.request("GET", &format!("/api/v1/approvals?state={state}"), None).await?;
        let ids: Vec<_> = list["approvals"].as_array().into_iter().flatten().map(|one| &one["id"]).collect();
        assert_eq!(
            (status, ids),
            (200, expected.iter().map(|id| json!(id)).collect::<Vec<_>>().iter().collect()),
            "{list}"
        );
    }
    let (_, one) = daemon.request("GET", &format!("/api/v1/approvals/{}", answered[0]), None).await?;
    assert_eq!(one["state"], "denied");
    assert!(one["decided_by"].is_string() && one["decided_at"].is_string(), "{one}");
    assert!(one["question"].as_str().is_some_and(|text| text.contains("calculate")), "{one}");
    assert_eq!(daemon.request("GET", "/api/v1/approvals?state=denied&all=true", None).await?.0, 422);
    assert_eq!(daemon.request("GET", "/api/v1/approvals?state=forgotten", None).await?.0, 422);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn events_are_printed_and_followed_over_a_restart() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let run = daemon.ask("alice", "hello").await?;
    let id = run["run_id"].as_str().context("an id")?[..13].to_owned();
    let printed = home.run(&["logs", "-n", "100"], "").await?.stdout;
    for kind in ["run_accepted", "model_called", "run_ended"] {
        assert!(printed.lines().any(|line| line.contains(kind) && line.contains(&id)), "{kind}: {printed}");
    }
    let last = home.run(&["logs", "-n", "1", "--json"], "").await?.stdout;
    let event: Value = serde_json::from_str(&last)?;
    assert_eq!(last.lines().count(), 1);
    assert!(event["seq"].is_u64(), "{event}");
    assert_eq!(home.run(&["logs", "--session", "nobody"], "").await?.stdout, "");

    let mut command = home.command(&["logs", "-f", "-n", "0"]);
    let mut followed = command.stdout(std::process::Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(followed.stdout.take().context("stdout")?).lines();
    // Nothing says when it has connected, so messages are sent until one shows.
    let first = async {
        loop {
            daemon.ask("bob", "hello").await?;
            if let Ok(line) = timeout(std::time::Duration::from_millis(200), line_with(&mut lines, "bob")).await {
                return line;
            }
        }
    };
    timeout(PATIENCE, first).await.context("nothing was followed")??;
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    daemon.ask("carol", "hello").await?;
    line_with(&mut lines, "carol").await?;
    followed.kill().await?;
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn running_runs_are_shown_while_they_run() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let quiet = home.run(&["top", "--once"], "").await?.stdout;
    assert_eq!(quiet, "0 running, 0 queued, 0 paused, $0.0000 today\n");
    let run = daemon.send("alice", "hello").await?;
    daemon.until(&run, "running").await?;
    let asked = async {
        while model.requests().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await; // polling a real process
        }
    };
    timeout(PATIENCE, asked).await.context("the model was not asked")?;
    let shown = words(&home.run(&["top", "--once"], "").await?.stdout);
    assert!(shown[0].starts_with("1 running, 0 queued"), "{shown:?}");
    assert_eq!(shown[1], "RUN TIME STEP TOKENS COST TOOL SESSION");
    assert!(shown[2].starts_with(&run[..13]) && shown[2].ends_with("alice"), "{shown:?}");
    let picture: Value = serde_json::from_str(&home.run(&["top", "--once", "--json"], "").await?.stdout)?;
    // The run began before.
    assert_eq!((&picture["running"][0]["run_id"], &picture["running"][0]["step"]), (&json!(run), &json!(1)));
    assert_eq!(shown[2].split(' ').nth(3), Some("1"), "{shown:?}");
    daemon.request("POST", "/api/v1/stop?wait_ms=10000", None).await?;
    daemon.shut_down().await?;
    Ok(())
}
