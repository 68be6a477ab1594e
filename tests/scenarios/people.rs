//! People and groups on Telegram: pairing, context of groups, personas and tools, the menu of commands.

use anyhow::Result;
use belay_tests::bot_api::{BotApi, private_message};
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{deliver, home, texts};
use serde_json::{Value, json};

/// The operator.
const OPERATOR: i64 = 7;

/// A bot that knows one operator and user 42, and gives strangers a code.
fn paired_home(api: &BotApi) -> Home {
    home(api).set("channels.telegram.operators", json!([OPERATOR])).set("channels.telegram.pairing", true)
}

/// A message of a user in the group -100, as Telegram words it.
fn group_message(update_id: u32, user: i64, name: &str, text: &str) -> Value {
    let mut update = private_message(update_id, user, text);
    update["message"]["chat"] = json!({"id": -100, "type": "supergroup", "title": "Club"});
    update["message"]["from"]["first_name"] = json!(name);
    if let Some(at) = text.find("@belay_test_bot") {
        update["message"]["entities"] = json!([{"type": "mention", "offset": at, "length": 15}]);
    }
    update
}

/// The code in a message to a stranger.
fn code_in(text: &str) -> String {
    let is_code = |word: &&str| word.len() == 8 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().find(is_code).expect("a code").to_owned()
}

/// What the newest message of the model's last request says, and its system prompt.
fn asked(request: &Value) -> (String, String) {
    let content = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts.to_string(),
    };
    let messages = request["messages"].as_array().expect("messages");
    (content(messages.last().expect("a message")), content(&messages[0]))
}

#[tokio::test]
async fn a_stranger_gets_a_code_once_and_an_operator_admits_and_removes_the_person() -> Result<()> {
    let api = BotApi::start().await;
    let home = paired_home(&api);
    let daemon = home.start().await?;
    deliver(&daemon, &private_message(1, 99, "calculate 2+2")).await?;
    let code = code_in(&texts(&api, 1).await[0]);
    deliver(&daemon, &private_message(2, 99, "calculate 3+3")).await?;
    deliver(&daemon, &private_message(3, 42, &format!("/pair {code}"))).await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("Only an operator may"), "no second code, and no admission: {told:?}");
    deliver(&daemon, &private_message(4, OPERATOR, "/pair 23456789")).await?;
    assert!(texts(&api, 3).await[2].contains("There is no such code"), "{:?}", api.sent());

    let listed: Value = serde_json::from_str(&home.run(&["people", "--json"], "").await?.stdout)?;
    assert_eq!(listed["pending"][0]["id"], "99", "{listed}");
    assert!(!listed.to_string().contains(&code), "{listed}");
    // The code survives a crash, and the stranger gets no other.
    home.settled().await?;
    daemon.kill().await?;
    let daemon = home.start().await?;
    deliver(&daemon, &private_message(5, 99, "calculate 4+4")).await?;
    let shown = format!("{}-{}", code[..4].to_lowercase(), &code[4..]);
    deliver(&daemon, &private_message(6, OPERATOR, &format!("/pair {shown}"))).await?;
    let told = texts(&api, 5).await;
    let greeted = told[3..].iter().any(|text| text.contains("An operator has admitted you"));
    let answered = told[3..].iter().any(|text| text.contains("may write in the private chat"));
    assert!(greeted && answered, "{told:?}");
    deliver(&daemon, &private_message(7, 99, "calculate 5+5")).await?;
    assert!(texts(&api, 6).await[5].contains("10"), "{:?}", api.sent());
    deliver(&daemon, &private_message(8, OPERATOR, &format!("/pair {code}"))).await?;
    assert!(texts(&api, 7).await[6].contains("There is no such code"), "a code is valid once");

    // The admission is durable, holds for the private chat alone, and makes no operator.
    home.settled().await?;
    daemon.kill().await?;
    let daemon = home.start().await?;
    deliver(&daemon, &private_message(9, 99, "calculate 6+6")).await?;
    assert!(texts(&api, 8).await[7].contains("12"), "{:?}", api.sent());
    deliver(&daemon, &group_message(10, 99, "Eve", "@belay_test_bot calculate 7+7")).await?;
    deliver(&daemon, &private_message(11, 99, "/freeze")).await?;
    let told = texts(&api, 9).await;
    assert!(told[8].contains("Only an operator may freeze"), "{told:?}");

    deliver(&daemon, &private_message(12, 99, "rehearse stall 300")).await?;
    let running = until_running(&daemon, "telegram:99").await?;
    let removed = home.run(&["people", "remove", "telegram:99"], "").await?;
    assert!(removed.status.success() && removed.stdout.contains("revoked"), "{removed:?}");
    let run = daemon.finished(&running).await?;
    assert_eq!((&run["status"], &run["reason"]), (&json!("stopped"), &json!("operator_stop")), "{run}");
    let sent = api.sent().len();
    deliver(&daemon, &private_message(13, 99, "calculate 8+8")).await?;
    let told = texts(&api, u32::try_from(sent + 1)?).await;
    let again = told.last().cloned().unwrap_or_default();
    assert!(again.contains("Give this code"), "a stranger again: {told:?}");
    let unknown = home.run(&["people", "remove", "telegram:99"], "").await?;
    assert!(!unknown.status.success() && unknown.stderr.contains("Pairing has not admitted"), "{unknown:?}");
    let listed = home.run(&["people", "remove", "telegram:42"], "").await?;
    assert!(!listed.status.success() && listed.stderr.contains("The settings admit"), "{listed:?}");
    daemon.shut_down().await?;
    Ok(())
}

