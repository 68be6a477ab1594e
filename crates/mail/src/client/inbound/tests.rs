use belay_protocol::principal::Role;
use belay_protocol::{ApprovalId, OutboxId, OutboxKey};

use super::super::thread::{digest, own_id};
use super::*;

const COMMANDS: [CommandInfo; 1] =
    [CommandInfo { name: "stop", description: "", operators_only: false, in_groups: true }];

fn inbound(head: &Head, text: &str) -> Inbound {
    let reader = Reader { address: "belay@example.org", commands: &COMMANDS };
    let principal = Principal { id: "ann@example.org".into(), role: Role::User };
    reader.inbound(head, principal, &Ok(Content { text: text.to_owned(), ..Content::default() }))
}

fn head(subject: &str, in_reply_to: Option<String>) -> Head {
    let (from, id) = ("ann@example.org".to_owned(), "1@a".to_owned());
    Head { from, id, digest: digest(&["1@a"]), subject: subject.to_owned(), in_reply_to, ..Head::default() }
}

fn text(inbound: &Inbound) -> &str {
    match &inbound.body {
        Body::Text(text) => text,
        body => panic!("no text: {body:?}"),
    }
}

const QUOTED: &str = "\n\nOn 1 Dec 2026, Belay <belay@example.org> wrote:\n> earlier words";

#[test]
fn a_thread_is_a_session_of_its_person() {
    let first = inbound(&head("Lunch", None), "hello");
    let thread = digest(&["1@a"]);
    assert_eq!(first.session.to_string(), format!("mail:ann@example.org:{thread}"));
    let route = first.reply_to.clone().expect("a route");
    assert_eq!(&*route.conversation, format!("ann@example.org:{thread}"));
    let own = own_id(OutboxKey::of(OutboxId::new()), Some(&thread), None, "example.org");
    let second = inbound(&head("Re: Lunch", Some(own)), &format!("and more{QUOTED}"));
    assert_eq!(second.session, first.session);
    assert_eq!(text(&second), "and more");
    let quote = second.provenance.as_ref().and_then(|it| it.reply_to.clone()).expect("a quotation");
    assert!(quote.text.ends_with("earlier words") && quote.author == Author::Other, "{quote:?}");
    assert!(second.provenance.as_ref().is_some_and(|it| it.untrusted && it.is_untrusted()), "anybody can forge an id");
    assert!(first.provenance.as_ref().is_some_and(|it| !it.is_untrusted()));
    assert_eq!(first.key.as_ref().map(|key| key.message_id.clone()), Some(thread.as_str().into()));
}

#[test]
fn an_id_leads_into_no_session_of_another_person() {
    let own = own_id(OutboxKey::of(OutboxId::new()), Some(&digest(&["1@a"])), None, "example.org");
    let of_eve = Head { from: "eve@example.com".to_owned(), ..head("Re: Lunch", Some(own)) };
    let found = inbound(&of_eve, "hello");
    assert_eq!(found.session.to_string(), format!("mail:eve@example.com:{}", digest(&["1@a"])));
}

#[test]
fn a_quotation_of_others_is_untrusted_and_stays_in_the_text() {
    let found = inbound(&head("Fwd: offer", None), &format!("Is it good?{QUOTED}"));
    assert!(text(&found).contains("earlier words"), "{found:?}");
    assert!(found.provenance.as_ref().is_some_and(|it| it.untrusted && it.is_untrusted()));
    assert_eq!(text(&inbound(&head("What time is it?", None), "")), "What time is it?");
    assert_eq!(text(&inbound(&head("", None), "")), NO_TEXT);
}

#[test]
fn only_the_first_line_is_a_command_or_an_answer() {
    for (subject, body, expected) in [
        ("x", "/stop\n\n-- \nAnn", "/stop"),
        ("x", "\n\n  /stop now\nplease", "/stop now"),
        ("x", "hello\n/stop", "Subject: x\n\nhello\n/stop"),
        ("", "/unknown\nhello", "/unknown\nhello"),
        ("/stop", "", "/stop"),
        ("/stop", "please", "Subject: /stop\n\nplease"),
    ] {
        assert_eq!(text(&inbound(&head(subject, None), body)), expected, "{body:?}");
    }
    let quoted = format!("hello{QUOTED}\n> /stop");
    assert!(!text(&inbound(&head("x", None), &quoted)).starts_with("/stop"));
}

#[test]
fn the_answer_to_a_question_is_the_first_line_of_a_reply_to_it() {
    let (approval, key) = (ApprovalId::new(), OutboxKey::of(OutboxId::new()));
    let question = own_id(key, Some(&digest(&["1@a"])), Some(approval), "example.org");
    let plain = own_id(key, Some(&digest(&["1@a"])), None, "example.org");
    let decision = |id: &str, body: &str| match inbound(&head("Re: x", Some(id.to_owned())), body).body {
        Body::Control(Control::Decide { approval: of, decision }) if of == approval => Some(decision),
        _ => None,
    };
    assert_eq!(decision(&question, &format!("Yes.\n\n-- \nAnn{QUOTED}")), Some(Decision::Approve));
    assert_eq!(decision(&question, "no"), Some(Decision::Deny));
    assert_eq!(decision(&question, "Yes, but not the second one"), None);
    assert_eq!(decision(&question, &format!("Why?{QUOTED}\n> yes")), None);
    assert_eq!(decision(&question, "> yes"), None);
    assert_eq!(decision(&plain, "yes"), None, "the agent decides what a plain yes answers");
}
