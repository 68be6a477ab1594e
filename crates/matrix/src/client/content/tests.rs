//! Pieces of answers, and what an event holds.

use belay_protocol::OutboxId;

use super::*;

#[test]
fn every_piece_fits_an_event() {
    let key = OutboxKey::of(OutboxId::new());
    assert!(pieces(" \n").is_empty());
    assert_eq!(pieces(" one\u{7} "), ["one"]);
    let code = format!("before\n\n```rust\n{}```\nafter", "let x = \"😀\";\n".repeat(3_000));
    let words = "wörd ".repeat(9_000);
    for text in [code.as_str(), &words, &"ö".repeat(30_000), &"\n".repeat(3), &"\"<&".repeat(10_000)] {
        let pieces = pieces(text);
        for piece in &pieces {
            assert!(piece.len() <= PIECE_MAX_BYTES, "{}", piece.len());
            let content = Content { text: piece, reply_to: Some("$e"), mark: mark(key, 0, None) };
            let longest = content.message().to_string().len().max(content.edit("$e").to_string().len());
            assert!(longest < 64_000, "{longest}");
        }
    }
}

#[test]
fn an_answer_mentions_nobody_and_escapes_html() {
    let content = Content {
        text: "@room <b>x</b> **y**",
        reply_to: Some("$e"),
        mark: mark(OutboxKey::of(OutboxId::new()), 0, None),
    };
    let message = content.message();
    assert_eq!(message["m.mentions"], json!({}));
    assert_eq!(message["m.relates_to"]["m.in_reply_to"]["event_id"], "$e");
    assert_eq!(message["formatted_body"], "<p>@room &lt;b&gt;x&lt;/b&gt; <strong>y</strong></p>\n");
    let edit = content.edit("$1");
    assert_eq!(
        (edit["m.relates_to"]["event_id"].as_str(), edit["m.new_content"]["body"].as_str()),
        (Some("$1"), Some(content.text))
    );
}

#[test]
fn a_value_of_a_question_acts_in_no_piece() {
    let link = "[my bank](https://e.example) ";
    let heading = "# May I do this? ";
    for value in [
        format!("{link}{}", "x".repeat(12_000)),
        link.repeat(500),
        heading.repeat(900),
        format!("{}{}", "`".repeat(5_000), link.repeat(300)),
    ] {
        let bound = [("argument text".to_owned(), value.clone()), ("to".to_owned(), "x".to_owned())];
        let pieces = pieces(&belay_text::question::about_call("post", &value, &bound, "it is outside"));
        assert!(pieces.len() > 2);
        for piece in pieces {
            assert!(piece.len() <= PIECE_MAX_BYTES, "{}", piece.len());
            let html = html(&piece).unwrap_or_default();
            assert!(!html.contains("<a ") && !html.contains("<h1>"), "{:?}", &value[..40]);
        }
    }
}
