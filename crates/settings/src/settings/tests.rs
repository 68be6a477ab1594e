#![allow(clippy::unwrap_used)]
use std::collections::BTreeSet;

use super::*;

fn paths(dir: &Path) -> Paths {
    Paths {
        named: Vec::new(),
        settings: vec![dir.join("etc.toml"), dir.join("user.toml")],
        data: dir.into(),
        control_socket: dir.join("s"),
    }
}

fn args(files: &[PathBuf], assignments: &[&str]) -> SettingsArgs {
    let assignments = assignments.iter().map(|&text| text.into()).collect();
    SettingsArgs { files: files.to_vec(), assignments, ..SettingsArgs::default() }
}

fn load_in<const N: usize>(dir: &Path, env: [(&str, &str); N], sets: &[&str]) -> Result<Loaded, Vec<Problem>> {
    load(&args(&[], sets), &Environment::from(env), &paths(dir))
}

fn lines(result: Result<Loaded, Vec<Problem>>) -> Vec<String> {
    result.err().unwrap_or_default().iter().map(Problem::to_string).collect()
}

#[test]
fn the_built_in_file_says_exactly_what_the_types_default_to() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load_in(dir.path(), [], &[]).map_err(|p| refused(&p).to_string()).unwrap();
    assert_eq!(loaded.settings, Settings::default());
}

/// Uncomments the lines `# key = value`, which stand for settings without a default.
fn with_unset_ones(text: &str) -> String {
    let is_setting = |line: &&str| {
        let key = line.strip_prefix("# ").and_then(|rest| rest.split_once(" = ")).map(|(key, _)| key);
        key.is_some_and(|key| !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    };
    let lines = text.lines().map(|line| if is_setting(&line) { &line[2..] } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_setting_is_explained_in_the_built_in_file_and_no_other() {
    let whole: toml::Value = toml::from_str(&with_unset_ones(layers::DEFAULT_TOML)).unwrap();
    let known: BTreeSet<String> = Settings::known_keys().into_iter().collect();
    let mut written = Vec::new();
    collect_keys(&serde_json::to_value(&whole).unwrap(), "", &mut written);
    // A setting that is a table (a price) counts as one setting.
    let owner = |key: String| match key.rsplit_once('.') {
        Some((table, _)) if known.contains(table) => table.to_owned(),
        _ => key,
    };
    assert_eq!(written.into_iter().map(owner).collect::<BTreeSet<_>>(), known);
    // The examples in the comments have the right types.
    serde_json::from_value::<Settings>(serde_json::to_value(&whole).unwrap()).unwrap();
}

#[test]
fn a_service_passes_over_a_settings_file_of_its_user_that_it_may_not_see() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("home"), "").unwrap();
    let file = dir.path().join("home/.config/belay/belay.toml");
    let paths = Paths { settings: vec![dir.path().join("etc.toml"), file.clone()], ..paths(dir.path()) };
    let load = |env: &Environment, named: &[PathBuf]| load(&args(named, &[]), env, &paths);
    let service = Environment::from([("STATE_DIRECTORY", "/var/lib/belay")]);

    let loaded = load(&service, &[]).unwrap();
    assert_eq!(loaded.hidden, [format!("{}: Not a directory (os error 20)", file.display())]);
    assert_eq!(loaded.settings, Settings::default());

    let refused = [format!("{}: cannot be read: Not a directory (os error 20)", file.display())];
    assert_eq!(lines(load(&Environment::default(), &[])), refused, "a person is told");
    assert_eq!(lines(load(&service, std::slice::from_ref(&file))), refused, "a named file has to be there");
}

/// Runs it without root's right to read all files.
fn without_root_rights<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let without = || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap(); // of this thread alone
        work()
    };
    std::thread::scope(|scope| scope.spawn(without).join().unwrap())
}

