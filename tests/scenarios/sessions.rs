//! What was said is found, read out and deleted; and what is too old goes by itself.

use anyhow::Result;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

#[tokio::test]
async fn what_was_said_is_found_read_out_and_deleted_also_after_a_restart() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    daemon.ask("alice", "the parcel is in the blue cupboard").await?;
    daemon.ask("alice", "/new").await?;
    daemon.ask("alice", "calculate 6*7").await?;
    daemon.ask("bob", "my parcel is at the neighbours'").await?;
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    let listed = home.run(&["sessions", "--json"], "").await?;
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    assert_eq!(listed["sessions"][1]["title"], "calculate 6*7", "{listed}");
    let found = home.run(&["sessions", "search", "--session", "alice", "PARC", "cupboard"], "").await?;
    assert!(found.status.success() && found.stdout.contains("the parcel is in the blue cupboard"), "{found:?}");
    let nothing = home.run(&["sessions", "search", "submarine"], "").await?;
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    let shown = home.run(&["sessions", "show", "alice"], "").await?;
    assert!(shown.stdout.contains("42") && !shown.stdout.contains("parcel"), "{shown:?}");

    let file = home.path().join("alice.md");
    let path = file.to_string_lossy().into_owned();
    let written = home.run(&["sessions", "export", "alice", "--all-threads", "-o", &path], "").await?;
    assert!(written.status.success(), "{written:?}");
    let text = std::fs::read_to_string(&file)?;
    let (parcel, sum) = (text.find("the blue cupboard"), text.find("calculate 6*7"));
    assert!(parcel.is_some() && parcel < sum, "{text}");
    let lines = home.run(&["sessions", "export", "bob", "--format", "jsonl"], "").await?;
    let first: Value = serde_json::from_str(lines.stdout.lines().next().unwrap_or_default())?;
    assert_eq!((&first["role"], &first["session"]), (&"user".into(), &"bob".into()), "{lines:?}");

    let listed = async |args: &[&str]| Ok::<_, anyhow::Error>(home.run(args, "").await?.stdout);
    let hidden = home.run(&["sessions", "hide", "alice"], "").await?;
    assert!(hidden.status.success(), "{hidden:?}");
    assert!(!listed(&["sessions"]).await?.contains("alice"));
    assert!(listed(&["sessions", "list", "--hidden"]).await?.contains("alice"));
    let restored = home.run(&["sessions", "hide", "alice", "--restore"], "").await?;
    assert!(restored.stdout.contains("alice is listed again"), "{restored:?}");
    assert!(listed(&["sessions"]).await?.contains("alice"));
    let unknown = home.run(&["sessions", "hide", "nobody"], "").await?;
    assert!(unknown.stderr.contains("no such session"), "{unknown:?}");

    let deleted = home.run(&["sessions", "delete", "alice"], "").await?;
    assert!(deleted.status.success() && deleted.stdout.contains("threads: 2"), "{deleted:?}");
    let gone = home.run(&["sessions", "search", "cupboard"], "").await?;
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    let again = home.run(&["sessions", "delete", "alice"], "").await?;
    assert!(again.stderr.contains("no such session"), "{again:?}");
    assert_eq!(daemon.ask("alice", "calculate 2+2").await?["status"], "completed", "and it begins anew");
    let secrets = home.run(&["sessions", "forget-secrets", "alice"], "").await?;
    assert!(secrets.stdout.contains("there was none"), "{secrets:?}");

    let dry = home.run(&["sessions", "prune", "--dry-run"], "").await?;
    assert!(dry.stdout.contains("Would delete nothing"), "for ever is the default: {dry:?}");
    let stall = daemon.send("bob", "rehearse stall").await?;
    daemon.until(&stall, "running").await?;
    let busy = home.run(&["sessions", "delete", "bob"], "").await?;
    assert!(!busy.status.success() && busy.stderr.contains("stop it first"), "{busy:?}");
    daemon.shut_down().await?;
    Ok(())
}

/// The answer to a command in a conversation.
async fn command(home: &Home, session: &str, text: &str) -> Result<String> {
    let output = home.run(&["send", "--session", session, text], "").await?;
    Ok(format!("{}{}", output.stdout, output.stderr))
}

