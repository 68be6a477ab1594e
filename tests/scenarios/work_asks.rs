//! Jobs that ask their creator for an approval, through the real binary.

use anyhow::{Context, Result};
use belay_tests::bot_api::BotApi;
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{home, say, texts};
use serde_json::{Value, json};

/// A call that adds a line to a file of the workspace, so that a repetition is visible.
fn adds_line() -> Answer {
    Answer::call("run_command", json!({"argv": ["sh", "-c", "echo line >> lines.txt"]}))
}

fn done() -> Answer {
    Answer::call("terminate", json!({"status": "success", "summary": "the job is over"}))
}

/// The lines that the calls have added.
fn lines(home: &Home) -> String {
    std::fs::read_to_string(home.workspace().join("lines.txt")).unwrap_or_default()
}

/// The id of the question in a text.
fn id_in(question: &str) -> Result<String> {
    let (_, rest) = question.split_once("/approve ").context("it says how to approve")?;
    let id: String = rest.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-').collect();
    Ok(id)
}

/// The last request that the model got, as text.
fn last_request(model: &ModelServer) -> String {
    model.requests().pop().unwrap_or_default()["messages"].to_string()
}

async fn waiting(daemon: &Daemon) -> Result<Vec<Value>> {
    let (_, list) = daemon.request("GET", "/api/v1/approvals", None).await?;
    Ok(list["approvals"].as_array().cloned().unwrap_or_default())
}