#[test]
fn a_settings_file_that_a_service_finds_and_may_not_read_is_refused_and_one_in_a_home_that_is_closed_to_it_is_not() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users/home/.config/belay/belay.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "[gateway]\ntoken_env = \"ASKED_FOR\"\n").unwrap();
    let paths = Paths { settings: vec![dir.path().join("etc.toml"), file.clone()], ..paths(dir.path()) };
    let service = Environment::from([("STATE_DIRECTORY", "/var/lib/belay")]);
    let refused = [format!("{}: cannot be read: Permission denied (os error 13)", file.display())];
    for (closed, skipped) in [
        ("users/home/.config/belay/belay.toml", false),
        ("users/home/.config/belay", false),
        ("users/home/.config", false),
        ("users/home", true),
        ("users", true),
    ] {
        let mode = |mode| {
            std::fs::set_permissions(dir.path().join(closed), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o000);
        let read = without_root_rights(|| load(&args(&[], &[]), &service, &paths));
        mode(0o755);
        match read {
            Ok(loaded) => assert_eq!((loaded.hidden.len(), skipped), (1, true), "{closed}"),
            Err(problems) => assert_eq!((lines(Err(problems)), skipped), (refused.to_vec(), false), "{closed}"),
        }
    }
}

#[test]
fn every_example_file_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let file = entry.unwrap().path();
        let read = load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path()));
        assert_eq!(lines(read), Vec::<String>::new(), "{}", file.display());
        seen += 1;
    }
    assert!(seen >= 5, "the examples have been found");
}

#[test]
fn later_layers_win_and_each_value_knows_where_it_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("named.toml");
    std::fs::write(dir.path().join("etc.toml"), "[llm]\nmodel = \"etc\"\nmax_tokens = 1\n[queue]\ncap = 5").unwrap();
    std::fs::write(dir.path().join("user.toml"), "[llm]\nmodel = \"user\"\nmax_attempts = 2").unwrap();
    std::fs::write(&named, "llm.idle_timeout_s = 7\nagent.drain_s = 3").unwrap();
    let env = Environment::from([("BELAY__AGENT__DRAIN_S", "4"), ("BELAY__LLM__MODEL", "env"), ("BELAY_TOKEN", "x")]);
    let loaded = load(&args(&[named], &["llm.model=4", "queue.cap=6"]), &env, &paths(dir.path())).unwrap();

    let settings = &loaded.settings;
    assert_eq!(settings.llm.model.as_deref(), Some("4"), "a number is text where text is wanted");
    assert_eq!((settings.llm.max_tokens, settings.llm.max_attempts, settings.llm.idle_timeout_s), (1, 2, 7));
    assert_eq!((settings.agent.drain_s, settings.queue.cap), (4, 6));
    let at = |file: &str, line: u32| format!("{}, line {line}", dir.path().join(file).display());
    for (key, origin) in [
        ("llm.model", "--set llm.model".to_owned()),
        ("llm.max_tokens", at("etc.toml", 3)),
        ("llm.max_attempts", at("user.toml", 3)),
        ("llm.idle_timeout_s", at("named.toml", 1)),
        ("agent.drain_s", "environment variable BELAY__AGENT__DRAIN_S".into()),
        ("queue.cap", "--set queue.cap".into()),
        ("gateway.listen", BUILT_IN.into()),
    ] {
        assert_eq!(loaded.origins.of(key), Some(origin.as_str()), "{key}");
    }
}

#[test]
fn three_mistakes_are_three_problems_each_with_key_place_and_hint() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("user.toml");
    std::fs::write(&file, "[llm]\nmax_tokns = 5\n\n[agent]\nmax_tool_iterations = \"ten\"\n\n[queue]\ncap = 0\n")
        .unwrap();
    let file = file.display();
    let shown = lines(load_in(dir.path(), [], &[]));
    assert_eq!(
        shown.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        BTreeSet::from([
            format!("llm.max_tokns: unknown key ({file}, line 2); did you mean llm.max_tokens?").as_str(),
            format!("agent.max_tool_iterations: expected a whole number, 0 or more, found text ({file}, line 5)")
                .as_str(),
            format!("queue.cap: must be between 1 and 1000 ({file}, line 8)").as_str(),
        ])
    );
}

