//! Troubles: what does not work is said where people look, with its cause and the next step.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home, PATIENCE, client};
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::terminal::Terminal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// A home without the troubles of the machine that runs the test.
fn home() -> Home {
    Home::new().set("tools.sandbox.policy", "off")
}

/// A home whose store is a file, whatever the engine of the other scenarios is.
fn home_with_file() -> Home {
    let home = home();
    let url = format!("sqlite://{}", home.path().join("data/belay/belay.db").display());
    home.store(&url)
}

/// `belay status --check`: the exit code and the output.
async fn status(home: &Home) -> Result<(Option<i32>, String)> {
    let output = home.run(&["status", "--check"], "").await?;
    Ok((output.status.code(), output.stdout))
}

/// The parts that `belay status --json` lists, with their severity.
async fn parts(home: &Home) -> Result<Vec<(String, String)>> {
    let output = home.run(&["status", "--json"], "").await?;
    let report: Value = serde_json::from_str(&output.stdout)?;
    let word = |trouble: &Value, name: &str| trouble[name].as_str().unwrap_or_default().to_owned();
    let list = report["degraded"].as_array().context("degraded")?;
    Ok(list.iter().map(|trouble| (word(trouble, "part"), word(trouble, "severity"))).collect())
}

fn pair(part: &str, severity: &str) -> Vec<(String, String)> {
    vec![(part.to_owned(), severity.to_owned())]
}

#[tokio::test]
async fn a_model_that_rejects_the_key_degrades_the_daemon_until_it_answers() -> Result<()> {
    let error = json!({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}});
    let model = ModelServer::start(vec![Answer::Status(401, error, Vec::new())], Answer::text("hello")).await;
    let home = home().openai(&model.base_url);
    let daemon = home.start().await?;
    let (code, shown) = status(&home).await?;
    ensure!(code == Some(0) && !shown.contains("degraded"), "{code:?} {shown}");

    ensure!(daemon.ask("s", "hi").await?["status"] == "failed");
    let (code, shown) = status(&home).await?;
    ensure!(
        code == Some(1) && shown.starts_with("degraded: model\n  model: The provider rejected"),
        "{code:?} {shown}"
    );
    ensure!(shown.contains("(401: invalid_api_key)") && shown.contains("Incorrect API key provided"), "{shown}");
    let plain = home.run(&["status"], "").await?;
    ensure!(plain.status.success() && plain.stdout.starts_with("degraded: model\n"), "{plain:?}");
    ensure!(parts(&home).await? == pair("model", "critical"));
    let (_, told) = daemon.post(json!({"session": "s", "text": "/status"})).await?;
    let told = told["reply"].as_str().unwrap_or_default();
    ensure!(told.starts_with("Degraded:\n- model: The provider rejected"), "{told}");
    let page = client().get(format!("{}/metrics", daemon.url)).send().await?.text().await?;
    ensure!(page.contains("belay_troubles{part=\"model\"} 1\n") && page.contains("belay_troubles{part=\"store\"} 0\n"));
    ensure!(page.lines().any(|line| line.starts_with("belay_disk_free_bytes ")), "{page}");

    ensure!(daemon.ask("s", "hi").await?["status"] == "completed");
    let (code, shown) = status(&home).await?;
    ensure!(code == Some(0) && !shown.contains("degraded"), "{code:?} {shown}");
    daemon.shut_down().await?;
    Ok(())
}

/// A model server at this address is asked once. Returns the reply and the line of the status.
async fn unreachable(address: &str) -> Result<(String, String)> {
    let home = home().openai(address).set("llm.max_attempts", 1);
    let daemon = home.start().await?;
    let run = daemon.ask("s", "hi").await?;
    let (code, shown) = status(&home).await?;
    ensure!(code == Some(1), "{shown}");
    daemon.shut_down().await?;
    let line = shown.lines().find(|line| line.starts_with("  model: ")).unwrap_or_default().to_owned();
    Ok((run["reply"].as_str().unwrap_or_default().to_owned(), line))
}

