//! Freezes: everything stops, nothing begins, messages are kept, and the thaw goes on with them.

use std::time::Duration;

use anyhow::Result;
use belay_tests::bot_api::{BotApi, private_message};
use belay_tests::daemon::{Daemon, Home, PATIENCE, client};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{self, texts};
use serde_json::{Value, json};

/// Commands run without a question.
fn home(model: &ModelServer) -> Result<Home> {
    let home = Home::new().openai(&model.base_url);
    let settings = home.path().join("config/belay/belay.toml");
    std::fs::create_dir_all(settings.parent().expect("a directory"))?;
    std::fs::write(settings, "[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n")?;
    Ok(home)
}

/// Waits until the freeze has its receipt with empty process trees.
async fn receipt(daemon: &Daemon) -> Result<Value> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (_, answer) = daemon.request("GET", "/api/v1/freeze", None).await?;
        let receipt = &answer["freezes"][0]["receipt"];
        if receipt["trees_empty_ms"].is_u64() {
            return Ok(receipt.clone());
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await; // polling a real process: there is no clock to pause
    }
}

/// The processor time of a process. Source: Linux, proc_pid_stat(5), fields 14 and 15, in hundredths of a second.
fn processor_ms(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? * 10)
}

#[tokio::test]
async fn a_freeze_stops_every_run_survives_a_kill_and_the_thaw_answers_each_message_once() -> Result<()> {
    let sleep = Answer::call("run_command", json!({"argv": ["sleep", "300"]}));
    let model = ModelServer::start(vec![sleep, Answer::Stall], Answer::text("done")).await;
    let home = home(&model)?;
    let daemon = home.start().await?;
    let command = daemon.send("anna", "wait with a command").await?;
    model.seen(1).await;
    let stream = daemon.send("bert", "talk for ever").await?;
    model.seen(2).await;

    let (status, frozen) = daemon.request("POST", "/api/v1/freeze", Some(json!({"detail": "maintenance"}))).await?;
    assert_eq!((status, frozen["freezes"].as_array().map(Vec::len)), (200, Some(1)), "{frozen}");
    let freeze = frozen["freezes"][0].clone();
    assert_eq!((&freeze["scope"]["kind"], &freeze["detail"]), (&json!("all"), &json!("maintenance")));
    for run in [&command, &stream] {
        let run = daemon.finished(run).await?;
        assert_eq!((&run["status"], &run["reason"]), (&json!("stopped"), &json!("operator_stop")), "{run}");
        assert_eq!(run["evidence"]["freeze"], freeze["id"], "{run}");
    }
    model.dropped(1).await;
    let receipt = receipt(&daemon).await?;
    assert_eq!(receipt["stopped"].as_array().map(Vec::len), Some(2), "{receipt}");
    assert!(receipt["acknowledged_ms"].as_u64() <= receipt["trees_empty_ms"].as_u64(), "{receipt}");

    let mut kept = Vec::new();
    for session in ["anna", "carl"] {
        let (status, answer) = daemon.post(json!({"session": session, "text": "hello"})).await?;
        assert_eq!((status, &answer["status"]), (202, &json!("queued")), "{answer}");
        kept.push(answer["run_id"].as_str().unwrap_or_default().to_owned());
    }
    // A held message that was to wait for others is no busy wait.
    let (_, answer) = daemon.post(json!({"session": "erik", "text": "hello", "queue": "collect"})).await?;
    kept.push(answer["run_id"].as_str().unwrap_or_default().to_owned());
    tokio::time::sleep(Duration::from_secs(1)).await; // its pause of half a second passes in the daemon
    let before = processor_ms(daemon.pid())?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let used = processor_ms(daemon.pid())? - before;
    assert!(used < 250, "{used} ms of processor time in 500 ms");
    daemon.kill().await?;

    let daemon = home.start().await?;
    let (_, still) = daemon.request("GET", "/api/v1/freeze", None).await?;
    assert_eq!((&still["freezes"][0]["id"], &still["freezes"][0]["receipt"]), (&freeze["id"], &receipt), "{still}");
    kept.push(daemon.send("dora", "hello").await?);
    for run in &kept {
        let run = daemon.run(run).await?;
        assert!(!matches!(run["status"].as_str(), Some("running" | "completed")), "{run}");
    }
    assert_eq!(model.requests().len(), 2, "nothing begins");
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    assert_eq!(status["frozen"][0]["id"], freeze["id"], "{status}");

    let (status, thawed) = daemon.request("POST", "/api/v1/thaw", None).await?;
    assert_eq!((status, &thawed["freezes"]), (200, &json!([])), "{thawed}");
    let (_, past) = daemon.request("GET", "/api/v1/freeze?all=true", None).await?;
    assert_eq!((&past["freezes"][0]["id"], &past["freezes"][0]["receipt"]), (&freeze["id"], &receipt), "{past}");
    assert!(past["freezes"][0]["thawed_at"].is_string(), "{past}");
    let (_, now) = daemon.request("GET", "/api/v1/freeze", None).await?;
    assert_eq!(now["freezes"], json!([]), "{now}");
    let listed = home.run(&["freeze", "--list", "--all"], "").await?;
    assert!(listed.stdout.contains("thawed: everything, from ") && listed.stdout.contains(&command), "{listed:?}");
    let (_, told) = daemon.post(json!({"session": "anna", "text": "/freezes"})).await?;
    let told = told["reply"].as_str().unwrap_or_default();
    assert!(told.contains("everything (maintenance). Stopped 2 runs."), "{told}");
    for run in &kept {
        assert_eq!(daemon.finished(run).await?["status"], "completed");
    }
    assert_eq!(model.requests().len(), 6, "each message is answered once");
    let (status, nothing) = daemon.request("POST", "/api/v1/thaw", None).await?;
    assert_eq!((status, &nothing["error"]["code"]), (404, &json!("not_found")), "{nothing}");
    daemon.shut_down().await?;
    // The thaw lasts over a restart.
    let daemon = home.start().await?;
    assert_eq!(daemon.ask("anna", "again").await?["status"], "completed");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn programs_that_cannot_wait_are_asked_to_retry_and_only_operators_freeze() -> Result<()> {
    let home = Home::new().env("BELAY_TOKEN", "user-token").env("BELAY_OPERATOR_TOKEN", "operator-token");
    let daemon = home.start().await?;
    let post = |path: &str, token: &str, body: Value| {
        client().post(format!("{}{path}", daemon.url)).bearer_auth(token).json(&body).send()
    };
    assert_eq!(post("/api/v1/freeze", "user-token", json!({})).await?.status().as_u16(), 403);
    assert_eq!(
        post("/api/v1/freeze", "operator-token", json!({"person": "a", "channel": "b"})).await?.status().as_u16(),
        422
    );
    let cli = home.run(&["freeze", "--reason", "a look"], "").await?;
    assert!(
        cli.status.success() && cli.stdout.contains("frozen: everything") && cli.stdout.contains("(a look)"),
        "{cli:?}"
    );
    let body = json!({"model": "belay", "messages": [{"role": "user", "content": "Hi"}]});
    let refused = post("/v1/chat/completions", "user-token", body.clone()).await?;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    assert!(refused.text().await?.contains("frozen"));
    let made = home.run(&["jobs", "create", "--json", "calculate 2+3"], "").await?;
    let job: Value = serde_json::from_str(&made.stdout)?;
    let job = job["job_id"].as_str().expect("an id");
    let show = async || anyhow::Ok(home.run(&["jobs", "show", "--json", job], "").await?.stdout);
    tokio::time::sleep(Duration::from_millis(300)).await; // a job begins at once if nothing keeps it from that
    assert!(show().await?.contains("\"pending\""), "{}", show().await?);
    let status = home.run(&["status"], "").await?;
    assert!(status.stdout.contains("frozen: everything"), "{status:?}");
    let thawed = home.run(&["thaw"], "").await?;
    assert!(thawed.status.success() && thawed.stdout.contains("nothing is frozen"), "{thawed:?}");
    assert_eq!(post("/v1/chat/completions", "user-token", body).await?.status().as_u16(), 200);
    let watched = home.run(&["jobs", "watch", job], "").await?;
    assert!(watched.status.success(), "{watched:?}");
    daemon.shut_down().await?;
    Ok(())
}

async fn say(daemon: &Daemon, update: u32, user: i64, text: &str) -> Result<()> {
    let hook = client().post(format!("{}/telegram/webhook", daemon.url)).json(&private_message(update, user, text));
    let answer = hook.header("X-Telegram-Bot-Api-Secret-Token", "s3cret-of-the-webhook").send().await?;
    assert_eq!(answer.status().as_u16(), 200);
    Ok(())
}

#[tokio::test]
async fn a_person_or_a_channel_can_be_frozen_alone_and_each_conversation_reads_one_line() -> Result<()> {
    let api = BotApi::start().await;
    let home = person::home(&api)
        .set("channels.telegram.allow", json!([42, 43]))
        .set("channels.telegram.operators", json!([44]));
    let daemon = home.start().await?;
    say(&daemon, 1, 42, "/freeze").await?;
    assert!(texts(&api, 1).await[0].contains("Only an operator may freeze"), "{:?}", api.sent());
    let cli = home.run(&["freeze", "--person", "telegram:42", "--reason", "a pause"], "").await?;
    assert!(cli.stdout.contains("frozen: person telegram:42"), "{cli:?}");
    say(&daemon, 2, 42, "calculate 2+2").await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("This is frozen by ") && told[1].contains(": a pause. Your message is kept"), "{told:?}");
    say(&daemon, 3, 42, "calculate 3+3").await?;
    say(&daemon, 4, 43, "calculate 4+4").await?;
    let told = texts(&api, 3).await;
    assert!(told[2].contains("4+4 = 8"), "another person is answered, and no second line is sent: {told:?}");

    let cli = home.run(&["freeze", "--channel", "telegram"], "").await?;
    assert!(cli.stdout.contains("frozen: channel telegram"), "{cli:?}");
    say(&daemon, 5, 43, "calculate 5+5").await?;
    assert!(texts(&api, 4).await[3].contains("frozen"), "{:?}", api.sent());
    assert!(daemon.ask("http", "calculate 6+6").await?["reply"].as_str().unwrap_or_default().contains("12"));
    say(&daemon, 6, 44, "/thaw").await?;
    let told = texts(&api, 5).await;
    assert!(
        told[4].contains("There is no freeze of everything. Frozen: person telegram:42, channel telegram"),
        "{told:?}"
    );

    for part in [["--channel", "telegram"], ["--person", "telegram:42"]] {
        let thawed = home.run(&[&["thaw"][..], &part].concat(), "").await?;
        assert!(thawed.status.success(), "{thawed:?}");
    }
    let told = texts(&api, 8).await.join("\n");
    for sum in ["= 4", "= 6", "= 10"] {
        assert_eq!(told.matches(sum).count(), 1, "{sum}: {told}");
    }
    say(&daemon, 7, 44, "/freeze all hands").await?;
    let told = texts(&api, 9).await;
    assert!(told[8].contains("everything (all hands). Stopped 0 runs."), "{told:?}");
    say(&daemon, 8, 44, "/thaw").await?;
    let told = texts(&api, 10).await;
    assert!(told[9].contains("Nothing is frozen any more"), "{told:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_frozen_routine_misses_its_time_and_follows_its_misfire_rule_after_the_thaw() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("All is well.")).await;
    let api = BotApi::start().await;
    let home = person::home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    for (name, update, thaw) in [("watch", 1, vec!["thaw", "--routine", "watch"]), ("look", 2, vec!["thaw"])] {
        // A routine can be frozen once it exists, so everything is frozen until then.
        assert!(home.run(&["freeze"], "").await?.status.success());
        let asked = model.requests().len();
        person::say(&daemon, update, &format!("/routine create {name} in 1s | How is it?")).await?;
        texts(&api, 2 * update - 1).await;
        if let [_, part, routine] = thaw[..] {
            assert!(home.run(&["freeze", part, routine], "").await?.status.success());
            assert!(home.run(&["thaw"], "").await?.status.success());
        }
        // The time passes in the daemon, which has no other clock.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(model.requests().len(), asked, "{name} is frozen");
        assert!(home.run(&thaw, "").await?.status.success());
        let told = texts(&api, 2 * update).await;
        assert!(told.iter().any(|text| text.contains(&format!("Routine {name}: All is well."))), "{told:?}");
        assert_eq!(model.requests().len(), asked + 1, "the missed time of {name} runs once");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_freeze_of_somebody_who_cannot_exist_says_so() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for (part, name, words) in [
        ("--channel", "telegramm", "there is no channel telegramm; there are "),
        ("--channel", "HTTP", "there is no channel HTTP"),
        ("--person", "http:Token", "the channel http has nobody with the id Token"),
        ("--person", "telegram:4x2", "the channel telegram has nobody with the id 4x2"),
        ("--person", "telegram:042", "the channel telegram has nobody with the id 042"),
        ("--person", "telegram:-42", "the channel telegram has nobody with the id -42"),
        ("--person", "mail:Ann@Example.org", "the channel mail has nobody with the id Ann@Example.org; ids are"),
        ("--person", "mail:ann@Example.org", "the channel mail has nobody with the id ann@Example.org"),
        ("--person", "mail:ann", "the channel mail has nobody with the id ann"),
        ("--person", "matrix:ann", "the channel matrix has nobody with the id ann"),
        ("--person", "stdin:Stdin", "the channel stdin has nobody with the id Stdin"),
        ("--person", "Ann@example.org", "no channel has somebody with the id Ann@example.org"),
        ("--person", "tg:42", "there is no channel tg"),
        ("--person", "Token", "no channel has somebody with the id Token"),
    ] {
        let refused = home.run(&["freeze", part, name], "").await?;
        assert!(!refused.status.success() && refused.stderr.contains(words), "{name}: {refused:?}");
    }
    let (_, listed) = daemon.request("GET", "/api/v1/freeze", None).await?;
    assert_eq!(listed, json!({"freezes": []}));
    for name in ["http:token", "telegram:42", "mail:ann@example.org", "matrix:@Ann:s", "42", "token", "eve@example.org"]
    {
        let frozen = home.run(&["freeze", "--person", name], "").await?;
        assert!(frozen.status.success(), "{name}: {frozen:?}");
    }
    daemon.shut_down().await?;
    Ok(())
}
