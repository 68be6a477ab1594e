//! Backups through the real binary: a drill under load, refusals, the disk, and the schedule.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use belay_tests::daemon::{Daemon, Home, PATIENCE, client};
use serde_json::{Value, json};
use tokio::time::Instant;

fn data(home: &Home) -> PathBuf {
    home.path().join("data/belay")
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The ids of the runs of a session.
async fn runs(daemon: &Daemon, session: &str) -> Result<Vec<Value>> {
    let (_, runs) = daemon.request("GET", &format!("/api/v1/runs?session={session}&limit=500"), None).await?;
    Ok(runs["runs"].as_array().context("runs")?.clone())
}

#[tokio::test]
async fn everything_acknowledged_before_a_backup_under_load_is_there_after_a_kill_and_a_restore_elsewhere() -> Result<()>
{
    let home = Home::new();
    let daemon = home.start().await?;
    let upload = client()
        .post(format!("{}/api/v1/files?name=note.txt", daemon.url))
        .header("content-type", "application/octet-stream")
        .body("the words of a file")
        .send()
        .await?
        .json::<Value>()
        .await?;
    let file = upload["file"].clone();
    let body = json!({"session": "files", "text": "read this", "attachments": [{"file": file}], "wait_ms": 20_000});
    let (status, answered) = daemon.post(body).await?;
    ensure!(status == 200, "{answered}");

    // Messages under load: each that is acknowledged before the backup begins must be in it.
    let (stop, url) = (Arc::new(AtomicBool::new(false)), daemon.url.clone());
    let acknowledged = Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..4 {
        let (stop, url, acknowledged) = (stop.clone(), url.clone(), acknowledged.clone());
        senders.spawn(async move {
            let http = client();
            while !stop.load(Ordering::Relaxed) {
                let body = json!({"session": format!("load-{sender}"), "text": "hello"});
                let Ok(answer) = http.post(format!("{url}/api/v1/messages")).json(&body).send().await else { return };
                if answer.status() == 202 {
                    let Ok(answer) = answer.json::<Value>().await else { return };
                    let id = answer["run_id"].as_str().unwrap_or_default().to_owned();
                    acknowledged.lock().expect("no panic").push(id);
                }
            }
        });
    }
    let deadline = Instant::now() + PATIENCE;
    while acknowledged.lock().expect("no panic").len() < 40 {
        ensure!(Instant::now() < deadline, "no message was acknowledged");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await; // a real process: there is no clock to pause
    }
    let before = acknowledged.lock().expect("no panic").clone();
    let made = home.run(&["backup", "create", "--with-key", "--json"], "").await?;
    ensure!(made.status.success(), "{made:?}");
    let during = acknowledged.lock().expect("no panic").len();
    ensure!(during > before.len(), "messages are accepted while the backup is made");
    let made: Value = serde_json::from_str(&made.stdout)?;
    stop.store(true, Ordering::Relaxed);
    daemon.kill().await?;
    senders.join_all().await;

    let archive = made["file"].as_str().context("file")?;
    ensure!(made["with_key"] == true && made["verified"] == true, "{made}");
    let elsewhere = Home::new();
    let to = text(&data(&elsewhere));
    let restored = elsewhere.run(&["backup", "restore", archive, "--data", &to], "").await?;
    ensure!(restored.status.success() && restored.stdout.contains("frozen"), "{restored:?}");
    assert_eq!(std::fs::read(data(&elsewhere).join("secret.key"))?, std::fs::read(data(&home).join("secret.key"))?);

    let copy = elsewhere.start().await?;
    let mut found = std::collections::BTreeMap::new();
    for sender in 0..4 {
        for run in runs(&copy, &format!("load-{sender}")).await? {
            found.insert(run["id"].as_str().unwrap_or_default().to_owned(), run["status"].clone());
        }
    }
    for run in &before {
        let (status, shown) = copy.request("GET", &format!("/api/v1/runs/{run}"), None).await?;
        ensure!(status == 200, "{run} was acknowledged before the backup began: {shown}");
    }
    let (_, frozen) = copy.request("GET", "/api/v1/freeze", None).await?;
    ensure!(frozen["freezes"][0]["detail"].as_str().unwrap_or_default().contains("restored"), "{frozen}");
    // Nothing runs in the copy: queued and interrupted runs wait for the thaw, or have been stopped.
    let (_, status) = copy.request("GET", "/api/v1/status", None).await?;
    assert_eq!(status["running"], json!([]), "{status}");
    let attached = std::fs::read_dir(data(&elsewhere).join("attachments"))?.flatten().next().context("a file")?;
    assert_eq!(std::fs::read_to_string(attached.path())?, "the words of a file");

    let thawed = elsewhere.run(&["thaw"], "").await?;
    ensure!(thawed.status.success(), "{thawed:?}");
    for run in &before {
        let run = copy.finished(run).await?;
        ensure!(["completed", "stopped"].contains(&run["status"].as_str().unwrap_or_default()), "{run}");
    }
    copy.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn without_a_daemon_a_backup_is_made_listed_verified_and_damage_and_use_are_refused() -> Result<()> {
    let home = Home::new();
    let none = home.run(&["backup", "create"], "").await?;
    ensure!(none.status.code() == Some(2) && none.stderr.contains("no database"), "{none:?}");
    let daemon = home.start().await?;
    daemon.ask("anna", "hello").await?;
    let in_use = home.run(&["upgrade", "check", "--json"], "").await?;
    ensure!(in_use.status.success(), "{in_use:?}");
    let report: Value = serde_json::from_str(&in_use.stdout)?;
    ensure!(report["in_use"] == true && report["migrates"] == false && report["ok"] == true, "{report}");
    daemon.shut_down().await?;

    let to = home.path().join("mine.tar.gz");
    let made = home.run(&["backup", "create", "--to", &text(&to)], "").await?;
    ensure!(made.status.success() && made.stdout.contains("does not contain the key"), "{made:?}");
    let again = home.run(&["backup", "create", "--to", &text(&to)], "").await?;
    ensure!(again.status.code() == Some(2) && again.stderr.contains("exists already"), "{again:?}");
    let verified = home.run(&["backup", "verify", &text(&to), "--json"], "").await?;
    ensure!(verified.status.success(), "{verified:?}");
    let made = home.run(&["backup", "create"], "").await?;
    ensure!(made.status.success(), "{made:?}");
    let list = home.run(&["backup", "list", "--json"], "").await?;
    let list: Value = serde_json::from_str(&list.stdout)?;
    assert_eq!(list["backups"].as_array().map(Vec::len), Some(1), "{list}");

    let occupied = home.run(&["backup", "restore", &text(&to)], "").await?;
    ensure!(occupied.status.code() == Some(2) && occupied.stderr.contains("--force"), "{occupied:?}");
    let daemon = home.start().await?;
    let used = home.run(&["backup", "restore", &text(&to), "--force"], "").await?;
    ensure!(used.status.code() == Some(75) && used.stderr.contains("in use"), "{used:?}");
    daemon.shut_down().await?;
    let forced = home.run(&["backup", "restore", &text(&to), "--force", "--json"], "").await?;
    ensure!(forced.status.success(), "{forced:?}");
    let forced: Value = serde_json::from_str(&forced.stdout)?;
    let former = PathBuf::from(forced["former"].as_str().context("former")?);
    ensure!(former.join("belay.db").exists(), "{forced}");

    let mut bytes = std::fs::read(&to)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&to, bytes)?;
    for args in [["backup", "verify"], ["backup", "restore"]] {
        let file = text(&to);
        let elsewhere = text(&home.path().join("elsewhere"));
        let mut line = vec![args[0], args[1], &file];
        if args[1] == "restore" {
            line.extend(["--data", &elsewhere]);
        }
        let damaged = home.run(&line, "").await?;
        ensure!(damaged.status.code() == Some(65) && damaged.stderr.contains("not a valid backup"), "{damaged:?}");
    }
    ensure!(!home.path().join("elsewhere/belay.db").exists(), "nothing of a damaged backup is restored");
    Ok(())
}

#[tokio::test]
async fn the_schedule_makes_a_backup_and_a_place_is_named_over_the_control_socket_alone() -> Result<()> {
    let home = Home::new().set("backup.every_hours", 24);
    let daemon = home.start().await?;
    let deadline = Instant::now() + PATIENCE;
    let list = loop {
        let (status, list) = daemon.request("GET", "/api/v1/backups", None).await?;
        ensure!(status == 200, "{list}");
        if list["backups"].as_array().is_some_and(|backups| !backups.is_empty()) {
            break list;
        }
        ensure!(Instant::now() < deadline, "{list}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // a real process: there is no clock to pause
    };
    ensure!(list["next"].is_string() && list["last_failure"].is_null(), "{list}");
    for (body, expected) in [(json!({"to": home.path().join("a.tar.gz")}), 403), (json!({"to": 1}), 422)] {
        let (status, refused) = daemon.request("POST", "/api/v1/backups", Some(body)).await?;
        ensure!(status == expected, "{status}: {refused}");
    }
    let refused = home.run(&["backup", "create", "--to", "/no/such/place.tar.gz"], "").await?;
    ensure!(!refused.status.success() && refused.stderr.contains("/no/such"), "{refused:?}");
    let (_, metrics) = daemon.request("GET", "/metrics", None).await?;
    ensure!(metrics.as_str().unwrap_or_default().contains("belay_backup_last_success_timestamp_seconds"), "{metrics}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_newer_database_is_refused_with_words_and_the_next_step() -> Result<()> {
    let home = Home::new();
    home.start().await?.shut_down().await?;
    let database = data(&home).join("belay.db");
    let mut bytes = std::fs::read(&database)?;
    // SQLite, "Database File Format", 1.3: the user version is the number at offset 60.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&database, &bytes)?;
    let check = home.run(&["upgrade", "check", "--json"], "").await?;
    let report: Value = serde_json::from_str(&check.stdout)?;
    ensure!(check.status.code() == Some(78) && report["schema"] == 99, "{check:?}");
    let args = home.run_args();
    let refused = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "").await?;
    ensure!(refused.status.code() == Some(78) && refused.stderr.contains("use the newer belay"), "{refused:?}");
    assert_eq!(std::fs::read(&database)?, bytes, "it is as it was");
    Ok(())
}

#[tokio::test]
async fn a_full_disk_leaves_no_backup_and_says_so() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    daemon.ask("anna", "hello").await?;
    daemon.shut_down().await?;
    // Files of at most 16 blocks of 512 bytes: SIGXFSZ is ignored, so that the write fails as on a full disk.
    let to = home.path().join("mine.tar.gz");
    let script = format!("trap '' XFSZ; ulimit -f 16; exec \"$0\" backup create --to {}", to.display());
    let output = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .arg(belay_tests::daemon::binary())
        .env("HOME", home.path())
        .env("XDG_DATA_HOME", home.path().join("data"))
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("XDG_RUNTIME_DIR", home.path())
        .output()
        .await?;
    ensure!(!output.status.success() && output.status.code().is_some(), "{output:?}");
    ensure!(String::from_utf8_lossy(&output.stderr).contains("belay:"), "{output:?}");
    ensure!(!to.exists(), "nothing has the final name");
    let made = home.run(&["backup", "create", "--to", &text(&to)], "").await?;
    ensure!(made.status.success(), "{made:?}");
    let left = std::fs::read_dir(data(&home))?.chain(std::fs::read_dir(home.path())?).flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".belay-backup")).collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn a_restore_follows_store_url_and_its_lock() -> Result<()> {
    let home = Home::new();
    let elsewhere = home.path().join("elsewhere/my.db");
    let url = format!("store.url=sqlite://{}", elsewhere.display());
    let home = home.set("store.url", format!("sqlite://{}", elsewhere.display()));
    let daemon = home.start().await?;
    daemon.ask("anna", "hello").await?;
    let file = text(&home.path().join("mine.tar.gz"));
    let made = home.run(&["backup", "create", "--with-key", "--to", &file], "").await?;
    ensure!(made.status.success(), "{made:?}");
    let restore = ["backup", "restore", &file, "--force", "--json", "--set", &url];
    let used = home.run(&restore, "").await?;
    ensure!(used.status.code() == Some(75) && used.stderr.contains("in use"), "{used:?}");
    daemon.ask("later", "hello").await?;
    daemon.shut_down().await?;

    let default = text(&data(&home));
    let refused = home.run(&["backup", "restore", &file, "--data", &default, "--set", &url], "").await?;
    ensure!(refused.status.code() == Some(2) && refused.stderr.contains("store.url"), "{refused:?}");
    let restored = home.run(&restore, "").await?;
    ensure!(restored.status.success(), "{restored:?}");
    let restored: Value = serde_json::from_str(&restored.stdout)?;
    assert_eq!(restored["database"], text(&elsewhere), "{restored}");
    ensure!(!data(&home).join("belay.db").exists(), "no daemon of these settings would use it");
    let daemon = home.start().await?;
    let (_, sessions) = daemon.request("GET", "/api/v1/sessions", None).await?;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    let (_, frozen) = daemon.request("GET", "/api/v1/freeze", None).await?;
    ensure!(frozen["freezes"][0]["detail"].as_str().unwrap_or_default().contains("restored"), "{frozen}");
    daemon.shut_down().await?;
    Ok(())
}

