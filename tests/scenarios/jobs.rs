//! Jobs, asked for in a conversation: they outlive its turn, a kill, and a start, and their result comes once.

use std::time::Duration;

use anyhow::{Context, Result};
use belay_tests::bot_api::BotApi;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::person::{home, say, texts};
use serde_json::json;

#[tokio::test]
async fn killed_in_the_middle_a_job_goes_on_and_its_result_comes_once() -> Result<()> {
    // What writes is on disk before the next step.
    let works = Answer::call("remember", json!({"key": "product", "text": "six times seven"}));
    let done = Answer::call("terminate", json!({"status": "success", "summary": "forty-two"}));
    let model = ModelServer::start(vec![works, Answer::Stall], done).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job multiply").await?;
    assert!(texts(&api, 1).await[0].contains("is made"));
    model.seen(2).await;
    daemon.kill().await?;

    let daemon = home.start().await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("is done") && told[1].contains("forty-two"), "{told:?}");
    // Delivered again, the command is recognised.
    say(&daemon, 1, "/job multiply").await?;
    say(&daemon, 2, "/jobs").await?;
    let told = texts(&api, 3).await;
    assert!(told[2].contains("done: multiply") && told[2].lines().count() == 1, "{told:?}");
    let messages = model.requests().pop().unwrap_or_default()["messages"].to_string();
    assert!(messages.contains("six times seven"), "it went on from its last step: {messages}");
    assert!(!messages.contains("outcome unknown"), "{messages}");
    assert_eq!(model.requests().len(), 3);
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    say(&daemon, 3, "/ping").await?;
    assert!(texts(&api, 4).await[3].contains("pong"), "and nothing was said in between");
    daemon.shut_down().await?;
    assert_eq!(api.sent().len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_at_work_at_the_end_of_the_daemon_is_laid_aside_without_a_word() -> Result<()> {
    let done = Answer::call("terminate", json!({"status": "success", "summary": "at last"}));
    let model = ModelServer::start(vec![Answer::Stall], done).await;
    let api = BotApi::start().await;
    let home = home(&api).openai(&model.base_url).set("agent.drain_s", 0);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job wait for it").await?;
    texts(&api, 1).await;
    model.seen(1).await;
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    let told = texts(&api, 2).await;
    assert!(told[1].contains("is done") && told[1].contains("at last"), "{told:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_stand_in_does_jobs_too_and_one_that_waits_can_be_taken_back() -> Result<()> {
    let api = BotApi::start().await;
    let home = home(&api).set("jobs.max_parallel", 1).set("agent.drain_s", 0);
    let daemon = home.start().await?;
    say(&daemon, 1, "/job calculate 17*23").await?;
    let told = texts(&api, 2).await;
    assert!(told.iter().any(|told| told.contains("is done") && told.contains("391")), "{told:?}");
    say(&daemon, 2, "/job rehearse stall").await?;
    say(&daemon, 3, "/job calculate 1+1").await?;
    let told = texts(&api, 4).await;
    let id = told[3].split(['<', '>']).nth(2).unwrap_or_default().to_owned();
    say(&daemon, 4, &format!("/cancel {id}")).await?;
    assert!(texts(&api, 5).await[4].contains("is cancelled"), "{told:?}");
    daemon.shut_down().await?;
    Ok(())
}

/// Whether a process is at work: one that has ended and was not waited for is not.
fn is_alive(pid: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Waits until the model was asked so often, for as long as a repair may take: the silence, and the time between two looks.
async fn asked(model: &ModelServer, times: usize) -> Result<()> {
    let asked = async {
        while model.requests().len() < times {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(90), asked).await.context("the model was not asked again")
}

/// Takes as long as the silence that it is about; what is waited for is polled.
#[tokio::test]
async fn the_processes_of_a_job_that_hangs_are_gone_before_it_is_begun_again() -> Result<()> {
    let leaves = Answer::call("run_command", json!({"argv": ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo pid=$!"]}));
    let done = Answer::call("terminate", json!({"status": "success", "summary": "after all"}));
    let model = ModelServer::start(vec![leaves, Answer::Silence], done).await;
    let home = Home::new().openai(&model.base_url).set("tools.sandbox.policy", "off");
    let home = home.set("jobs.stuck_threshold_s", 10);
    let settings = home.path().join("config/belay");
    std::fs::create_dir_all(&settings)?;
    std::fs::write(settings.join("belay.toml"), "[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n")?;
    let daemon = home.start().await?;
    let (status, job) = daemon.request("POST", "/api/v1/jobs", Some(json!({"task": "leave something"}))).await?;
    assert_eq!(status, 202, "{job}");
    asked(&model, 2).await?;
    let said = model.requests()[1].to_string();
    // The last one: the call itself has it too, without a number.
    let pid: String =
        said.rsplit("pid=").next().into_iter().flat_map(str::chars).take_while(char::is_ascii_digit).collect();
    assert!(is_alive(&pid), "{pid:?} in {said}");
    asked(&model, 3).await?;
    assert!(!is_alive(&pid), "{pid} of the first attempt is at work beside the second");
    let path = format!("/api/v1/jobs/{}", job["job_id"].as_str().context("an id")?);
    let settled = async {
        loop {
            let (_, job) = daemon.request("GET", &path, None).await?;
            if job["state"] == "submitted" {
                return anyhow::Ok(job);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let job = tokio::time::timeout(Duration::from_secs(30), settled).await.context("it is not settled")??;
    assert_eq!((&job["attempt"], &job["result"]), (&json!(2), &json!("after all")), "{job}");
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    let jobs = json!({"pending": 0, "in_progress": 0, "stuck": 0, "oldest_pending_at": null, "places": 5});
    assert_eq!((&status["jobs"], &status["routines"]["enabled"]), (&jobs, &json!(0)), "{status}");
    let metrics = belay_tests::daemon::client().get(format!("{}/metrics", daemon.url)).send().await?.text().await?;
    for line in ["belay_jobs{state=\"stuck\"} 0", "belay_job_places 5", "belay_routines_enabled 0"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    daemon.shut_down().await?;
    Ok(())
}
