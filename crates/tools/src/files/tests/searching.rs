//! Tests of `search_files` with real directories.

use serde_json::{Value, json};

use super::*;

impl Fixture {
    async fn search(&self, arguments: Value) -> Result<String, ToolFailure> {
        call(&self.search, arguments).await
    }
}

#[tokio::test]
async fn matching_lines_are_shown_with_path_and_number() {
    let fixture = fixture();
    std::fs::write(fixture.inside("sub/code.rs"), "fn one() {}\n\nfn two() {\n    one();\n}\n").unwrap();
    for (arguments, expected) in [
        (
            json!({"pattern": "one"}),
            "[3 matches in 2 of 3 files searched]\nnote.txt:1: one\nsub/code.rs:1: fn one() {}\nsub/code.rs:4:     one();",
        ),
        (json!({"pattern": "^two$"}), "[1 matches in 1 of 3 files searched]\nnote.txt:2: two"),
        (json!({"pattern": "(?i)ONE", "path": "note.txt"}), "[1 matches in 1 of 1 files searched]\nnote.txt:1: one"),
        (json!({"pattern": "one", "glob": "*.txt"}), "[1 matches in 1 of 2 files searched]\nnote.txt:1: one"),
        (
            json!({"pattern": "two", "glob": "**/*.rs"}),
            "[1 matches in 1 of 1 files searched]\nsub/code.rs:3: fn two() {",
        ),
        (
            json!({"pattern": "inner", "glob": "*/*.txt"}),
            "[1 matches in 1 of 1 files searched]\nsub/inner.txt:1: inner",
        ),
        (
            json!({"pattern": "fn", "path": "sub/", "context": 1}),
            "[2 matches in 1 of 2 files searched]\nsub/code.rs:1: fn one() {}\nsub/code.rs-2- \nsub/code.rs:3: fn two() {\n\
             sub/code.rs-4-     one();",
        ),
        (
            json!({"pattern": "[ot]", "max": 1}),
            "[1 matches in 1 of 1 files searched]\nnote.txt:1: one\n[left out: everything else, because as many lines as \
             are shown have been found: narrow it with path, glob or pattern]",
        ),
        (json!({"pattern": "nowhere"}), "[no match in .; 3 files searched]"),
    ] {
        assert_eq!(fixture.search(arguments.clone()).await.as_deref(), Ok(expected), "{arguments}");
    }
}

#[tokio::test]
async fn binary_files_are_skipped_and_counted() {
    let fixture = fixture();
    std::fs::write(fixture.inside("zero.bin"), b"canary\0").unwrap();
    std::fs::File::create(fixture.inside("sparse")).unwrap().set_len(1 << 40).unwrap();
    std::fs::create_dir(fixture.inside(".git")).unwrap();
    std::fs::write(fixture.inside(".git/config"), "canary").unwrap();
    std::fs::write(fixture.inside("latin.txt"), b"caf\xe9 canary").unwrap();
    std::fs::write(fixture.inside("bad\nname"), "canary").unwrap();
    symlink("../outside/secret.txt", fixture.inside("out")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, fixture.inside("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(
        fixture.search(json!({"pattern": "canary"})).await.unwrap(),
        "[2 matches in 2 of 4 files searched]\nbad\\nname:1: canary\nlatin.txt:1: caf\u{fffd} canary\n\
         [left out: 1 binary, 1 larger than 100000 bytes, 1 links, 1 pipes, sockets or devices, 1 .git]"
    );
    assert!(
        fixture.search(json!({"pattern": "canary", "path": ".git"})).await.unwrap().contains(".git/config:1: canary")
    );
}

#[tokio::test]
async fn an_invalid_search_is_a_failure_with_the_reason() {
    let fixture = fixture();
    symlink("../outside", fixture.inside("out")).unwrap();
    let long = "a".repeat(1001);
    for (arguments, expected_text) in [
        (json!({"pattern": "("}), "not a regular expression"),
        (json!({"pattern": "(?=x)"}), "not a regular expression"),
        (json!({"pattern": "(\\pL{500}){500}"}), "not a regular expression"),
        (json!({"pattern": ""}), "from 1 to 1000 bytes"),
        (json!({"pattern": long}), "from 1 to 1000 bytes"),
        (json!({"pattern": "a", "glob": "[a"}), "is not a glob"),
        (json!({"pattern": "a", "path": "../outside"}), "leads out of the workspace"),
        (json!({"pattern": "a", "path": "out"}), "leads out of the workspace"),
        (json!({"pattern": "a", "path": "/etc"}), "absolute"),
        (json!({"pattern": "a", "path": "subs"}), "Did you mean sub?"),
    ] {
        let message = failure(fixture.search(arguments.clone()).await);
        assert!(message.contains(expected_text), "{arguments}: {message}");
    }
}

#[tokio::test]
async fn hostile_expressions_take_linear_time_and_long_results_are_cut() {
    let fixture = fixture();
    std::fs::write(fixture.inside("aaa"), "a".repeat(90_000)).unwrap();
    let text = fixture.search(json!({"pattern": "(a+)+$", "path": "aaa"})).await.unwrap();
    assert!(text.contains("aaa [cut]") && text.len() < 1000, "{text}");

    std::fs::write(fixture.inside("many"), "match\n".repeat(9000)).unwrap();
    let text = fixture.search(json!({"pattern": "match", "max": 1000})).await.unwrap();
    assert!(text.starts_with("[1000 matches in 1") && text.contains("left out: everything else"), "{text}");
    std::fs::write(fixture.inside("few"), "two\n".repeat(2)).unwrap();
    let text = fixture.search(json!({"pattern": "two", "path": "few", "max": 2})).await.unwrap();
    assert!(!text.contains("left out"), "as many as were asked for is all there are: {text}");
    assert!(text.len() < MAX_OUTPUT_BYTES);
}

#[tokio::test]
async fn a_very_deep_tree_is_searched_as_far_as_paths_go() {
    let fixture = fixture();
    let deep = format!("{}/", "d".repeat(100)).repeat(30);
    std::fs::create_dir_all(fixture.inside(&deep)).unwrap();
    std::fs::write(fixture.inside(&deep).join("leaf"), "found").unwrap();
    let text = fixture.search(json!({"pattern": "found"})).await.unwrap();
    assert!(text.contains("/leaf:1: found"), "{text}");
    let deeper = "d/".repeat(100);
    std::fs::create_dir_all(fixture.inside(&deeper)).unwrap();
    let text = fixture.search(json!({"pattern": "found"})).await.unwrap();
    assert!(text.contains("1 not readable"), "{text}");
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let fixture = fixture();
    let cancelled = context("s");
    cancelled.cancel.cancel();
    let output = fixture.search.call(json!({"pattern": "one"}).as_object().unwrap(), &cancelled).await;
    assert_eq!(output, Err(ToolFailure::Cancelled));
}