#[test]
fn every_kind_of_mistake_has_its_message() {
    for (set, message) in [
        ("llm.provider", "--set: has no `=`; write --set section.key=value, for example --set llm.provider=rehearsal"),
        (
            "model=x",
            "model: is not the name of a setting (--set model); a setting is named section.key, for example llm.model",
        ),
        ("gatway.listen=x", "gatway: unknown section (--set gatway.listen); did you mean gateway?"),
        ("gateway.lisen=x", "gateway.lisen: unknown key (--set gateway.lisen); did you mean gateway.listen?"),
        (
            "stops.tool_loops.repeats=4",
            "stops.tool_loops.repeats: unknown key (--set stops.tool_loops.repeats); it is always 5 now: leave it out",
        ),
        ("llm.max_tokens=-1", "llm.max_tokens: expected a whole number, 0 or more, found -1 (--set llm.max_tokens)"),
        (
            "telemetry.format=jason",
            "telemetry.format: expected one of auto, human, json (--set telemetry.format); did you mean json?",
        ),
        (
            "channels.telegram.enabled=yes",
            "channels.telegram.enabled: expected true or false, found text (--set channels.telegram.enabled)",
        ),
        (
            "channels.telegram.allow=[\"bob\"]",
            "channels.telegram.allow: expected a whole number, 0 or more, found text (--set channels.telegram.allow)",
        ),
        (
            "llm=5",
            "llm: is not the name of a setting (--set llm); a setting is named section.key, for example llm.model",
        ),
        ("llm.price_usd={input=1,output=2,x=3}", "llm.price_usd.x: unknown key (--set llm.price_usd)"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let shown = lines(load_in(dir.path(), [], &[set]));
        assert!(shown.len() == 1 && shown[0].starts_with(message), "{set}:\n{shown:#?}\n{message}");
    }
}

#[test]
fn a_number_that_is_not_finite_is_refused_and_never_counts_as_unset() {
    let dir = tempfile::tempdir().unwrap();
    for number in ["nan", "-nan", "inf", "+inf", "-inf", "1e999"] {
        let key = "limits.usd_per_run";
        let set = lines(load_in(dir.path(), [], &[&format!("{key}={number}")]));
        assert_eq!(set, [format!("{key}: must be a finite number (--set {key})")]);
        let env = lines(load_in(dir.path(), [("BELAY__LIMITS__USD_PER_RUN", number)], &[]));
        assert_eq!(env, [format!("{key}: must be a finite number (environment variable BELAY__LIMITS__USD_PER_RUN)")]);
        let file = dir.path().join("named.toml");
        let rule = "[[stops.rules]]\nname = \"x\"\nwhen = { run_usd = ";
        std::fs::write(&file, format!("[limits]\nusd_per_day = {number}\n{rule}{number} }}\n")).unwrap();
        let shown = lines(load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path())));
        let file = file.display();
        let expected = [
            format!("limits.usd_per_day: must be a finite number ({file}, line 2)"),
            format!("stops.rules[0].when.run_usd: must be a finite number ({file}, line 5)"),
        ];
        assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), expected.into());
    }
    assert!(load_in(dir.path(), [], &["limits.usd_per_run=1e9"]).is_ok());
    let loaded = load_in(dir.path(), [], &["llm.model=\"nan\""]).unwrap();
    assert_eq!(loaded.settings.llm.model.as_deref(), Some("nan"), "quoted, it is text");
}