/// The run that works in this session.
async fn until_running(daemon: &belay_tests::daemon::Daemon, session: &str) -> Result<String> {
    loop {
        let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
        let running = status["running"].as_array().cloned().unwrap_or_default();
        if let Some(run) = running.iter().find(|run| run["session"] == session) {
            return Ok(run["run_id"].as_str().unwrap_or_default().to_owned());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await; // a real process: there is no clock to pause
    }
}

#[tokio::test]
async fn three_strangers_have_codes_at_a_time_and_forged_codes_are_limited() -> Result<()> {
    let api = BotApi::start().await;
    let home = paired_home(&api);
    let daemon = home.start().await?;
    for (update, stranger) in [(1, 91), (2, 92), (3, 93), (4, 94), (5, 94)] {
        deliver(&daemon, &private_message(update, stranger, "let me in")).await?;
    }
    let told = texts(&api, 3).await;
    let codes: Vec<String> = told.iter().map(|text| code_in(text)).collect();
    let post = |code: &str| {
        let body = json!({ "code": code });
        async { daemon.request("POST", "/api/v1/people/pair", Some(body)).await }
    };
    let (status, answer) = post(&codes[1]).await?;
    assert_eq!(status, 200, "{answer}");
    // A free place: the fourth stranger gets a code with the next message.
    deliver(&daemon, &private_message(6, 94, "let me in")).await?;
    texts(&api, 5).await;
    let is_code = |message: &Value| message["text"].as_str().is_some_and(|text| text.contains("Give this code"));
    assert!(api.sent().iter().any(|message| is_code(message) && message["chat_id"] == 94), "{:?}", api.sent());

    // Nothing tells a wrong code from one that was used, and after ten of them none is read, for this person alone.
    let mut last = Value::Null;
    for forged in [codes[1].as_str(), "22222222", "", "0OI1", "drop table people"].into_iter().cycle().take(10) {
        let (status, answer) = post(forged).await?;
        assert_eq!(status, 404, "{forged}: {answer}");
        assert!(last.is_null() || last == answer, "{forged}: {answer}");
        last = answer;
    }
    let (status, answer) = post(&codes[0]).await?;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.to_string().contains("Too many wrong codes"), "{answer}");
    deliver(&daemon, &private_message(7, OPERATOR, &format!("/pair {}", codes[0]))).await?;
    let told = texts(&api, 7).await.join("\n");
    assert!(told.contains("`telegram:91`") || told.contains("telegram:91"), "{told}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn without_pairing_a_stranger_gets_nothing() -> Result<()> {
    let api = BotApi::start().await;
    let home = paired_home(&api).set("channels.telegram.pairing", false);
    let daemon = home.start().await?;
    deliver(&daemon, &private_message(1, 99, "hello")).await?;
    deliver(&daemon, &private_message(2, 42, "/start")).await?;
    let told = texts(&api, 1).await;
    assert!(told[0].contains("I am an assistant, run by Belay"), "{told:?}");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 1);
    Ok(())
}

