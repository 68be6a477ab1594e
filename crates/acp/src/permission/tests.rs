#![allow(clippy::unwrap_used)]
use agent_client_protocol::v1::schema::SelectedPermissionOutcome;
use serde_json::json;

use super::*;

fn question(kind: &str, covers: Json) -> Json {
    json!({
        "id": "q", "call_id": "c", "tool": "run_command", "kind": kind, "summary": "ls", "name": "key",
        "arguments": {"argv": ["ls"]}, "detail": "It asks.", "bound": [["directory", "."]], "covers": covers,
    })
}

#[test]
fn always_is_offered_only_where_the_question_offers_it() {
    for (kind, covers, expected) in [
        ("approval", Json::Null, vec!["allow_once", "reject_once"]),
        ("approval", json!("ls"), vec!["allow_once", "allow_always", "reject_once"]),
        ("credential", json!("ls"), vec!["reject_once"]),
        ("form", Json::Null, vec!["reject_once"]),
    ] {
        let request = serde_json::to_value(request("s", &question(kind, covers), None)).unwrap();
        let kinds: Vec<_> = request["options"].as_array().unwrap().iter().map(|option| text(option, "/kind")).collect();
        assert_eq!(kinds, expected, "{kind}");
    }
}

#[test]
fn a_question_shows_what_the_answer_is_bound_to() {
    let request = serde_json::to_value(request("s", &question("approval", Json::Null), None)).unwrap();
    assert_eq!(
        request["toolCall"],
        json!({
            "toolCallId": "c", "kind": "execute", "status": "pending", "title": "run_command: ls",
            "content": [{"type": "content", "content": {"type": "text", "text": "It asks.\n- directory: ."}}],
            "locations": [], "rawInput": {"argv": ["ls"]},
        })
    );
}

#[test]
fn what_a_model_writes_neither_acts_nor_hides_in_a_question() {
    let mut question = question("approval", json!("ls\n\u{202e}"));
    question["summary"] = json!("ls <!--\nrm \u{200b}x");
    question["detail"] = json!("[ok](https://example.com)");
    question["bound"] = json!([["stdin", "a\n- directory: /\n<!--"], ["argument \u{202e}x", "*"]]);
    let request = serde_json::to_value(request("s", &question, None)).unwrap();
    assert_eq!(text(&request, "/toolCall/title"), r"run_command: ls <!--\nrm \u{200b}x");
    assert_eq!(text(&request, "/options/1/name"), r"Always (ls\n\u{202e})");
    let whole = "```\nrun_command: ls <!--\nrm \\u{200b}x\n```\n\n`[ok](https://example.com)`\n- stdin:\n\n```\na\n- \
                 directory: /\n<!--\n```\n\n- `argument \\u{202e}x`: `*`";
    assert_eq!(text(&request, "/toolCall/content/0/content/text"), whole);
}

#[test]
fn an_option_that_was_not_offered_is_a_no_and_no_answer_leaves_the_question_open() {
    let selected = |id: &'static str| {
        let outcome = RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id));
        Ok(RequestPermissionResponse::new(outcome))
    };
    let offered = [ALLOW, ALWAYS, REJECT].map(Arc::from);
    for (id, expected) in [(ALLOW, "approve"), (ALWAYS, "always"), (REJECT, "deny"), ("yes", "deny"), ("", "deny")] {
        assert_eq!(decision(&selected(id), &offered), Some(expected), "{id}");
    }
    assert_eq!(decision(&selected(ALWAYS), &offered[..1]), Some("deny"), "this question has no always");
    assert_eq!(decision(&Ok(RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)), &offered), None);
    assert_eq!(decision(&Err(Error::method_not_found()), &offered), None);
}

#[test]
fn a_first_yes_of_two_is_said_in_the_words_of_the_daemon() {
    let answer = |state: &str| json!({"approval": {"state": state}, "reply": "Approved, 1 of 2. ann is asked too."});
    assert_eq!(open_still(&answer("waiting")), Some("Approved, 1 of 2. ann is asked too."));
    assert_eq!(open_still(&answer("approved")), None);
    assert_eq!(open_still(&json!({})), None);
}

#[test]
fn a_question_that_cannot_be_read_is_named_with_the_way_to_answer_it() {
    let words = unreadable("q7", &Trouble::Refused { status: 500, message: "why".into() });
    assert!(words.contains("q7") && words.contains("why") && words.contains("`belay approvals approve q7`"), "{words}");
}
