//! Names in the workspace are swapped while the tools run. The races are real, so their outcome varies. In every case,
//! nothing outside of the workspace may be read or changed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use belay_protocol::ToolFailure;
use serde_json::json;

use super::*;

/// Number of calls of each reading tool while names are swapped.
const READING_ROUNDS: usize = 1000;

/// Number of calls of each writing tool. Fewer, because each call waits for the disk.
const WRITING_ROUNDS: usize = 100;

/// A thread that exchanges two names until it is stopped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Swapper {
    fn start(a: PathBuf, b: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    // A name may be missing for a moment while a tool replaces the file.
                    let _ = rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags);
                }
            }
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// A directory is swapped with a link to the outside while the tools read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_swapped_with_a_link_never_shows_outside_files() {
    for fixture in fixtures() {
        std::fs::create_dir(fixture.inside("swap")).unwrap();
        std::fs::write(fixture.inside("swap/secret.txt"), "harmless").unwrap();
        std::fs::write(fixture.dir.path().join("outside/only-outside"), "").unwrap();
        symlink("../outside", fixture.inside("out")).unwrap();
        let swapper = Swapper::start(fixture.inside("swap"), fixture.inside("out"));
        for _ in 0..READING_ROUNDS {
            for path in ["swap/secret.txt", "sub/../swap/secret.txt"] {
                if let Ok(text) = fixture.read(path).await {
                    assert!(text.ends_with("harmless"), "{text}");
                }
            }
            if let Ok(text) = fixture.list("swap").await {
                assert!(!text.contains("only-outside"), "{text}");
            }
            if let Err(ToolFailure::Failed(text)) = fixture.read("swap/only-outsid").await {
                assert!(!text.contains("Did you mean only-outside"), "{text}");
            }
            if let Ok(text) = call(&fixture.search, json!({"pattern": "canary", "path": "swap"})).await {
                assert!(!text.contains(CANARY), "{text}");
            }
        }
        swapper.end();
    }
}

/// All files outside of the workspace, by name and content.
fn outside(fixture: &Fixture) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    let mut rest = vec![fixture.dir.path().join("outside")];
    while let Some(path) = rest.pop() {
        if path.is_dir() {
            rest.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            found.push((path, None));
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, Some(text)));
        }
    }
    found.sort();
    found
}

/// Directories and files are swapped with links to the outside while the tools write and edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outside_is_written_while_directories_files_and_links_are_swapped() {
    for fixture in fixtures() {
        let before = outside(&fixture);
        std::fs::create_dir(fixture.inside("swap")).unwrap();
        std::fs::write(fixture.inside("swap/secret.txt"), "harmless").unwrap();
        symlink("../outside", fixture.inside("out")).unwrap();
        std::fs::write(fixture.inside("file"), "harmless").unwrap();
        symlink("../outside/secret.txt", fixture.inside("file-out")).unwrap();
        let swappers = [
            Swapper::start(fixture.inside("swap"), fixture.inside("out")),
            Swapper::start(fixture.inside("file"), fixture.inside("file-out")),
        ];
        for round in 0..WRITING_ROUNDS {
            let content = format!("written {round}");
            for path in ["swap/secret.txt", "swap/new/deep.txt", "sub/../swap/fresh.txt", "file", "file-out"] {
                let arguments = json!({"path": path, "content": content, "create_dirs": true});
                if let Err(failed) = call(&fixture.write, arguments).await {
                    assert!(matches!(failed, ToolFailure::Failed(_)), "{failed:?}");
                }
            }
            for path in ["swap/secret.txt", "file"] {
                let arguments = json!({"path": path, "old": "canary", "new": "edited"});
                assert!(call(&fixture.edit, arguments).await.is_err(), "the canary was found by {path}");
            }
        }
        swappers.into_iter().for_each(Swapper::end);
        assert_eq!(outside(&fixture), before);
    }
}