#[tokio::test]
async fn a_model_server_that_cannot_be_reached_is_named_with_address_and_cause() -> Result<()> {
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    // It closes each connection: no TLS is spoken here.
    let plain = ModelServer::start(vec![], Answer::text("hello")).await;
    let plain = plain.base_url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    for (address, place, cause) in [
        (format!("http://{free}/v1"), format!("http://{free}"), "the connection is refused"),
        ("http://model.invalid/v1".to_owned(), "http://model.invalid".to_owned(), "the name cannot be resolved (DNS)"),
        (format!("https://{plain}/v1"), format!("https://{plain}"), "TLS fails"),
    ] {
        let (reply, line) = unreachable(&address).await?;
        for told in [&reply, &line] {
            ensure!(told.contains(&format!("cannot connect to {place}: {cause}")), "{address}: {told}");
            ensure!(told.contains("Check llm.base_url"), "{address}: {told}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_frozen_conversation_says_by_whom_since_when_and_why_to_each_client() -> Result<()> {
    let home = home();
    let daemon = home.start().await?;
    let frozen = home.run(&["freeze", "--json", "--reason", "new disks"], "").await?;
    let frozen: Value = serde_json::from_str(&frozen.stdout)?;
    let (actor, at) = (frozen["freezes"][0]["actor"].as_str(), frozen["freezes"][0]["at"].as_str());
    let by = format!("frozen by {} since {}: new disks", actor.context("actor")?, at.context("at")?);
    let notice = format!("This is {by}. Your message is kept");

    let (code, answer) = daemon.post(json!({"session": "s", "text": "calculate 1+1"})).await?;
    let told = answer["frozen"].as_str().unwrap_or_default();
    ensure!((code, &answer["status"]) == (202, &json!("queued")) && told.starts_with(&notice), "{answer}");
    let params = json!({"sessionKey": "s", "message": "calculate 2+2", "idempotencyKey": "k"});
    let (code, answer) = daemon.request("POST", "/api/v1/agent", Some(params)).await?;
    ensure!(code == 202 && answer["frozen"] == told, "{answer}");
    let sent = home.run(&["send", "calculate 3+3"], "").await?;
    ensure!(sent.status.success() && sent.stderr.contains(&notice), "{sent:?}");
    let mut chat = Terminal::start(&home, &["chat", "--session", "me"], 200, 24)?;
    chat.prompt().await?;
    chat.press("calculate 4+4\r")?;
    chat.shows(&notice).await?;

    let (code, shown) = status(&home).await?;
    ensure!(code == Some(1) && shown.starts_with("degraded: freeze\n"), "{code:?} {shown}");
    ensure!(shown.contains(&format!("  freeze: everything is {by}; messages are kept\n")), "{shown}");
    ensure!(parts(&home).await? == pair("freeze", "critical"));
    ensure!(home.run(&["thaw"], "").await?.status.success());
    chat.shows("4+4 = 8").await?;
    ensure!(status(&home).await?.0 == Some(0));
    // What is frozen in part is a warning.
    ensure!(home.run(&["freeze", "--person", "telegram:42"], "").await?.status.success());
    ensure!(parts(&home).await? == pair("freeze", "warning"));
    daemon.shut_down().await?;
    Ok(())
}

/// A small file system over a directory, until it is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// `None`: nothing can be mounted here.
    fn mount(at: &'a Path, size: &str) -> Result<Option<Self>> {
        std::fs::create_dir_all(at)?;
        let options = format!("size={size},mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("skipped: a file system of a limited size cannot be mounted here");
        }
        Ok(is_mounted.then_some(Self(at)))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).output(); // it goes with the machine
    }
}

/// Sends messages until one is refused, and returns the words.
async fn refused(daemon: &Daemon) -> Result<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (code, answer) = daemon.post(json!({"session": "full", "text": "x".repeat(90_000)})).await?;
        if code == 503 && answer["error"]["code"] == "store" {
            return Ok(answer["error"]["message"].as_str().unwrap_or_default().to_owned());
        }
        ensure!(Instant::now() < until, "{code} {answer}");
    }
}

#[tokio::test]
async fn a_full_disk_is_named_in_the_refusal_the_status_and_the_check() -> Result<()> {
    let home = home_with_file();
    let data = home.path().join("data/belay");
    let Some(_disk) = SmallDisk::mount(&data, "100m")? else { return Ok(()) };
    let daemon = home.start().await?;
    daemon.ask("s", "calculate 1+1").await?;
    ensure!(status(&home).await?.0 == Some(0), "{:?}", status(&home).await?);
    let check = home.run(&["check"], "").await?;
    ensure!(check.stdout.contains("MB free") && !check.stdout.contains("nearly full"), "{check:?}");

    let filler = data.join("filler");
    let free = |left: u64| -> Result<()> {
        let space = rustix::fs::statvfs(&data)?;
        std::fs::write(&filler, vec![1; usize::try_from(space.f_bavail * space.f_frsize - left)?])?;
        Ok(())
    };
    free(8 << 20)?;
    ensure!(parts(&home).await? == pair("disk", "warning"));
    let check = home.run(&["check"], "").await?;
    ensure!(check.stdout.contains("is nearly full (8."), "{check:?}");

    std::fs::remove_file(&filler)?;
    free(0)?;
    let words = refused(&daemon).await?;
    ensure!(words.contains("the disk is full") && words.contains("Free space"), "{words}");
    let (code, shown) = status(&home).await?;
    ensure!(code == Some(1) && shown.starts_with("degraded: store, disk\n"), "{code:?} {shown}");
    ensure!(shown.contains("  store: messages cannot be stored: the disk is full"), "{shown}");
    ensure!(shown.contains(&format!("  disk: the disk of {} is full", data.display())), "{shown}");
    let check = home.run(&["check"], "").await?;
    ensure!(!check.status.success() && check.stdout.contains("is full (0 bytes free)"), "{check:?}");

    std::fs::remove_file(&filler)?;
    ensure!(daemon.ask("s", "calculate 2+2").await?["status"] == "completed");
    let (code, shown) = status(&home).await?;
    ensure!(code == Some(0), "{shown}");
    daemon.shut_down().await?;
    Ok(())
}

