//! What a person has approved is what runs, while somebody keeps changing the file.

use std::sync::atomic::{AtomicBool, Ordering};

use belay_protocol::{Approved, ToolFailure, ToolReply};
use belay_tools::sandbox::Policy;
use serde_json::{Value, json};

use super::support::{BOTH, Fixture, fixture};

impl Fixture {
    /// Runs a command that a person has approved as it was then.
    async fn run_approved(&self, arguments: Value, approved: &Approved) -> Result<ToolReply, ToolFailure> {
        let context = belay_protocol::ToolContext { approved: Some(approved.clone()), ..self.context() };
        self.call("run_command", arguments, &context).await
    }

    async fn approve(&self, arguments: Value) -> Approved {
        Approved(self.preview(arguments).await.unwrap().bound)
    }
}

fn refused_as_changed(answer: &Result<ToolReply, ToolFailure>) -> bool {
    matches!(answer, Err(ToolFailure::Denied(text)) if text.contains("has changed since it was approved"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approved_script_that_is_being_swapped_runs_as_it_was_approved_or_not_at_all() {
    const RUNS: usize = 30;
    for policy in BOTH {
        let fixture = fixture(policy);
        fixture.write("build.sh", "#!/bin/sh\necho approved\n", 0o755);
        let arguments = json!({"argv": ["./build.sh"]});
        let approved = fixture.approve(arguments.clone()).await;
        let (mut ran, mut refused, over) = (0, 0, AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Another inode under the same name, and the same inode with other bytes.
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    fixture.write("other.sh", "#!/bin/sh\necho swapped\n", 0o755);
                    std::fs::rename(fixture.inside("other.sh"), fixture.inside("build.sh")).unwrap();
                    std::fs::write(fixture.inside("build.sh"), "#!/bin/sh\necho approved\n").unwrap();
                    std::thread::yield_now();
                }
            });
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    for _ in 0..RUNS {
                        let answer = fixture.run_approved(arguments.clone(), &approved).await;
                        match &answer {
                            Ok(reply) if reply.text == "[exit code 0]\napproved\n" => ran += 1,
                            _ if refused_as_changed(&answer) => refused += 1,
                            _ => {
                                over.store(true, Ordering::Relaxed);
                                panic!("{policy:?}: {answer:?}");
                            }
                        }
                    }
                });
            });
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(ran + refused, RUNS, "{policy:?}: {ran} ran, {refused} were refused");
        fixture.write("build.sh", "#!/bin/sh\necho approved\n", 0o755);
        assert!(fixture.run_approved(arguments, &approved).await.is_ok(), "{policy:?}: unchanged, it runs");
    }
}

#[tokio::test]
async fn an_approved_program_that_has_changed_is_not_run() {
    let fixture = fixture(Policy::Off);
    fixture.write("build.sh", "#!/bin/sh\ntouch ran\n", 0o755);
    let arguments = json!({"argv": ["./build.sh"]});
    let approved = fixture.approve(arguments.clone()).await;
    fixture.write("build.sh", "#!/bin/sh\ntouch ran # too\n", 0o755);
    let answer = fixture.run_approved(arguments, &approved).await;
    assert!(refused_as_changed(&answer), "{answer:?}");
    assert!(!fixture.inside("ran").exists());
}

#[tokio::test]
async fn an_approved_program_runs_from_a_sealed_copy_and_is_told_where_it_lies() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let script = "#!/bin/sh\ncase $0 in /proc/self/fd/*) ;; *) exit 3 ;; esac\n\
                      echo \"$BELAY_SCRIPT\" \"$@\"\n(echo x > \"$0\") 2>/dev/null && echo written\nexit 0\n";
        fixture.write("sub/a b.sh", script, 0o755);
        std::fs::copy("/bin/echo", fixture.inside("sub/say")).unwrap();
        let root = if policy == Policy::Off { fixture.inside("") } else { "/workspace/".into() };
        let place = root.join("sub/a b.sh");
        for (argv, expected) in [
            (json!(["sub/a b.sh", "1", "2 3"]), format!("{} 1 2 3", place.display())),
            (json!(["./sub/say", "hi"]), "hi".to_owned()),
        ] {
            let arguments = json!({ "argv": argv });
            let approved = fixture.approve(arguments.clone()).await;
            let reply = fixture.run_approved(arguments, &approved).await.unwrap();
            assert_eq!(reply.text, format!("[exit code 0]\n{expected}\n"), "{policy:?}");
        }
        fixture.write("plain", "#!/bin/sh\n", 0o644);
        let arguments = json!({"argv": ["./plain"]});
        let approved = fixture.approve(arguments.clone()).await;
        let answer = fixture.run_approved(arguments, &approved).await;
        assert!(matches!(&answer, Err(ToolFailure::Ended(text)) if text.contains("exit code 126")), "{answer:?}");
    }
}
