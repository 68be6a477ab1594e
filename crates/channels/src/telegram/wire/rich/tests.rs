use serde_json::json;

use super::*;

fn markdown(blocks: Value) -> String {
    words(&json!({ "blocks": blocks })).text
}

#[test]
fn each_kind_of_block_is_markdown() {
    let paragraph = |text: &str| json!({"type": "paragraph", "text": text});
    let item = |label: &str, text: &str| json!({"label": label, "blocks": [paragraph(text)]});
    for (block, expected) in [
        (paragraph("please add 2 and 3"), "please add 2 and 3"),
        (json!({"type": "heading", "text": "Plan", "size": 2}), "## Plan"),
        (json!({"type": "pre", "text": "fn main() {}\n", "language": "rust"}), "```rust\nfn main() {}\n```"),
        (json!({"type": "pre", "text": "```"}), "````\n```\n````"),
        (json!({"type": "divider"}), "---"),
        (json!({"type": "footer", "text": "the end"}), "the end"),
        (json!({"type": "mathematical_expression", "expression": "x^2"}), "$$x^2$$"),
        (json!({"type": "list", "items": [item("•", "a"), item("•", "b")]}), "- a\n- b"),
        (json!({"type": "list", "items": [item("1.", "a\nb"), item("2.", "c")]}), "1. a\n   b\n2. c"),
        (
            json!({"type": "list", "items": [
                {"label": "", "blocks": [paragraph("a")], "has_checkbox": true, "is_checked": true},
                {"label": "", "blocks": [paragraph("b")], "has_checkbox": true},
            ]}),
            "- [x] a\n- [ ] b",
        ),
        (
            json!({"type": "blockquote", "blocks": [paragraph("a"), paragraph("b")], "credit": "Ann"}),
            "> a\n> \n> b\n> Ann",
        ),
        (json!({"type": "expandable_blockquote", "text": "a\nb"}), "> a\n> b"),
        (json!({"type": "pullquote", "text": "a"}), "> a"),
        (
            json!({"type": "table", "cells": [[{"text": "a|b"}, {"text": "c"}], [{"text": "1"}, {}]], "caption": "T"}),
            "| a\\|b | c |\n| --- | --- |\n| 1 |  |\nT",
        ),
        (json!({"type": "details", "summary": "More", "blocks": [paragraph("a")]}), "More\na"),
        (
            json!({"type": "map", "location": {"latitude": 52.5, "longitude": 13.4}, "caption": {"text": "here"}}),
            "(map: latitude 52.5, longitude 13.4) here",
        ),
        (json!({"type": "photo", "photo": [], "caption": {"text": "a cat"}}), "(photo) a cat"),
        (json!({"type": "buttons", "buttons": [{"text": "Go"}, {"text": "No"}]}), "[Go] [No]"),
        (json!({"type": "collage", "blocks": [{"type": "voice_note"}], "caption": {"text": "c"}}), "(voice note)\nc"),
        // A kind that this version does not know gives the texts that it has.
        (json!({"type": "hologram", "title": "T", "text": "x", "blocks": [paragraph("y")]}), "T\nx\ny"),
        (json!({"text": "x"}), "x"),
        (json!(5), ""),
    ] {
        assert_eq!(markdown(json!([block])), expected, "{block}");
    }
    assert_eq!(markdown(json!([paragraph("a"), paragraph("b")])), "a\n\nb");
}

#[test]
fn each_style_of_text_is_markdown() {
    let styled = |kind: &str| json!({"type": kind, "text": "a"});
    for (text, expected) in [
        (json!("a"), "a"),
        (json!(["a", styled("bold"), "b"]), "a**a**b"),
        (styled("italic"), "*a*"),
        (styled("strikethrough"), "~~a~~"),
        (styled("code"), "`a`"),
        (styled("underline"), "a"),
        (styled("wavy"), "a"),
        (json!({"type": "wavy", "text": ["a", {"type": "bold", "text": "b"}]}), "a**b**"),
        (json!({"type": "url", "text": "a", "url": "https://a.example"}), "[a](https://a.example)"),
        (json!({"type": "date_time", "text": "noon", "unix_time": 1_764_417_600}), "noon (2025-11-29T12:00:00.000Z)"),
        (json!({"type": "mathematical_expression", "expression": "x"}), "$x$"),
        (json!({"type": "custom_emoji", "custom_emoji_id": "1", "alternative_text": "🎲"}), "🎲"),
        (json!({"type": "button", "button": {"text": "Go"}}), "[Go]"),
        (json!({"type": "anchor", "name": "x"}), ""),
        (Value::Null, ""),
        (json!(true), ""),
    ] {
        assert_eq!(markdown(json!([{"type": "paragraph", "text": text}])), expected, "{text}");
    }
}

#[test]
fn what_may_address_the_bot_is_an_entity_at_its_place() {
    let mention = json!({"type": "mention", "text": "@belay_bot", "username": "belay_bot"});
    let blocks = json!([
        {"type": "heading", "text": "🗝 One", "size": 1},
        {"type": "blockquote", "blocks": [{"type": "paragraph", "text": ["hi\n", mention]}]},
        {"type": "paragraph", "text": [{"type": "text_mention", "text": "Belay", "user": {"id": 777}}, "?"]},
    ]);
    let Words { text, entities, is_unreadable } = words(&json!({ "blocks": blocks }));
    assert_eq!((text.as_str(), is_unreadable), ("# 🗝 One\n\n> hi\n> @belay_bot\n\nBelay?", false));
    let found: Vec<_> = entities.iter().map(|it| (&*it.kind, it.offset, it.length)).collect();
    assert_eq!(found, [("mention", Some(17), Some(10)), ("text_mention", Some(29), Some(5))]);
    assert_eq!(entities[1].user.as_ref().map(|user| user.id), Some(777));
}

#[test]
fn an_entity_behind_escaped_text_of_a_table_is_at_its_place() {
    let mention = |text: &str| json!({"type": "mention", "text": text});
    let cell = json!([mention("@a_bot"), "🗝|b|\n", mention("@c_bot"), {"type": "text_mention", "text": "d|e"}]);
    let table =
        json!({"type": "table", "cells": [[{"text": "|"}, {"text": cell}]], "caption": ["x|y ", mention("@f_bot")]});
    let quote = json!({"type": "blockquote", "blocks": [table]});
    let Words { text, entities, .. } = words(&json!({ "blocks": [quote] }));
    let units: Vec<u16> = text.encode_utf16().collect();
    let part = |it: &Entity| String::from_utf16(&units[it.offset.unwrap()..][..it.length.unwrap()]).unwrap();
    assert_eq!(entities.iter().map(part).collect::<Vec<_>>(), ["@a_bot", "@c_bot", "d\\|e", "@f_bot"]);
    assert_eq!(text, "> | \\| | @a_bot🗝\\|b\\| @c_botd\\|e |\n> | --- | --- |\n> x|y @f_bot");
}

#[test]
fn the_depth_is_bounded() {
    let deep = (0..100).fold(json!("x"), |inner, _| json!({"type": "bold", "text": inner}));
    assert!(markdown(json!([{"type": "paragraph", "text": deep}])).len() < 200);
    let deep = (0..100).fold(json!({"type": "divider"}), |inner, _| json!({"type": "blockquote", "blocks": [inner]}));
    assert!(markdown(json!([deep, {"type": "paragraph", "text": "after"}])).ends_with("after"));
}
