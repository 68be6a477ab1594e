//! Tests of the file tools with real directories: results, refusals, and that no call leads outside of the workspace.
#![allow(clippy::unwrap_used)]

mod filtered;
mod full_disk;
mod races;
mod searching;
mod writing;

use std::os::unix::fs::symlink;
use std::sync::Arc;

use belay_protocol::tool::MAX_OUTPUT_BYTES;
use belay_protocol::{Tool, ToolFailure};
use serde_json::json;
use tempfile::TempDir;

use super::{EditFile, ListFiles, ReadFile, SearchFiles, WriteFile};
use crate::config::ToolsConfig;
use crate::picture::Pictures;
use crate::testing::{call, context, failure};
use crate::workspace::Workspace;

const CANARY: &str = "canary that lies outside";

struct Fixture {
    dir: TempDir,
    workspace: Arc<Workspace>,
    read: ReadFile,
    list: ListFiles,
    search: SearchFiles,
    write: WriteFile,
    edit: EditFile,
}

/// Two identical fixtures: one resolves paths by the kernel, the other component by component.
fn fixtures() -> [Fixture; 2] {
    [fixture(), fixture_with(Workspace::stepwise)]
}

/// A workspace `in` with a few files, and a directory `outside` with the canary text, which no tool may return.
fn fixture() -> Fixture {
    fixture_with(|workspace| workspace)
}

fn fixture_with(resolved: impl FnOnce(Workspace) -> Workspace) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("in"), dir.path().join("outside"));
    std::fs::create_dir_all(inside.join("sub/deep")).unwrap();
    std::fs::create_dir_all(outside.join("sub")).unwrap();
    for secret in ["secret.txt", "sub/secret.txt"] {
        std::fs::write(outside.join(secret), CANARY).unwrap();
    }
    std::fs::write(inside.join("note.txt"), "one\ntwo\r\nthree\n").unwrap();
    std::fs::write(inside.join("sub/inner.txt"), "inner").unwrap();
    let config =
        ToolsConfig { max_file_bytes: 100_000, max_write_bytes: 50_000, max_list_entries: 5, ..ToolsConfig::default() };
    let workspace = Arc::new(resolved(Workspace::open(&inside).unwrap()));
    Fixture {
        read: ReadFile::new(workspace.clone(), Pictures::new(), &config),
        list: ListFiles::new(workspace.clone(), &config),
        search: SearchFiles::new(workspace.clone(), &config),
        write: WriteFile::new(workspace.clone(), &config),
        edit: EditFile::new(workspace.clone(), &config),
        workspace,
        dir,
    }
}

impl Fixture {
    fn inside(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("in").join(name)
    }

    async fn read(&self, path: &str) -> Result<String, ToolFailure> {
        call(&self.read, json!({ "path": path })).await
    }

    async fn list(&self, path: &str) -> Result<String, ToolFailure> {
        call(&self.list, json!({ "path": path })).await
    }
}

#[tokio::test]
async fn a_result_names_the_lines_that_it_contains() {
    let fixture = fixture();
    for (arguments, expected) in [
        (json!({"path": "note.txt"}), "[note.txt: lines 1-3 of 3]\none\ntwo\nthree"),
        (json!({"path": "./note.txt"}), "[./note.txt: lines 1-3 of 3]\none\ntwo\nthree"),
        (
            json!({"path": "note.txt", "limit": 2}),
            "[note.txt: lines 1-2 of 3]\none\ntwo\n[1 more; continue with offset 3]",
        ),
        (json!({"path": "note.txt", "offset": 3, "limit": 9}), "[note.txt: lines 3-3 of 3]\nthree"),
        (json!({"path": "sub/inner.txt", "offset": null}), "[sub/inner.txt: lines 1-1 of 1]\ninner"),
        (json!({"path": "sub/../note.txt", "limit": 1, "offset": 3}), "[sub/../note.txt: lines 3-3 of 3]\nthree"),
    ] {
        assert_eq!(call(&fixture.read, arguments.clone()).await, Ok(expected.to_owned()), "{arguments}");
    }
}