#[test]
fn each_rule_that_cannot_be_read_is_named_and_none_hides_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("named.toml");
    let rules = [
        "name = \"fine\"\nwhen = { steps = 3 }",
        "name = \"key\"\nwhn = { steps = 3 }",
        "name = \"condition\"\nwhen = { any = [{ step = 3 }] }",
        "when = { steps = 3 }",
        "name = \"then\"\nwhen = { steps = 3 }\nthen = \"stopp\"",
        "name = 5\nwhen = { steps = 3 }",
        "name = \"inner\"\nwhen = { tool_calls_of = { tool = \"x\", cuont = 1 } }",
    ];
    let rules = rules.map(|rule| format!("[[stops.rules]]\n{rule}\n")).concat();
    std::fs::write(&file, format!("[queue]\ncap = 0\n{rules}")).unwrap();
    let shown = lines(load(&args(&[file], &[]), &Environment::default(), &paths(dir.path())));
    for (key, line, what) in [
        ("[1].whn", 8, "`key`: unknown key"),
        ("[2].when.any[0]", 11, "`condition`: unknown condition `step`; did you mean `steps`?"),
        ("[3]", 12, "missing field `name`"),
        ("[4].then", 17, "`then`: expected one of notice, strike, stop"),
        ("[5].name", 19, "expected text in quotes, found 5"),
        ("[6].when.tool_calls_of.cuont", 23, "`inner`: unknown key"),
    ] {
        let (begins, place) = (format!("stops.rules{key}: {what}"), format!(", line {line})"));
        assert!(
            shown.iter().any(|shown| shown.starts_with(&begins) && shown.contains(&place)),
            "{begins}{place}\n{shown:#?}"
        );
    }
    assert!(shown.iter().any(|line| line.contains("whn") && line.ends_with("did you mean when?")), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("cuont") && line.ends_with("did you mean count?")), "{shown:#?}");
    assert!(shown.len() == 7 && shown.iter().any(|line| line.starts_with("queue.cap")), "{shown:#?}");
}

#[test]
fn each_approval_rule_that_cannot_be_read_is_named_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("named.toml");
    let rules = [
        "tool = \"a\"\nask = \"never\"",
        "tool = 7\nask = \"never\"",
        "tool = \"b\"\nask = \"nevr\"",
        "tol = \"c\"",
        "tool = \"\"\nask = \"never\"",
    ];
    let write = |rules: &[&str]| {
        let rules: String = rules.iter().map(|rule| format!("[[approvals.rules]]\n{rule}\n")).collect();
        std::fs::write(&file, rules).unwrap();
        lines(load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path())))
    };
    let at = |line: u32| format!("({}, line {line})", file.display());
    let expected = [
        format!("approvals.rules[1].tool: expected text in quotes, found 7 {}", at(5)),
        format!(
            "approvals.rules[2].ask: expected one of never, unless_approved, always, refuse {}; did you mean never?",
            at(9)
        ),
        format!("approvals.rules[3].tol: unknown key {}; did you mean tool?", at(11)),
    ];
    assert_eq!(write(&rules[..4]).into_iter().collect::<BTreeSet<_>>(), expected.into());
    assert_eq!(
        write(&rules[4..]),
        [format!("approvals.rules[0].tool: must not be empty; `*` fits anything {}", at(2))]
    );
}

#[test]
fn each_hook_that_cannot_be_used_is_named_with_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("named.toml");
    let fine = "name = \"fine\"\non = \"agent_end\"\ncommand = [\"true\"]";
    let shown = |hooks: &[&str]| {
        let hooks: String = hooks.iter().map(|hook| format!("[[hooks]]\n{hook}\n")).collect();
        std::fs::write(&file, hooks).unwrap();
        lines(load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path())))
    };
    assert_eq!(shown(&[fine]), Vec::<String>::new());
    let wrong = shown(&[fine, "nmae = \"a\"", "name = \"b\"\non_failure = \"shut\""]);
    assert_eq!(wrong.len(), 2, "{wrong:#?}");
    assert!(
        wrong[0].starts_with("hooks[1].nmae: unknown key (") && wrong[0].ends_with("did you mean name?"),
        "{wrong:#?}"
    );
    assert!(wrong[1].starts_with("hooks[2].on_failure: `b`: expected open or closed ("), "{wrong:#?}");
    let wrong = shown(&[fine, "name = \"b\"\non = \"agent_ends\"\ncommand = [\"true\"]"]);
    let begins = "hooks[1].on: there is no point \"agent_ends\"; did you mean agent_end? (";
    assert!(wrong.len() == 1 && wrong[0].starts_with(begins), "{wrong:#?}");
}

