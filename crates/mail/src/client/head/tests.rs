use super::*;

fn head(lines: &str) -> Head {
    Head::read(format!("{}\r\n\r\nbody\r\n", lines.replace('\n', "\r\n")).as_bytes()).expect("a head")
}

#[test]
fn the_sender_is_one_address() {
    for (from, expected) in [
        ("From: Ann <Ann@Example.org>", "ann@example.org"),
        ("From: ann@example.org", "ann@example.org"),
        ("From: =?utf-8?q?=C3=84nn?= <ann@example.org>", "ann@example.org"),
        ("From: \"boss@example.org\" <eve@example.com>", "eve@example.com"),
        ("From: Ann <ann@example.org>, Eve <eve@example.com>", ""),
        ("From: ann@example.org\nFrom: eve@example.com", ""),
        ("From: eve@example.com\nfrom: ann@example.org", ""),
        ("Sender: ann@example.org", ""),
        ("From: undisclosed:;", ""),
    ] {
        assert_eq!(head(from).from, expected, "{from}");
    }
}

#[test]
fn ids_and_results_are_read_in_their_order() {
    let found = head(
        "Return-Path: <ann@example.org>\nAuthentication-Results: mx.example.org;\n\tdkim=pass header.d=example.org\n\
         Authentication-Results: forged\nFrom: ann@example.org\nMessage-ID: <3@a>\nReferences: <1@a>\n <2@b>\n\
         In-Reply-To: <2@b>\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nDate: Tue, 1 Dec 2026 11:00:00 +0100 (CET)",
    );
    assert_eq!((found.id.as_str(), found.references), ("3@a", vec!["1@a".to_owned(), "2@b".to_owned()]));
    assert_eq!((found.in_reply_to.as_deref(), found.subject.as_str()), (Some("2@b"), "Grüße"));
    assert_eq!(found.results.len(), 2);
    assert!(found.results[0].contains("dkim=pass") && found.results[1] == "forged", "{:?}", found.results);
    assert_eq!(found.automatic, None);
}

#[test]
fn the_digest_is_of_the_mail_and_not_of_its_delivery() {
    let mail = "From: ann@example.org\nMessage-ID: <1@a>\nDate: Tue, 1 Dec 2026 11:00:00 +0100\nSubject: x";
    let again = format!("Return-Path: <ann@example.org>\nReceived: by mx\n{mail}");
    assert_eq!(head(mail).digest, head(&again).digest);
    assert_ne!(head(mail).digest, head(&mail.replace("ann@", "eve@")).digest, "a stranger takes nobody's id away");
    let without = "From: ann@example.org\nSubject: x";
    assert_ne!(head(without).digest, head(&without.replace("Subject: x", "Subject: y")).digest);
}

#[test]
fn programs_and_lists_are_recognised() {
    for (line, is_automatic) in [
        ("Subject: hello", false),
        ("Auto-Submitted: no", false),
        ("Auto-Submitted: auto-replied", true),
        ("auto-submitted: auto-generated; owner-email=\"x\"", true),
        ("Precedence: bulk", true),
        ("Precedence: LIST", true),
        ("Precedence: first-class", false),
        ("List-Id: <club.example.org>", true),
        ("List-Unsubscribe: <mailto:off@example.org>", true),
        ("X-Auto-Response-Suppress: All", true),
        ("X-Auto-Response-Suppress: None", false),
        ("Return-Path: <>", true),
        ("Return-Path: <ann@example.org>", false),
        ("Content-Type: multipart/report; report-type=delivery-status; boundary=x", true),
        ("X-Autoreply: yes", true),
    ] {
        assert_eq!(head(&format!("From: ann@example.org\n{line}")).automatic.is_some(), is_automatic, "{line}");
    }
}

#[test]
fn only_a_mail_to_this_address_of_these_days_counts() {
    let now = 1_796_119_200; // 1 Dec 2026, 10:00 UTC
    let (to, date) = ("To: Belay <Belay@example.org>", "Date: Tue, 1 Dec 2026 11:00:00 +0100");
    let old = "Date: Fri, 27 Nov 2026 11:00:00 +0100";
    let received = |day: u8| format!("Received: from a (b; c) by mx;\n\tSat, {day} Nov 2026 10:00:05 +0000 (UTC)");
    for (lines, expected) in [
        (format!("{to}\n{date}"), true),
        (format!("Cc: x@example.com, belay@example.org\nTo: y@example.com\n{date}"), true),
        (format!("To: team: y@example.com, belay@example.org;\n{date}"), true),
        (format!("To: ann@example.org\n{date}"), false),
        (format!("To: ann@example.org\nBcc: belay@example.org\n{date}"), false),
        (date.to_owned(), false),
        (format!("{to}\nTo: ann@example.org\n{date}"), false),
        (format!("{to}\nCc: a@example.org\ncc: b@example.org\n{date}"), false),
        (to.to_owned(), false),
        (format!("{to}\n{date}\n{date}"), false),
        (format!("{to}\n{old}"), false),
        (format!("{to}\nDate: Sat, 5 Dec 2026 11:00:00 +0100"), false),
        (format!("{}\n{to}\n{old}", received(28)), true),
        (format!("Received: by mx; Tue, 1 Dec 2026 10:00:00 +0000\n{}\n{to}\n{old}", received(28)), false),
        (format!("{}\n{to}\n{date}", received(20)), false),
    ] {
        let found = head(&format!("{lines}\nFrom: ann@example.org")).is_sent_to("belay@example.org", now);
        assert_eq!(found.is_ok(), expected, "{lines}: {found:?}");
    }
}
