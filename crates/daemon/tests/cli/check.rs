//! `belay check` about what the settings name.

use crate::{Home, stdout};

const HERE: [&str; 5] = ["check", "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off"];

/// What it says of these settings, and its exit code.
fn checked(home: &Home, settings: &str) -> (Option<i32>, String) {
    let file = home.0.path().join("named.toml");
    std::fs::write(&file, settings).unwrap();
    let file = file.to_str().unwrap();
    let output =
        home.command(&[&HERE[..], &["--config", file]].concat()).env("PATH", "/usr/bin:/bin").output().unwrap();
    (output.status.code(), stdout(&output))
}

#[test]
fn programs_of_hooks_that_are_missing_are_named_with_where_they_were_looked_for() {
    let home = Home::new();
    let hook = |name: &str, command: &str| {
        format!("[[hooks]]\nname = \"{name}\"\non = \"agent_end\"\ncommand = [\"{command}\"]\n")
    };
    let (code, said) = checked(&home, &hook("fine", "true"));
    assert!(code == Some(0) && said.contains("every program is there"), "{code:?} {said}");
    let plain = home.0.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let settings = [
        hook("fine", "true"),
        hook("gone", "no-such-program"),
        hook("path", "/nowhere/x"),
        hook("plain", plain.to_str().unwrap()),
    ];
    let (code, said) = checked(&home, &settings.concat());
    assert_eq!(code, Some(69), "{said}");
    for part in [
        "hooks[1].command: there is no program no-such-program in PATH (/usr/bin:/bin); the hook `gone` fails",
        "hooks[2].command: /nowhere/x: No such file",
        "plain may not be run: chmod +x it",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn rules_that_decide_nothing_are_noted_and_keep_nothing_from_starting() {
    let home = Home::new();
    let rule = |tool: &str, ask: &str| format!("[[approvals.rules]]\ntool = \"{tool}\"\nask = \"{ask}\"\n");
    let rules =
        [rule("run_*", "always"), rule("run_comand", "never"), rule("run_shell", "refuse"), rule("read_file", "never")];
    let (code, said) = checked(&home, &rules.concat());
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "approvals.rules[1].tool: no tool is called run_comand; did you mean run_command?",
        "approvals.rules[2] is never reached: approvals.rules[0] fits every call that it fits",
    ] {
        assert_eq!(said.matches(part).count(), 1, "{part}\n{said}");
    }
    assert!(!said.contains("rules[3]") && said.matches("did you mean").count() == 1, "{said}");
    let rules = rule("send_request", "always");
    let off = "approvals.rules[0].tool: send_request is off: tools.web.send_methods names no method";
    assert!(checked(&home, &rules).1.contains(off));
    let on = format!("{rules}[tools.web]\nsend_methods = [\"POST\"]\n");
    assert!(!checked(&home, &on).1.contains("is off"));
    let names = ["send_file", "send_message", "read_skill"];
    let rules: String = names.iter().map(|tool| rule(tool, "always")).collect();
    let said = checked(&home, &rules).1;
    for part in [
        "approvals.rules[0].tool: send_file is off: agent.send_file is false",
        "approvals.rules[1].tool: send_message is off: agent.send_message is false",
        "approvals.rules[2].tool: read_skill is off: skills.dirs names no directory",
    ] {
        assert_eq!(said.matches(part).count(), 1, "{part}\n{said}");
    }
    assert!(!said.contains("no tool is called"), "{said}");
    let on = format!("{rules}[agent]\nsend_file = true\nsend_message = true\n[skills]\ndirs = [\"/nowhere\"]\n");
    assert!(!checked(&home, &on).1.contains("is off"));
}

#[test]
fn workers_are_checked_as_they_are_configured() {
    let home = Home::new();
    let (code, said) = checked(&home, "[workers]\nenabled = true\nhost_tools = [\"clock\", \"calculator\"]\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("workers.host_tools[1]: no tool is called calculator; did you mean calculate?"), "{said}");
    let room = ["workers live in the sandbox of commands", "run_in_worker is not offered"];
    assert_eq!(room.iter().filter(|part| said.contains(*part)).count(), 1, "{said}");
    let (_, said) =
        checked(&home, "[workers]\nenabled = true\nhost = \"container\"\ndocker_socket = \"/nowhere/docker.sock\"\n");
    assert!(said.contains("run_in_worker is not offered: /nowhere/docker.sock"), "{said}");
}

#[test]
fn a_server_whose_program_is_missing_says_what_was_tried() {
    let home = Home::new();
    std::fs::create_dir_all(home.0.path().join(".local/share/belay/workspace")).unwrap();
    for (command, part) in [
        ("/nowhere/server", "cannot be started: /nowhere/server does not exist"),
        ("no-such-server", "cannot be started: there is no program no-such-server in PATH (/usr/bin:/bin)"),
        ("../here", "/here does not exist"),
    ] {
        let (code, said) = checked(&home, &format!("[tools.mcp.files]\ncommand = [\"{command}\"]\nsandbox = false\n"));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(part), "{part}\n{said}");
    }
    // In the workspace a command could put a program there, which would then run outside the sandbox.
    let (code, said) = checked(&home, "[tools.mcp.files]\ncommand = [\"./here\"]\nsandbox = false\n");
    assert!(code == Some(78) && said.contains("MCP server \"files\", which runs outside the sandbox"), "{said}");
}

#[test]
fn what_a_start_refuses_the_check_refuses_with_the_same_code() {
    let home = Home::new();
    let file = home.0.path().join("file");
    std::fs::write(&file, "").unwrap();
    let executor = "agent.executors.coder={description=\"writes\",tools=[\"read_fil\"]}";
    let off = "agent.executors.coder={description=\"writes\",tools=[\"run_shell\"]}";
    let workspace = format!("tools.workspace={}", file.display());
    let below = format!("store.url=sqlite://{}/belay.db", file.display());
    for (set, words) in [
        (&*workspace, "tools.workspace"),
        ("tools.workspace=/", "tools.commands.path"),
        ("store.url=sqlite:///proc/belay/belay.db", "/proc"),
        (&*below, "file"),
        (executor, "read_file"),
        (off, "run_shell"),
        ("gateway.control_group=no-such-group", "no-such-group"),
    ] {
        let sets = ["--set", "llm.provider=rehearsal", "--set", "gateway.listen=off", "--set", set];
        let [run, check] = ["run", "check"].map(|command| home.run(&[&[command][..], &sets].concat()));
        let said = stdout(&check) + &crate::stderr(&check);
        assert!(matches!(run.status.code(), Some(69 | 78)), "{set}: {run:?}");
        assert_eq!(run.status.code(), check.status.code(), "{set}: {said}\n{}", crate::stderr(&run));
        assert!(said.contains(words), "{set}: {said}");
    }
}

#[test]
fn the_secrets_of_a_unit_count_as_there_and_without_one_it_is_said_that_they_cannot_be_seen() {
    let home = Home::new();
    let token = home.0.path().join("token");
    std::fs::write(&token, "hush\n").unwrap();
    let unit = home.0.path().join("belay.service");
    let text = format!(
        "[Service]\nLoadCredential=belay_token:{}\nLoadCredentialEncrypted=telegram_bot_token:/x\n",
        token.display()
    );
    std::fs::write(&unit, text).unwrap();
    let drop_ins = home.0.path().join("belay.service.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(drop_ins.join("secret.conf"), "[Service]\nSetCredential=telegram_webhook_secret:hush-hush\n")
        .unwrap();
    let sets = [
        "check",
        "--set",
        "llm.provider=rehearsal",
        "--set",
        "gateway.listen=0.0.0.0:0",
        "--set",
        "channels.telegram.enabled=true",
        "--set",
        "channels.telegram.allow=[1]",
    ];
    let without = home.run(&sets);
    let said = crate::stderr(&without);
    assert_eq!(without.status.code(), Some(78), "{said}");
    assert!(said.contains("telegram_bot_token") && said.contains("check --unit FILE"), "{said}");

    let with = home.run(&[&sets[..], &["--unit", unit.to_str().unwrap()]].concat());
    let said = stdout(&with) + &crate::stderr(&with);
    assert_eq!(with.status.code(), Some(0), "{said}");
    for part in [
        "a token is asked for",
        "credential telegram_bot_token is known to systemd alone",
        "token and secret are there",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(!said.contains("hush"), "{said}");

    std::fs::remove_file(&token).unwrap();
    let gone = home.run(&[&sets[..], &["--unit", unit.to_str().unwrap()]].concat());
    assert!(gone.status.code() == Some(78) && stdout(&gone).contains("the unit does not start without it"), "{gone:?}");
    let missing = home.run(&["check", "--unit", "/nowhere/belay.service"]);
    assert_eq!(missing.status.code(), Some(65), "{missing:?}");
}