#[test]
fn a_rule_above_the_steps_of_every_kind_of_agent_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("named.toml");
    let problem = |agent: &str, steps: u32| {
        let rule = format!("[[stops.rules]]\nname = \"late\"\nwhen = {{ steps = {steps} }}\nthen = \"notice\"\n");
        std::fs::write(&file, format!("{agent}\n[jobs]\nmax_steps = 1\n{rule}")).unwrap();
        let shown = lines(load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path())));
        assert!(shown.iter().all(|line| line.starts_with("stops.rules[0]: `late` can never fire")), "{shown:#?}");
        !shown.is_empty()
    };
    let no_subagents = "[agent]\nsubagents.max_turns = 0\n";
    for (agent, last) in [
        ("", 30),
        ("[agent]\nmax_tool_iterations = 40\n", 41),
        (no_subagents, 20),
        ("[agent]\nmax_tool_iterations = 25\nsubagents.max_turns = 0\n", 26),
        ("[agent]\nmax_tool_iterations = 1\nsubagents.max_turns = 1\n", 20),
        ("[agent.executors.deep]\ndescription = \"x\"\nmax_steps = 50\n", 50),
    ] {
        assert_eq!((problem(agent, last), problem(agent, last + 1)), (false, true), "{agent}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let broken = write("broken.toml", b"[llm]\nmodel = \n[queue]\ncap = 1\n");
    let latin = write("latin.toml", b"[llm]\nmodel = \"caf\xe9\"\n");
    let missing = dir.path().join("missing.toml");
    let files = [broken.clone(), latin, missing, dir.path().into()];
    let shown = lines(load(&args(&files, &["queue.capp=1"]), &Environment::default(), &paths(dir.path())));
    assert!(shown[0].starts_with(&format!("{}, line 2, column", broken.display())), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("latin.toml: is not UTF-8")), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("missing.toml: cannot be read")), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("is a directory")), "{shown:#?}");
    assert!(
        shown.iter().any(|line| line.starts_with("queue.capp: unknown key")),
        "other layers are read on: {shown:#?}"
    );
}

#[test]
fn a_secret_in_the_wrong_place_is_refused_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    for (key, value) in [
        ("llm.api_key_env", "sk-hush0123456789"),
        ("llm.api_key", "sk-hush0123456789"),
        ("llm.api_key_envs", "[\"GOOD\", \"sk-hush0123456789\"]"),
        ("llm.fallbacks", "[{ provider = \"groq\", model = \"m\", api_key_env = \"sk-hush0123456789\" }]"),
        ("channels.telegram.token", "123:hush"),
        ("channels.telegram.token_env", "123:hush"),
        ("gateway.token", "hush"),
        ("llm.max_tokens", "sk-hush"),
    ] {
        let set = format!("{key}={value}");
        let shown = lines(load_in(dir.path(), [], &[&set]));
        assert_eq!(shown.len(), 1, "{set}: {shown:#?}");
        assert!(shown[0].starts_with(key) && !shown[0].contains("hush"), "{shown:#?}");
    }
}

