//! A tool whose other side is down: reported, switched off by a rule, off over a restart, on again by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use belay_tests::daemon::{Daemon, Home};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A server of pages that hangs up on everybody until it is repaired.
struct Site {
    address: String,
    works: Arc<AtomicBool>,
    _serving: JoinSet<()>,
}

impl Site {
    async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let works = Arc::new(AtomicBool::new(false));
        let (serving, repaired) = (JoinSet::new(), works.clone());
        let mut site = Self { address, works, _serving: serving };
        site._serving.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if repaired.load(Ordering::SeqCst) {
                    let mut head = [0; 4096];
                    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
                    let _ = stream.read(&mut head).await; // a client that has gone away needs no page
                    let _ = stream.write_all(page.as_bytes()).await;
                }
            }
        });
        Ok(site)
    }
}

/// A home whose settings file has this rule.
fn home(rule: &str) -> Result<Home> {
    let home = Home::new();
    let directory = home.path().join("config/belay");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("belay.toml"), format!("[[tools.health.rules]]\n{rule}\n"))?;
    Ok(home)
}

/// One turn in a conversation of its own, in which the model looks at the site; what the model is told of that.
async fn look(daemon: &Daemon, model: &ModelServer, site: &Site, session: &str) -> Result<String> {
    model.then(Answer::call("fetch_url", json!({ "url": format!("http://{}/", site.address) })));
    model.then(Answer::text("done"));
    let run = daemon.ask(session, "look").await?;
    assert_eq!(run["status"], "completed", "{run}");
    let requests = model.requests();
    let messages = requests.last().and_then(|request| request["messages"].as_array()).expect("messages");
    Ok(messages.last().and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned())
}

async fn tool(daemon: &Daemon) -> Result<Value> {
    let (status, answer) = daemon.request("GET", "/api/v1/tools", None).await?;
    assert_eq!(status, 200, "{answer}");
    let tools = answer["tools"].as_array().expect("a list");
    Ok(tools.iter().find(|tool| tool["name"] == "fetch_url").cloned().expect("it is there"))
}

/// The daemon compiles the schema of a tool at its first call; a bug in one has to be found before that.
#[tokio::test]
async fn the_arguments_of_every_offered_tool_have_a_usable_schema() -> Result<()> {
    let names = ["calculate", "clock", "create_job", "forget", "list_jobs", "read_output", "routine", "spawn_subagent"];
    let finds = Answer::call("find_tools", json!({ "names": names }));
    let model = ModelServer::start(vec![finds], Answer::text("hello")).await;
    let daemon = Home::new().openai(&model.base_url).start().await?;
    assert_eq!(daemon.ask("s", "hi").await?["status"], "completed");
    let offered = model.requests()[1]["tools"].as_array().cloned().unwrap_or_default();
    assert!(offered.len() >= 18, "{offered:?}");
    for tool in offered {
        let function = &tool["function"];
        assert!(jsonschema::validator_for(&function["parameters"]).is_ok(), "{function}");
    }
    Ok(())
}

#[tokio::test]
async fn a_tool_that_fails_again_and_again_is_off_over_a_restart_until_somebody_switches_it_on() -> Result<()> {
    let (site, model) = (Site::open().await?, ModelServer::start(Vec::new(), Answer::text("?")).await);
    let rule = "tools = [\"fetch_*\"]\nfailures = 2\naction = \"disable\"\nfor_s = 86400";
    let home = home(rule)?.openai(&model.base_url).set("tools.web.allow_private", json!([site.address]));
    let daemon = home.start().await?;
    for session in ["a", "b"] {
        look(&daemon, &model, &site, session).await?;
    }
    let off = tool(&daemon).await?;
    assert_eq!((&off["state"], &off["failures"], &off["actor"]), (&json!("off"), &json!(2), &json!("rule")), "{off}");
    assert_eq!(off["last"].as_array().map(Vec::len), Some(2), "{off}");
    let refused = look(&daemon, &model, &site, "c").await?;
    assert!(refused.starts_with("denied: the tool fetch_url is disabled: it failed 2 times in a row"), "{refused}");
    daemon.kill().await?;

    let daemon = home.start().await?;
    let refused = look(&daemon, &model, &site, "d").await?;
    assert!(refused.contains("is disabled"), "{refused}");
    let offered = model.requests().last().and_then(|request| request["tools"].as_array().cloned()).unwrap_or_default();
    assert!(!offered.is_empty() && !offered.iter().any(|tool| tool["function"]["name"] == "fetch_url"), "{offered:?}");
    let status = home.run(&["status"], "").await?;
    assert!(status.stdout.contains("fetch_url is disabled"), "{}", status.stdout);
    let shown = home.run(&["tools", "show", "fetch_url"], "").await?;
    assert!(shown.stdout.contains("it failed 2 times in a row"), "{}", shown.stdout);

    site.works.store(true, Ordering::SeqCst);
    let on = home.run(&["tools", "enable", "fetch_url"], "").await?;
    assert_eq!((on.status.code(), on.stdout.as_str()), (Some(0), "fetch_url is on\n"), "{}", on.stderr);
    let page = look(&daemon, &model, &site, "e").await?;
    assert!(page.contains("hello"), "{page}");

    let why = home.run(&["tools", "disable", "fetch_url", "the site is being moved"], "").await?;
    assert_eq!(why.stdout, "fetch_url is off\n", "{}", why.stderr);
    let refused = look(&daemon, &model, &site, "f").await?;
    assert!(refused.contains("an operator says: the site is being moved."), "{refused}");
    let needed = home.run(&["tools", "disable", "terminate", "so"], "").await?;
    assert!(!needed.status.success() && needed.stderr.contains("cannot be disabled"), "{}", needed.stderr);
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_rule_that_would_take_from_runs_what_they_need_keeps_the_daemon_from_starting() -> Result<()> {
    let home = home("tools = [\"terminate\"]\nfailures = 0\naction = \"disable\"")?;
    let checked = home.run(&["check"], "").await?;
    let said = format!("{}{}", checked.stdout, checked.stderr);
    for problem in ["tools.health.rules[0].failures", "terminate cannot be disabled"] {
        assert!(said.contains(problem), "{said}");
    }
    assert_eq!(checked.status.code(), Some(78), "{said}");
    Ok(())
}