#[tokio::test]
async fn an_unreadable_file_is_a_failure_with_the_reason() {
    for fixture in fixtures() {
        std::fs::write(fixture.inside("empty.txt"), "").unwrap();
        std::fs::write(fixture.inside("zero.bin"), b"a\0b").unwrap();
        std::fs::write(fixture.inside("latin.txt"), b"caf\xe9").unwrap();
        std::fs::write(fixture.inside("large.txt"), "x".repeat(100_001)).unwrap();
        assert_eq!(fixture.read("empty.txt").await, Ok("[empty.txt: empty, 0 bytes]".to_owned()));
        for (arguments, expected_text) in [
            (json!({"path": "note.txt", "offset": 4}), "has 3 line(s); line 4"),
            (json!({"path": "note.txt", "offset": u64::MAX}), "has 3 line(s)"),
            (json!({"path": "note.txt", "offset": 0}), "count from 1"),
            (json!({"path": "note.txt", "limit": 0}), "count from 1"),
            (json!({"path": "note.txt", "offset": -1}), "do not match"),
            (json!({"path": "note.txt", "lines": 1}), "do not match"),
            (json!({"path": "zero.bin"}), "not text (3 bytes; it has zero bytes)"),
            (json!({"path": "latin.txt"}), "not text (4 bytes; it is not UTF-8)"),
            (json!({"path": "large.txt"}), "too large: 100001"),
            (json!({"path": "sub"}), "is a directory"),
            (json!({"path": "note.txt/x"}), "not a directory"),
            (json!({"path": "notes.txt"}), "Did you mean note.txt?"),
            (json!({"path": "sub/iner.txt"}), "Did you mean inner.txt?"),
            (json!({"path": "nowhere/at/all"}), "list_files shows"),
        ] {
            let text = failure(call(&fixture.read, arguments.clone()).await);
            assert!(text.contains(expected_text), "{arguments}: {text}");
        }
    }
}

#[tokio::test]
async fn long_lines_and_long_files_are_cut_with_a_note() {
    let fixture = fixture();
    let line = "é".repeat(5000);
    std::fs::write(fixture.inside("long.txt"), &line).unwrap();
    let text = fixture.read("long.txt").await.unwrap();
    assert!(text.ends_with("é [line cut here: 4000 of 10000 bytes shown]"), "{text}");

    std::fs::write(fixture.inside("many.txt"), "line\n".repeat(5000)).unwrap();
    let text = fixture.read("many.txt").await.unwrap();
    assert!(text.starts_with("[many.txt: lines 1-2000 of 5000]"));
    assert!(text.ends_with("[3000 more; continue with offset 2001]"));

    std::fs::write(fixture.inside("wide.txt"), format!("{}\n", "w".repeat(999)).repeat(90)).unwrap();
    let text = fixture.read("wide.txt").await.unwrap();
    assert!(text.len() < MAX_OUTPUT_BYTES);
    assert!(text.starts_with("[wide.txt: lines 1-61 of 90]") && text.ends_with("[29 more; continue with offset 62]"));
}

#[tokio::test]
async fn a_directory_is_listed_in_order_with_kinds_and_sizes() {
    for fixture in fixtures() {
        symlink("note.txt", fixture.inside("link")).unwrap();
        std::fs::write(fixture.inside("bad\nname\u{1b}"), "x").unwrap();
        let expected = "[.: 4 entries]\nbad\\nname\\u{1b}  1\nlink  (link)\nnote.txt  15\nsub/";
        assert_eq!(fixture.list(".").await, Ok(expected.to_owned()));
        assert_eq!(fixture.list("sub/").await, Ok("[sub/: 2 entries]\ndeep/\ninner.txt  5".to_owned()));
        assert_eq!(fixture.list("sub/deep").await, Ok("[sub/deep: empty]".to_owned()));
        for n in 0..9 {
            std::fs::write(fixture.inside(&format!("sub/deep/{n}")), "").unwrap();
        }
        let text = fixture.list("sub/deep").await.unwrap();
        assert!(
            text.starts_with("[sub/deep: 9 entries]\n0  0\n") && text.ends_with("4  0\n[4 more not shown]"),
            "{text}"
        );
        assert!(failure(fixture.list("note.txt").await).contains("not a directory"));
        assert!(failure(fixture.list("subs").await).contains("Did you mean sub?"));
    }
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    for fixture in fixtures() {
        symlink("note.txt", fixture.inside("a")).unwrap();
        symlink("a", fixture.inside("b")).unwrap();
        symlink("../note.txt", fixture.inside("sub/up")).unwrap();
        symlink("sub", fixture.inside("dir")).unwrap();
        for path in ["a", "b", "sub/up", "dir/up"] {
            assert!(fixture.read(path).await.unwrap().contains("three"), "{path}");
        }
        assert!(fixture.list("dir").await.unwrap().contains("inner.txt"));
    }
}

