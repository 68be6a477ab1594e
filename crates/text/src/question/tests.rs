use super::*;

fn about(bound: &[(&str, &str)]) -> String {
    let bound: Vec<_> = bound.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    about_call("t", "does it", &bound, "it asks before it acts")
}

/// The question without the parts that each has.
fn middle(bound: &[(&str, &str)]) -> String {
    let text = about(bound);
    let text = text.strip_prefix("May I do this? **t**\n\n```\ndoes it\n```\n").expect("the call comes first");
    text.strip_suffix("\nWhy I ask: it asks before it acts.").expect("the reason comes last").to_owned()
}

#[test]
fn the_content_of_a_file_is_numbered_in_the_language_of_its_name() {
    let digest = "0123456789abcdef".repeat(4);
    let facts =
        [("path", "a/b.rs"), ("change", &*digest), ("file", "does not exist"), ("content", "fn a() {\n\t1\n}\n")];
    let expected =
        "- path: a/b.rs\n- file: does not exist\n- content: 3 lines\n```rs\n1  fn a() {\n2  \t1\n3  }\n```\n";
    assert_eq!(middle(&facts), expected);
    let nine: String = (1..=10).map(|n| format!("l{n}\n")).collect();
    assert!(middle(&[("path", "x"), ("content", &*nine)]).contains("\n 1  l1\n"));
    for (content, size) in [("", "nothing"), ("a", "1 line, without a line end"), ("a\nb", "the last one without")] {
        assert!(middle(&[("content", content)]).contains(size), "{content:?}");
    }
    let hostile = middle(&[("path", "x.`\n"), ("content", "```\n- path: other\n\u{202e}\r")]);
    assert!(hostile.contains("````\n1  ```\n2  - path: other\n3  \\u{202e}\\u{d}\n````\n"), "{hostile}");
}

#[test]
fn an_edit_is_a_diff_that_shows_a_lost_line_end() {
    let edit = |old, new| middle(&[("old", old), ("new", new)]);
    assert_eq!(edit("one\ntwo\n", "three\n"), "```diff\n- one\n- two\n+ three\n```\n");
    assert_eq!(edit("one", ""), "```diff\n- one\n\\ without a line end\n```\n".replace("\\ without a line end\n", ""));
    assert_eq!(edit("one\n", "one"), "```diff\n- one\n+ one\n\\ without a line end\n```\n");
}

#[test]
fn digests_are_short_but_an_argument_is_whole() {
    let digest = "0123456789abcdef".repeat(4);
    let shown = middle(&[("file", &*digest), ("file a.sh", &*digest), ("argument file", &*digest), ("argv", "x")]);
    assert_eq!(shown, format!("- file a.sh: 0123456789ab…\n- argument file: {digest}\n"));
    let shown = middle(&[("path", &*digest), ("settings .git/config", &*digest), ("described as", &*digest)]);
    let expected = "- settings .git/config: 0123456789ab…\n- described as: 0123456789ab…\n";
    assert_eq!(shown, format!("- path: {digest}\n{expected}"), "a file may have such a name");
}

#[test]
fn a_long_content_shows_both_ends() {
    let content: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
    let shown = middle(&[("content", &*content)]);
    assert!(
        shown.contains("\n   1  line 1\n") && shown.contains("NOT SHOWN here") && shown.contains("5000  line 5000\n")
    );
}

#[test]
fn a_long_edit_shows_both_ends_of_each_side() {
    let lines = |word: &str| (1..=5000).map(|n| format!("{word} {n}\n")).collect::<String>();
    let shown = middle(&[("old", &*lines("one")), ("new", &*lines("two"))]);
    for line in ["- one 1", "- one 5000", "+ two 1", "+ two 5000"] {
        assert!(shown.lines().any(|shown| shown == line), "{line}");
    }
    assert_eq!(shown.matches("NOT SHOWN here").count(), 2);
}