#[test]
fn show_prints_toml_that_reads_back_with_origins_and_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let sets = [
        "channels.telegram.api_base=http://user:hush@h/v1",
        "channels.telegram.allow=[1, 2]",
        "llm.extra_body={a.b=1}",
        "llm.api_key_envs=[\"SECOND_KEY\"]",
        "llm.fallbacks=[{ provider = \"groq\", model = \"m\", api_key_env = \"THEIR_KEY\" }]",
    ];
    let env = [("BELAY__QUEUE__CAP", "3"), ("OPENAI_API_KEY", "hush"), ("BELAY__LLM__MODEL", "a \"b\" \u{1b}")];
    let loaded = load_in(dir.path(), env, &sets).unwrap();
    let shown = as_toml(&loaded);
    assert!(!shown.contains("hush"), "{shown}");
    let cap = shown.lines().find(|line| line.starts_with("cap = 3 ")).unwrap_or_default();
    assert!(cap.ends_with("# environment variable BELAY__QUEUE__CAP"), "{shown}");
    assert!(shown.contains("# usd_per_day =") && shown.contains("# not set"), "{shown}");
    assert!(shown.contains("listen = \"127.0.0.1:8787\"") && shown.contains("# default"), "{shown}");

    let back: Settings = toml::from_str(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    let mut expected = loaded.settings.clone();
    expected.channels.telegram.api_base = "http://user:***@h/v1".into();
    assert_eq!(back, expected);
    assert!(!as_json(&loaded).to_string().contains("hush"));
    assert_eq!(
        as_json(&loaded)["queue.cap"],
        serde_json::json!({"value": 3, "origin": "environment variable BELAY__QUEUE__CAP"})
    );
}

#[test]
fn hostile_names_and_values_are_problems_and_never_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    for set in [
        "llm.x[99999999999]=1",
        "a.b.c.d.e=1",
        ".=1",
        "..=",
        "llm.=1",
        "=",
        "llm.model.deep=1",
        "llm.max_tokens=99999999999999999999",
    ] {
        assert!(!lines(load_in(dir.path(), [], &[set])).is_empty(), "{set}");
    }
    for text in [
        "\"a[99999999]\" = 1",
        "[\"x.y[0]\"]\nz = 1",
        "llm = 5",
        "llm = [1]",
        "[[llm]]",
        "a = 1\na = 2",
        "\u{0}",
        "[llm.price_usd]\ninput = {}",
    ] {
        let file = dir.path().join("hostile.toml");
        std::fs::write(&file, text).unwrap();
        let read = load(&args(&[file], &[]), &Environment::default(), &paths(dir.path()));
        assert!(!lines(read).is_empty(), "{text:?}");
    }
}

#[test]
fn an_unknown_key_in_any_section_is_named_with_its_file_its_line_and_the_nearest_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("unknown.toml");
    let said = |text: &str| {
        std::fs::write(&file, text).unwrap();
        lines(load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path())))
    };
    let known = Settings::known_keys();
    let mut sections: Vec<(&str, &str)> = known.iter().filter_map(|key| key.rsplit_once('.')).collect();
    sections.sort_unstable();
    sections.dedup_by_key(|(section, _)| *section);
    assert!(sections.len() > 20, "{sections:?}");
    // All in one file: no mistake hides another.
    let (mut text, mut expected) = (String::new(), Vec::new());
    for (section, name) in &sections {
        text.push_str(&format!("[{section}]\nzzz_unknown = 1\n{name}x = 1\n"));
        let line = text.lines().count();
        expected.push((format!("{section}.zzz_unknown: unknown key ({}, line {}); ", file.display(), line - 1), ""));
        expected.push((format!("{section}.{name}x: unknown key ({}, line {line}); ", file.display()), "did you mean"));
    }
    let shown = said(&text);
    assert_eq!(shown.len(), expected.len(), "{shown:#?}");
    for (start, hint) in expected {
        assert!(shown.iter().any(|line| line.starts_with(&start) && line.contains(hint)), "{start}: {shown:#?}");
    }
    for (text, key, near) in [
        (
            "[[llm.fallbacks]]\nprovider = \"groq\"\nmodell = \"m\"\n",
            "llm.fallbacks[0].modell",
            "llm.fallbacks[0].model",
        ),
        ("[tools.mcp.x]\nurl = \"https://h/\"\nenabld = true\n", "tools.mcp.x.enabld", "tools.mcp.x.enabled"),
        (
            "[skills.entries.x]\nenabled = true\napi_key_en = \"X\"\n",
            "skills.entries.x.api_key_en",
            "skills.entries.x.api_key_env",
        ),
        (
            "[agent.executors.x]\ndescription = \"d\"\nmax_step = 3\n",
            "agent.executors.x.max_step",
            "agent.executors.x.max_steps",
        ),
    ] {
        let shown = said(text);
        let expected = format!("{key}: unknown key ({}, line 3); did you mean {near}?", file.display());
        assert!(shown.contains(&expected), "{shown:?}");
    }
    for (text, key) in [
        ("\n[limits]\nusd_per_run = \"much\"\n", "limits.usd_per_run: expected a number, found text"),
        ("\n[limits]\nusd_per_day = true\n", "limits.usd_per_day: expected a number, found true"),
    ] {
        let shown = said(text);
        let expected = format!("{key} ({}, line 3)", file.display());
        assert_eq!(shown, [expected]);
    }
}