#[tokio::test]
async fn an_earlier_conversation_is_listed_and_resumed_and_a_copy_leaves_it_alone() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("noted")).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    daemon.ask("alice", "the parcel is blue").await?;
    command(&home, "alice", "/new").await?;
    daemon.ask("alice", "plan the garden").await?;
    daemon.ask("bob", "a secret of bob").await?;
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    let listed = command(&home, "alice", "/sessions").await?;
    let lines: Vec<&str> = listed.lines().filter(|line| line.starts_with("- `")).collect();
    assert!(lines.len() == 2 && !listed.contains("bob"), "{listed}");
    assert!(
        lines[0].contains("the present one: `plan the garden`") && lines[1].contains("1 message: `the parcel"),
        "{listed}"
    );
    let id = lines[1].split('`').nth(1).unwrap_or_default().to_owned();
    let stolen = command(&home, "bob", &format!("/resume {id}")).await?;
    assert!(stolen.contains("No conversation here has this id"), "{stolen}");

    let resumed = command(&home, "alice", &format!("/resume {id}")).await?;
    assert!(resumed.contains("The earlier conversation continues"), "{resumed}");
    daemon.ask("alice", "which colour?").await?;
    let seen = || model.requests().last().map(|request| request["messages"].to_string()).unwrap_or_default();
    assert!(seen().contains("the parcel is blue") && !seen().contains("garden"), "{}", seen());

    let copied = command(&home, "alice", "/fork").await?;
    assert!(copied.contains("continues in a copy"), "{copied}");
    daemon.ask("alice", "and in the copy?").await?;
    assert!(seen().contains("the parcel is blue") && seen().contains("which colour?"), "{}", seen());
    command(&home, "alice", &format!("/resume {id}")).await?;
    daemon.ask("alice", "back again").await?;
    assert!(seen().contains("which colour?") && !seen().contains("and in the copy?"), "{}", seen());
    let listed = command(&home, "alice", "/sessions").await?;
    assert_eq!(listed.lines().filter(|line| line.starts_with("- `")).count(), 3, "{listed}");
    daemon.shut_down().await?;
    Ok(())
}

/// The model's answer to everything. It is also a summary in the form that Belay accepts.
const SUMMARY: &str = "## Decisions\n- none\n## Open tasks\n- none\n## Constraints\n- the parcel is blue\n## User requests\n- \
                       which colour has the sea, and now?\n## Exact identifiers\n- none";

#[tokio::test]
async fn the_last_message_is_sent_again_or_replaced_and_a_summary_changes_nothing() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text(SUMMARY)).await;
    let home = Home::new().openai(&model.base_url);
    let daemon = home.start().await?;
    let nothing = command(&home, "alice", "/retry").await?;
    assert!(nothing.contains("no last message"), "{nothing}");
    daemon.ask("alice", "the parcel is blue").await?;
    daemon.ask("alice", "which colour has the sky?").await?;
    assert_eq!(daemon.ask("alice", "/retry").await?["status"], "completed");
    let seen = || model.requests().last().map(|request| request["messages"].to_string()).unwrap_or_default();
    assert_eq!(seen().matches("which colour has the sky?").count(), 1, "the turn was replaced: {}", seen());
    assert!(seen().contains("the parcel is blue") && !seen().contains("/retry"), "{}", seen());

    let edit = json!({"session": "alice", "text": "/edit which colour has the sea?", "idempotency_key": "k", "wait_ms": 10_000});
    let edited = daemon.post(edit.clone()).await?;
    assert!(seen().contains("the sea?") && !seen().contains("the sky?"), "{}", seen());
    let requests = model.requests().len();
    daemon.shut_down().await?;

    let daemon = home.start().await?;
    let again = daemon.post(edit.clone()).await?;
    assert_eq!(edited.1["run_id"], again.1["run_id"], "{again:?}");
    assert_eq!(model.requests().len(), requests, "a redelivery replaces nothing");
    daemon.ask("alice", "and now?").await?;
    assert!(seen().contains("the parcel is blue") && seen().contains("the sea?"), "{}", seen());

    let before = command(&home, "alice", "/sessions").await?;
    let shown = command(&home, "alice", "/summarize").await?;
    assert!(shown.contains(SUMMARY), "{shown}");
    assert_eq!(command(&home, "alice", "/sessions").await?, before);
    daemon.ask("alice", "go on").await?;
    assert!(seen().contains("the parcel is blue") && seen().contains("and now?"), "{}", seen());
    daemon.shut_down().await?;
    Ok(())
}
