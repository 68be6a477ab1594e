//! Requests of the OpenAI API that a client sends again: results while they stream, and chats with texts of ours.

use anyhow::{Context, Result};
use belay_tests::daemon::{Daemon, Home, client};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

use crate::client_tools::{CHAT, body, called, result, user, weather};

/// The content of a stream's pieces.
fn content(stream: &str) -> String {
    let data = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?.trim()).ok());
    data.filter_map(|piece| Some(piece["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect()
}

#[tokio::test]
async fn results_that_are_sent_again_while_the_answer_streams_get_all_of_it() -> Result<()> {
    let text = "It rains in Oslo, and it will go on until the evening, when the wind turns.";
    let slowly = Answer::Pieces(text.into(), 4, std::time::Duration::from_millis(30));
    let model = ModelServer::start(vec![weather(), slowly], Answer::text("?")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let asked = vec![user("How is the weather?")];
    let message = called(&daemon, body(&asked, &["get_weather"])).await?;
    let all = [asked, vec![message.clone(), result(&message, 0, "rain")]].concat();
    let mut request = body(&all, &["get_weather"]);
    request["stream"] = json!(true);
    let send = || client().post(format!("{}{CHAT}", daemon.url)).json(&request).send();
    let mut first = send().await?;
    let mut read = String::new();
    while content(&read).is_empty() {
        read.push_str(&String::from_utf8(first.chunk().await?.context("a piece")?.to_vec())?);
    }
    // The first one has read a part, which the second one needs too.
    let second = send().await?.text().await?;
    read.push_str(&first.text().await?);
    assert_eq!((content(&read).as_str(), content(&second).as_str()), (text, text));
    assert_eq!(model.requests().len(), 2, "one run");
    daemon.shut_down().await?;
    Ok(())
}

/// A request of Open WebUI, which sends the whole chat each time.
async fn chat(daemon: &Daemon, messages: &[Value]) -> Result<Value> {
    let request = client().post(format!("{}{CHAT}", daemon.url)).header("X-OpenWebUI-Chat-Id", "c1");
    Ok(request.json(&json!({"model": "belay", "messages": messages})).send().await?.json().await?)
}

#[tokio::test]
async fn a_turn_with_a_text_of_ours_does_not_split_the_chat() -> Result<()> {
    let ok = json!({"role": "assistant", "content": "ok"});
    let call = json!({"id": "theirs", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let rain = json!({"role": "tool", "tool_call_id": "theirs", "content": "rain"});
    // "Continue Response", and results whose run nobody knows.
    for turn in [vec![ok.clone()], vec![calls, rain, ok.clone()]] {
        let model = ModelServer::start(vec![], Answer::text("ok")).await;
        let daemon = Home::new().openai(&model.base_url).start().await?;
        let first = vec![user("LEMUR")];
        chat(&daemon, &first).await?;
        let without_answer = &turn[..turn.len().saturating_sub(1).max(1)];
        chat(&daemon, &[&first[..], without_answer].concat()).await?;
        chat(&daemon, &[&first[..], &turn[..], &[user("OTTER")]].concat()).await?;
        let (_, kept) = daemon.request("GET", "/api/v1/sessions/open-webui:c1/messages", None).await?;
        let texts: Vec<&str> = kept["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|message| message["role"] == "user")
            .filter_map(|message| message["text"].as_str())
            .collect();
        assert_eq!((texts.len(), texts.first(), texts.last()), (3, Some(&"LEMUR"), Some(&"OTTER")), "{kept}");
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_continued_keeps_the_blank_before_its_first_word() -> Result<()> {
    let replies = [" and the rest", " and the rest", " another text"].map(Answer::text);
    let model = ModelServer::start(replies.to_vec(), Answer::text("ok")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    let begun = json!({"role": "assistant", "content": "Once"});
    let told = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    let named = [user("LEMUR"), begun.clone()];
    assert_eq!(told(&chat(&daemon, &named).await?), " and the rest");
    // Without a name of the chat.
    let request = client().post(format!("{}{CHAT}", daemon.url));
    let body = json!({"model": "belay", "messages": named});
    assert_eq!(told(&request.json(&body).send().await?.json().await?), " and the rest");
    // An answer to a message of the user begins with its first word.
    let next = [user("LEMUR"), begun, user("OTTER")];
    assert_eq!(told(&chat(&daemon, &next).await?), "another text");
    Ok(())
}
