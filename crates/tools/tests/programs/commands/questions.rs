//! What a person is shown before a command runs, and what their answer is bound to.

use belay_protocol::{Ask, CallPreview, ToolFailure};
use belay_tools::config::CommandsConfig;
use belay_tools::sandbox::{Policy, SandboxConfig};
use serde_json::{Value, json};

use super::support::{Fixture, fixture, fixture_with, fixture_without_sandbox};

fn bound<'a>(weight: &'a CallPreview, name: &str) -> &'a str {
    weight.bound.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

#[tokio::test]
async fn a_command_is_shown_as_one_line_that_hides_nothing() {
    let fixture = fixture(Policy::Off);
    for (arguments, summary, covers, ask) in [
        (json!({"argv": ["ls", "-l"]}), "ls -l", Some("ls"), None),
        (json!({"argv": ["ls", "a b"], "directory": "./sub/"}), "ls 'a b' (in sub)", Some("ls"), None),
        (json!({"argv": ["cat", "x\u{202e}y\n"]}), "cat $'x\\u202ey\\n'", Some("cat"), None),
        (json!({"argv": ["find", ".", "-exec", "rm", "{}", ";"]}), "find . -exec rm '{}' ';'", None, Some(Ask::Always)),
        (json!({"argv": ["sh", "-c", "echo hi"]}), "sh -c 'echo hi'", None, Some(Ask::Always)),
    ] {
        let weight = fixture.preview(arguments.clone()).await.unwrap();
        let found = (weight.summary.as_str(), weight.covers.as_deref(), weight.ask);
        assert_eq!(found, (summary, covers, ask), "{arguments}");
        assert_eq!(!bound(&weight, "caution").is_empty(), ask.is_some(), "{arguments}");
    }
}

/// The weight before and after something changes.
async fn changes(fixture: &Fixture, arguments: &Value, change: impl FnOnce()) -> (CallPreview, CallPreview) {
    let before = fixture.preview(arguments.clone()).await.unwrap();
    assert_eq!(fixture.preview(arguments.clone()).await.unwrap(), before, "the same world weighs the same");
    change();
    (before, fixture.preview(arguments.clone()).await.unwrap())
}

#[tokio::test]
async fn an_answer_is_bound_to_the_files_that_are_named() {
    let fixture = fixture(Policy::Off);
    fixture.write("build.sh", "#!/bin/sh\necho 1\n", 0o755);
    fixture.write("sub/script.py", "print(1)\n", 0o644);
    fixture.write("options.txt", "a", 0o644);
    for (arguments, file, name) in [
        (json!({"argv": ["./build.sh"]}), "build.sh", "file build.sh"),
        (json!({"argv": ["sh", "script.py"], "directory": "sub"}), "sub/script.py", "file sub/script.py"),
        (json!({"argv": ["grep", "--file=options.txt", "x"]}), "options.txt", "file options.txt"),
    ] {
        let (before, after) =
            changes(&fixture, &arguments, || std::fs::write(fixture.inside(file), "changed").unwrap()).await;
        assert_ne!(bound(&before, name), "", "{arguments}: {before:?}");
        assert_ne!(bound(&before, name), bound(&after, name), "{arguments}");
    }
    std::os::unix::fs::symlink("../secret", fixture.inside("out")).unwrap();
    let weight = fixture.preview(json!({"argv": ["cat", "out", "../secret", "/etc/passwd"]})).await.unwrap();
    assert!(weight.bound.iter().all(|(name, _)| !name.starts_with("file ")), "{weight:?}");
}

#[tokio::test]
async fn an_answer_is_bound_to_input_directory_environment_and_policy() {
    let fixture = fixture(Policy::Off);
    let weight = |arguments: Value| async { fixture.preview(arguments).await.unwrap().bound };
    let plain = weight(json!({"argv": ["cat"]})).await;
    for other in [
        json!({"argv": ["cat"], "stdin": "x"}),
        json!({"argv": ["cat"], "directory": "sub"}),
        json!({"argv": ["cat", ""]}),
    ] {
        assert_ne!(weight(other.clone()).await, plain, "{other}");
    }
    let open = fixture.preview(json!({"argv": ["cat"], "background": true})).await.unwrap();
    assert!(bound(&open, "stdin").starts_with("open: "), "{open:?}");
    let environment = [("CARGO_HOME".to_owned(), "/srv/cargo".to_owned())].into();
    let commands = CommandsConfig { environment, ..CommandsConfig::default() };
    let off = SandboxConfig { policy: Policy::Off, ..SandboxConfig::default() };
    let other = fixture_with(off.clone(), commands).preview(json!({"argv": ["cat"]})).await.unwrap();
    assert_ne!(bound(&other, "environment"), "");
    assert!(plain.iter().all(|(name, value)| name != "environment" || value != bound(&other, "environment")));
    let networked = fixture_with(SandboxConfig { network: true, ..off }, CommandsConfig::default());
    let policy = networked.preview(json!({"argv": ["cat"]})).await.unwrap();
    assert_eq!(
        (
            bound(&policy, "policy"),
            plain.iter().any(|(_, value)| value == "off, no sandbox: everything that Belay's user may do")
        ),
        ("off, no sandbox: everything that Belay's user may do", true)
    );
}

#[tokio::test]
async fn without_walls_nothing_runs_and_nobody_is_asked() {
    let fixture = fixture_without_sandbox();
    let answers = [
        fixture.run(json!({"argv": ["touch", "ran"]})).await.err(),
        fixture.preview(json!({"argv": ["touch", "ran"]})).await.err(),
        fixture.call("run_shell", json!({"script": "touch ran"}), &fixture.context()).await.err(),
    ];
    for answer in answers {
        let Some(ToolFailure::Denied(text)) = answer else { panic!("{answer:?}") };
        assert!(text.contains("bubblewrap is not installed"), "{text}");
    }
    assert!(!fixture.inside("ran").exists());
}

