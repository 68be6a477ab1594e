//! The parts that a build may leave out, as `belay --version --long` names them: a setting of one that is not there is refused, and a file
//! that needs one is named with the reason. `make test` runs this for the full build and for the smallest one.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_tests::daemon::Home;
use belay_tests::model_server::{Answer, ModelServer};
use belay_tests::terminal::Terminal;
use serde_json::json;

use crate::attachments::{PDF, PNG, ask_with};

/// Parts with a setting that needs them.
const SETTINGS: [(&str, &str); 10] = [
    ("adapters", "channels.adapters={irc={token_env=\"PATH\"}}"),
    ("cron", "heartbeat.at=\"08:00\""),
    ("mcp", "gateway.mcp=true"),
    ("mcp", "tools.mcp.files={command=[\"files-server\"]}"),
    ("more-providers", "llm.provider=\"gemini\""),
    ("telegram", "channels.telegram.enabled=true"),
    ("matrix", "channels.matrix.homeserver=http://127.0.0.1:9"),
    (
        "mail",
        "channels.mail={address=\"belay@example.org\", imap=\"imap://127.0.0.1:9\", smtp=\"smtp://127.0.0.1:9\", authserv_id=\"mx\"}",
    ),
    ("otlp", "telemetry.otlp_endpoint=http://127.0.0.1:9"),
    ("postgres", "store.url=postgres://belay@127.0.0.1/belay?sslmode=disable"),
];

/// Parts with a command that needs them, and the exit code of that command in a build with the part.
const COMMANDS: [(&str, &[&str], i32); 7] = [
    ("acp", &["acp", "--url", "unix:/nowhere"], 0), // its input has ended
    ("console", &["console", "--url", "unix:/nowhere"], 69),
    ("manual", &["completions", "bash"], 0),
    ("manual", &["man"], 0), // printed: this is no terminal
    ("mcp", &["mcp", "list"], 0),
    ("mcp", &["mcp", "approve", "files"], 1), // there is no such server
    ("mcp", &["mcp", "serve", "--url", "unix:/nowhere"], 69),
];

