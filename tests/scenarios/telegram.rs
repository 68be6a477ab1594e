//! Telegram against a Bot API server of our own.

use anyhow::Result;
use belay_tests::bot_api::{BotApi, TOKEN, private_message};
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

const SECRET: &str = "s3cret-of-the-webhook";

fn home(api: &BotApi, mode: &str) -> Home {
    Home::new()
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env("TELEGRAM_WEBHOOK_SECRET", SECRET)
        .set("channels.telegram.enabled", true)
        .set("channels.telegram.mode", mode)
        .set("channels.telegram.api_base", api.url.as_str())
        .set("channels.telegram.allow", json!([42, 43]))
        .set("channels.telegram.operators", json!([42]))
        // Whole messages can be counted, however slow the machine is.
        .set("channels.telegram.stream", "off")
}

async fn hook(url: &str, secret: Option<&str>, update: &Value) -> Result<u16> {
    let client = belay_tests::daemon::client();
    let mut request = client.post(format!("{url}/telegram/webhook")).json(update);
    if let Some(secret) = secret {
        request = request.header("X-Telegram-Bot-Api-Secret-Token", secret);
    }
    Ok(request.send().await?.status().as_u16())
}

#[tokio::test]
async fn the_same_update_delivered_five_times_is_answered_once() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api, "webhook");
    let daemon = home.start().await?;
    let update = private_message(1, 42, "calculate 17*23");
    let five = futures_util::future::join_all((0..5).map(|_| hook(&daemon.url, Some(SECRET), &update))).await;
    for status in five {
        assert_eq!(status?, 200);
    }
    let sent = api.messages(1).await;
    assert!(sent[0]["text"].as_str().unwrap_or_default().contains("391"), "{sent:?}");
    // After a crash the platform delivers it again.
    home.settled().await?;
    daemon.kill().await?;
    let daemon = home.start().await?;
    assert_eq!(hook(&daemon.url, Some(SECRET), &update).await?, 200);
    assert_eq!(hook(&daemon.url, Some(SECRET), &private_message(2, 42, "calculate 5*5")).await?, 200);
    let sent = api.messages(2).await;
    assert!(sent[1]["text"].as_str().unwrap_or_default().contains("25"), "{sent:?}");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_wrong_secret_is_refused_and_strangers_are_not_answered() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api, "webhook");
    let daemon = home.start().await?;
    let mine = private_message(1, 42, "hello");
    assert_eq!(hook(&daemon.url, None, &mine).await?, 401);
    assert_eq!(hook(&daemon.url, Some("wrong"), &mine).await?, 401);
    assert_eq!(hook(&daemon.url, Some(SECRET), &private_message(2, 99, "let me in")).await?, 200);
    assert_eq!(hook(&daemon.url, Some(SECRET), &private_message(3, 43, "/shutdown")).await?, 200);
    let sent = api.messages(1).await;
    assert!(sent[0]["text"].as_str().unwrap_or_default().contains("Only an operator"), "{sent:?}");
    assert_eq!(hook(&daemon.url, Some(SECRET), &private_message(4, 42, "/shutdown")).await?, 200);
    let output = daemon.ended().await?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!output.stderr.contains(TOKEN) && !output.stderr.contains(SECRET), "no secret in the log");
    Ok(())
}

#[tokio::test]
async fn long_polling_answers_each_update_once() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api, "polling");
    api.update(private_message(7, 42, "calculate 8*8"));
    api.update(private_message(8, 43, "calculate 9*9"));
    let daemon = home.start().await?;
    let sent = api.messages(2).await;
    let texts: String = sent.iter().filter_map(|message| message["text"].as_str()).collect();
    assert!(texts.contains("64") && texts.contains("81"), "{sent:?}");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 2);
    Ok(())
}

#[tokio::test]
async fn rate_limits_are_obeyed_and_a_parse_error_falls_back_to_plain_text() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api, "webhook");
    let daemon = home.start().await?;
    api.refuse(
        json!({"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 1}}),
    );
    let begun = std::time::Instant::now();
    hook(&daemon.url, Some(SECRET), &private_message(1, 42, "calculate 1+1")).await?;
    api.messages(1).await;
    assert!(begun.elapsed().as_millis() >= 1000, "not before the second is over");
    api.refuse(json!({"ok": false, "error_code": 400, "description": "Bad Request: can't parse entities: x"}));
    hook(&daemon.url, Some(SECRET), &private_message(2, 42, "calculate 2+2")).await?;
    let sent = api.messages(2).await;
    assert!(sent[1]["parse_mode"].is_null() && sent[1]["text"].as_str().unwrap_or_default().contains('4'), "{sent:?}");
    daemon.shut_down().await?;
    Ok(())
}

/// Waits until something has become of it, and returns what.
async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(300), wait).await.expect("in time")
}

