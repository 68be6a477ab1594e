//! A call that two persons must approve, through the real binary: on Telegram, over a kill, and in the API.

use std::process::Stdio;

use anyhow::{Context, Result};
use belay_tests::bot_api::{BotApi, private_message};
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{deliver, home, say, texts};
use serde_json::json;

fn with_second(home: Home) -> Home {
    home.set("channels.telegram.allow", json!([42, 43])).settings(
        r#"
        [approvals]
        second = [{ channel = "telegram", to = "43" }]
        rules = [{ tool = "run_command", ask = "always", second = true }]
        "#,
    )
}

#[tokio::test]
async fn two_persons_approve_a_command_also_over_a_kill_between_their_answers() -> Result<()> {
    let call = Answer::call("run_command", json!({"argv": ["sh", "-c", "echo line >> lines.txt"]}));
    let model = ModelServer::start(vec![call], Answer::text("The line is there.")).await;
    let api = BotApi::start().await;
    let home = with_second(home(&api).openai(&model.base_url));
    let lines = || std::fs::read_to_string(home.workspace().join("lines.txt")).unwrap_or_default();
    let daemon = home.start().await?;
    say(&daemon, 1, "add a line").await?;
    let told = texts(&api, 1).await;
    assert!(told[0].contains("a second person must approve it") && !told[0].contains("always"), "{told:?}");
    say(&daemon, 2, "yes").await?;
    texts(&api, 3).await;
    let sent = api.sent();
    let to = |chat: i64| sent.iter().filter(move |message| message["chat_id"] == chat).collect::<Vec<_>>();
    let (own, second) = (to(42), to(43));
    assert!(own[1]["text"].as_str().unwrap_or_default().starts_with("Approved, 1 of 2."), "{own:?}");
    let asked = second.first().context("the second person is asked")?;
    assert!(asked["text"].as_str().unwrap_or_default().contains("echo line"), "{asked}");
    assert!(asked["reply_markup"].to_string().contains("inline_keyboard"), "{asked}");
    assert_eq!(lines(), "");
    home.settled().await?;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let (_, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
    let question = &list["approvals"][0];
    assert_eq!(question["second"]["given"], 1, "{question}");
    assert_eq!((&question["second"]["first_by"], &question["asked_in"]), (&json!("42"), &json!("telegram:43")));
    let shown = home.run(&["approvals"], "").await?;
    assert!(shown.stdout.contains("1 of 2"), "{shown:?}");
    let id = question["id"].as_str().context("an id")?.to_owned();
    say(&daemon, 3, &format!("/approve {id}")).await?; // the first person cannot give both
    texts(&api, 4).await;
    assert_eq!(lines(), "");
    deliver(&daemon, &private_message(4, 43, &format!("/approve {id}"))).await?;
    let told = texts(&api, 6).await;
    assert!(told[4..].iter().any(|told| told.contains("Approved.")), "{told:?}");
    assert!(told[4..].iter().any(|told| told.contains("The line is there.")), "{told:?}");
    assert_eq!(lines(), "line\n");
    let (_, after) = daemon.request("GET", &format!("/api/v1/approvals/{id}"), None).await?;
    assert_eq!((&after["state"], &after["decided_by"]), (&json!("used"), &json!("43")), "{after}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_rule_that_nobody_could_be_the_second_person_of_is_refused_at_the_start() -> Result<()> {
    for (rule, expected) in
        [("always", "nobody is configured who could be the second"), ("never", "cannot need a second one")]
    {
        let rule = format!("[[approvals.rules]]\ntool = \"run_command\"\nask = \"{rule}\"\nsecond = true\n");
        let home = Home::new().settings(&rule);
        let args = home.run_args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let refused = home.run(&args, "").await?;
        assert_eq!(refused.status.code(), Some(78), "{refused:?}");
        assert!(
            refused.stderr.contains("approvals.rules[0].second") && refused.stderr.contains(expected),
            "{refused:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_yes_at_the_terminal_and_one_over_the_api_are_of_one_person() -> Result<()> {
    let call = Answer::call("run_command", json!({"argv": ["sh", "-c", "echo line >> lines.txt"]}));
    let model = ModelServer::start(vec![call], Answer::text("The line is there.")).await;
    let api = BotApi::start().await;
    let home = with_second(home(&api).openai(&model.base_url));
    let mut daemon = home.start_with(Stdio::piped()).await?;
    daemon.type_line("add a line").await?;
    daemon.printed("a second person must approve it").await?;
    daemon.type_line("yes").await?;
    daemon.printed("1 of 2").await?;
    let (_, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
    let id = list["approvals"][0]["id"].as_str().context("an id")?.to_owned();
    let again = home.run(&["approvals", "approve", &id], "").await?;
    assert!(!again.status.success() && again.stderr.contains("Another person"), "{again:?}");
    assert!(!home.workspace().join("lines.txt").exists());
    daemon.shut_down().await?;
    Ok(())
}