#[test]
fn a_mistake_is_reported_once_with_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("named.toml");
    let said = |text: &str| {
        std::fs::write(&file, text).unwrap();
        lines(load(&args(std::slice::from_ref(&file), &[]), &Environment::default(), &paths(dir.path())))
    };
    let at = |line: u32| format!("({}, line {line})", file.display());
    let price = said("[llm]\nprice_usd = { input = \"much\", output = 2 }\n");
    assert!(price.len() == 1 && price[0].starts_with("llm.price_usd.input: expected a"), "{price:?}");
    let price = said("[llm]\nprice_usd = { output = 2 }\n");
    assert!(price.len() == 1 && price[0].starts_with("llm.price_usd: missing field `input`"), "{price:?}");
    let empty = said("\n[gateway.mcp]\n");
    assert_eq!(empty, [format!("gateway.mcp: expected true or false, found a section {}", at(2))]);
    let foo = said("[agent.subagents]\nfoo = 1\n");
    let begins = format!("agent.subagents.foo: unknown key {}; [agent.subagents] has ", at(2));
    assert!(foo.len() == 1 && foo[0].starts_with(&begins), "{foo:?}");
}

#[test]
fn show_masks_secrets_in_free_tables_and_addresses_and_nothing_of_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let defaults = load_in(dir.path(), [], &[]).unwrap();
    assert!(!as_toml(&defaults).contains("***") && !as_json(&defaults).to_string().contains("***"));
    let sets = [
        "tools.mcp.y={url=\"https://h.example.org/mcp?key=hush&api-version=3\"}",
        "llm.extra_body={api_key=\"hush\",list=[{secret=\"hush\"}],top_k=4}",
        "tools.mcp.x={command=[\"serve\",\"--token\",\"hush\"],env={MY_API_KEY=\"hush\"}}",
    ];
    let refused = lines(load_in(dir.path(), [], &["llm.base_url=https://u:hush@h.example.org/v1?key=hush"]));
    assert!(refused.len() == 1 && !refused[0].contains("hush") && refused[0].contains("h.example.org"), "{refused:?}");
    let loaded = load_in(dir.path(), [], &sets).unwrap();
    for shown in [as_toml(&loaded), as_json(&loaded).to_string()] {
        assert!(!shown.contains("hush"), "{shown}");
        for kept in ["api-version=3", "top_k", "serve", "MY_API_KEY"] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
    }
    // Not all addresses of PostgreSQL are URLs.
    for address in ["u:hush@h.example.org/d", "u:hush@h.example.org:1,i:2/d", "u:hush@/d?host=/h.example.org"] {
        let loaded = load_in(dir.path(), [], &[&format!("store.url=postgres://{address}")]).unwrap();
        for shown in [as_toml(&loaded), as_json(&loaded).to_string()] {
            assert!(!shown.contains("hush"), "{shown}");
        }
    }
}

