//! `belay setup`: unattended, a second time, with wrong answers, and with a person at a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use belay_tests::bot_api::{BotApi, TOKEN, private_message};
use belay_tests::daemon::{Home, Output, PATIENCE};
use belay_tests::model_server::{Answer, ModelServer};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};
use tokio::time::timeout;

const KEY: &str = "sk-0123456789";

/// A provider that wants the key, a Bot API, and a home without settings.
struct World {
    home: Home,
    models: ModelServer,
    bots: BotApi,
}

impl World {
    async fn new() -> Self {
        let models = ModelServer::start(Vec::new(), Answer::text("an answer")).await;
        models.lists(Some(KEY), &["small", "large", "large-2"]);
        Self { home: Home::new(), models, bots: BotApi::start().await }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn settings(&self) -> PathBuf {
        self.path("config/belay/belay.toml")
    }

    /// The text of the settings file; empty if it does not exist.
    fn text(&self) -> String {
        fs::read_to_string(self.settings()).unwrap_or_default()
    }

    /// A file with a text, and its path.
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).expect("it can be written");
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    async fn setup(&self, args: &[&str], input: &str) -> Result<Output> {
        self.home.run(&[&["setup"], args].concat(), input).await
    }

    /// The first set-up, by flags.
    async fn first(&self) -> Result<Output> {
        let (key, token) = (self.file("key", KEY), self.file("token", TOKEN));
        let server = ["--base-url", &self.models.base_url, "--key-file", &key, "--model", "small"];
        let bot = ["--telegram-token-file", &token, "--telegram-user", "42", "--telegram-api", &self.bots.url];
        self.setup(&[&server[..], &bot, &["--yes", "--json"]].concat(), "").await
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn unattended_answers_become_settings_that_check_and_ask_accept() -> Result<()> {
    let world = World::new().await;
    let done = world.first().await?;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let summary: Value = serde_json::from_str(&done.stdout)?;
    let secrets = ["telegram_bot_token", "openai_api_key"].map(|name| world.path("config/belay/secrets").join(name));
    assert_eq!(summary["settings"], json!(world.settings()));
    assert_eq!(summary["bot"], "belay_test_bot");
    assert_eq!(summary["written"].as_array().map(Vec::len), Some(3), "{summary}");
    let text = world.text();
    for part in ["# The model, as the provider names it.\nmodel = \"small\"", "mode = \"polling\"", "operators = [42]"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    for (secret, content) in secrets.iter().zip([TOKEN, KEY]) {
        assert_eq!((mode(secret), fs::read_to_string(secret)?.trim()), (0o600, content));
        assert!(!text.contains(content) && !done.stdout.contains(content) && !done.stderr.contains(content));
    }
    let check = world.home.run(&["check", "--json", "--set", "gateway.listen=127.0.0.1:0"], "").await?;
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    let asked = world.home.run(&["ask", "hello"], "").await?;
    assert_eq!((asked.status.code(), asked.stdout.trim()), (Some(0), "an answer"), "{asked:?}");
    assert_eq!(world.models.requests()[0]["model"], "small");
    Ok(())
}

#[tokio::test]
async fn a_second_run_changes_only_what_is_asked() -> Result<()> {
    let world = World::new().await;
    world.first().await?;
    let mine =
        world.text().replace("[llm]", "# my own words\n[llm] # and here") + "\n[limits]\nusd_per_day = 2.5 # enough\n";
    fs::write(world.settings(), &mine)?;
    fs::set_permissions(world.settings(), fs::Permissions::from_mode(0o640))?;
    let done = world.setup(&["--model", "large", "--yes", "--json"], "").await?;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(world.text(), mine.replace("model = \"small\"", "model = \"large\""));
    assert_eq!(mode(&world.settings()), 0o640);
    let summary: Value = serde_json::from_str(&done.stdout)?;
    assert_eq!(summary["changed"], json!(["llm.model"]));
    // The same once more changes nothing.
    let again = world.setup(&["--model", "large", "--yes"], "").await?;
    assert!(again.status.success() && again.stdout.contains("nothing was changed"), "{again:?}");
    // A new key comes by standard input; only its file changes.
    world.models.lists(Some("sk-new"), &["large"]);
    let done = world.setup(&["--key-stdin", "--yes"], "sk-new\n").await?;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(fs::read_to_string(world.path("config/belay/secrets/openai_api_key"))?, "sk-new\n");
    assert_eq!(world.text(), mine.replace("model = \"small\"", "model = \"large\""));
    // A provider that is named without an address is the provider's own server, which needs a key of its own.
    let done = world.setup(&["--provider", "openai", "--yes"], "").await?;
    assert!(done.status.code() == Some(2) && done.stderr.contains("--key-file FILE or --key-stdin"), "{done:?}");
    // One more operator, and another provider, which leaves nothing of the former one.
    let done = world.setup(&["--telegram-user", "43", "--provider", "rehearsal", "--no-key", "--yes"], "").await?;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let text = world.text();
    assert!(text.contains("operators = [42, 43]") && text.contains("provider = \"rehearsal\""), "{text}");
    assert!(
        !text.contains("base_url") && !text.contains("api_key") && text.contains("usd_per_day = 2.5 # enough"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
async fn without_a_terminal_missing_answers_are_named_by_their_flags() -> Result<()> {
    let world = World::new().await;
    for (args, flags) in [
        (&[][..], &["--provider NAME", "--key-file FILE or --key-stdin", "--yes"][..]),
        (&["--provider", "anthropic", "--yes"], &["--key-file FILE or --key-stdin"]),
        (&["--model", "small"], &["--provider NAME", "--yes"]),
        (&["--base-url", &world.models.base_url, "--key-stdin", "--yes"], &["--model NAME", "small, large, large-2"]),
    ] {
        let done = world.setup(args, KEY).await?;
        assert_eq!(done.status.code(), Some(2), "{args:?} {done:?}");
        assert!(flags.iter().all(|flag| done.stderr.contains(flag)), "{args:?} {done:?}");
    }
    assert!(!world.settings().exists());
    world.first().await?;
    let done = world.setup(&["--yes"], "").await?;
    assert!(done.status.code() == Some(2) && done.stderr.contains("--model NAME"), "{done:?}");
    Ok(())
}

#[tokio::test]
async fn wrong_answers_say_what_to_do_and_change_nothing() -> Result<()> {
    let world = World::new().await;
    let url = world.models.base_url.as_str();
    let [key, wrong, empty, broken] = [("key", KEY), ("wrong", "sk-wrong"), ("empty", " \n"), ("broken", "a\nb")]
        .map(|(name, text)| world.file(name, text));
    let [token, old, odd] =
        [("token", TOKEN), ("old", "1234567:old"), ("odd", "my-token")].map(|(name, text)| world.file(name, text));
    let model = ["--base-url", url, "--key-file", &key, "--model", "small", "--yes"];
    let empty_server = ModelServer::start(Vec::new(), Answer::text("")).await;
    empty_server.lists(None, &[]);
    let away = "http://127.0.0.1:9/v1";
    let bot = |file: &str| {
        [&model[..], &["--telegram-api", &world.bots.url, "--telegram-user", "42", "--telegram-token-file", file]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let with = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    for (args, code, part) in [
        (
            with(&["--base-url", url, "--key-file", &wrong, "--model", "small", "--yes"]),
            78,
            "refuses the key (HTTP 401)",
        ),
        (with(&["--base-url", url, "--key-file", &empty, "--model", "small", "--yes"]), 65, "empty is empty"),
        (with(&["--base-url", url, "--key-file", &broken, "--model", "small", "--yes"]), 65, "line break"),
        (with(&["--base-url", url, "--key-file", "/nowhere/key", "--model", "small", "--yes"]), 65, "/nowhere/key"),
        (with(&["--base-url", url, "--key-file", &key, "--model", "smal", "--yes"]), 78, "did you mean small?"),
        (with(&["--base-url", away, "--no-key", "--model", "m", "--yes"]), 69, "cannot be reached"),
        (with(&["--base-url", &empty_server.base_url, "--no-key", "--model", "m", "--yes"]), 69, "offers no models"),
        (with(&["--base-url", "ftp://h", "--no-key", "--model", "m", "--yes"]), 78, "must begin with http"),
        (with(&["--provider", "antropic", "--no-key", "--yes"]), 78, "did you mean `anthropic`?"),
        (bot(&odd), 65, "not of the form 123456:ABC-DEF"),
        (bot(&old), 78, "refuses the token"),
        (
            with(&[&model[..], &["--telegram-api", &world.bots.url, "--telegram-token-file", &token]].concat()),
            2,
            "--telegram-user ID",
        ),
        (with(&[&model[..], &["--telegram-user", "42"]].concat()), 2, "--telegram-token-file FILE"),
        (with(&[&model[..], &["--workspace", &key]].concat()), 78, "is not a directory"),
        (
            with(&[&model[..], &["--workspace", world.home.path().to_str().expect("UTF-8")]].concat()),
            78,
            "tools.workspace",
        ),
        (
            with(&[&model[..], &["--config", "/proc/none/belay.toml"]].concat()),
            69,
            "/proc/none/belay.toml cannot be written",
        ),
        (with(&[&model[..], &["--config", world.home.path().to_str().expect("UTF-8")]].concat()), 78, "is a directory"),
        (with(&[&model[..], &["--unit", "/nowhere/belay.service"]].concat()), 65, "/nowhere/belay.service"),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = world.setup(&args, "").await?;
        assert_eq!(done.status.code(), Some(code), "{args:?} {done:?}");
        assert!(done.stderr.contains(part) && !done.stderr.contains(KEY), "{args:?} {done:?}");
        assert!(!world.path("config/belay").exists(), "{args:?}");
    }
    // Settings that are wrong already are named and left alone, and so are those that another source overrides.
    fs::create_dir_all(world.path("config/belay"))?;
    for (text, part) in [("[llm\n", "is not TOML"), ("[llm]\nmodell = 1\n", "did you mean llm.model?")] {
        fs::write(world.settings(), text)?;
        let done = world.setup(&model, "").await?;
        assert!(done.status.code() == Some(78) && done.stderr.contains(part), "{done:?}");
        assert_eq!(world.text(), text);
    }
    fs::write(world.settings(), "")?;
    let mut command = world.home.command(&[&["setup"], &model[..]].concat());
    let done = command.env("BELAY__LLM__MODEL", "other").stdin(Stdio::null()).output().await?;
    let said = String::from_utf8(done.stderr)?;
    assert!(done.status.code() == Some(78) && said.contains("BELAY__LLM__MODEL decides it"), "{said}");
    assert_eq!(world.text(), "");
    Ok(())
}

#[tokio::test]
async fn secrets_of_a_service_become_credentials_of_its_unit() -> Result<()> {
    let world = World::new().await;
    let (key, token) = (world.file("key", KEY), world.file("token", TOKEN));
    let unit = world.file("belay.service", "[Service]\nExecStart=/usr/local/bin/belay run\n");
    let settings = world.path("etc/belay.toml");
    let settings = settings.to_str().expect("UTF-8");
    let server = ["--base-url", &world.models.base_url, "--key-file", &key, "--model", "small"];
    let bot = ["--telegram-token-file", &token, "--telegram-user", "42", "--telegram-api", &world.bots.url];
    let place = ["--unit", &unit, "--config", settings, "--yes"];
    let done = world.setup(&[&server[..], &bot, &place].concat(), "").await?;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let drop_in = fs::read_to_string(world.path("belay.service.d/belay-setup.conf"))?;
    for credential in ["llm_api_key", "telegram_bot_token"] {
        assert!(drop_in.contains(&format!("LoadCredential={credential}:")), "{drop_in}");
    }
    let text = fs::read_to_string(settings)?;
    assert!(!text.contains("_file") && text.contains("api_key_env = \"LLM_API_KEY\""), "{text}");
    let check = ["check", "--unit", &unit, "--config", settings, "--set", "gateway.listen=127.0.0.1:0"];
    let check = world.home.run(&check, "").await?;
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    // Later the key is taken from the credential.
    let done = world.setup(&[&["--model", "large"][..], &place].concat(), "").await?;
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    Ok(())
}

/// A terminal of some size, and what is shown on it.
struct Screen {
    keys: File,
    side: File,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    fn new(columns: u16, rows: u16) -> Result<Self> {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let name = ptsname(&terminal, Vec::new())?.into_string()?;
        let side = File::options().read(true).write(true).open(name)?;
        tcsetwinsize(&side, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        let keys = File::from(terminal);
        let (mut reader, shown) = (keys.try_clone()?, Arc::new(Mutex::new(String::new())));
        let seen = shown.clone();
        // Ends with an error when the last program has let go of its side.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n) = reader.read(&mut buffer) {
                seen.lock().expect("no panic").push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Ok(Self { keys, side, shown })
    }

    fn stdio(&self) -> Result<Stdio> {
        Ok(self.side.try_clone()?.into())
    }

    fn shown(&self) -> String {
        self.shown.lock().expect("no panic").clone()
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.side).expect("its modes").local_modes.contains(LocalModes::ECHO)
    }

    /// Waits for a question, and types an answer. Forgets what was shown before.
    async fn answer(&mut self, question: &str, answer: &str) -> Result<()> {
        self.until(question).await;
        self.shown.lock().expect("no panic").clear();
        self.keys.write_all(format!("{answer}\n").as_bytes())?;
        Ok(())
    }

    /// Answers a question whose answer is not shown, and waits for what follows.
    async fn secret(&mut self, question: &str, answer: &str, then: &str) -> Result<()> {
        self.until(question).await;
        assert!(!self.echoes(), "{question}");
        self.answer(question, answer).await?;
        self.until(then).await;
        assert!(!self.shown().contains(answer), "{}", self.shown());
        Ok(())
    }

    async fn until(&self, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.shown().contains(expected) {
            assert!(Instant::now() < deadline, "{expected} is missing in:\n{}", self.shown());
            tokio::time::sleep(Duration::from_millis(10)).await; // another process has no other way to say how far it is
        }
    }
}

#[tokio::test]
async fn a_person_is_asked_again_after_wrong_answers_and_no_secret_is_shown() -> Result<()> {
    let world = World::new().await;
    let mut screen = Screen::new(20, 5)?;
    let mut command = world.home.command(&["setup", "--telegram-api", &world.bots.url]);
    command.env("NO_COLOR", "1").stdin(screen.stdio()?).stdout(screen.stdio()?).stderr(screen.stdio()?);
    let mut child = command.spawn()?;
    screen.answer("(http://…): ", "antropic").await?;
    screen.until("did you mean `anthropic`?").await;
    screen.answer("(http://…): ", &world.models.base_url).await?;
    for (question, secret, then) in
        [("Enter: none): ", "sk-wrong", "refuses the key"), ("Enter: none): ", KEY, "   3  large-2")]
    {
        screen.secret(question, secret, then).await?;
    }
    screen.answer("to list more: ", "arge").await?;
    screen.until("   2  large").await;
    screen.answer("to list more: ", "2").await?;
    screen.answer("read and write [", "~/work").await?;
    screen.secret("(not shown): ", "my-token", "not of the form").await?;
    screen.secret("(not shown): ", TOKEN, "to @belay_test_bot, or open").await?;
    let shown = screen.shown();
    let code = shown.split("Now send ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a code").to_owned();
    world.bots.update(private_message(1, 42, &format!("/start {code}")));
    screen.answer("Tester (id 42) sent the code. Is this you? [Y/n] ", "").await?;
    screen.until("operators = [42]").await;
    screen.answer("Write it? [Y/n] ", "y").await?;
    let status = timeout(PATIENCE, child.wait()).await??;
    assert_eq!(status.code(), Some(0), "{}", screen.shown());
    let text = world.text();
    let workspace = format!("workspace = \"{}\"", world.path("work").display());
    for part in ["model = \"large\"", "operators = [42]", &workspace] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!screen.shown().contains('\u{1b}'), "nothing is drawn or coloured");
    // The code is not answered by a model later.
    assert_eq!(world.bots.calls("getUpdates").last().map(|call| call["offset"].clone()), Some(json!(2)));
    Ok(())
}

#[tokio::test]
async fn a_person_who_keeps_every_answer_changes_nothing() -> Result<()> {
    let world = World::new().await;
    world.first().await?;
    let before = world.text();
    let mut screen = Screen::new(80, 24)?;
    let mut command = world.home.command(&["setup"]);
    command.stdin(screen.stdio()?).stdout(screen.stdio()?).stderr(screen.stdio()?);
    let mut child = command.spawn()?;
    let server = format!("(http://…) [{}]: ", world.models.base_url);
    for question in [
        &*server,
        "Enter keeps the present one): ",
        "to list more [small]: ",
        "read and write [",
        "Telegram bot? [y/N] ",
    ] {
        screen.answer(question, "").await?;
    }
    screen.until("nothing was changed").await;
    assert_eq!(timeout(PATIENCE, child.wait()).await??.code(), Some(0), "{}", screen.shown());
    assert_eq!(world.text(), before);
    Ok(())
}

#[tokio::test]
async fn an_interrupt_changes_nothing_and_restores_the_terminal() -> Result<()> {
    let world = World::new().await;
    let mut screen = Screen::new(1, 1)?;
    let mut command = world.home.command(&["setup", "--provider", "anthropic"]);
    command.stdin(screen.stdio()?).stdout(screen.stdio()?).stderr(screen.stdio()?);
    let mut child = command.spawn()?;
    screen.until("Key of anthropic (not shown): ").await;
    assert!(!screen.echoes());
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("it runs"), rustix::process::Signal::INT)?;
    let status = timeout(PATIENCE, child.wait()).await??;
    assert_eq!(status.code(), Some(130), "{}", screen.shown());
    screen.until("interrupted; nothing was changed").await;
    assert!(screen.echoes() && !world.path("config").exists());
    // The end of the input is the same.
    let mut child = world.home.command(&["setup"]).stdin(screen.stdio()?).stderr(screen.stdio()?).spawn()?;
    screen.until("(http://…): ").await;
    screen.keys.write_all(b"\x04")?;
    assert_eq!(timeout(PATIENCE, child.wait()).await??.code(), Some(130));
    Ok(())
}
