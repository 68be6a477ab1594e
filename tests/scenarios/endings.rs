//! Endings through the daemon: what the user is told, what the run's record says, and what `/metrics` counts.

use anyhow::{Context, Result};
use belay_protocol::StopReason;
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// A home whose settings file says this.
fn home(settings: &str) -> Result<Home> {
    let home = Home::new();
    let directory = home.path().join("config/belay");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("belay.toml"), settings)?;
    Ok(home)
}

/// How often runs have ended for this reason, as the operator's graphs see it.
async fn counted(daemon: &Daemon, reason: StopReason) -> Result<u64> {
    let (status, text) = daemon.request("GET", "/metrics", None).await?;
    assert_eq!(status, 200);
    let text = text.as_str().context("text")?;
    let label = format!("reason=\"{}\"", reason.word());
    let line = text.lines().find(|line| line.starts_with("belay_runs_ended_total{") && line.contains(&label));
    let line = line.with_context(|| format!("{label} is not in\n{text}"))?;
    assert!(line.contains(&format!("layer=\"{}\"", reason.layer().word())), "{line}");
    assert!(line.contains(&format!("status=\"{}\"", reason.status().word())), "{line}");
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

/// The value of the line of `/metrics` that begins so.
async fn metric(daemon: &Daemon, beginning: &str) -> Result<f64> {
    let (_, text) = daemon.request("GET", "/metrics", None).await?;
    let text = text.as_str().context("text")?;
    let line = text.lines().find(|line| line.starts_with(beginning));
    let line = line.with_context(|| format!("{beginning} is not in\n{text}"))?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

/// The milliseconds since midnight of a time such as `2026-11-20T19:43:00.123Z`.
fn millis_of_day(time: &str) -> Result<i64> {
    let (_, clock) = time.trim_end_matches('Z').split_once('T').context("a date and a time")?;
    let digits: Vec<&str> = clock.split([':', '.']).collect();
    let [hours, minutes, seconds, millis] = digits.as_slice() else { anyhow::bail!("{time}") };
    let seconds = (hours.parse::<i64>()? * 60 + minutes.parse::<i64>()?) * 60 + seconds.parse::<i64>()?;
    Ok(seconds * 1000 + millis.parse::<i64>()?)
}

#[tokio::test]
async fn the_duration_of_runs_is_a_histogram_in_seconds() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let (mut took_ms, mut status) = (0, String::new());
    for n in 1..=3 {
        let run = daemon.ask("durations", &format!("calculate {n}+1")).await?;
        let at = |field: &str| millis_of_day(run[field].as_str().unwrap_or_default());
        took_ms += (at("ended_at")? - at("accepted_at")?).rem_euclid(86_400_000);
        run["status"].as_str().unwrap_or_default().clone_into(&mut status);
    }
    let of = |part: &str| format!(r#"belay_run_duration_seconds_{part}{{status="{status}""#);
    assert_eq!(metric(&daemon, &of("count")).await?, 3.0);
    assert_eq!(metric(&daemon, &format!(r#"{},le="+Inf""#, of("bucket"))).await?, 3.0);
    assert_eq!((metric(&daemon, &of("sum")).await? * 1000.0).round() as i64, took_ms);
    daemon.shut_down().await?;
    Ok(())
}

/// Asks, and checks the places where an ending shows: record, events, the line for the user, the count.
async fn ends(daemon: &Daemon, text: &str, reason: StopReason, fact: (&str, Value)) -> Result<Value> {
    let before = counted(daemon, reason).await?;
    let run = daemon.ask(text, text).await?;
    assert_eq!(run["reason"], reason.word(), "{text}: {run}");
    assert_eq!(run["status"], reason.status().word(), "{text}: {run}");
    assert_eq!(run["evidence"][fact.0], fact.1, "{text}: {run}");
    let id = run["run_id"].as_str().unwrap_or_default();
    assert_eq!(daemon.run(id).await?, run, "{text}: the record is the same when it is read again");
    let reply = run["reply"].as_str().unwrap_or_default();
    let in_its_own_words = matches!(reason, StopReason::FinalText | StopReason::Terminated | StopReason::GaveUp);
    // An operator is told why the model cannot be reached.
    let with_its_cause =
        reason == StopReason::Network && reply.contains("The model could not be used: rehearsed on request.");
    // A rule about progress explains itself behind the line.
    let line = match run["evidence"]["explanation"].as_str() {
        Some(explanation) => format!("{} {explanation}", reason.user_line()),
        None => reason.user_line().to_owned(),
    };
    assert!(in_its_own_words || with_its_cause || reply.ends_with(&line), "{text}: {reply}");
    assert!(!reply.is_empty(), "{text}: the user is told");
    assert_eq!(counted(daemon, reason).await?, before + 1, "{text}");
    let ended: Vec<_> = daemon.events(id).await?.into_iter().filter(|event| event["type"] == "run_ended").collect();
    assert_eq!(ended.len(), 1, "{text}: exactly one end");
    assert_eq!(ended[0]["reason"], reason.word());
    Ok(run)
}

/// Settings, and with them: what is said, how it ends, and one fact of the evidence.
type Table<'a> = &'a [(&'a str, &'a [(&'a str, StopReason, &'a str, Value)])];

#[tokio::test]
async fn every_ending_that_the_rehearsal_can_play_is_told_recorded_and_counted() -> Result<()> {
    use StopReason::*;
    let null = Value::Null;
    let table: Table<'_> = &[
        (
            "",
            &[
                ("calculate 6*7", FinalText, "rule", null.clone()),
                ("rehearse empty", EmptyReply, "rule", null.clone()),
                ("rehearse chant", Chanting, "strikes", json!(2)),
                ("rehearse error auth", ProviderAuth, "requests", json!(1)),
                ("rehearse error network", Network, "answers_begun", json!(0)),
                ("rehearse error context", ContextTooLong, "answers_begun", json!(0)),
                ("rehearse error bad", BadRequest, "requests", json!(1)),
            ],
        ),
        (
            "[agent]\nterminate = true",
            &[("rehearse terminate", Terminated, "step", json!(1)), ("rehearse give up", GaveUp, "step", json!(1))],
        ),
        (
            "[agent]\nmax_tool_iterations = 60",
            &[
                ("rehearse stubborn", ToolLoop, "strikes", json!(2)),
                ("rehearse ping pong", ToolLoop, "period", json!(2)),
                ("rehearse failures", ConsecutiveErrors, "count", json!(5)),
            ],
        ),
        (
            "[agent]\nmax_tool_iterations = 60\n[stops]\nloops = false\n\
             [[stops.rules]]\nname = \"errors_stop\"\nwhen = { consecutive_errors = 50 }",
            &[
                ("rehearse unknown tools", UnknownTools, "count", json!(5)),
                ("rehearse invalid arguments", InvalidArguments, "count", json!(5)),
            ],
        ),
        ("[limits]\nactive_s = 1", &[("rehearse stall 20", ActiveTime, "rule", json!("active_s"))]),
        ("[limits]\nwall_clock_s = 1", &[("rehearse stall silent 20", WallClock, "rule", json!("wall_clock_s"))]),
        ("[limits]\nmodel_calls = 2", &[("rehearse failures", ModelCalls, "threshold", json!(2))]),
        ("[limits]\ntool_calls = 2", &[("rehearse failures", ToolCalls, "threshold", json!(2))]),
        ("[limits]\ntool_calls_of = { read_file = 2 }", &[("rehearse failures", ToolCalls, "threshold", json!(2))]),
        ("[limits]\ntokens_total = 300", &[("rehearse failures", Tokens, "threshold", json!(300))]),
        ("[limits]\noutput_bytes = 100", &[("rehearse failures", OutputBytes, "threshold", json!(100))]),
        (
            "[[stops.rules]]\nname = \"short\"\nwhen = { all = [{ steps = 3 }, { tool_calls = 2 }] }",
            &[("rehearse failures", OperatorRule, "rule", json!("short"))],
        ),
    ];
    for (settings, rows) in table {
        let daemon = home(settings)?.start().await?;
        for (text, reason, fact, value) in *rows {
            ends(&daemon, text, *reason, (*fact, value.clone())).await?;
        }
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn money_ends_a_run_and_a_session_before_the_limit_and_a_used_up_day_refuses() -> Result<()> {
    for (limit, reason) in [
        ("usd_per_run = 0.05", StopReason::RunCost),
        ("usd_per_session = 0.05", StopReason::SessionCost),
        ("usd_per_day = 0.01", StopReason::CostRefused),
    ] {
        // A cent for a thousand tokens either way.
        let settings = format!(
            "[agent]\nmax_tool_iterations = 60\n[llm]\nmax_tokens = 2000\nprice_usd = {{ input = 10, output = 10 }}\n\
             [limits]\n{limit}"
        );
        let calls = (0..40).map(|n| Answer::call("calculate", json!({"expression": format!("{n}+{n}")})));
        let server = ModelServer::start(calls.collect(), Answer::text("What I have so far.")).await;
        let daemon = home(&settings)?.openai(&server.base_url).start().await?;
        let fact = if reason == StopReason::CostRefused {
            ("limit_micro_usd", json!(10_000))
        } else {
            ("threshold", json!(50_000))
        };
        let run = ends(&daemon, "count", reason, fact).await?;
        assert!(run["cost_micro_usd"].as_u64().is_some_and(|cost| cost <= 50_000), "{run}");
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_judge_that_is_sure_twice_ends_a_long_run() -> Result<()> {
    let call = |n: u32| Answer::call("calculate", json!({"expression": format!("{n}*{n}+{n}")}));
    let sure = || {
        Answer::text(r#"{"unproductive_state_analysis": "squares without end", "unproductive_state_confidence": 0.97}"#)
    };
    // The judge is asked at the third step, and again after the fewest steps in between, which are five.
    let calls = |from: u32, to: u32| (from..=to).map(call);
    let script = calls(1, 2).chain([sure()]).chain(calls(3, 7)).chain([sure()]).collect();
    let server = ModelServer::start(script, Answer::text("I squared numbers; nothing came of it.")).await;
    let settings = "[agent]\nmax_tool_iterations = 60\n[stops.judge]\nfirst_step = 3";
    let daemon = home(settings)?.openai(&server.base_url).start().await?;
    let run = ends(&daemon, "square", StopReason::JudgedLoop, ("rule", json!("LLM_DETECTED_LOOP"))).await?;
    assert_eq!((&run["evidence"]["count"], &run["evidence"]["strikes"]), (&json!(97), &json!(2)), "{run}");
    let question = &server.requests()[2];
    assert!(question["tools"].is_null(), "a judge has no tools: {question}");
    assert!(question["messages"].to_string().contains("square"), "it sees the request: {question}");
    daemon.shut_down().await?;
    Ok(())
}
