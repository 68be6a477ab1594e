use super::*;

fn people() -> MailPeople {
    let (allow, operators) = (vec!["Ann@Example.org".to_owned()], vec!["root@example.org".to_owned()]);
    MailPeople::of(&MailConfig { allow, operators, ..MailConfig::default() })
}

#[test]
fn the_lists_admit_and_only_in_ones_own_conversations() {
    let (people, thread) = (people(), "0123456789abcdef0123456789abcdef");
    let may = |principal: &str, conversation: Option<&str>| {
        matches!(people.standing_of(principal, conversation), AccessDecision::May(_))
    };
    assert!(may("ann@example.org", None) && may("root@example.org", None));
    assert!(may("ann@example.org", Some(&format!("ann@example.org:{thread}"))));
    assert!(!may("ann@example.org", Some(&format!("root@example.org:{thread}"))));
    assert!(!may("eve@example.org", None));
    assert!(people.serves("ann@example.org") && !people.serves("eve@example.org") && !people.serves("Ann@Example.org"));
    let session = people.session_of(&format!("ann@example.org:{thread}")).map(|key| key.to_string());
    assert_eq!(session, Some(format!("mail:ann@example.org:{thread}")));
    assert!(people.may_exist("eve@example.org") && !people.may_exist("eve"));
    assert!(!people.may_exist("Ann@example.org") && !people.may_exist("ann@Example.org"), "compared by lower case");
    people.replace(&MailConfig::default());
    assert!(!may("ann@example.org", None) && !people.has_anybody());
}

#[test]
fn an_address_is_plain() {
    for (text, is_one) in [
        ("ann@example.org", true),
        ("ann.lee+x@mail.example.org", true),
        ("o'hara@example.org", true),
        ("ann@localhost", true),
        ("ann", false),
        ("@example.org", false),
        ("ann@", false),
        ("ann@example..org", false),
        (".ann@example.org", false),
        ("ann@example.org\r\nBcc: eve@example.org", false),
        ("ann lee@example.org", false),
        ("\"ann\"@example.org", false),
        ("ann@example.org:1", false),
        ("änn@example.org", false),
        ("a@b@example.org", false),
    ] {
        assert_eq!(is_address(text), is_one, "{text}");
    }
    assert!(!is_address(&format!("{}@example.org", "a".repeat(200))));
    assert!(!is_conversation("ann@example.org:xyz"));
}