#[tokio::test]
async fn no_path_leads_outside() {
    for fixture in fixtures() {
        let outside = fixture.dir.path().join("outside");
        symlink("../outside/secret.txt", fixture.inside("file_link")).unwrap();
        symlink(outside.join("secret.txt"), fixture.inside("absolute_link")).unwrap();
        symlink("../outside", fixture.inside("dir_link")).unwrap();
        symlink(&outside, fixture.inside("absolute_dir_link")).unwrap();
        symlink("chain2", fixture.inside("chain1")).unwrap();
        symlink("sub/chain3", fixture.inside("chain2")).unwrap();
        symlink("../dir_link", fixture.inside("sub/chain3")).unwrap();
        symlink("/proc/self/root", fixture.inside("magic")).unwrap();
        symlink("round", fixture.inside("round")).unwrap();
        std::fs::hard_link(fixture.inside("note.txt"), fixture.inside("hard")).unwrap();
        let absolute = outside.join("secret.txt");
        let root = fixture.dir.path().to_str().unwrap();

        let deep = format!("{}secret.txt", "../".repeat(50));
        let long_name = "n".repeat(256);
        let long_path = "sub/../".repeat(1000) + "note.txt";
        let magic = format!("magic{root}/outside/secret.txt");
        for path in [
            "../outside/secret.txt",
            "..",
            "../",
            "../in/note.txt",
            "./../outside/secret.txt",
            "sub/../../outside/secret.txt",
            "sub/deep/../../../outside/secret.txt",
            "nothing/../../outside/secret.txt",
            "//etc/passwd",
            "/etc/passwd",
            absolute.to_str().unwrap(),
            "file_link",
            "absolute_link",
            "dir_link/secret.txt",
            "dir_link/sub/secret.txt",
            "absolute_dir_link/secret.txt",
            "chain1/secret.txt",
            "sub/chain3/secret.txt",
            "magic",
            &magic,
            "round",
            "dir_link/../in/note.txt",
            "",
            "\0",
            "note.txt\0/../../outside/secret.txt",
            "..\\outside\\secret.txt",
            "%2e%2e/outside/secret.txt",
            "．．/outside/secret.txt",
            "․․/outside/secret.txt",
            "..\u{200b}/outside/secret.txt",
            "..∕outside∕secret.txt",
            "~/secret.txt",
            "file:///etc/passwd",
            &deep,
            &long_name,
            &long_path,
        ] {
            for text in [
                failure(fixture.read(path).await),
                failure(fixture.list(path).await),
                failure(call(&fixture.search, json!({"pattern": "canary", "path": path})).await),
                failure(call(&fixture.edit, json!({"path": path, "old": "canary", "new": "x"})).await),
            ] {
                assert!(!text.contains(CANARY) && !text.contains("Did you mean secret"), "{path:?}: {text}");
                assert!(text.len() < 9000, "{path:?}");
            }
        }
        for (path, expected_text) in [
            ("../outside/secret.txt", "leads out of the workspace"),
            ("dir_link/secret.txt", "leads out of the workspace"),
            ("file_link", "leads out of the workspace"),
            ("/etc/passwd", "absolute"),
            ("", "root of the workspace is \".\""),
            ("a\0", "zero byte"),
            ("round", "too many symbolic links"),
            (&long_name, "longer than a file name"),
            (&long_path, "longer than 4095"),
        ] {
            let text = failure(fixture.read(path).await);
            assert!(text.contains(expected_text), "{path:?}: {text}");
        }
        for path in [
            "../outside/new",
            "dir_link/new",
            "absolute_dir_link/new",
            "chain1/sub/new",
            "magic/tmp/new",
            "/tmp/new",
            "../new",
        ] {
            for create_dirs in [false, true] {
                let arguments = json!({"path": path, "content": "x", "create_dirs": create_dirs});
                failure(call(&fixture.write, arguments).await);
            }
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2, "something was made outside");
        for inside in ["hard", ".//note.txt", "sub//..//note.txt"] {
            assert!(fixture.read(inside).await.is_ok(), "{inside}");
        }
    }
}

#[tokio::test]
async fn a_picture_is_shown_and_a_broken_one_is_a_failure() {
    let fixture = fixture();
    image::RgbImage::from_pixel(4, 3, image::Rgb([9, 9, 9])).save(fixture.inside("dot.png")).unwrap();
    std::fs::rename(fixture.inside("dot.png"), fixture.inside("picture.txt")).unwrap();
    let output = fixture.read.call(json!({"path": "picture.txt"}).as_object().unwrap(), &context("s")).await.unwrap();
    assert!(output.text.starts_with("[picture.txt: PNG picture, 4 x 3 pixels, "), "{}", output.text);
    assert_eq!(output.pictures.len(), 1);

    std::fs::write(fixture.inside("broken.gif"), b"GIF89a\x04\0\x03\0").unwrap();
    let message = failure(fixture.read("broken.gif").await);
    assert!(message.contains("cannot be shown: it is broken or cut off"), "{message}");
    let huge = std::fs::OpenOptions::new().write(true).open(fixture.inside("broken.gif")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert!(failure(fixture.read("broken.gif").await).contains("too large"));
}

#[tokio::test]
async fn pipes_and_sockets_are_refused_without_waiting() {
    for fixture in fixtures() {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, fixture.inside("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(fixture.inside("socket")).unwrap();
        for path in ["pipe", "socket"] {
            assert!(failure(fixture.read(path).await).contains("pipe, a socket or a device"), "{path}");
        }
        assert!(fixture.list(".").await.unwrap().contains("pipe  (special file)"));
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_as_cancelled() {
    let fixture = fixture();
    let cancelled = context("s");
    cancelled.cancel.cancel();
    for (tool, path) in [(&fixture.read as &dyn Tool, "note.txt"), (&fixture.list, ".")] {
        let output = tool.call(json!({ "path": path }).as_object().unwrap(), &cancelled).await;
        assert_eq!(output, Err(ToolFailure::Cancelled));
    }
}
