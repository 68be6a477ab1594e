//! The command line: a daemon's client, a single question, the configuration.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};

#[tokio::test]
async fn the_client_commands_talk_to_a_running_daemon() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    let sent = home.run(&["send", "--wait", "calculate 6*7"], "").await?;
    assert!(sent.status.success() && sent.stdout.contains("42"), "{sent:?}");
    let status = home.run(&["status", "--json"], "").await?;
    let json: serde_json::Value = serde_json::from_str(&status.stdout)?;
    assert_eq!(json["model"]["rehearsal"], true, "{status:?}");
    let runs = home.run(&["runs"], "").await?;
    assert!(runs.status.success() && runs.stdout.contains("completed"), "{runs:?}");
    assert!(!runs.stdout.contains('\u{1b}'), "no colours in a pipe");
    let stall = daemon.send("alice", "rehearse stall").await?;
    let stop = home.run(&["stop", &stall], "").await?;
    assert!(stop.status.success(), "{stop:?}");
    assert_eq!(daemon.run(&stall).await?["status"], "stopped");
    let failed = home.run(&["send", "--wait", "rehearse error auth"], "").await?;
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    for command in ["send", "agent"] {
        let refused = home.run(&[command, "/thaw"], "").await?;
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(refused.stdout.contains("Nothing is frozen"), "{refused:?}");
        let fine = home.run(&[command, "/status"], "").await?;
        assert!(fine.status.success(), "{fine:?}");
    }
    let shutdown = home.run(&["shutdown"], "").await?;
    assert!(shutdown.status.success(), "{shutdown:?}");
    assert_eq!(daemon.ended().await?.status.code(), Some(0));
    let nobody = home.run(&["status"], "").await?;
    assert_eq!(nobody.status.code(), Some(69), "{nobody:?}");
    assert!(nobody.stderr.contains("belay run"), "it says the next step: {nobody:?}");
    Ok(())
}

#[tokio::test]
async fn ask_answers_without_a_daemon() -> Result<()> {
    let home = Home::new();
    let asked = home.run(&["ask", "--set", "llm.provider=rehearsal", "calculate 17*23"], "").await?;
    assert!(asked.status.success() && asked.stdout.contains("391"), "{asked:?}");
    let model = ModelServer::start(vec![], Answer::Status(401, serde_json::json!({}), vec![])).await;
    let base = format!("llm.base_url={}", model.base_url);
    let failed = home.run(&["ask", "--set", "llm.provider=openai", "--set", &base, "hello"], "").await?;
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    Ok(())
}

/// As in a container, where the shell that began the session stands outside.
#[tokio::test]
async fn commands_run_where_the_leader_of_the_session_cannot_be_seen() -> Result<()> {
    let home = Home::new();
    let file = home.path().join("belay.toml");
    std::fs::write(
        &file,
        "[llm]\nprovider = \"rehearsal\"\n[tools.sandbox]\npolicy = \"off\"\n\
         [approvals]\nrules = [{ tool = \"run_command\", ask = \"never\" }]\n",
    )?;
    let file = file.to_string_lossy().into_owned();
    let call = "call run_command {\"argv\": [\"echo\", \"hello from inside\"]}";
    let ask = home.command(&["ask", "--config", &file, call]);
    let mut namespace = tokio::process::Command::new("bwrap");
    namespace.args(["--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--"]).arg(ask.as_std().get_program());
    let asked = namespace
        .args(ask.as_std().get_args())
        .envs(ask.as_std().get_envs().filter_map(|(key, value)| Some((key, value?))))
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    assert!(
        asked.status.success() && String::from_utf8_lossy(&asked.stdout).contains("hello from inside"),
        "{asked:?}"
    );
    Ok(())
}

