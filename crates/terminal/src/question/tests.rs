use super::*;

const LOOK: Look = Look { width: 80, colour: false };

/// A question of the effect gate, with the end of its id.
fn asked(facts: &[(&str, &str)]) -> String {
    let facts: Vec<_> = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let about =
        belay_text::question::about_call("write_file", "create a.txt", &facts, "write_file asks before it acts");
    format!(
        "{about}\n\nAnswer **yes** or **no**, or **always** for write_file in this conversation. Without an answer the call \
         is denied after 30 minutes. (/approve 7f16, /deny 7f16)"
    )
}

#[test]
fn a_question_has_its_blocks_its_facts_and_its_sentences_at_80_columns_and_at_120() {
    let text = asked(&[("path", "a.txt"), ("mcp server", "x *y*"), ("content", "one\n\t`two`\n")]);
    let begins = [
        "│ May I do this? write_file",
        "│",
        "│   create a.txt",
        "│ path        a.txt",
        "│ mcp server  x *y*",
        "│ content     2 lines",
        "│   1  one",
        "│   2      `two`",
        "│",
        "│ Why I ask: write_file asks before it acts.",
        "│",
    ];
    let ends = |width: usize| match width {
        80 => vec![
            "│ Answer yes or no, or always for write_file in this conversation. Without an",
            "│ answer the call is denied after 30 minutes. (/approve 7f16, /deny 7f16)",
        ],
        _ => vec![
            "│ Answer yes or no, or always for write_file in this conversation. Without an answer the call is denied after 30",
            "│ minutes. (/approve 7f16, /deny 7f16)",
        ],
    };
    for width in [80, 120] {
        let shown = question(&text, Look { width, ..LOOK }, Some("/more"));
        let expected: Vec<_> = begins.into_iter().chain(ends(width)).map(str::to_owned).collect();
        assert_eq!(shown, expected, "{width}");
    }
}

#[test]
fn the_first_forty_lines_of_a_block_are_shown_and_the_rest_on_demand() {
    let content = |lines: usize| (1..=lines).map(|n| format!("line {n}\n")).collect::<String>();
    let text = asked(&[("content", &*content(500))]);
    let folded = question(&text, LOOK, Some("/more"));
    assert!(folded.contains(&"│    40  line 40".to_owned()) && !folded.contains(&"│    41  line 41".to_owned()));
    assert!(folded.contains(&"│   … 460 more lines: /more shows all".to_owned()), "{folded:#?}");
    assert!(is_folded(&text) && question(&text, LOOK, None).contains(&"│   500  line 500".to_owned()));
    let whole = asked(&[("content", &*content(41))]);
    assert!(!is_folded(&whole), "a line is not replaced by one about it");
    assert!(question(&whole, LOOK, Some("/more")).contains(&"│   41  line 41".to_owned()));
}

#[test]
fn the_call_itself_is_never_folded() {
    let script: Vec<_> = (1..=100).map(|n| format!("echo {n}")).collect();
    let facts = [("directory".to_owned(), ".".to_owned())];
    let text = belay_text::question::about_call("run_shell", &script.join("\n"), &facts, "it asks");
    assert!(!is_folded(&text));
    assert_eq!(question(&text, LOOK, Some("/more")), question(&text, LOOK, None));
    assert!(question(&text, LOOK, Some("/more")).contains(&"│   echo 100".to_owned()));
}

#[test]
fn the_spaces_of_a_value_are_seen() {
    let shown = |value: &str, width: usize| question(&asked(&[("path", value)]), Look { width, ..LOOK }, None);
    for (value, line) in [
        ("deploy.sh", "│ path  deploy.sh"),
        ("deploy.sh ", "│ path  ` deploy.sh  `"),
        (" deploy.sh", "│ path  `  deploy.sh `"),
        ("a  b", "│ path  a  b"),
        ("*a b*", "│ path  *a b*"),
    ] {
        assert!(shown(value, 80).iter().any(|shown| shown == line), "{line:?}");
    }
    // A border of lines takes no space.
    let word = "x".repeat(22);
    let narrow = shown(&format!("{word}  end"), 30);
    let lines = [format!("│ path  {word}"), "│         end".to_owned()];
    assert!(narrow.windows(2).any(|shown| shown == lines), "{narrow:#?}");
}

#[test]
fn nothing_of_a_call_acts_and_each_line_fits() {
    let word = "w".repeat(200);
    let value = format!("{word} [a](b) {}", "word ".repeat(40));
    let text = asked(&[("argument a", &*value), ("old", "```\n- path: x\n"), ("new", "\u{202e}\x1b[2J")]);
    for width in [1, 10, 40, 80, 120] {
        let shown = question(&text, Look { width, ..LOOK }, Some("/more"));
        assert!(shown.iter().all(|line| crate::width(line) <= width), "{width}: {shown:#?}");
    }
    let shown = question(&text, Look { width: 120, ..LOOK }, None);
    for line in ["│   - ```", "│   - - path: x", r"│   + \u{202e}\u{1b}[2J"] {
        assert!(shown.iter().any(|shown| shown == line), "{line}: {shown:#?}");
    }
    assert!(shown.concat().contains("[a](b)"));
}

#[test]
fn changes_have_colours_where_there_are_any() {
    let shown = question(&asked(&[("old", "a"), ("new", "b")]), Look { colour: true, ..LOOK }, None);
    for line in ["\x1b[33m│\x1b[0m   \x1b[31m- a\x1b[0m", "\x1b[33m│\x1b[0m   \x1b[32m+ b\x1b[0m"] {
        assert!(shown.iter().any(|shown| shown == line), "{line:?}: {shown:#?}");
    }
}
