//! A backup that is restored with `--data` and started beside the original, as `docs/guide/backup.md` says.

use anyhow::{Context, Result};
use belay_tests::daemon::Home;

#[tokio::test]
async fn a_restored_copy_starts_by_its_directory_beside_the_original() -> Result<()> {
    let home = Home::new();
    let original = home.start().await?;
    original.ask("alice", "calculate 6*7").await?;
    let file = home.path().join("b.tar.gz").to_string_lossy().into_owned();
    let copy = home.path().join("copy").to_string_lossy().into_owned();
    let made = home.run(&["backup", "create", "--to", &file], "").await?;
    assert!(made.status.success(), "{made:?}");
    let restore = &["backup", "restore", &file, "--data", "copy"];
    let restored = home.command(restore).current_dir(home.path()).output().await?;
    assert!(restored.status.success(), "{restored:?}");
    let said = String::from_utf8_lossy(&restored.stdout);
    for name in ["STATE_DIRECTORY", "RUNTIME_DIRECTORY"] {
        assert!(said.contains(&format!("  export {name}='{copy}'\n")), "{said}");
        // The daemon of the original must not answer for the copy.
        let refused = home.command(&["status"]).env(name, "copy").current_dir(home.path()).output().await?;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(78) && said.contains(name), "{refused:?}");
    }

    let there = Home::new().env("STATE_DIRECTORY", &copy).env("RUNTIME_DIRECTORY", &copy);
    let daemon = there.start().await?;
    let status = there.run(&["status"], "").await?;
    assert!(status.stdout.contains("frozen by restore"), "{status:?}");
    let thawed = there.run(&["thaw"], "").await?;
    assert!(thawed.status.success(), "{thawed:?}");
    let answer = daemon.ask("alice", "calculate 6*8").await?;
    assert!(answer["reply"].as_str().context("a reply")?.contains("48"), "{answer}");
    let kept = there.run(&["sessions", "show", "alice"], "").await?;
    assert!(kept.stdout.contains("6*7") && kept.stdout.contains("6*8"), "{kept:?}");
    // The original does not know of it.
    let kept = home.run(&["sessions", "show", "alice"], "").await?;
    assert!(kept.stdout.contains("6*7") && !kept.stdout.contains("6*8"), "{kept:?}");
    daemon.shut_down().await?;
    original.shut_down().await?;
    Ok(())
}