#[test]
fn a_list_in_the_place_of_a_section_is_refused_in_every_section() {
    let dir = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = dir.path().join("belay.toml");
        std::fs::write(&path, text).unwrap();
        lines(load(&args(&[path], &[]), &Environment::default(), &paths(dir.path())))
    };
    let tree = serde_json::to_value(Settings::default()).unwrap();
    let mut sections = Vec::new();
    collect_sections(&tree, "", &mut sections);
    assert!(sections.len() > 30, "{sections:?}");
    for section in &sections {
        let shown = file(&format!("{section} = []\n"));
        let expected = format!("{section}: expected a section, found a list");
        assert!(shown.iter().any(|line| line.starts_with(&expected)), "{section}: {shown:#?}");
    }
    let shown = file("sessions = [\"daily\"]\n");
    assert!(
        shown[0].starts_with("sessions: expected a section, found a list") && shown[0].contains("line 1"),
        "{shown:#?}"
    );
    assert_eq!(
        file(
            "[gateway]\ncors_origins = []\n[channels.telegram]\nallow = []\n[[hooks]]\nname = \"h\"\non = \"agent_end\"\ncommand = [\"true\"]\n"
        ),
        Vec::<String>::new()
    );
}

#[test]
fn a_value_in_the_place_of_a_section_is_refused_also_if_a_later_source_sets_a_key_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (base, over) = (dir.path().join("base.toml"), dir.path().join("over.toml"));
    std::fs::write(&base, "[[approvals.rules]]\ntool = \"run_command\"\nask = \"refuse\"\n").unwrap();
    for (value, kind) in [("[]", "a list"), ("\"x\"", "a text"), ("3", "a number"), ("true", "true or false")] {
        std::fs::write(&over, format!("approvals = {value}\n")).unwrap();
        let sets = ["approvals.autonomous_expires_s=100"];
        let shown =
            lines(load(&args(&[base.clone(), over.clone()], &sets), &Environment::default(), &paths(dir.path())));
        let expected = format!("approvals: expected a section, found {kind}");
        assert!(shown.len() == 1 && shown[0].starts_with(&expected) && shown[0].contains("line 1"), "{shown:#?}");
    }
}

/// The names of all tables.
fn collect_sections(value: &Json, key: &str, sections: &mut Vec<String>) {
    let Json::Object(table) = value else { return };
    if !key.is_empty() {
        sections.push(key.to_owned());
    }
    for (name, value) in table {
        collect_sections(value, &if key.is_empty() { name.clone() } else { format!("{key}.{name}") }, sections);
    }
}

#[test]
fn a_settings_file_that_may_never_end_is_refused_without_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let long = dir.path().join("long.toml");
    std::fs::write(&long, "#".repeat(1024 * 1024 + 1)).unwrap();
    for (path, words) in [
        (pipe.as_path(), "is no regular file"),
        (Path::new("/dev/zero"), "is no regular file"),
        (&long, "is longer than"),
    ] {
        let shown = lines(load(&args(&[path.to_owned()], &[]), &Environment::default(), &paths(dir.path())));
        assert!(shown.len() == 1 && shown[0].contains(words), "{}: {shown:#?}", path.display());
    }
}

#[test]
fn no_program_may_choose_the_sessions_of_a_channel_of_people() {
    let sections = serde_json::to_value(ChannelsConfig::default()).unwrap();
    let sections = sections.as_object().unwrap().keys().map(String::as_str).filter(|name| *name != "adapters");
    // The sessions of the channel http belong to the programs themselves.
    for name in sections.chain(CHANNELS.iter().copied().filter(|name| *name != "http")) {
        assert!(CHANNELS.contains(&name) && RESERVED_KEYS.contains(&name), "{name}");
    }
}

#[test]
fn a_path_for_telegram_that_the_gateway_serves_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (path, mode, is_refused) in [
        ("/livez", "webhook", true),
        ("/api/v1/messages", "webhook", true),
        ("/webhook", "webhook", true),
        ("/telegram/webhook", "webhook", false),
        ("/livez", "polling", false),
    ] {
        let path = format!("channels.telegram.webhook_path={path:?}");
        let mode = format!("channels.telegram.mode={mode:?}");
        let shown = lines(load_in(dir.path(), [], &["channels.telegram.enabled=true", &path, &mode]));
        let is_named = shown.iter().any(|line| line.starts_with("channels.telegram.webhook_path: is a route of Belay"));
        assert_eq!(is_named, is_refused, "{path} {mode}: {shown:#?}");
    }
}
