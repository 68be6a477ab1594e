//! The control socket, whose file other hands delete or replace under the real binary.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use belay_tests::daemon::{Home, PATIENCE};
use tokio::time::{Instant, sleep};

fn socket(home: &Home) -> PathBuf {
    home.path().join("belay/control.sock")
}

/// Waits until commands reach the daemon of this home.
async fn answers(home: &Home) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = home.run(&["status"], "").await?;
        if status.status.success() {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{status:?}");
        sleep(std::time::Duration::from_millis(50)).await; // polling a real process: there is no clock to pause
    }
}

type Damage = fn(&Path) -> Result<()>;

#[tokio::test]
async fn a_control_socket_whose_file_is_gone_is_bound_again() -> Result<()> {
    let home = Home::new();
    let mut daemon = home.start().await?;
    let path = socket(&home);
    let damages: [(&str, Damage); 5] = [
        ("deleted", |path| Ok(std::fs::remove_file(path)?)),
        ("moved away", |path| Ok(std::fs::rename(path, path.with_extension("old"))?)),
        ("its directory moved away", |path| {
            let directory = path.parent().expect("a directory");
            Ok(std::fs::rename(directory, directory.with_extension("old"))?)
        }),
        ("replaced by the socket of a dead daemon", |path| {
            let other = path.with_extension("dead");
            drop(UnixListener::bind(&other)?);
            Ok(std::fs::rename(other, path)?)
        }),
        ("deleted again", |path| Ok(std::fs::remove_file(path)?)),
    ];
    for (what, damage) in damages {
        damage(&path)?;
        let line = daemon.logged("the file of the control socket was gone").await?;
        ensure!(line.contains("WARN"), "{what}: {line}");
        answers(&home).await?;
    }
    daemon.shut_down().await?;
    ensure!(!path.exists(), "the file goes with its daemon");
    Ok(())
}

#[tokio::test]
async fn the_socket_of_another_daemon_that_lives_is_left_alone_until_it_is_gone() -> Result<()> {
    let home = Home::new();
    let mut daemon = home.start().await?;
    let path = socket(&home);
    let other = UnixListener::bind(path.with_extension("other"))?;
    std::fs::rename(path.with_extension("other"), &path)?;
    daemon.logged("commands do not reach this daemon").await?;
    // Whoever connects now reaches the other one.
    let _peer = std::os::unix::net::UnixStream::connect(&path)?;
    other.accept()?;
    drop(other);
    std::fs::remove_file(&path)?;
    answers(&home).await?;

    // At its end it leaves the file of another one.
    let other = UnixListener::bind(path.with_extension("other"))?;
    std::fs::rename(path.with_extension("other"), &path)?;
    daemon.logged("commands do not reach this daemon").await?;
    daemon.shut_down().await?;
    ensure!(path.exists(), "the file of the other daemon stays");
    drop(other);
    Ok(())
}