#[tokio::test]
async fn three_mistakes_in_a_file_are_named_at_once() -> Result<()> {
    let home = Home::new();
    let file = home.path().join("bad.toml");
    std::fs::write(&file, "[llm]\nprovidr = \"openai\"\nmax_tokens = \"many\"\n[agent]\nmax_tool_iterations = 0\n")?;
    let file = file.to_string_lossy().into_owned();
    for command in ["check", "run"] {
        let output = home.run(&[command, "--config", &file], "").await?;
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        for needle in ["llm.providr", "provider", "llm.max_tokens", "agent.max_tool_iterations", "bad.toml"] {
            assert!(format!("{}{}", output.stdout, output.stderr).contains(needle), "{needle}: {output:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_open_listener_without_a_token_is_refused() -> Result<()> {
    let home = Home::new();
    let output = home.run(&["run", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=0.0.0.0:0"], "").await?;
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(output.stderr.contains("BELAY_TOKEN"), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn settings_say_where_they_come_from_and_keep_secrets() -> Result<()> {
    let home = Home::new().env("BELAY__AGENT__DRAIN_S", "7").env("OPENAI_API_KEY", "sk-very-secret");
    let shown = home.run(&["config", "show", "--set", "queue.cap=5"], "").await?;
    assert!(shown.status.success(), "{shown:?}");
    assert!(shown.stdout.contains("drain_s = 7") && shown.stdout.contains("cap = 5"), "{shown:?}");
    assert!(shown.stdout.contains("BELAY__AGENT__DRAIN_S") && shown.stdout.contains("--set"), "{shown:?}");
    assert!(!shown.stdout.contains("sk-very-secret"));
    Ok(())
}

/// The home of many a service's user is no directory.
#[tokio::test]
async fn a_settings_file_that_was_passed_over_is_named_whatever_is_logged_and_by_check() -> Result<()> {
    let home = Home::new().env("HOME", "/dev/null").env("XDG_CONFIG_HOME", "").set("telemetry.log", "warn");
    let state = home.path().join("state").to_string_lossy().into_owned();
    let home = home.env("STATE_DIRECTORY", &state);
    let said = "the settings file of the service's user is not visible and was passed over: /dev/null/.config/belay/belay.toml";
    let checked = home.run(&["check", "--set", "llm.provider=rehearsal"], "").await?;
    assert!(checked.status.success() && checked.stdout.contains(said), "{checked:?}");
    let ended = home.start().await?.shut_down().await?;
    assert!(ended.stderr.contains(said), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_hook_whose_token_is_not_set_is_refused_by_check_as_by_run() -> Result<()> {
    let home = Home::new();
    let file = home.path().join("hooks.toml");
    std::fs::write(
        &file,
        "[llm]\nprovider = \"rehearsal\"\n[[hooks]]\nname = \"guard\"\non = \"agent_end\"\n\
         url = \"https://127.0.0.1:9/\"\ntoken_env = \"NOPE\"\n",
    )?;
    let file = file.to_string_lossy().into_owned();
    for command in ["check", "run"] {
        let refused = home.run(&[command, "--config", &file], "").await?;
        assert_eq!(refused.status.code(), Some(78), "{refused:?}");
        assert!(refused.stderr.contains("hooks[0].token_env: the variable NOPE is not set"), "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn check_says_which_credential_the_unit_lacks() -> Result<()> {
    let home = Home::new();
    let unit = home.path().join("belay.service");
    std::fs::write(&unit, "[Service]\nType=notify\n")?;
    let unit = unit.to_string_lossy().into_owned();
    let args = ["check", "--unit", &unit, "--set", "llm.provider=rehearsal"];
    for more in ["gateway.token_env=ABSENT", "gateway.listen=0.0.0.0:0"] {
        let refused = home.run(&[&args[..], &["--set", more]].concat(), "").await?;
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.status.code(), Some(78), "{said}");
        assert!(said.contains(&format!("(the unit {unit} has no LoadCredential=belay_token)")), "{said}");
        assert!(!said.contains("cannot be seen from here"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn the_short_id_of_a_list_is_taken_by_the_command_it_is_for() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for session in ["alice", "bob"] {
        let run = daemon.send(session, "call run_command {\"argv\": [\"touch\", \"x\"]}").await?;
        daemon.until(&run, "paused").await?;
    }
    // An answered question with an id that begins the same, since it was asked in the same minute.
    let first = home.run(&["approvals", "--full", "--session", "alice"], "").await?;
    let id = |list: &str| list.lines().nth(1).and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
    let denied = home.run(&["approvals", "deny", &id(&first.stdout)], "").await?;
    assert!(denied.status.success(), "{denied:?}");
    let waiting = home.run(&["approvals"], "").await?;
    assert_eq!(waiting.stdout.lines().count(), 2, "{waiting:?}");
    let denied = home.run(&["approvals", "deny", &id(&waiting.stdout)], "").await?;
    assert!(denied.status.success(), "{waiting:?} {denied:?}");
    let runs = home.run(&["runs", "--session", "bob"], "").await?;
    let shown = home.run(&["runs", "show", &id(&runs.stdout)], "").await?;
    assert!(shown.status.success() && shown.stdout.contains("bob"), "{runs:?} {shown:?}");
    daemon.shut_down().await?;
    Ok(())
}
