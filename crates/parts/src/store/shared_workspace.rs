//! The check that all nodes of a cluster see the same workspace: a file in it with the id of the cluster.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belay_program::exit::{Exit, Failure};
use tokio::time::{sleep, timeout};

/// Longest wait for the file of another node: that node may be starting, and network storage shows new files late.
const WAIT: Duration = Duration::from_secs(10);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// The file that marks the workspace of a cluster.
fn marker(workspace: &Path, cluster: &str) -> PathBuf {
    workspace.join(format!(".belay-cluster-{cluster}"))
}

/// Checks that the workspace is the one of the cluster. A node without others marks it.
///
/// # Errors
/// Others live, and their file is not in this workspace (78), or the file cannot be written or looked for (78).
pub(super) async fn check(workspace: &Path, cluster: &str, others: &[String]) -> Result<(), Failure> {
    let marker = marker(workspace, cluster);
    let failed = |error: io::Error| Failure::new(Exit::Refused, format!("{}: {error}", marker.display()));
    if others.is_empty() {
        return mark(&marker).map_err(failed);
    }
    let seen = async {
        loop {
            match tokio::fs::try_exists(&marker).await {
                Ok(true) => return Ok(()),
                Ok(false) => sleep(LOOK).await,
                Err(error) => return Err(failed(error)),
            }
        }
    };
    match timeout(WAIT, seen).await {
        Ok(seen) => seen,
        Err(_late) => {
            let workspace = workspace.display();
            let words = format!(
                "the workspace {workspace} is not the one of the other nodes ({}): a conversation that moves to this node \
                 would miss its files",
                others.join(", ")
            );
            Err(Failure::new(Exit::Refused, words).next("set tools.workspace to a directory that all nodes see"))
        }
    }
}

fn mark(marker: &Path) -> io::Result<()> {
    match std::fs::OpenOptions::new().write(true).create_new(true).open(marker) {
        Ok(mut file) => {
            file.write_all(b"Several daemons share this workspace. Each looks for this file at its start.\n")
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_workspace_without_the_file_of_the_other_nodes_is_refused() {
        let (first, second) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let others = ["a".to_owned()];
        let refused = check(first.path(), "id", &others).await.expect_err("no other node has marked it").to_string();
        assert!(refused.contains("is not the one of the other nodes (a)"), "{refused}");
        check(first.path(), "id", &[]).await.expect("marked");
        check(first.path(), "id", &[]).await.expect("marked before");
        check(first.path(), "id", &others).await.expect("the same workspace");
        check(first.path(), "of another cluster", &others).await.expect_err("another cluster");
        check(second.path(), "id", &others).await.expect_err("another workspace");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_appears_late_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let others = ["a".to_owned()];
        let late = async {
            sleep(WAIT / 2).await;
            mark(&marker(folder.path(), "id")).expect("writable");
        };
        let (seen, ()) = tokio::join!(check(folder.path(), "id", &others), late);
        seen.expect("it appeared in time");
    }
}
