//! Tests of the sources of secrets, and of refusals.

#![allow(clippy::unwrap_used)]
use belay_program::environment::Declared;
use belay_program::paths::Paths;

use super::source::{Missing, Names, find};
use super::*;
use crate::args::SettingsArgs;
use crate::settings::{Origins, is_variable_name};

/// Settings that no operator has changed.
fn defaults(settings: &Settings) -> Loaded {
    Loaded { settings: settings.clone(), origins: Origins::default(), hidden: Vec::new() }
}

const NAMES: Names<'static> =
    Names { key: "llm.api_key", env: "MY_KEY", absent: Missing::NoKey, file: None, credential: "openai_api_key" };

fn found(names: &Names<'_>, env: &Environment) -> Option<String> {
    find(names, env).unwrap().map(|secret| secret.expose_secret().to_owned())
}

#[test]
fn a_secret_comes_from_its_file_then_the_environment_then_systemd() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, "from-file\n").unwrap();
    std::fs::write(dir.path().join("openai_api_key"), "from-systemd\n").unwrap();
    let credentials = ("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap());

    let all = Environment::from([("MY_KEY", "from-env"), credentials]);
    assert_eq!(found(&Names { file: Some(&file), ..NAMES }, &all).as_deref(), Some("from-file"));
    assert_eq!(found(&NAMES, &all).as_deref(), Some("from-env"));
    assert_eq!(found(&NAMES, &Environment::from([credentials])).as_deref(), Some("from-systemd"));
    assert_eq!(found(&Names { env: "", ..NAMES }, &all).as_deref(), Some("from-systemd"));
    assert_eq!(found(&NAMES, &Environment::default()), None);
    assert_eq!(found(&NAMES, &Environment::from([("MY_KEY", "  ")])), None);
}

#[test]
fn a_secret_that_cannot_be_used_is_a_problem_that_does_not_show_it() {
    let broken = Environment::from([("MY_KEY", "hush\nhush")]);
    let problem = find(&NAMES, &broken).unwrap_err().to_string();
    assert!(
        problem.contains("llm.api_key_env") && problem.contains("MY_KEY") && !problem.contains("hush"),
        "{problem}"
    );

    let missing = find(&Names { file: Some(Path::new("/nowhere/key")), ..NAMES }, &broken).unwrap_err().to_string();
    assert!(missing.contains("llm.api_key_file") && missing.contains("/nowhere/key"), "{missing}");
}

