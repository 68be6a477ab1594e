//! What the model reads of a command, with and without walls.

use belay_protocol::ToolFailure;
use serde_json::json;

use super::support::{BOTH, fixture};

#[tokio::test]
async fn what_is_printed_and_how_it_ended_is_told() {
    for policy in BOTH {
        let fixture = fixture(policy);
        for (argv, expected) in [
            (&["echo", "hello"][..], "[exit code 0]\nhello\n"),
            (&["true"], "[exit code 0]\n[nothing was printed]"),
            (&["printf", "%s,", "$HOME", "*", "a;b", "`x`"], "[exit code 0]\n$HOME,*,a;b,`x`,"),
            (&["sh", "-c", "echo err >&2"], "[exit code 0]\nerr\n"),
        ] {
            assert_eq!(fixture.argv(argv).await, expected, "{policy:?} {argv:?}");
        }
        for (argv, expected) in [
            (&["sh", "-c", "echo why; exit 3"][..], "[exit code 3]\nwhy\n"),
            (&["false"], "[exit code 1]\n[nothing was printed]"),
        ] {
            assert_eq!(fixture.failing(argv).await, expected, "{policy:?} {argv:?}");
        }
        let killed = fixture.failing(&["sh", "-c", "kill -9 $$"]).await;
        assert!(killed.contains("signal 9"), "{policy:?}: {killed}");
    }
}

#[tokio::test]
async fn directory_input_and_programs_of_the_workspace() {
    for policy in BOTH {
        let fixture = fixture(policy);
        std::fs::write(fixture.inside("sub/inner.txt"), "").unwrap();
        fixture.write("tool.sh", "#!/bin/sh\necho tool \"$1\" in \"${PWD##*/}\"\n", 0o755);
        for (arguments, expected) in [
            (json!({"argv": ["ls"], "directory": "sub"}), "[exit code 0]\ninner.txt\n"),
            (json!({"argv": ["cat"], "stdin": "fed\n"}), "[exit code 0]\nfed\n"),
            (json!({"argv": ["./tool.sh", "x"]}), "[exit code 0]\ntool x in workspace\n"),
            (json!({"argv": ["../tool.sh", "x"], "directory": "sub"}), "[exit code 0]\ntool x in sub\n"),
        ] {
            let answer = fixture.run(arguments.clone()).await;
            assert_eq!(answer.map(|reply| reply.text).as_deref(), Ok(expected), "{policy:?} {arguments}");
        }
    }
}

#[tokio::test]
async fn a_call_that_cannot_work_says_why() {
    let fixture = fixture(BOTH[0]);
    fixture.write("plain.txt", "no program", 0o644);
    std::os::unix::fs::symlink("/etc", fixture.inside("out")).unwrap();
    let long = "x".repeat(17_000);
    for (arguments, says) in [
        (json!({"argv": []}), "argv is empty"),
        (json!({"argv": [""]}), "argv is empty"),
        (json!({"argv": ["ls -l"]}), "looks like a whole command line"),
        (json!({"argv": ["-l"]}), "is an option, not a program"),
        (json!({"argv": ["ls", "a\0b"]}), "zero byte"),
        (json!({"argv": ["ls", long]}), "at most 512 and 16384"),
        (json!({"argv": ["l\u{202e}s"]}), "cannot be seen"),
        (json!({"argv": ["gerp", "x"]}), "There is no program \"gerp\" on this machine. Did you mean"),
        (json!({"argv": ["./missing.sh"]}), "There is no \"missing.sh\" in the workspace"),
        (json!({"argv": ["/nowhere/x"]}), "There is no program \"/nowhere/x\""),
        (json!({"argv": ["ls"], "directory": ".."}), "leads out of the workspace"),
        (json!({"argv": ["ls"], "directory": "out"}), "leads out of the workspace"),
        (json!({"argv": ["ls"], "directory": "/etc"}), "absolute"),
        (json!({"argv": ["ls"], "directory": "plain.txt"}), "not a directory"),
        (json!({"argv": ["../secret"]}), "leads out of the workspace"),
        (json!({"argv": ["ls"], "timeout_s": 0}), "timeout_s must be from 1 to 1800"),
        (json!({"argv": ["ls"], "timeout_s": 1801}), "timeout_s must be from 1 to 1800"),
        (json!({"argv": ["ls"], "shell": true}), "do not match"),
    ] {
        for answer in [
            fixture.run(arguments.clone()).await.map(|reply| reply.text),
            fixture.preview(arguments.clone()).await.map(|weight| weight.summary),
        ] {
            match answer {
                Err(ToolFailure::Failed(text) | ToolFailure::Ended(text)) => {
                    assert!(text.contains(says), "{arguments}: {text}")
                }
                other => panic!("{arguments}: {other:?}"),
            }
        }
    }
    let told = fixture.failing(&["./plain.txt"]).await;
    assert!(told.contains("ermission denied") || told.contains("may not be executed"), "{told}");
}

#[tokio::test]
async fn a_flood_is_read_to_its_end_shown_in_part_and_kept() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let context = fixture.context();
        let arguments = json!({"argv": ["sh", "-c", "yes x | head -c 30000000; echo the end"]});
        let reply = fixture.call("run_command", arguments, &context).await.unwrap();
        assert!(reply.text.starts_with("[exit code 0]\nx\nx\n") && reply.text.ends_with("x\nthe end\n"));
        assert!(reply.text.len() < 68 * 1024, "{}", reply.text.len());
        let kept = reply.kept.unwrap();
        assert!((16 * 1024 * 1024..17 * 1024 * 1024).contains(&kept.bytes), "{}", kept.bytes);
        let part = fixture
            .call("read_output", json!({"name": kept.name, "offset": 1000, "limit": 4}), &context)
            .await
            .unwrap();
        assert!(
            part.text.starts_with(&format!("[{}: bytes 1000 to 1004 of {}]\nx\nx\n", kept.name, kept.bytes)),
            "{}",
            part.text
        );
    }
}

#[tokio::test]
async fn a_script_is_run_by_a_shell() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let context = fixture.context();
        let script = json!({"script": "for n in 1 2; do echo $n; done | tac", "directory": "sub"});
        let reply = fixture.call("run_shell", script, &context).await.unwrap();
        assert_eq!(reply.text, "[exit code 0]\n2\n1\n");
    }
}