/// Waits until this many questions wait.
async fn until_waiting(daemon: &Daemon, n: usize) -> Result<Vec<Value>> {
    for _ in 0..600 {
        let list = waiting(daemon).await?;
        if list.len() == n {
            return Ok(list);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    anyhow::bail!("{n} questions never waited")
}

#[tokio::test]
async fn a_job_asks_its_creator_survives_kills_and_acts_once_after_a_yes() -> Result<()> {
    let model = ModelServer::start(vec![adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("jobs.max_crashes", 2);
    let mut daemon = home.start().await?;
    say(&daemon, 1, "/job add a line").await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("Job “add a line”") && told[1].contains("asks:"), "{told:?}");
    assert!(told[1].contains("echo line") && !told[1].contains("always"), "{told:?}");
    assert!(api.sent()[1]["reply_markup"].to_string().contains("inline_keyboard"), "{:?}", api.sent()[1]);
    let id = id_in(&told[1])?;
    for _ in 0..3 {
        home.settled().await?;
        daemon.kill().await?; // more kills than jobs.max_crashes allows for a job that works
        daemon = home.start().await?;
        let waits = until_waiting(&daemon, 1).await?;
        assert!(
            waits[0]["id"].as_str().is_some_and(|whole| whole.ends_with(&id)),
            "the same question waits: {waits:?}"
        );
    }
    assert_eq!(lines(&home), "", "nothing happens before the answer");
    say(&daemon, 2, "yes").await?; // after a restart, a plain word answers nothing
    let told = texts(&api, 4).await;
    assert!(told[2..].iter().any(|told| told.contains("did not answer it")), "{told:?}");
    assert_eq!(lines(&home), "");
    say(&daemon, 3, &format!("/approve {id}")).await?;
    let told = texts(&api, 6).await;
    assert!(told[4..].iter().any(|told| told.contains("Approved.")), "{told:?}");
    assert!(told[4..].iter().any(|told| told.contains("is done") && told.contains("the job is over")), "{told:?}");
    assert_eq!(lines(&home), "line\n");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_plain_no_answers_while_the_question_is_the_newest_message_and_the_model_reads_it() -> Result<()> {
    let model = ModelServer::start(vec![adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job add a line").await?;
    texts(&api, 2).await;
    home.settled().await?;
    say(&daemon, 2, "no").await?;
    let told = texts(&api, 4).await;
    assert!(told[2..].iter().any(|told| told.contains("Denied.")), "{told:?}");
    assert!(told[2..].iter().any(|told| told.contains("is done")), "{told:?}");
    assert!(last_request(&model).contains("denied: the user refused"));
    assert_eq!(lines(&home), "");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_question_of_a_job_reminds_once_and_expires_as_a_no() -> Result<()> {
    let model = ModelServer::start(vec![adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("approvals.autonomous_expires_s", 6);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job add a line").await?;
    let told = texts(&api, 4).await;
    assert!(told[2].contains("Reminder") && id_in(&told[2])? == id_in(&told[1])?, "{told:?}");
    assert!(told[3].contains("is done"), "{told:?}");
    assert!(last_request(&model).contains("nobody answered the approval request in time"));
    assert_eq!(lines(&home), "");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 4);
    Ok(())
}

#[tokio::test]
async fn cancelling_a_job_withdraws_its_question_and_a_freeze_keeps_it() -> Result<()> {
    let model = ModelServer::start(vec![adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("channels.telegram.operators", json!([42]));
    let daemon = home.start().await?;
    say(&daemon, 1, "/job add a line").await?;
    let id = id_in(&texts(&api, 2).await[1])?;
    say(&daemon, 2, "/freeze").await?;
    texts(&api, 3).await;
    assert_eq!(waiting(&daemon).await?.len(), 1, "a freeze leaves the question");
    say(&daemon, 3, "/thaw").await?;
    texts(&api, 4).await;
    let (_, jobs) = daemon.request("GET", "/api/v1/jobs", None).await?;
    let job = jobs["jobs"][0]["job_id"].as_str().context("the job")?.to_owned();
    say(&daemon, 4, &format!("/cancel {job}")).await?;
    until_waiting(&daemon, 0).await?;
    say(&daemon, 5, &format!("/approve {id}")).await?;
    let told = texts(&api, 6).await;
    assert!(told[5].contains("no longer asked"), "{told:?}");
    assert_eq!(lines(&home), "");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn over_http_the_question_waits_in_the_list_and_a_job_without_a_session_is_refused_at_once() -> Result<()> {
    let model = ModelServer::start(vec![adds_line(), done(), adds_line()], done()).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let (status, job) = daemon.request("POST", "/api/v1/jobs", Some(json!({"task": "add a line"}))).await?;
    assert_eq!(status, 202, "{job}");
    model.seen(2).await;
    assert!(last_request(&model).contains("nobody can be reached who may answer"));
    assert!(waiting(&daemon).await?.is_empty());
    let body = json!({"task": "add a line", "session": "desk"});
    let (_, job) = daemon.request("POST", "/api/v1/jobs", Some(body)).await?;
    let question = until_waiting(&daemon, 1).await?.remove(0);
    assert_eq!(question["asked_in"], "desk", "{question}");
    assert!(question["work"].as_str().is_some_and(|work| work.contains("add a line")), "{question}");
    let (_, here) = daemon.request("GET", "/api/v1/approvals?session=desk", None).await?;
    assert_eq!(here["approvals"][0]["id"], question["id"], "{here}");
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap_or_default());
    let (status, answer) = daemon.request("POST", &path, Some(json!({"decision": "approve"}))).await?;
    assert_eq!(status, 200, "{answer}");
    model.seen(4).await;
    assert_eq!(lines(&home), "line\n", "{job}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_fallback_that_cannot_be_asked_keeps_the_daemon_from_starting() -> Result<()> {
    let home = Home::new().set("approvals.fallback.channel", "fax").set("approvals.fallback.to", "42");
    let refused = format!("{:?}", home.start().await.err().context("it does not start")?);
    assert!(refused.contains("approvals.fallback.channel: \"fax\" cannot be asked"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn the_fallback_is_asked_for_a_job_without_a_conversation_and_may_answer() -> Result<()> {
    let model = ModelServer::start(vec![adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let home = home.set("approvals.fallback.channel", "telegram").set("approvals.fallback.to", "42");
    let daemon = home.start().await?;
    daemon.request("POST", "/api/v1/jobs", Some(json!({"task": "add a line"}))).await?;
    let told = texts(&api, 1).await;
    assert!(told[0].contains("Job “add a line”"), "{told:?}");
    say(&daemon, 1, "/approve").await?;
    model.seen(2).await;
    assert_eq!(lines(&home), "line\n");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn grants_are_shown_before_they_are_given() -> Result<()> {
    let model = ModelServer::start(vec![], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    let grant = "--allow \"write_file: path=notes/*\"";
    for (at, command) in
        [(0, format!("/job {grant} write")), (1, format!("/routine create {grant} watch @yearly | look"))]
    {
        say(&daemon, at + 1, &command).await?;
        let texts = texts(&api, at + 1).await;
        let told = texts.last().context("an answer")?.replace("&quot;", "\"");
        assert!(told.contains("write_file: path=notes/*") && told.contains("Nothing was created"), "{told}");
        let (verb, rest) = command.split_once(" --").context("a command with grants")?;
        assert!(told.contains(&format!("{verb} --yes --{rest}")), "{told}");
    }
    for (path, list) in [("/api/v1/jobs", "jobs"), ("/api/v1/routines", "routines")] {
        let (_, made) = daemon.request("GET", path, None).await?;
        assert_eq!(made[list], json!([]), "{made}");
    }
    // From a program nobody is asked; the grant is shown all the same.
    let made = home.run(&["jobs", "create", "--allow", "clock", "say the time"], "").await?;
    assert!(made.status.success() && made.stderr.contains("clock with any arguments"), "{made:?}");
    let (_, jobs) = daemon.request("GET", "/api/v1/jobs", None).await?;
    assert_eq!(jobs["jobs"][0]["grants"], json!([{"tool": "clock"}]), "{jobs}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_granted_call_asks_nobody_another_call_asks_and_a_revoked_grant_asks() -> Result<()> {
    let writes = |path: &str| Answer::call("write_file", json!({"path": path, "content": "x"}));
    let model = ModelServer::start(vec![writes("notes/a.txt"), writes("b.txt"), writes("notes/c.txt")], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    std::fs::create_dir_all(home.workspace().join("notes"))?;
    let daemon = home.start().await?;
    say(&daemon, 1, "/job --yes --allow \"write_file: path=notes/*\" write the files").await?;
    let told = texts(&api, 2).await;
    assert!(told[0].contains("Without a question it may call") && told[0].contains("path=notes/*"), "{told:?}");
    assert!(told[1].contains("b.txt"), "the call that is not granted asks: {told:?}");
    assert!(home.workspace().join("notes/a.txt").exists());
    let (_, jobs) = daemon.request("GET", "/api/v1/jobs", None).await?;
    let job = jobs["jobs"][0]["job_id"].as_str().context("the job")?.to_owned();
    assert_eq!(jobs["jobs"][0]["grants"], json!([{"tool": "write_file", "arguments": {"path": "notes/*"}}]), "{jobs}");
    say(&daemon, 2, &format!("/job revoke {job} 1")).await?;
    assert!(texts(&api, 3).await[2].contains("(revoked)"));
    say(&daemon, 3, &format!("/approve {}", id_in(&told[1])?)).await?;
    let told = texts(&api, 5).await;
    let asked = told[3..].iter().find(|told| told.contains("notes/c.txt")).context("the revoked grant asks")?;
    assert!(!home.workspace().join("notes/c.txt").exists());
    say(&daemon, 4, &format!("/deny {}", id_in(asked)?)).await?;
    let told = texts(&api, 7).await;
    assert!(told[5..].iter().any(|told| told.contains("is done")), "{told:?}");
    assert!(!home.workspace().join("notes/c.txt").exists() && home.workspace().join("b.txt").exists());
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_grant_overrides_neither_untrusted_content_nor_a_rule_that_refuses() -> Result<()> {
    // The output of the first command is untrusted content.
    let removes = Answer::call("remember", json!({"key": "a", "text": "b"}));
    let model = ModelServer::start(vec![removes, adds_line(), adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let place = home.path().join("config/belay");
    std::fs::create_dir_all(&place)?;
    let rules = "[approvals]\nrules = [{ tool = \"remember\", ask = \"refuse\" }]\n";
    std::fs::write(place.join("belay.toml"), rules)?;
    let daemon = home.start().await?;
    say(&daemon, 1, "/job --yes --allow \"run_command: sh -c echo*\" --allow \"remember\" add two lines").await?;
    let told = texts(&api, 2).await;
    assert!(told[0].contains("remember with any arguments"), "{told:?}");
    assert!(told[1].contains("untrusted content"), "{told:?}");
    assert!(last_request(&model).contains("of the configuration refuses this call"));
    assert_eq!(lines(&home), "line\n", "the first line was granted");
    home.settled().await?;
    say(&daemon, 2, "no").await?;
    texts(&api, 4).await;
    assert_eq!(lines(&home), "line\n");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn with_two_questions_an_answer_needs_the_id_and_nobody_else_may_answer() -> Result<()> {
    let model = ModelServer::start(vec![adds_line(), adds_line()], done()).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("channels.telegram.allow", json!([42, 43]));
    let daemon = home.start().await?;
    say(&daemon, 1, "/job first").await?;
    texts(&api, 2).await;
    say(&daemon, 2, "/job second").await?;
    let id = id_in(&texts(&api, 4).await[1])?;
    say(&daemon, 3, "/approve").await?;
    assert!(texts(&api, 5).await[4].contains("More than one question waits here"));
    let all = waiting(&daemon).await?;
    let whole = all.iter().filter_map(|question| question["id"].as_str()).find(|whole| whole.ends_with(&id));
    let whole = whole.context("the question waits")?;
    let update = belay_tests::bot_api::private_message(4, 43, &format!("/approve {whole}"));
    belay_tests::person::deliver(&daemon, &update).await?;
    let told = texts(&api, 6).await;
    assert!(told[5].contains("This question is for"), "{told:?}");
    assert_eq!((waiting(&daemon).await?.len(), lines(&home).as_str()), (2, ""));
    say(&daemon, 5, &format!("/approve {id}")).await?;
    texts(&api, 8).await;
    assert_eq!((waiting(&daemon).await?.len(), lines(&home).as_str()), (1, "line\n"));
    daemon.shut_down().await?;
    Ok(())
}