/// The names in a directory that begin as the unfinished files of a backup do.
fn unfinished(directory: &std::path::Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".belay-backup-") || name.starts_with(".backup-staging-"))
        .collect()
}

#[tokio::test]
async fn a_backup_that_is_killed_is_not_listed_and_the_next_start_removes_it() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    daemon.ask("anna", "hello").await?;
    // A file of a message, 256 MiB of zeros, which takes a while to write.
    let files = data(&home).join("attachments");
    std::fs::create_dir_all(&files)?;
    let zeros = files.join("a6d72ac7690f53be6ae46ba88506bd97302a093f7108472bd9efc3cefda06484");
    std::fs::File::create(&zeros)?.set_len(256 << 20)?;
    let backups = data(&home).join("backups");
    let asked = tokio::spawn(client().post(format!("{}/api/v1/backups", daemon.url)).send());
    let deadline = Instant::now() + PATIENCE;
    while unfinished(&backups).is_empty() {
        ensure!(Instant::now() < deadline && !asked.is_finished(), "no backup was begun");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await; // a real process: there is no clock to pause
    }
    daemon.kill().await?;
    ensure!(asked.await?.is_err(), "the backup is not made");
    ensure!(!unfinished(&backups).is_empty() && !unfinished(&data(&home)).is_empty(), "it is half made");

    let list = home.run(&["backup", "list", "--json"], "").await?;
    let list: Value = serde_json::from_str(&list.stdout)?;
    assert_eq!(list["backups"], json!([]), "{list}");
    let daemon = home.start().await?;
    // The start does not wait for it: the directory may be a mount that does not answer.
    let deadline = Instant::now() + PATIENCE;
    while !(unfinished(&backups).is_empty() && unfinished(&data(&home)).is_empty()) {
        ensure!(Instant::now() < deadline, "it is not removed");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await; // a real process: there is no clock to pause
    }
    let (_, list) = daemon.request("GET", "/api/v1/backups", None).await?;
    assert_eq!(list["backups"], json!([]), "{list}");
    daemon.ask("anna", "hello again").await?;
    std::fs::remove_file(&zeros)?;
    let made = home.run(&["backup", "create", "--json"], "").await?;
    ensure!(made.status.success(), "{made:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_shutdown_during_a_backup_ends_it_at_once_and_leaves_nothing_of_it() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let files = data(&home).join("attachments");
    std::fs::create_dir_all(&files)?;
    // Its name is not its digest, so that the backup is still computing the digest when the daemon ends.
    std::fs::File::create(files.join("0".repeat(64)))?.set_len(1 << 37)?;
    let asked = tokio::spawn(client().post(format!("{}/api/v1/backups", daemon.url)).send());
    let deadline = Instant::now() + PATIENCE;
    while unfinished(&data(&home)).is_empty() {
        ensure!(Instant::now() < deadline && !asked.is_finished(), "no backup was begun");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await; // a real process: there is no clock to pause
    }
    let ended = daemon.shut_down().await?;
    ensure!(ended.status.success(), "{ended:?}");
    let _ = asked.await?; // the request ends, with an answer or without
    ensure!(unfinished(&data(&home)).is_empty() && unfinished(&data(&home).join("backups")).is_empty());
    Ok(())
}

