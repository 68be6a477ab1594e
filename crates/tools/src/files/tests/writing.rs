//! Tests of `write_file` and `edit_file` with real directories.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use belay_protocol::{Ask, CallPreview, Tool, ToolFailure};
use serde_json::{Value, json};

use super::*;

impl Fixture {
    async fn write(&self, path: &str, content: &str) -> Result<String, ToolFailure> {
        call(&self.write, json!({ "path": path, "content": content })).await
    }

    async fn edit(&self, old: &str, new: &str) -> Result<String, ToolFailure> {
        call(&self.edit, json!({ "path": "note.txt", "old": old, "new": new })).await
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.inside(name)).unwrap()
    }

    /// Temporary files that a write has left in the workspace.
    fn leftovers(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.inside(".")).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains(".tmp"))
            .collect()
    }
}

async fn preview(tool: &dyn Tool, arguments: Value) -> Result<CallPreview, ToolFailure> {
    tool.preview(arguments.as_object().unwrap(), &"s".into()).await
}

#[tokio::test]
async fn a_result_says_whether_a_file_was_created_or_replaced() {
    let fixture = fixture();
    assert_eq!(fixture.write("new.txt", "héllo").await, Ok("Created \"new.txt\": 6 bytes.".to_owned()));
    assert_eq!(fixture.write("note.txt", "").await, Ok("Wrote \"note.txt\": 0 bytes.".to_owned()));
    assert_eq!((fixture.text("new.txt").as_str(), fixture.text("note.txt").as_str()), ("héllo", ""));
    assert_eq!(fixture.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn missing_directories_are_made_only_when_asked() {
    let fixture = fixture();
    let refused = failure(fixture.write("a/b/c.txt", "x").await);
    assert!(refused.contains("no directory \"a/b\"") && refused.contains("create_dirs"), "{refused}");
    let arguments = json!({"path": "a/./b//../b/c.txt", "content": "x", "create_dirs": true});
    assert_eq!(preview(&fixture.write, arguments.clone()).await.unwrap().summary, "create a/./b//../b/c.txt (1 bytes)");
    assert!(!fixture.inside("a").exists(), "weighing makes nothing");
    call(&fixture.write, arguments).await.unwrap();
    assert_eq!(fixture.text("a/b/c.txt"), "x");
}

#[tokio::test]
async fn mode_is_kept_without_the_bits_that_lend_rights_and_hard_links_outside_keep_their_content() {
    let fixture = fixture();
    let outside = fixture.dir.path().join("outside/linked");
    std::fs::hard_link(fixture.inside("note.txt"), &outside).unwrap();
    std::fs::set_permissions(fixture.inside("note.txt"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    fixture.write("note.txt", "changed").await.unwrap();
    let metadata = std::fs::metadata(fixture.inside("note.txt")).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.nlink()), (0o751, 1));
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "one\ntwo\r\nthree\n");
}

#[tokio::test]
async fn a_failed_write_gives_the_reason_and_changes_nothing() {
    let fixture = fixture();
    symlink("note.txt", fixture.inside("link")).unwrap();
    symlink("../outside/new.txt", fixture.inside("dangling")).unwrap();
    std::fs::write(fixture.inside("fixed.txt"), "fixed").unwrap();
    std::fs::set_permissions(fixture.inside("fixed.txt"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, fixture.inside("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let long_name = "n".repeat(256);
    let large = "x".repeat(50_001);
    for (path, content, expected_text) in [
        ("sub", "x", "is a directory"),
        ("sub/", "x", "names a directory"),
        (".", "x", "names a directory"),
        ("sub/..", "x", "names a directory"),
        ("note.txt/x", "x", "not a directory"),
        ("link", "x", "symbolic link. Name the file"),
        ("dangling", "x", "symbolic link"),
        ("fixed.txt", "x", "read-only"),
        ("pipe", "x", "a pipe, a socket or a device"),
        ("a\nb.txt", "x", "cannot be seen"),
        ("evil\u{202e}txt.exe", "x", "cannot be seen"),
        ("zero\u{200b}.txt", "x", "cannot be seen"),
        ("nul\0.txt", "x", "zero byte"),
        (&long_name, "x", "longer than a file name"),
        ("large.txt", &large, "has 50001 bytes; at most 50000"),
    ] {
        let arguments = json!({"path": path, "content": content, "create_dirs": true});
        let message = failure(call(&fixture.write, arguments.clone()).await);
        assert!(message.contains(expected_text), "{path:?}: {message}");
        assert!(preview(&fixture.write, arguments).await.is_err(), "{path:?} is asked about");
    }
    assert_eq!(
        (fixture.text("note.txt").as_str(), fixture.text("fixed.txt").as_str()),
        ("one\ntwo\r\nthree\n", "fixed")
    );
    assert!(!fixture.dir.path().join("outside/new.txt").exists());
    assert_eq!(fixture.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn names_that_only_look_the_same_are_different_files() {
    let fixture = fixture();
    let names = ["caf\u{e9}.txt", "cafe\u{301}.txt", "CAF\u{c9}.txt", "note.TXT", "نامه\u{200c}ها.txt"];
    for name in names {
        fixture.write(name, name).await.unwrap();
    }
    for name in names {
        assert!(fixture.read(name).await.unwrap().ends_with(&format!("\n{name}")), "{name}");
    }
    assert_eq!(fixture.text("note.txt"), "one\ntwo\r\nthree\n");
}

#[tokio::test]
async fn an_edit_changes_exactly_the_old_text() {
    let fixture = fixture();
    assert_eq!(
        fixture.edit("two\r\n", "2\r\n").await,
        Ok("Edited \"note.txt\" at line 2; it has 13 bytes now.".to_owned())
    );
    assert_eq!(fixture.text("note.txt"), "one\n2\r\nthree\n");
    let all = json!({"path": "note.txt", "old": "\n", "new": "", "all": true});
    assert_eq!(
        call(&fixture.edit, all).await,
        Ok("Edited \"note.txt\" at lines 1, 2 and 3; it has 10 bytes now.".to_owned())
    );
    assert_eq!(fixture.text("note.txt"), "one2\rthree");
}

#[tokio::test]
async fn an_edit_that_does_not_fit_changes_nothing() {
    let fixture = fixture();
    for (old, new, expected_text) in [
        ("", "x", "old text is empty"),
        ("one", "one", "nothing to change"),
        ("e", "x", "occurs 3 times in \"note.txt\", at lines 1 and 3"),
        ("one\ntwo\nthree", "x", "ends its lines with \\r\\n"),
        ("  three", "x", "other white space"),
        ("threw", "x", "Nearest to its first line is line 3: \"three\""),
        ("entirely different", "x", "Nothing in the file is near"),
    ] {
        let expected_text = expected_text.replace("lines 1 and 3", "lines 1, 3 and 3");
        let message = failure(fixture.edit(old, new).await);
        assert!(message.contains(&expected_text), "{old:?}: {message}");
        let asked = preview(&fixture.edit, json!({"path": "note.txt", "old": old, "new": new})).await;
        assert_eq!(asked, Err(ToolFailure::Failed(message)), "a person would be asked for nothing");
    }
    assert_eq!(fixture.text("note.txt"), "one\ntwo\r\nthree\n");
    for (path, expected_text) in [("missing.txt", "There is no"), ("sub", "is a directory")] {
        let message = failure(call(&fixture.edit, json!({"path": path, "old": "a", "new": "b"})).await);
        assert!(message.contains(expected_text), "{message}");
    }
}

#[tokio::test]
async fn a_path_that_names_nothing_is_refused_with_the_directory_of_the_workspace() {
    for fixture in super::fixtures() {
        let root = fixture.workspace.path().to_owned();
        for message in [
            failure(call(&fixture.read, json!({"path": "missing.txt"})).await),
            failure(call(&fixture.edit, json!({"path": "missing.txt", "old": "a", "new": "b"})).await),
            failure(fixture.list("none").await),
            failure(call(&fixture.search, json!({"pattern": "a", "path": "none"})).await),
            failure(call(&fixture.write, json!({"path": "none/new.txt", "content": "abc"})).await),
        ] {
            assert!(message.contains(&format!("in the workspace, {}.", root.display())), "{message}");
        }
    }
}

#[tokio::test]
async fn an_edit_does_not_grow_a_file_beyond_the_bound() {
    let fixture = fixture();
    let message = failure(fixture.edit("one", &"x".repeat(50_000)).await);
    assert!(message.contains("at most 50000 are written"), "{message}");
}

#[tokio::test]
async fn a_question_is_bound_to_the_change_and_to_the_file_as_it_stands() {
    let fixture = fixture();
    let write = json!({"path": "note.txt", "content": "abc"});
    let edit = json!({"path": "note.txt", "old": "one", "new": "a\nb"});
    let (first_write, first_edit) =
        (preview(&fixture.write, write.clone()).await.unwrap(), preview(&fixture.edit, edit.clone()).await.unwrap());
    assert_eq!(
        (first_write.summary.as_str(), first_write.covers.as_deref()),
        ("write note.txt (3 bytes)", Some("write_file"))
    );
    assert_eq!(
        (first_edit.summary.as_str(), first_edit.covers.as_deref(), first_edit.ask),
        ("edit note.txt (line 1: -1 +2 lines)", Some("edit_file"), None)
    );
    assert_eq!(preview(&fixture.write, write.clone()).await.unwrap(), first_write, "the same world weighs the same");
    std::fs::write(fixture.inside("note.txt"), "one, and more").unwrap();
    assert_ne!(preview(&fixture.write, write.clone()).await.unwrap().bound, first_write.bound);
    assert_ne!(preview(&fixture.edit, edit).await.unwrap().bound, first_edit.bound);
    std::fs::remove_file(fixture.inside("note.txt")).unwrap();
    let gone = preview(&fixture.write, write).await.unwrap();
    assert_eq!((gone.summary.as_str(), gone.bound[2].1.as_str()), ("create note.txt (3 bytes)", "does not exist"));
}

#[tokio::test]
async fn changes_in_a_git_directory_need_an_approval_each_time() {
    let fixture = fixture();
    std::fs::create_dir_all(fixture.inside("sub/.git/hooks")).unwrap();
    symlink("sub/.git", fixture.inside("innocent")).unwrap();
    for path in
        ["sub/.git/config", "sub/.GIT/config", "innocent/config", "innocent/hooks/pre-commit", "innocent/new/x", ".git"]
    {
        let preview =
            preview(&fixture.write, json!({"path": path, "content": "x", "create_dirs": true})).await.unwrap();
        assert_eq!((preview.ask, preview.covers), (Some(Ask::Always), None), "{path}");
    }
    let preview = preview(&fixture.write, json!({"path": "sub/.gitignore", "content": "x"})).await.unwrap();
    assert_eq!((preview.ask, preview.covers.as_deref()), (None, Some("write_file")));
}

#[tokio::test]
async fn a_cancelled_write_leaves_nothing() {
    let fixture = fixture();
    let cancelled = context("s");
    cancelled.cancel.cancel();
    for (tool, arguments) in [
        (&fixture.write as &dyn Tool, json!({"path": "note.txt", "content": "x"})),
        (&fixture.write, json!({"path": "new/er.txt", "content": "", "create_dirs": true})),
        (&fixture.edit, json!({"path": "note.txt", "old": "one", "new": "1"})),
    ] {
        let output = tool.call(arguments.as_object().unwrap(), &cancelled).await;
        assert_eq!(output, Err(ToolFailure::Cancelled));
    }
    let target = fixture.workspace.write_target("note.txt", false).unwrap();
    assert_eq!(
        target.write_content(b"late", &cancelled.cancel),
        Err(ToolFailure::Cancelled),
        "stopped right before the rename"
    );
    assert_eq!(fixture.text("note.txt"), "one\ntwo\r\nthree\n");
    assert!(!fixture.inside("new").exists());
    assert_eq!(fixture.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_that_changes_meanwhile_is_not_overwritten() {
    let fixture = fixture();
    let token = context("s").cancel;
    for (name, change) in [
        ("note.txt", (|path| std::fs::write(path, "theirs")) as fn(std::path::PathBuf) -> std::io::Result<()>),
        ("sub/inner.txt", |path| std::fs::remove_file(path)),
        ("fresh.txt", |path| std::fs::write(path, "theirs")),
        ("fresh-link.txt", |path| symlink("../outside/secret.txt", path)),
    ] {
        let target = fixture.workspace.write_target(name, false).unwrap();
        change(fixture.inside(name)).unwrap();
        let message = target.write_content(b"ours", &token).unwrap_err();
        assert!(
            matches!(&message, ToolFailure::Failed(text) if text.contains("changed by somebody else")),
            "{name}: {message:?}"
        );
    }
    assert_eq!(fixture.text("note.txt"), "theirs");
    assert_eq!(std::fs::read_to_string(fixture.dir.path().join("outside/secret.txt")).unwrap(), CANARY);
    assert_eq!(fixture.leftovers(), Vec::<String>::new());
}
