//! A hook at `message_sending` reads every text for people, through the real binary.

use anyhow::{Context, Result};
use belay_tests::bot_api::{BotApi, private_media};
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{deliver, home, say, texts};
use serde_json::json;

/// Puts the kind of each text before it.
const TAG: &str = "import json, sys; data = json.load(sys.stdin)['data']; \
print(json.dumps({'change': {'text': '[' + data['kind'] + '] ' + data['text']}}))";

fn with_hook(home: Home, script: &str) -> Home {
    let command = json!(["python3", "-c", script]);
    home.settings(&format!(
        "[[hooks]]\nname = \"tag\"\non = \"message_sending\"\ncommand = {command}\ntimeout_ms = 600000\n\
         on_failure = \"closed\"\n"
    ))
}

/// Whether the hook has seen a text of this kind. Answers to commands and notices wait 2 s for hooks, so on a busy
/// machine they may be withheld; they never go out unseen.
fn passed(text: &str, tag: &str) -> bool {
    text.starts_with(tag) || text.starts_with("This message was withheld")
}

#[tokio::test]
async fn questions_answers_to_commands_and_own_lines_pass_the_hook_on_telegram_and_over_http() -> Result<()> {
    let call = Answer::call("run_command", json!({"argv": ["touch", "made.txt"]}));
    let model = ModelServer::start(vec![Answer::text("hello"), call], Answer::text("It is made.")).await;
    let api = BotApi::start().await;
    let home = with_hook(home(&api).openai(&model.base_url), TAG);
    let daemon = home.start().await?;
    say(&daemon, 1, "hi").await?;
    assert_eq!(texts(&api, 1).await, ["[reply] hello"]);
    say(&daemon, 2, "/loops off").await?;
    let told = texts(&api, 2).await;
    assert!(passed(&told[1], "[command] Loop detection is off"), "{told:?}");
    say(&daemon, 3, "make a file").await?;
    let question = texts(&api, 3).await[2].clone();
    assert!(question.starts_with("[question] May I do this?") && question.contains("touch made.txt"), "{question}");
    say(&daemon, 4, "yes").await?;
    let told = texts(&api, 5).await;
    assert!(told[3..].iter().any(|text| passed(text, "[command] Approved.")), "{told:?}");
    assert!(told[3..].contains(&"[reply] It is made.".to_owned()), "{told:?}");
    assert!(home.workspace().join("made.txt").exists());
    // A line that the channel sends by itself.
    deliver(&daemon, &private_media(5, 42, "hologram", json!({"of": "Bo"}))).await?;
    let told = texts(&api, 6).await;
    assert!(passed(&told[5], "[notice] "), "{told:?}");
    let (_, answer) = daemon.post(json!({"session": "alice", "text": "/loops off"})).await?;
    let reply = answer["reply"].as_str().context("an answer")?;
    assert!(passed(reply, "[command] Loop detection is off"), "{reply}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_refused_question_is_a_no() -> Result<()> {
    let refuse = "import json, sys; data = json.load(sys.stdin)['data']; \
                  print(json.dumps({'refuse': 'not on a Sunday'} if data['kind'] == 'question' else {'continue': True}))";
    let call = Answer::call("run_command", json!({"argv": ["touch", "made.txt"]}));
    let model = ModelServer::start(vec![call], Answer::text("I may not.")).await;
    let api = BotApi::start().await;
    let home = with_hook(home(&api).openai(&model.base_url), refuse);
    let daemon = home.start().await?;
    say(&daemon, 1, "make a file").await?;
    assert_eq!(texts(&api, 1).await, ["I may not."]);
    let last = model.requests().pop().context("a request")?["messages"].to_string();
    assert!(last.contains("the question was refused by the hook tag: not on a Sunday"), "{last}");
    assert!(!home.workspace().join("made.txt").exists());
    daemon.shut_down().await?;
    Ok(())
}