#[tokio::test]
async fn an_answer_is_shown_while_it_comes_and_becomes_whole_in_the_same_message() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api, "webhook").set("channels.telegram.stream", "preview");
    let daemon = home.start().await?;
    hook(&daemon.url, Some(SECRET), &private_message(1, 42, "rehearse stall 12")).await?;
    let first = until(|| api.sent().first().cloned()).await;
    let ending = "nothing stopped me";
    assert!(!first["text"].as_str().unwrap_or_default().contains(ending), "{first}");
    let whole = until(|| {
        let edits = api.calls("editMessageText");
        edits.last().filter(|edit| edit["text"].as_str().is_some_and(|text| text.contains(ending))).cloned()
    })
    .await;
    assert_eq!(whole["message_id"], 1000);

    // Stopped: the command has told it, and what was shown goes.
    hook(&daemon.url, Some(SECRET), &private_message(2, 42, "rehearse stall 60")).await?;
    until(|| (api.sent().len() == 2).then_some(())).await;
    hook(&daemon.url, Some(SECRET), &private_message(3, 42, "/stop")).await?;
    until(|| (api.calls("deleteMessage").len() == 1).then_some(())).await;
    until(|| (api.sent().len() == 3).then_some(())).await;
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 3, "a preview, another one, the answer to /stop: {:?}", api.sent());
    Ok(())
}

#[tokio::test]
async fn the_silent_token_reaches_nobody() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api, "webhook").set("channels.telegram.stream", "blocks");
    let daemon = home.start().await?;
    hook(&daemon.url, Some(SECRET), &private_message(1, 42, "rehearse silent")).await?;
    hook(&daemon.url, Some(SECRET), &private_message(2, 42, "calculate 6*7")).await?;
    let sent = api.messages(1).await;
    assert!(sent[0]["text"].as_str().unwrap_or_default().contains("42"), "{sent:?}");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 1);
    Ok(())
}

/// What the daemon says on the command line, as JSON.
async fn asked(home: &Home, args: &[&str]) -> Result<Value> {
    let output = home.run(args, "").await?;
    assert!(output.status.success(), "{args:?}: {output:?}");
    Ok(serde_json::from_str(&output.stdout)?)
}

#[tokio::test]
async fn work_of_somebody_who_is_taken_off_the_list_does_not_go_on_after_a_restart() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::Stall).await;
    let api = BotApi::start().await;
    let home = home(&api, "webhook").openai(&model.base_url);
    let daemon = home.start().await?;
    hook(&daemon.url, Some(SECRET), &private_message(1, 43, "/routine create look @yearly | What is new?")).await?;
    hook(&daemon.url, Some(SECRET), &private_message(2, 43, "/job count the stars")).await?;
    let told = api.messages(2).await;
    assert!(told.iter().all(|message| message["chat_id"] == 43), "{told:?}");
    model.seen(1).await;
    let routine = asked(&home, &["routines", "show", "look", "--json"]).await?;
    assert_eq!(routine["creator"], json!({"principal": "43", "authority": "conversation", "relayed": false}));
    home.settled().await?;
    daemon.kill().await?;

    let home = home.set("channels.telegram.allow", json!([42]));
    let daemon = home.start().await?;
    let fired = asked(&home, &["routines", "fire", "look", "--json"]).await?;
    let routine_run = format!("/api/v1/routine-runs/{}", fired["routine_run_id"].as_str().unwrap_or_default());
    let failed = eventually(&daemon, &routine_run, |routine_run| routine_run["status"] == "failed").await?;
    let why = "43, who created this work, no longer has access through telegram: 43 is neither on the list channels.telegram.allow";
    assert!(failed["summary"].as_str().unwrap_or_default().starts_with(why), "{failed}");
    let routine = asked(&home, &["routines", "show", "look", "--json"]).await?;
    assert_eq!((&routine["enabled"], &routine["disabled_detail"]), (&json!(false), &failed["summary"]));
    let jobs = "/api/v1/jobs?state=failed";
    let jobs = eventually(&daemon, jobs, |jobs| jobs["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty())).await?;
    assert!(jobs["jobs"][0]["detail"].as_str().unwrap_or_default().starts_with(why), "{jobs}");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 2, "who is let in no more is told nothing");
    assert_eq!(model.requests().len(), 1, "nothing was asked in the name of somebody who is let in no more");
    Ok(())
}

/// What is answered once it is as wanted.
async fn eventually(daemon: &Daemon, path: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let begun = std::time::Instant::now();
    loop {
        let (status, answer) = daemon.request("GET", path, None).await?;
        if wanted(&answer) {
            return Ok(answer);
        }
        assert!(begun.elapsed() < belay_tests::daemon::PATIENCE, "{path}: {status} {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
