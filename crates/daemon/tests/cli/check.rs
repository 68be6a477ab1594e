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