/// Overwrites a page in the middle of the database, as a failing disk does.
fn damage(database: &Path) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(database)?;
    let pages = file.metadata()?.len() / 4096;
    for page in pages / 2..pages / 2 + 4 {
        file.write_all_at(&[0xA5; 4096], page * 4096)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_store_is_found_by_the_check_with_the_command_that_restores_it() -> Result<()> {
    let home = home_with_file();
    let database = home.path().join("data/belay/belay.db");
    let daemon = home.start().await?;
    for session in ["a", "b", "c"] {
        daemon.ask(session, &"calculate 1+1 ".repeat(2000)).await?;
    }
    let beside = home.run(&["check"], "").await?;
    ensure!(beside.stdout.contains("it is not damaged"), "{beside:?}");
    daemon.shut_down().await?;
    let whole = home.run(&["check"], "").await?;
    ensure!(whole.stdout.contains("it is not damaged"), "{whole:?}");
    let files = |home: &Home| -> Result<Vec<String>> {
        let names = std::fs::read_dir(home.path().join("data/belay"))?;
        let mut names: Vec<_> = names.filter_map(|file| file.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    };
    let before = files(&home)?;
    damage(&database)?;
    let found = home.run(&["check"], "").await?;
    ensure!(!found.status.success() && found.stdout.contains("the store is damaged"), "{found:?}");
    ensure!(found.stdout.contains("belay backup restore FILE --force"), "{found:?}");
    ensure!(files(&home)? == before, "a check leaves nothing: {:?}", files(&home)?);

    // Not even the header is there.
    std::fs::write(&database, vec![7; 8192])?;
    let args = home.run_args();
    let start = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "").await?;
    ensure!(!start.status.success() && start.stderr.contains("belay backup restore FILE --force"), "{start:?}");
    Ok(())
}

#[tokio::test]
async fn a_damage_under_a_running_daemon_is_found_by_the_check() -> Result<()> {
    let home = home_with_file();
    let database = home.path().join("data/belay/belay.db");
    let daemon = home.start().await?;
    for session in ["a", "b", "c"] {
        daemon.ask(session, &"calculate 1+1 ".repeat(2000)).await?;
    }
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    damage(&database)?;
    let found = home.run(&["check"], "").await?;
    ensure!(!found.status.success() && found.stdout.contains("the store is damaged"), "{found:?}");
    daemon.kill().await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_sandbox_and_a_channel_without_its_platform_are_told() -> Result<()> {
    let home = Home::new()
        .set("tools.sandbox.bwrap", "/nowhere/bwrap")
        .set("channels.telegram.enabled", true)
        .set("channels.telegram.api_base", "http://127.0.0.1:9")
        .set("channels.telegram.allow", json!([42]))
        .set("channels.telegram.mode", "polling")
        .env("TELEGRAM_BOT_TOKEN", "1:token");
    let daemon = home.start().await?;
    let until = Instant::now() + PATIENCE;
    loop {
        let found = parts(&home).await?;
        let has = |part: &str| found.contains(&(part.to_owned(), "warning".to_owned()));
        if has("sandbox") && has("channel") {
            break;
        }
        ensure!(Instant::now() < until, "{found:?}");
        sleep(std::time::Duration::from_millis(50)).await; // polling a real process: there is no clock to pause
    }
    let (code, shown) = status(&home).await?;
    ensure!(code == Some(1) && shown.contains("  channel: telegram: no updates: not reached"), "{code:?} {shown}");
    ensure!(shown.contains("  sandbox: commands are refused: "), "{shown}");
    daemon.shut_down().await?;
    Ok(())
}
