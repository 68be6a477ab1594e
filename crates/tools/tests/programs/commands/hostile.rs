//! Programs and files that want more than they are given.

use belay_protocol::Ask;
use belay_tools::config::CommandsConfig;
use belay_tools::sandbox::{Policy, SandboxConfig};
use serde_json::json;

use super::support::{BOTH, fixture, fixture_with};

#[tokio::test]
async fn nothing_of_the_daemons_environment_is_inherited() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let text = fixture.argv(&["env"]).await;
        let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        for name in &names {
            let known = ["PATH", "HOME", "LANG", "TERM", "TMPDIR", "NO_COLOR", "PAGER", "EDITOR", "PWD", "BELAY_RUN"];
            assert!(
                known.contains(name) || name.starts_with("GIT_") || name.starts_with("XDG_"),
                "{policy:?}: {name} was inherited"
            );
        }
        assert!(names.contains(&"GIT_CONFIG_NOSYSTEM") && names.contains(&"PATH"), "{names:?}");
    }
}

/// A repository that wants its own programs to be run by `git status` and `git commit`. The control shows that they
/// would be.
#[tokio::test]
async fn a_hostile_repository_does_not_have_its_programs_run() {
    for policy in BOTH {
        let fixture = fixture(policy);
        let git = |arguments: &[&str]| {
            let clean = [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"), ("HOME", "/nowhere")];
            let status =
                std::process::Command::new("git").args(arguments).current_dir(fixture.inside(".")).envs(clean).output();
            status.unwrap()
        };
        assert!(git(&["init", "-q"]).status.success());
        fixture.write("evil.sh", "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\n", 0o755);
        let evil = fixture.inside("evil.sh");
        let evil = evil.to_str().unwrap_or_default();
        std::fs::create_dir_all(fixture.inside(".git/hooks")).unwrap();
        fixture.write(".git/hooks/pre-commit", &format!("#!/bin/sh\n{evil}\n"), 0o755);
        std::fs::write(fixture.inside(".gitconfig"), "[core]\n\tfsmonitor = /workspace/evil.sh\n").unwrap();
        assert!(git(&["add", "."]).status.success());
        let before = fixture.preview(json!({"argv": ["git", "status"]})).await.unwrap();
        assert_eq!((before.ask, before.covers.as_deref()), (None, Some("git status")));

        assert!(git(&["config", "core.fsmonitor", evil]).status.success());
        git(&["status"]);
        assert!(fixture.inside("ran").exists(), "the control did not run");
        std::fs::remove_file(fixture.inside("ran")).unwrap();

        let weight = fixture.preview(json!({"argv": ["git", "status"], "directory": "sub"})).await.unwrap();
        assert_eq!((weight.ask, weight.covers), (Some(Ask::Always), None), "what git would start is asked for");
        fixture.argv(&["git", "status"]).await;
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b.test"];
        let commit = [&["git"][..], &identity, &["commit", "-q", "-m", "x"]].concat();
        fixture.argv(&commit).await;
        assert!(!fixture.inside("ran").exists(), "{policy:?}: the repository's program ran");
    }
}

#[tokio::test]
async fn an_archive_that_unpacks_to_more_than_there_is_room_for_is_stopped() {
    for policy in BOTH {
        let sandbox = SandboxConfig { policy, file_mb: 1, ..SandboxConfig::default() };
        let fixture = fixture_with(sandbox, CommandsConfig::default());
        let script = "truncate -s 50M zeros && tar -czf bomb.tar.gz zeros && rm zeros";
        let made = std::process::Command::new("sh").args(["-c", script]).current_dir(fixture.inside(".")).status();
        assert!(made.is_ok_and(|status| status.success()));
        fixture.failing(&["tar", "-xzf", "bomb.tar.gz"]).await;
        let size = std::fs::metadata(fixture.inside("zeros")).map_or(0, |metadata| metadata.len());
        assert!(size <= 1024 * 1024, "{policy:?}: {size} bytes were unpacked");
    }
}

#[tokio::test]
async fn behind_walls_the_outside_is_neither_seen_nor_written() {
    let fixture = fixture(Policy::WorkspaceWrite);
    std::os::unix::fs::symlink(fixture.outside(), fixture.inside("out")).unwrap();
    let secret = fixture.outside().join("secret");
    let secret = secret.to_str().unwrap_or_default();
    for argv in [&["cat", secret][..], &["cat", "out/secret"], &["touch", "out/new"], &["touch", "/etc/new"]] {
        let told = fixture.failing(argv).await;
        assert!(!told.contains("secret of the outside"), "{argv:?}: {told}");
    }
    assert!(!fixture.outside().join("new").exists());
    assert_eq!(fixture.argv(&["sh", "-c", "echo x > made && cat made"]).await, "[exit code 0]\nx\n");
}