#[tokio::test]
async fn earlier_group_messages_reach_the_model_only_where_configured_and_as_untrusted_data() -> Result<()> {
    let api = BotApi::start().await;
    let model = ModelServer::start(Vec::new(), Answer::text("ok")).await;
    let base = || home(&api).openai(&model.base_url).set("channels.telegram.groups.allow", json!([-100]));
    let with = base().set("channels.telegram.groups.context_messages", 2);
    for (home, configured, first) in [(base(), false, 1), (with, true, 11)] {
        let daemon = home.start().await?;
        let requests = model.requests().len();
        let said = ["the first", "shall we meet at noon?", "/stop and @other_bot", "yes"];
        for (update, text) in (first..).zip(said) {
            deliver(&daemon, &group_message(update, 43, "Bob", text)).await?;
        }
        model.then(Answer::call("remember", json!({"text": "we meet", "key": "meeting"})));
        deliver(&daemon, &group_message(first + 4, 42, "Ann", "@belay_test_bot when do we meet?")).await?;
        model.seen(u32::try_from(requests + 2)?).await;
        let (message, _) = asked(&model.requests()[requests]);
        assert!(!message.contains("shall we meet at noon?"), "beyond the bound: {message}");
        assert_eq!(message.contains("earlier_messages_not_addressed_to_you"), configured, "{message}");
        assert_eq!(message.contains("\"text\":\"yes\""), configured, "{message}");
        assert!(message.ends_with("when do we meet?"), "{message}");
        let (_, notes) = daemon.request("GET", "/api/v1/memory?group=telegram:-100", None).await?;
        let marks = notes["notes"].as_array().map_or(0, Vec::len);
        assert_eq!((marks, &notes["notes"][0]["untrusted"]), (1, &json!(configured)), "{notes}");
        // They are read once.
        deliver(&daemon, &group_message(first + 5, 42, "Ann", "@belay_test_bot and where?")).await?;
        model.seen(u32::try_from(requests + 3)?).await;
        let (message, _) = asked(&model.requests()[requests + 2]);
        assert!(!message.contains("earlier_messages"), "{message}");
        daemon.shut_down().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_group_has_its_own_persona_and_tools_also_for_the_jobs_of_its_members() -> Result<()> {
    let api = BotApi::start().await;
    let model = ModelServer::start(Vec::new(), Answer::text("All done.")).await;
    let home = home(&api).openai(&model.base_url).set("channels.telegram.groups.allow", json!([-100]));
    let settings = home.path().join("config/belay/belay.toml");
    std::fs::create_dir_all(settings.parent().expect("a directory"))?;
    let own = "[channels.telegram.groups.overrides.\"-100\"]\npersona = \"You are the librarian of the club.\"\ntools = [\"recall\", \"create_*\"]\n";
    std::fs::write(settings, own)?;
    let daemon = home.start().await?;
    let names = |request: &Value| -> Vec<String> {
        let tools = request["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
    };
    deliver(&daemon, &private_message(1, 42, "hello")).await?;
    model.seen(1).await;
    let all = names(&model.requests()[0]);
    assert!(all.contains(&"read_file".to_owned()) && !asked(&model.requests()[0]).1.contains("librarian"), "{all:?}");

    model.then(Answer::call("read_file", json!({"path": "notes.txt"})));
    deliver(&daemon, &group_message(2, 42, "Ann", "@belay_test_bot hello")).await?;
    model.seen(3).await;
    let requests = model.requests();
    assert!(asked(&requests[1]).1.starts_with("You are the librarian of the club."), "{}", asked(&requests[1]).1);
    assert_eq!(names(&requests[1]), ["create_job", "recall"]);
    assert!(asked(&requests[2]).0.contains("no tool named read_file"), "{}", asked(&requests[2]).0);

    deliver(&daemon, &group_message(3, 42, "Ann", "@belay_test_bot /job read everything")).await?;
    model.seen(4).await;
    let requests = model.requests();
    assert_eq!(names(&requests[3]), ["recall", "terminate"], "a job of the group has no more than the group");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_menu_of_commands_is_registered_once_and_again_only_where_it_differs() -> Result<()> {
    let api = BotApi::start().await;
    let home = paired_home(&api);
    let daemon = home.start().await?;
    let menus = api.called("setMyCommands", 3).await;
    let commands = |menu: &Value| menu["commands"].to_string();
    assert_eq!(menus[0]["scope"]["type"], "all_private_chats");
    assert!(commands(&menus[0]).contains("\"stop\"") && !commands(&menus[0]).contains("\"freeze\""));
    assert_eq!(menus[1]["scope"]["type"], "all_group_chats");
    assert!(commands(&menus[1]).contains("\"stop\"") && !commands(&menus[1]).contains("\"queue\""));
    assert_eq!(menus[2]["scope"], json!({"type": "chat", "chat_id": OPERATOR}));
    assert!(commands(&menus[2]).contains("\"freeze\"") && commands(&menus[2]).contains("\"pair\""));
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    api.called("getMyCommands", 6).await;
    deliver(&daemon, &private_message(1, 42, "calculate 2+2")).await?;
    texts(&api, 1).await;
    daemon.shut_down().await?;
    assert_eq!(api.calls("setMyCommands").len(), 3, "nothing has changed");
    Ok(())
}

#[tokio::test]
async fn a_group_that_becomes_a_supergroup_goes_on_under_its_new_id_also_after_a_restart() -> Result<()> {
    let api = BotApi::start().await;
    let model = ModelServer::start(Vec::new(), Answer::text("All done.")).await;
    let home = home(&api).openai(&model.base_url).set("channels.telegram.groups.allow", json!([-100]));
    let daemon = home.start().await?;
    deliver(&daemon, &group_message(1, 42, "Ann", "@belay_test_bot the first question")).await?;
    api.messages(1).await;
    // The next answer finds the move out; the service message repeats it.
    let parameters = json!({"migrate_to_chat_id": -1009});
    api.refuse(json!({"ok": false, "error_code": 400, "description": "upgraded", "parameters": parameters}));
    deliver(&daemon, &group_message(2, 42, "Ann", "@belay_test_bot the second question")).await?;
    let sent = api.messages(2).await;
    assert_eq!(sent[1]["chat_id"], -1009, "{sent:?}");
    let mut moved = group_message(3, 42, "Ann", "");
    moved["message"]["migrate_to_chat_id"] = json!(-1009);
    deliver(&daemon, &moved).await?;
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    let mut update = group_message(4, 42, "Ann", "@belay_test_bot the third question");
    update["message"]["chat"]["id"] = json!(-1009);
    deliver(&daemon, &update).await?;
    let sent = api.messages(3).await;
    assert_eq!((&sent[2]["chat_id"], &sent[2]["text"]), (&json!(-1009), &json!("All done.")));
    let (_, history) = daemon.request("GET", "/api/v1/sessions/telegram:-100/messages", None).await?;
    let history = history.to_string();
    assert!(["first", "second", "third"].iter().all(|word| history.contains(word)), "one session: {history}");
    daemon.shut_down().await?;
    Ok(())
}
