//! The workspace of the real binary: where a system call filter refuses what usually keeps paths inside, and that it
//! contains nothing of Belay's own.

use std::collections::BTreeMap;

use anyhow::Result;
use belay_tests::daemon::Home;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Source: Linux, the number of `openat2` on every processor.
const OPENAT2: i64 = 437;

/// What systemd does for `RestrictSUIDSGID=`: `openat2` answers ENOSYS in this thread, and in what it starts.
fn refuse_openat2() -> Result<()> {
    let rules = BTreeMap::from([(OPENAT2, Vec::new())]);
    let refuse = SeccompAction::Errno(rustix::io::Errno::NOSYS.raw_os_error().cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    Ok(())
}

/// The runtime of this test has one thread, which starts the binary: nothing else is behind the filter.
#[tokio::test]
async fn where_a_filter_refuses_openat2_files_are_read_and_commands_run() -> Result<()> {
    refuse_openat2()?;
    let home = Home::new();
    let workspace = home.workspace();
    std::fs::write(workspace.join("note.txt"), "in the workspace")?;
    std::os::unix::fs::symlink("../..", workspace.join("up"))?;
    let settings = home.path().join("rules.toml");
    std::fs::write(&settings, "[[approvals.rules]]\ntool = \"*\"\nask = \"never\"\nallow_untrusted = true\n")?;

    let lines = [
        "call read_file {\"path\":\"note.txt\"}",
        "call write_file {\"path\":\"made/new.txt\",\"content\":\"made here\",\"create_dirs\":true}",
        "call run_command {\"argv\":[\"cat\",\"made/new.txt\"]}",
        "call read_file {\"path\":\"up/belay/belay.db\"}",
    ];
    let config = settings.to_string_lossy();
    let args = ["run", "--config", &config, "--set", "llm.provider=rehearsal", "--set", "gateway.listen=off"];
    let run = home.run(&args, &format!("{}\n/quit\n", lines.join("\n"))).await?;
    for said in ["in the workspace", "[exit code 0]\nmade here", "leads out of the workspace"] {
        assert!(run.stdout.contains(said), "{said}: {run:?}");
    }
    assert!(run.stderr.contains("a system call filter refuses openat2 with ENOSYS"), "{run:?}");
    let check = home.run(&["check", "--set", "llm.provider=rehearsal"], "").await?;
    assert!(check.stdout.contains("a system call filter refuses openat2 with ENOSYS"), "{check:?}");
    Ok(())
}

#[tokio::test]
async fn a_workspace_that_contains_belays_own_files_is_refused_by_run_ask_and_check() -> Result<()> {
    let home = Home::new();
    let settings = home.path().join("belay.toml");
    std::fs::write(&settings, "[llm]\nprovider = \"rehearsal\"\n[gateway]\nlisten = \"off\"\n")?;
    let (config, project) = (settings.to_string_lossy().into_owned(), home.path().to_string_lossy().into_owned());
    let whole = format!("tools.workspace=\"{project}\"");
    let data = home.path().join("data/belay").to_string_lossy().into_owned();
    for command in [&["run"][..], &["check"], &["ask", "hello"]] {
        let args: Vec<&str> = command.iter().copied().chain(["--config", &config, "--set", &whole]).collect();
        let refused = home.run(&args, "").await?;
        assert_eq!(refused.status.code(), Some(78), "{command:?}: {refused:?}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        for part in [&config, &data, "a settings file", "set tools.workspace to a directory that holds nothing"] {
            assert!(said.contains(part), "{command:?}: {part}: {said}");
        }
    }
    // A subdirectory of the same project is fine.
    let part = format!("tools.workspace=\"{project}/src\"");
    let answered = home.run(&["ask", "hello", "--config", &config, "--set", &part], "").await?;
    assert!(answered.status.success(), "{answered:?}");
    Ok(())
}