#[test]
fn a_file_of_a_secret_that_may_never_end_is_refused_without_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let within = |name: &str| dir.path().join(name);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, within("pipe"), mode).unwrap();
    std::fs::write(within("key"), "hush\n").unwrap();
    for (to, link) in [("pipe", "link-to-pipe"), ("key", "openai_api_key")] {
        std::os::unix::fs::symlink(within(to), within(link)).unwrap();
    }
    for (path, words) in [
        (within("pipe"), "is no regular file"),
        (within("link-to-pipe"), "is no regular file"),
        ("/dev/zero".into(), "is no regular file"),
        (within(""), "Is a directory"),
    ] {
        let problem = find(&Names { file: Some(&path), ..NAMES }, &Environment::default()).unwrap_err().to_string();
        let is_named = problem.contains("llm.api_key_file") && problem.contains(path.to_str().unwrap());
        assert!(is_named && problem.contains(words), "{problem}");
    }
    let credentials = Environment::from([("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap())]);
    let problem = find(&Names { credential: "pipe", ..NAMES }, &credentials).unwrap_err().to_string();
    assert!(problem.contains("the systemd credential pipe") && problem.contains("is no regular file"), "{problem}");
    assert_eq!(found(&NAMES, &credentials).as_deref(), Some("hush"), "a link to a regular file");
}

#[test]
fn once_the_settings_name_a_key_no_other_one_is_sent() {
    let env = Environment::from([("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("MINE", "m")]);
    for (provider, named, keys) in [
        ("auto", None, [Some("o"), Some("a"), None]),
        ("auto", Some(""), [None; 3]),
        ("auto", Some("MINE"), [None, None, Some("m")]),
        ("auto", Some("NOT_SET"), [None; 3]),
        ("auto", Some("OPENAI_API_KEY"), [Some("o"), None, None]),
        ("auto", Some("ANTHROPIC_API_KEY"), [None, Some("a"), None]),
        ("openai", Some("ANTHROPIC_API_KEY"), [None, None, Some("a")]),
    ] {
        let mut settings = Settings::default();
        settings.llm.provider = provider.into();
        settings.llm.api_key_env = named.map(str::to_owned);
        let found = Secrets::find(&defaults(&settings), &env).unwrap().keys;
        let shown = [found.openai, found.anthropic, found.configured];
        let shown: Vec<_> = shown.iter().map(|key| key.as_ref().map(|key| key.expose_secret())).collect();
        assert_eq!(shown, keys, "{named:?}");
    }
}

#[test]
fn further_keys_and_those_of_fallbacks_are_found_each_in_its_own_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, "from-file\n").unwrap();
    let env = Environment::from([("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("SECOND", "2"), ("MINE", "m")]);
    let mut settings = Settings::default();
    settings.llm.provider = "openai".into();
    settings.llm.api_key_envs = vec!["SECOND".into(), "NOT_SET".into()];
    let fallback = |provider: &str, env: Option<&str>| FallbackConfig {
        provider: provider.into(),
        api_key_env: env.map(str::to_owned),
        ..FallbackConfig::default()
    };
    settings.llm.fallbacks = vec![
        fallback("anthropic", None),
        fallback("groq", None),
        fallback("groq", Some("MINE")),
        fallback("anthropic", Some("")),
        FallbackConfig { api_key_file: Some(file), ..fallback("groq", None) },
    ];
    let keys = Secrets::find(&defaults(&settings), &env).unwrap().keys;
    let shown = |keys: &[Option<SecretString>]| -> Vec<Option<String>> {
        keys.iter().map(|key| key.as_ref().map(|key| key.expose_secret().to_owned())).collect()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(shown(&keys.further), [some("2"), None]);
    assert_eq!(shown(&keys.fallbacks), [some("a"), None, some("m"), None, some("from-file")]);
    assert_eq!(shown(&[keys.openai, keys.configured]), [some("o"), None]);
}

#[test]
fn a_bot_without_its_secrets_is_refused_with_every_one_that_is_missing() {
    let mut settings = Settings::default();
    assert!(Secrets::find(&defaults(&settings), &Environment::default()).unwrap().telegram.is_none());
    settings.channels.telegram.enabled = true;
    let problems = Secrets::find(&defaults(&settings), &Environment::default()).err().unwrap();
    let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["channels.telegram.token_env", "channels.telegram.secret_env"]);
    let env = Environment::from([("TELEGRAM_BOT_TOKEN", "1:t"), ("TELEGRAM_WEBHOOK_SECRET", "s")]);
    assert!(Secrets::find(&defaults(&settings), &env).unwrap().telegram.is_some());
}

#[test]
fn a_token_of_an_mcp_server_is_found_or_told_to_be_missing() {
    let mut settings = Settings::default();
    let server = r#"{"url":"https://example.org/mcp","token_env":"THEIR_TOKEN"}"#;
    settings.tools.mcp.insert("there".into(), serde_json::from_str(server).unwrap());
    let found = mcp_tokens(&settings, &Environment::from([("THEIR_TOKEN", "hush")])).unwrap();
    assert_eq!(found["there"].expose(), "hush");
    let problems = mcp_tokens(&settings, &Environment::default()).unwrap_err();
    let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["tools.mcp.there.token_env"]);
}

#[test]
fn an_existing_key_of_a_skill_is_found() {
    let mut settings = Settings::default();
    for (name, entry) in [("weather", r#"{"api_key_env":"WEATHER"}"#), ("taxes", r#"{"api_key_env":"NOT_SET"}"#)] {
        settings.skills.entries.insert(name.into(), serde_json::from_str(entry).unwrap());
    }
    let env = Environment::from([("WEATHER", "hush"), ("CREDENTIALS_DIRECTORY", "/nowhere")]);
    let keys = skill_keys(&settings, &env).unwrap();
    assert_eq!((keys.len(), keys["weather"].expose()), (1, "hush"));
    assert!(skill_keys(&settings, &Environment::from([("WEATHER", "a\nb")])).is_err());
}

#[test]
fn a_secret_in_place_of_a_variable_name_is_recognised() {
    for (name, ok) in [
        ("", true),
        ("OPENAI_API_KEY", true),
        ("_x1", true),
        ("sk-abcdef", false),
        ("1234:AAbb", false),
        ("a b", false),
        (&"A".repeat(65), false),
    ] {
        assert_eq!(is_variable_name(name), ok, "{name}");
    }
}

/// The settings with these assignments.
fn assigned(sets: &[String]) -> Loaded {
    let home = tempfile::tempdir().unwrap();
    let nowhere = Paths {
        settings: vec![],
        named: vec![],
        data: home.path().to_owned(),
        control_socket: home.path().join("control.sock"),
    };
    let args = SettingsArgs { assignments: sets.to_vec(), ..SettingsArgs::default() };
    crate::settings::load(&args, &Environment::default(), &nowhere).unwrap()
}

/// All secret problems of these settings in this environment, as an operator reads them.
fn refusals(loaded: &Loaded, env: &Environment) -> Vec<String> {
    let found = [
        Secrets::find(loaded, env).err(),
        mcp_tokens(&loaded.settings, env).err(),
        hook_tokens(&loaded.settings, env).err(),
        skill_keys(&loaded.settings, env).err(),
    ];
    found.into_iter().flatten().flatten().map(|problem| problem.to_string()).collect()
}

/// One kind of secret: the settings that enable it, its key without an ending, its variable, its systemd credential,
/// and whether it may be missing without opening anything to strangers.
struct Kind {
    on: &'static [&'static str],
    key: &'static str,
    variable: &'static str,
    credential: Option<&'static str>,
    optional: bool,
}

const BOT: &[&str] = &["channels.telegram.enabled=true", "channels.telegram.mode=\"polling\""];
const KINDS: [Kind; 7] = [
    Kind { on: &[], key: "gateway.token", variable: "BELAY_TOKEN", credential: Some("belay_token"), optional: false },
    Kind {
        on: &[],
        key: "gateway.operator_token",
        variable: "BELAY_OPERATOR_TOKEN",
        credential: Some("belay_operator_token"),
        optional: false,
    },
    Kind {
        on: &[],
        key: "gateway.webhook_secret",
        variable: "BELAY_WEBHOOK_SECRET",
        credential: Some("belay_webhook_secret"),
        optional: false,
    },
    Kind {
        on: BOT,
        key: "channels.telegram.token",
        variable: "TELEGRAM_BOT_TOKEN",
        credential: Some("telegram_bot_token"),
        optional: false,
    },
    Kind {
        on: BOT,
        key: "channels.telegram.secret",
        variable: "TELEGRAM_WEBHOOK_SECRET",
        credential: Some("telegram_webhook_secret"),
        optional: false,
    },
    Kind {
        on: &["tools.mcp.there={url=\"https://example.org/mcp\"}"],
        key: "tools.mcp.there.token",
        variable: "THEIR_TOKEN",
        credential: Some("mcp_there_token"),
        optional: false,
    },
    Kind {
        on: &["llm.provider=\"openai\""],
        key: "llm.api_key",
        variable: "MY_KEY",
        credential: Some("llm_api_key"),
        optional: true,
    },
];

#[test]
fn a_source_that_was_configured_and_is_empty_is_refused_for_every_kind_of_secret() {
    for Kind { on, key, variable, credential, optional } in KINDS {
        // The bot gets its token from elsewhere, unless the token is under test.
        let around: &[(&str, &str)] =
            if key.ends_with("telegram.secret") { &[("TELEGRAM_BOT_TOKEN", "1:t")] } else { &[] };
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().to_str().unwrap();
        let known = std::cell::RefCell::new(BTreeMap::<Vec<String>, Loaded>::new());
        let check = |source: &str, sets: &[String], vars: &[(&str, &str)], named: Option<&str>| {
            let env =
                vars.iter().chain(around).fold(Environment::default(), |env, (name, value)| env.with(name, value));
            let sets: Vec<_> = on.iter().map(|set| (*set).to_owned()).chain(sets.iter().cloned()).collect();
            // Loading settings is slow, so they are cached: the cases differ in what the sources contain.
            let mut known = known.borrow_mut();
            let said = refusals(known.entry(sets.clone()).or_insert_with(|| assigned(&sets)), &env);
            match named {
                Some(named) => {
                    assert!(
                        said.len() == 1 && said[0].starts_with(key) && said[0].contains(named),
                        "{key}, {source}: {said:?}"
                    );
                    assert!(said[0].contains("; ") || named == "cannot read", "the next step: {said:?}");
                }
                None => assert!(said.is_empty(), "{key}, {source}: {said:?}"),
            }
        };
        let named_env = [format!("{key}_env=\"{variable}\"")];
        for content in ["", "  ", "\n", " \r\n\t\n"] {
            let file = dir.path().join("secret");
            std::fs::write(&file, content).unwrap();
            let file = file.to_str().unwrap();
            let what = format!("the file {file} is empty");
            check("file", &[format!("{key}_file=\"{file}\"")], &[(variable, "elsewhere")], Some(&what));
            let what = format!("the variable {variable} is set and empty");
            check("variable", &named_env, &[(variable, content)], (!optional).then_some(&what));
            if let Some(credential) = credential {
                std::fs::write(dir.path().join(credential), content).unwrap();
                let sets = if optional { vec![format!("{key}_env=\"\"")] } else { vec![] };
                let vars = [("CREDENTIALS_DIRECTORY", here)];
                check("credential", &sets, &vars, Some(&format!("the systemd credential {credential}")));
                std::fs::remove_file(dir.path().join(credential)).unwrap();
                std::fs::create_dir(dir.path().join(credential)).unwrap();
                check("broken credential", &sets, &vars, Some("cannot read"));
                std::fs::remove_dir(dir.path().join(credential)).unwrap();
            }
        }
        check("unset", &named_env, &[], (!optional).then_some(&format!("the variable {variable} is not set")));
        check("set", &named_env, &[(variable, "hush")], None);
    }
}

#[test]
fn a_token_of_characters_that_nobody_sees_is_refused_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let credentials = dir.path().to_str().unwrap();
    for (content, what) in [
        ("\u{feff}", "empty"),
        ("\u{feff}\n", "empty"),
        ("\u{200b}", "invisible"),
        ("\u{feff}\u{feff}", "invisible"),
        ("hu\u{200b}sh", "invisible"),
        ("hu\u{a0}sh", "unusual space"),
        ("\u{202e}hush", "invisible"),
        ("\u{e0041}", "invisible"),
        ("hush\u{2060}\n", "invisible"),
    ] {
        std::fs::write(&file, content).unwrap();
        std::fs::write(dir.path().join("belay_token"), content).unwrap();
        let in_file = [format!("gateway.token_file=\"{}\"", file.display())];
        let (in_file, nothing): (&[String], &[String]) = (&in_file, &[]);
        for (sets, env) in [
            (in_file, Environment::default()),
            (nothing, Environment::from([("BELAY_TOKEN", content)])),
            (nothing, Environment::from([("CREDENTIALS_DIRECTORY", credentials)])),
        ] {
            let said = refusals(&assigned(sets), &env);
            assert!(said.len() == 1 && said[0].contains(what), "{content:?}: {said:?}");
        }
    }
    std::fs::write(&file, "\u{feff}hush with blanks\r\n").unwrap();
    assert_eq!(
        found(&Names { file: Some(&file), ..NAMES }, &Environment::default()).as_deref(),
        Some("hush with blanks")
    );
}

#[test]
fn nothing_configured_at_all_is_allowed_and_a_default_variable_that_is_empty_is_not() {
    let nothing = assigned(&[]);
    assert_eq!(refusals(&nothing, &Environment::default()), Vec::<String>::new());
    for variable in ["BELAY_TOKEN", "BELAY_OPERATOR_TOKEN", "BELAY_WEBHOOK_SECRET"] {
        let said = refusals(&nothing, &Environment::from([(variable, "")]));
        assert!(said.len() == 1 && said[0].contains(variable), "{said:?}");
    }
    for variable in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TELEGRAM_BOT_TOKEN"] {
        assert_eq!(refusals(&nothing, &Environment::from([(variable, "")])), Vec::<String>::new(), "{variable}");
    }
}

#[test]
fn a_hook_is_not_sent_an_empty_token() {
    let hooks = serde_json::from_str(
        r#"[{"name":"guard","on":"agent_end","url":"https://example.org/hook","token_env":"GUARD"}]"#,
    )
    .unwrap();
    let settings = Settings { hooks, ..Settings::default() };
    assert_eq!(hook_tokens(&settings, &Environment::from([("GUARD", "hush")])).unwrap()["GUARD"].expose(), "hush");
    for env in [Environment::default(), Environment::from([("GUARD", "")]), Environment::from([("GUARD", " \n")])] {
        let problems = hook_tokens(&settings, &env).unwrap_err();
        assert_eq!((problems.len(), problems[0].key.as_str()), (1, "hooks[0].token_env"), "{problems:?}");
    }
}

#[test]
fn no_two_holders_of_a_way_in_have_the_same_secret() {
    const SHARED: &str = "0123456789abcdef";
    let mut settings = Settings::default();
    settings.channels.telegram.enabled = true;
    settings.channels.telegram.mode = TelegramMode::Webhook;
    for name in ["irc", "zulip"] {
        let adapter = AdapterConfig { token_env: name.to_uppercase(), ..AdapterConfig::default() };
        settings.channels.adapters.insert(name.to_owned(), adapter);
    }
    let ways = [
        ("BELAY_OPERATOR_TOKEN", "gateway.operator_token"),
        ("BELAY_TOKEN", "gateway.token"),
        ("BELAY_WEBHOOK_SECRET", "gateway.webhook_secret"),
        ("TELEGRAM_WEBHOOK_SECRET", "channels.telegram.secret"),
        ("IRC", "channels.adapters.irc.token"),
        ("ZULIP", "channels.adapters.zulip.token"),
    ];
    let problems = |shared: &[&str]| {
        let padded = format!(" {SHARED} ");
        let value = |env: &'static str| match shared.iter().position(|name| *name == env) {
            None => env,
            Some(0) => SHARED,
            Some(_) => padded.as_str(),
        };
        let [a, b, c, d, e, f] = ways.map(|(env, _)| (env, value(env)));
        // The bot's token lets nobody in.
        let env = Environment::from([a, b, c, d, e, f, ("TELEGRAM_BOT_TOKEN", SHARED)]);
        Secrets::find(&defaults(&settings), &env).err().unwrap_or_default()
    };
    assert!(problems(&[]).is_empty() && problems(&["IRC"]).is_empty());
    for (at, (one, key)) in ways.iter().enumerate() {
        for (two, other) in &ways[at + 1..] {
            let found = problems(&[one, two]);
            let [problem] = &found[..] else { panic!("{key} and {other}: {found:?}") };
            let said = problem.to_string();
            assert_eq!(problem.key, *key);
            assert!(
                said.contains(&format!("is the same as {other},")) && said.contains("the rights of both"),
                "{said}"
            );
            assert!(!format!("{problem:?} {said}").contains(SHARED), "{said}");
        }
    }
    assert_eq!(problems(&ways.map(|(env, _)| env)).len(), 15, "each pair of the six");
    // Nobody comes in by the secret of a webhook that is not served.
    settings.channels.telegram.mode = TelegramMode::Polling;
    let env = Environment::from([
        ("BELAY_WEBHOOK_SECRET", SHARED),
        ("TELEGRAM_WEBHOOK_SECRET", SHARED),
        ("IRC", "one"),
        ("ZULIP", "two"),
        ("TELEGRAM_BOT_TOKEN", SHARED),
    ]);
    assert!(Secrets::find(&defaults(&settings), &env).is_ok());
}

#[test]
fn credentials_that_cannot_be_read_here_are_not_taken_for_the_same() {
    let unseen = ["belay_token", "belay_operator_token"].map(|name| (name.to_owned(), Declared::Unseen));
    let env = Environment::default().with_unit("belay.service".into(), unseen.into());
    assert_eq!(refusals(&defaults(&Settings::default()), &env), Vec::<String>::new());
}