#[tokio::test]
async fn the_operators_lists_are_heeded_by_name_and_by_path() {
    let lists = |allow: &[&str], deny: &[&str]| CommandsConfig {
        allow: allow.iter().map(|glob| (*glob).to_owned()).collect(),
        deny: deny.iter().map(|glob| (*glob).to_owned()).collect(),
        ..CommandsConfig::default()
    };
    let off = SandboxConfig { policy: Policy::Off, ..SandboxConfig::default() };
    for (allow, deny, argv, runs) in [
        (&["*"][..], &["true"][..], "true", false),
        (&["*"], &["*/true"], "true", false),
        (&["*"], &["tr?e"], "/usr/bin/true", false),
        (&["ls", "tru*"], &[], "true", true),
        (&["ls"], &[], "true", false),
        (&["/usr/bin/*"], &[], "true", true),
        (&["*"], &["./tool"], "./tool", true),
        (&["*"], &["tool"], "./tool", false),
    ] {
        let fixture = fixture_with(off.clone(), lists(allow, deny));
        fixture.write("tool", "#!/bin/sh\n", 0o755);
        let answer = fixture.run(json!({"argv": [argv]})).await;
        match (&answer, runs) {
            (Ok(_), true) => {}
            (Err(ToolFailure::Denied(text)), false) => assert!(text.contains("tools.commands."), "{text}"),
            _ => panic!("{allow:?} {deny:?} {argv}: {answer:?}"),
        }
        assert_eq!(fixture.preview(json!({"argv": [argv]})).await.is_ok(), runs, "both look the same way");
    }
    let usual = fixture(Policy::Off).preview(json!({"argv": ["su", "-c", "id"]})).await;
    assert!(matches!(usual, Err(ToolFailure::Denied(_))), "{usual:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_bound_to_every_file_is_not_asked_for() {
    let fixture = fixture(Policy::Off);
    let mut argv = vec!["cat".to_owned()];
    for at in 0..65 {
        fixture.write(&format!("f{at}"), "x", 0o644);
        argv.push(format!("f{at}"));
    }
    let weight = fixture.preview(json!({ "argv": argv })).await.unwrap();
    let why = weight.unbound.unwrap();
    assert!(why.contains("more than 64 files") && why.contains("name fewer"), "{why}");
    // The same file again is no other file, and what is no file needs no binding.
    argv.pop();
    argv.extend(["f0".to_owned(), "missing".to_owned(), "--out=f1".to_owned()]);
    let weight = fixture.preview(json!({ "argv": argv })).await.unwrap();
    let files = weight.bound.iter().filter(|(name, _)| name.starts_with("file ")).count();
    assert_eq!((files, weight.unbound), (64, None));
}

#[tokio::test]
async fn a_program_that_is_named_within_an_argument_is_seen() {
    let programs = tempfile::tempdir().unwrap();
    let own = programs.path().join("own");
    std::fs::write(&own, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut commands = CommandsConfig::default();
    commands.path.push(programs.path().to_owned());
    let fixture = fixture_with(SandboxConfig { policy: Policy::Off, ..SandboxConfig::default() }, commands);
    for (argument, seen) in [
        ("notes", false),
        ("--colour=always", false),
        ("--out=/no/such/program", false),
        ("own", true),
        ("--shell=own", true),
        ("sh", true),
        ("/bin/sh", true),
        ("--shell=/bin/sh", true),
        ("--shell=sh", true),
        ("-e/bin/sh", true),
        ("pager:sh", true),
        ("a,sh", true),
        ("x=y=/bin/sh", true),
    ] {
        let weight = fixture.preview(json!({ "argv": ["nice", argument] })).await.unwrap();
        assert_eq!((weight.ask, weight.covers), (seen.then_some(Ask::Always), None), "{argument}");
    }
}

#[tokio::test]
async fn what_an_answer_cannot_be_bound_to_is_asked_for_each_time_and_the_question_says_why() {
    let programs = tempfile::tempdir().unwrap();
    for name in ["prove", "run-parts", "own"] {
        let file = programs.path().join(name);
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut commands = CommandsConfig::default();
    commands.path.insert(0, programs.path().to_owned());
    let fixture = fixture_with(SandboxConfig { policy: Policy::Off, ..SandboxConfig::default() }, commands);
    fixture.write("sub/a.sed", "s/a/b/", 0o644);
    for (argv, why) in [
        (&["run-parts", "sub"][..], "may change after this approval"),
        (&["timeout", "5", "run-parts", "sub"], "may change after this approval"),
        (&["sed", "-f", "sub/a.sed"], "files that this approval does not cover"),
        (&["prove"], "files that this approval does not cover"),
        (&["own"], "Belay does not know this program"),
        (&["timeout", "5", "ls", "sub"], "files or directories of the workspace"),
        (&["timeout", "5", "ls", "."], "files or directories of the workspace"),
        (&["timeout", "5", "ls", "-Isub"], "files or directories of the workspace"),
    ] {
        let weight = fixture.preview(json!({ "argv": argv })).await.unwrap();
        assert_eq!((weight.ask, &weight.covers), (Some(Ask::Always), &None), "{argv:?}");
        assert!(bound(&weight, "caution").contains(why), "{argv:?}: {:?}", weight.bound);
    }
    let weight = fixture.preview(json!({ "argv": ["timeout", "5", "ls", "/etc"] })).await.unwrap();
    assert_eq!((weight.ask, weight.covers), (None, None), "these very arguments");
}