#[tokio::test]
async fn an_interrupted_restore_stops_every_start_until_it_is_rolled_back() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    daemon.ask("anna", "hello").await?;
    daemon.shut_down().await?;
    // The state after a crash between the rename of the former database and that of the new one.
    let (database, former) = (data(&home).join("belay.db"), data(&home).join("before-restore-1"));
    std::fs::create_dir(&former)?;
    std::fs::create_dir(data(&home).join(".belay-restore-1"))?;
    std::fs::write(data(&home).join(".belay-restore-1/belay.db"), "the new database")?;
    std::fs::rename(&database, former.join("belay.db"))?;
    let journal = json!({
        "moves": [{"place": "belay.db", "former": "before-restore-1/belay.db", "staged": ".belay-restore-1/belay.db"}],
        "directories": [".belay-restore-1", "before-restore-1"],
    });
    std::fs::write(data(&home).join("belay.db.restoring"), journal.to_string())?;

    let args = home.run_args();
    let refused = home.run(&args.iter().map(String::as_str).collect::<Vec<_>>(), "").await?;
    ensure!(refused.status.code() == Some(78) && refused.stderr.contains("--roll-back"), "{refused:?}");
    ensure!(!database.exists(), "no start makes an empty database in its place");
    let check = home.run(&["upgrade", "check"], "").await?;
    ensure!(check.status.code() == Some(78) && check.stdout.contains("--roll-back"), "{check:?}");
    let rolled_back = home.run(&["backup", "restore", "--roll-back"], "").await?;
    ensure!(rolled_back.status.success() && rolled_back.stdout.contains("before the restore"), "{rolled_back:?}");
    ensure!(!former.exists() && database.exists(), "the former database is in its place");
    let again = home.run(&["backup", "restore", "--roll-back", "--json"], "").await?;
    ensure!(again.status.success() && again.stdout.contains("\"rolled_back\":false"), "{again:?}");
    let daemon = home.start().await?;
    let (_, sessions) = daemon.request("GET", "/api/v1/sessions", None).await?;
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn a_failed_backup_is_in_the_status_until_one_succeeds() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    // A directory that cannot be made: a file is in its place.
    std::fs::write(data(&home).join("backups"), "a file")?;
    let failed = home.run(&["backup", "create"], "").await?;
    ensure!(!failed.status.success(), "{failed:?}");
    let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
    ensure!(status["backups"]["last_failure"]["detail"].is_string(), "{status}");
    ensure!(status["backups"]["last_success_at"].is_null() && status["backups"]["next_at"].is_null(), "{status}");
    let shown = home.run(&["status"], "").await?;
    ensure!(shown.stdout.contains("backup") && shown.stdout.contains("failed at"), "{shown:?}");

    std::fs::remove_file(data(&home).join("backups"))?;
    let made = home.run(&["backup", "create"], "").await?;
    ensure!(made.status.success(), "{made:?}");
    daemon.shut_down().await?;
    let daemon = home.start().await?;
    // The newest file tells, after a restart too. It is read beside the start.
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        let (_, status) = daemon.request("GET", "/api/v1/status", None).await?;
        if status["backups"]["last_success_at"].is_string() {
            break status;
        }
        ensure!(Instant::now() < deadline, "{status}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await; // a real process: there is no clock to pause
    };
    ensure!(status["backups"]["last_failure"].is_null(), "{status}");
    let (_, metrics) = daemon.request("GET", "/metrics", None).await?;
    let metrics = metrics.as_str().unwrap_or_default().to_owned();
    ensure!(metrics.contains("\nbelay_backup_last_success_timestamp_seconds "), "{metrics}");
    daemon.shut_down().await?;
    Ok(())
}