/// Parts with a path over HTTP: the method, a body, and the status in a build with the part.
const PATHS: [(&str, &str, &str, &str, u16); 6] = [
    ("console", "GET", "/", "", 200),
    ("console", "GET", "/console/session", "", 200),
    (
        "messages",
        "POST",
        "/v1/messages",
        r#"{"max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}"#,
        200,
    ),
    ("metrics", "GET", "/metrics", "", 200),
    ("responses", "POST", "/v1/responses", r#"{"input": "hello"}"#, 200),
    ("websocket", "GET", "/ws", "", 400), // this request is no upgrade
];

/// Whether the build has a part.
async fn has(home: &Home, part: &str) -> Result<bool> {
    let long = home.run(&["--version", "--long"], "").await?;
    let mark = |mark: char| long.stdout.lines().any(|line| line.starts_with(&format!("{mark} {part} ")));
    assert_ne!(mark('+'), mark('-'), "{part}: {long:?}");
    Ok(mark('+'))
}

#[tokio::test]
async fn a_setting_of_a_part_that_is_left_out_is_refused() -> Result<()> {
    let home = Home::new();
    for (part, setting) in SETTINGS {
        let shown = home.run(&["config", "show", "--set", setting], "").await?;
        if has(&home, part).await? {
            assert!(shown.status.success(), "{shown:?}");
        } else {
            assert_eq!(shown.status.code(), Some(78), "{shown:?}");
            assert!(shown.stderr.contains(&format!("(feature {part}); remove the setting")), "{shown:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_command_of_a_part_that_is_left_out_says_so() -> Result<()> {
    let home = Home::new();
    for (part, command, code) in COMMANDS {
        let done = home.run(command, "").await?;
        if has(&home, part).await? {
            assert_eq!(done.status.code(), Some(code), "{command:?}: {done:?}");
        } else {
            assert_eq!(done.status.code(), Some(78), "{command:?}: {done:?}");
            assert!(done.stderr.contains(&format!("(feature {part})")), "{command:?}: {done:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_path_of_a_part_that_is_left_out_says_so() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for (part, method, path, body, found) in PATHS {
        let body = if body.is_empty() { None } else { Some(serde_json::from_str(body)?) };
        let (status, body) = daemon.request(method, path, body).await?;
        if has(&home, part).await? {
            assert_eq!(status, found, "{path}: {body}");
        } else {
            assert_eq!(status, 404, "{path}: {body}");
            assert!(body.to_string().contains(&format!("(feature {part})")), "{path}: {body}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_routine_with_a_cron_line_is_refused_where_none_is_read() -> Result<()> {
    let home = Home::new();
    let daemon = home.start().await?;
    for (name, when, needs_cron) in [("minutes", "every 15m", false), ("daily", "0 9 * * *", true)] {
        let file = home.path().join(format!("{name}.toml"));
        let trigger = format!("trigger = {{ kind = \"schedule\", when = \"{when}\", zone = \"UTC\" }}");
        let action = "action = { mode = \"lightweight\", prompt = \"Say what is new.\" }";
        std::fs::write(&file, format!("name = \"{name}\"\n{trigger}\n{action}\n"))?;
        let made = home.run(&["routines", "create", "--file", &file.to_string_lossy()], "").await?;
        let is_refused = needs_cron && !has(&home, "cron").await?;
        assert_eq!(made.status.success(), !is_refused, "{made:?}");
        assert_eq!(made.stderr.contains("(feature cron)"), is_refused, "{made:?}");
    }
    daemon.shut_down().await?;
    Ok(())
}

#[tokio::test]
async fn lines_are_typed_at_a_terminal_in_any_build() -> Result<()> {
    let home = Home::new();
    let args = home.run_args();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut terminal = Terminal::start(&home, &args, 80, 24)?;
    let shows = |part: &'static str| move |screen: &[String]| screen.iter().any(|line| line.contains(part));
    terminal.until("a ready daemon", shows("belay: ready")).await?;
    let has_prompt = has(&home, "line-editor").await?;
    if has_prompt {
        terminal.prompt().await?;
    }
    // A product that the question does not show, and with more digits than a port, which the first lines name.
    terminal.press("calculate 1234*1000000\r")?;
    let screen = terminal.until("the answer", shows("1234000000")).await?;
    assert_eq!(screen.iter().any(|line| line.starts_with("belay> ")), has_prompt, "{screen:?}");
    terminal.press("/quit\r")?;
    assert_eq!(terminal.ended().await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_person_who_cannot_exist_is_not_frozen_in_any_build() -> Result<()> {
    let home = Home::new();
    let _daemon = home.start().await?;
    let done = home.run(&["freeze", "--person", "ann"], "").await?;
    assert!(!done.status.success() && done.stderr.contains("ann"), "{done:?}");
    Ok(())
}

#[tokio::test]
async fn a_file_of_a_part_that_is_left_out_is_named_with_the_reason() -> Result<()> {
    let model = ModelServer::start(vec![], Answer::text("I see.")).await;
    let home = Home::new().openai(&model.base_url).set("llm.vision", true);
    let daemon = home.start().await?;
    let files = [
        ("pdf", "two-pages.pdf", STANDARD.encode(PDF)),
        ("pictures", "dot.png", PNG.to_owned()),
        ("web", "page.html", STANDARD.encode("<!doctype html><p>Twelve <b>ships</b>.</p>")),
    ];
    for (part, name, data) in files {
        let attachments = json!([{"name": name, "data": data}]);
        let (status, run) = ask_with(&daemon, part, "what is this?", attachments).await?;
        assert_eq!((status, &run["reply"]), (200, &json!("I see.")), "{run}");
        let request = model.requests().pop().unwrap_or_default().to_string();
        assert!(request.contains(name), "{request}");
        let refused = request.contains(&format!("(feature {part})"));
        assert_eq!(refused, !has(&home, part).await?, "{part}: {request}");
    }
    Ok(())
}
