//! What the model is told of the workspace: files and skills, as a request carries them, and as `belay context show` counts
//! them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// Puts the example of the guide where the guide says.
fn copy_example(home: &Home) -> Result<()> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/skills/unit-prices");
    let folder = home.workspace().join("skills/unit-prices");
    fs::create_dir_all(&folder)?;
    for file in ["SKILL.md", "prices.awk"] {
        fs::copy(example.join(file), folder.join(file))?;
    }
    Ok(())
}

fn prompt_of(request: &Value) -> &str {
    request["messages"][0]["content"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn files_and_skills_are_told_counted_and_taken_anew_with_a_new_conversation() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url).set("agent.timezone", "Europe/Paris");
    fs::write(home.workspace().join("AGENTS.md"), "Never speak of the harvest.")?;
    fs::write(home.workspace().join("SOUL.md"), b"\xff\xfe")?;
    fs::write(home.workspace().join("MEMORY.md"), "tea ".repeat(6000))?;
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    copy_example(&home)?;
    daemon.ask("alice", "again").await?;
    let (_, unknown) = daemon.post(json!({"session": "alice", "text": "/unit_prices"})).await?;
    assert!(
        unknown["reply"].as_str().unwrap_or_default().starts_with("There is no command /unit_prices."),
        "{unknown}"
    );
    daemon.post(json!({"session": "alice", "text": "/new"})).await?;
    daemon.ask("alice", "/unit_prices big 4.50 for 3 kg").await?;

    let requests = model.requests();
    let first = prompt_of(&requests[0]);
    for part in
        ["Never speak of the harvest.", "<file name=\"MEMORY.md\">", "characters are left out here", "(Europe/Paris)."]
    {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(!first.contains("SOUL.md") && !first.contains("unit-prices"));
    assert_eq!(prompt_of(&requests[1]), first, "the conversation goes on as it began");
    assert!(prompt_of(&requests[2]).contains("- unit-prices (skills/unit-prices/SKILL.md): Compares offers"));
    let told = "asks for the skill unit-prices: read skills/unit-prices/SKILL.md";
    assert!(prompt_of(&requests[2]).contains(told), "a notice before the first message goes out with the prompt");
    let asked = &requests[2]["messages"][1];
    assert!(
        asked["content"].as_str().is_some_and(|asked| asked.starts_with('/') && asked.ends_with("3 kg")),
        "{asked}"
    );

    let shown = home.run(&["context", "show", "--json", "--full", "alice"], "").await?;
    let report: Value = serde_json::from_str(&shown.stdout).with_context(|| format!("{shown:?}"))?;
    let parts = report["prompt"].as_array().cloned().unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    assert!(prompt_of(&requests[2]).starts_with(&texts.join("\n\n")));
    assert_eq!((&report["skipped"][0]["what"], &report["messages"]), (&json!("SOUL.md"), &json!(3)), "{report}");
    assert_eq!(report["files"][1], json!({"name": "MEMORY.md", "chars": 23_999, "told_chars": 18_057, "cut": true}));
    let table = home.run(&["context", "show", "alice"], "").await?;
    for line in ["prompt: files", "18057 of 23999 characters", "it is not UTF-8", "/unit_prices"] {
        assert!(table.stdout.contains(line), "{line}: {table:?}");
    }
    let nobody = home.run(&["context", "show", "nobody"], "").await?;
    assert_eq!((nobody.status.code(), nobody.stdout.as_str()), (Some(1), ""), "{nobody:?}");
    assert!(nobody.stderr.contains("There is no session nobody."), "{nobody:?}");
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn the_example_of_the_guide_works_and_a_skill_elsewhere_is_read_and_gets_its_key() -> Result<()> {
    let skills = tempfile::tempdir()?;
    fs::create_dir_all(skills.path().join("weather"))?;
    let head =
        "---\nname: weather\ndescription: Knows the weather.\nmetadata: {primaryEnv: WEATHER_KEY}\n---\nAsk the sky.\n";
    fs::write(skills.path().join("weather/SKILL.md"), head)?;
    let home = Home::new()
        .set("skills.dirs", json!([skills.path()]))
        .set("skills.entries.weather.api_key_env", "THE_KEY")
        .env("THE_KEY", "sunshine");
    let settings = "[[approvals.rules]]\ntool = \"run_command\"\nask = \"never\"\n";
    fs::create_dir_all(home.path().join("config/belay"))?;
    fs::write(home.path().join("config/belay/belay.toml"), settings)?;
    copy_example(&home)?;
    fs::write(home.workspace().join("offers.tsv"), "big\t4.50\t3\nsmall\t1.00\t0.5\n")?;
    let daemon = home.start().await?;
    let call = |tool: &str, arguments: Value| format!("call {tool} {arguments}");
    let awk = json!({"argv": ["awk", "-f", "skills/unit-prices/prices.awk", "offers.tsv"]});
    for (session, order, expected) in [
        ("prices", call("run_command", awk), "1.5000\tbig\n2.0000\tsmall"),
        ("weather", call("read_skill", json!({"name": "weather"})), "Ask the sky."),
        ("key", call("run_command", json!({"argv": ["printenv", "WEATHER_KEY"]})), "sunshine"),
    ] {
        let run = daemon.ask(session, &order).await?;
        let reply = run["reply"].as_str().unwrap_or_default();
        assert!(reply.contains(expected), "{order}: {run}");
    }
    let shown = home.run(&["context", "show", "--full", "--json", "key"], "").await?;
    let report: Value = serde_json::from_str(&shown.stdout)?;
    assert_eq!(report["skills"][1]["variables"], json!(["WEATHER_KEY"]), "{report}");
    let prompt = report["prompt"].to_string();
    assert!(prompt.contains("- weather (read_skill): Knows the weather.") && !prompt.contains("sunshine"), "{prompt}");
    daemon.shut_down().await?;
    Ok(())
}

/// A kill does not change the prompt of a conversation; a new conversation has the skills as they are.
#[tokio::test]
async fn a_conversation_keeps_its_skills_over_a_kill() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("ok")).await;
    let home = Home::new().openai(&model.base_url);
    copy_example(&home)?;
    let daemon = home.start().await?;
    daemon.ask("alice", "hello").await?;
    daemon.kill().await?;
    let file = home.workspace().join("skills/unit-prices/SKILL.md");
    let changed = fs::read_to_string(&file)?.replace("Compares offers", "Ranks offers");
    fs::write(&file, changed)?;

    let daemon = home.start().await?;
    daemon.ask("alice", "again").await?;
    daemon.ask("bob", "hello").await?;
    let requests = model.requests();
    let first = prompt_of(&requests[0]);
    assert!(first.contains("Compares offers"), "{first}");
    assert_eq!(prompt_of(&requests[1]), first, "the same to the byte");
    assert!(prompt_of(&requests[2]).contains("Ranks offers"), "a new conversation has the present skills");
    daemon.shut_down().await?;
    Ok(())
}
