//! Chat front ends that resend their history to `/v1/chat/completions`, with real runs behind them.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_title_of_a_chat_is_a_text_without_tools_and_asks_nobody() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("{\"title\": \"Hello\"}")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let task = "### Task:\nGenerate a concise title summarizing the chat history. /plan nothing";
    let body = json!({"model": "belay", "max_tokens": 1000, "messages": [said("user", task)]});
    let (status, answer) = daemon.request("POST", CHAT, Some(body)).await?;
    assert_eq!((status, content(&answer)), (200, "{\"title\": \"Hello\"}"), "{answer}");
    let command = json!({"model": "belay:text", "messages": [said("user", "/status")]});
    daemon.request("POST", CHAT, Some(command)).await?;
    let asked = model.requests();
    assert_eq!(asked.len(), 2, "{asked:#?}");
    for request in asked {
        assert_eq!(request.get("tools"), None, "{request}");
        assert!(request.to_string().len() < 2000, "{request}");
    }
    let (_, sessions) = daemon.request("GET", "/api/v1/sessions", None).await?;
    assert_eq!(sessions["sessions"], json!([]), "nothing that continues");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_yes_below_the_question_of_a_resent_history_lets_the_run_go_on() -> Result<()> {
    let call = || Answer::call("run_command", json!({"argv": ["echo", "here"]}));
    let model = ModelServer::start(vec![call(), Answer::text("It is here.")], Answer::text("otherwise")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let first = said("user", "run it");
    let (_, asked) = daemon.request("POST", CHAT, Some(json!({"messages": [first]}))).await?;
    let question = content(&asked).to_owned();
    assert!(question.contains("Answer **yes** or **no**") && question.contains("/approve"), "{question}");
    let history = json!([first, said("assistant", &question), said("user", "Yes!")]);
    let (status, answer) = daemon.request("POST", CHAT, Some(json!({ "messages": history }))).await?;
    assert_eq!((status, content(&answer)), (200, "It is here."), "{answer}");
    let id = format!("chatcmpl-{}", asked["belay"]["run_id"].as_str().unwrap_or_default());
    assert!(answer["id"].as_str().is_some_and(|own| own.starts_with(&format!("{id}-"))), "{answer}");
    assert_eq!(model.requests().len(), 2, "one run");
    let (_, waiting) = daemon.request("GET", "/api/v1/approvals", None).await?;
    assert_eq!(waiting["approvals"], json!([]));
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn an_edited_message_is_not_read_beside_its_first_form() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let body = |first: &str| {
        json!({"conversation": "zoo", "messages": [
            said("user", first), said("assistant", "ok"), said("user", "which?")]})
    };
    let alone = json!({"conversation": "zoo", "messages": [said("user", "LEMUR")]});
    daemon.request("POST", CHAT, Some(alone)).await?;
    daemon.request("POST", CHAT, Some(body("LEMUR"))).await?;
    daemon.request("POST", CHAT, Some(body("OTTER"))).await?;
    let asked: Vec<String> = model.requests().iter().map(|request| request["messages"].to_string()).collect();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[1].matches("LEMUR").count(), 1, "{}", asked[1]);
    assert!(asked[2].contains("OTTER") && !asked[2].contains("LEMUR"), "{}", asked[2]);
    daemon.shut_down().await?;
    Ok(())
}
