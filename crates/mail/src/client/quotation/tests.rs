use super::*;

fn check(text: &str, own: &str, quoted: &str) {
    let found = split(text);
    assert_eq!((found.own.as_str(), found.quoted.as_str(), found.is_mixed), (own, quoted, false), "{text:?}");
}

#[test]
fn quotations_of_known_programs_are_apart() {
    check("yes\n", "yes", "");
    let gmail =
        "Yes\r\n\r\nOn Tue, Dec 1, 2026 at 11:00 AM Belay <belay@example.org> wrote:\r\n\r\n> May I?\r\n> Really?\r\n";
    check(gmail, "Yes", "On Tue, Dec 1, 2026 at 11:00 AM Belay <belay@example.org> wrote:\nMay I?\nReally?");
    let wrapped = "Yes\n\nOn Tue, Dec 1, 2026 at 11:00 AM Belay with a long name\n<belay@example.org> wrote:\n> May I?";
    check(wrapped, "Yes", "On Tue, Dec 1, 2026 at 11:00 AM Belay with a long name\n<belay@example.org> wrote:\nMay I?");
    let thunderbird = "Am 01.12.26 um 11:00 schrieb Belay:\n> Darf ich?\n\nJa, gern.\n\n-- \nAnn\n";
    check(thunderbird, "Ja, gern.\n\n-- \nAnn", "Am 01.12.26 um 11:00 schrieb Belay:\nDarf ich?");
    let apple = "Oui\n\n> Le 1 déc. 2026 à 11:00, Belay <belay@example.org> a écrit :\n> \n> Puis-je ?\n";
    check(apple, "Oui", "Le 1 déc. 2026 à 11:00, Belay <belay@example.org> a écrit :\n\nPuis-je ?");
    check("Yes\n\n> May I?\n\n-- \nAnn", "Yes\n\n\n-- \nAnn", "May I?");
    let outlook = "Yes\n\n________________________________\nFrom: Belay <belay@example.org>\n\
                   Sent: Tuesday, December 1, 2026 11:00 AM\nTo: Ann <ann@example.org>\nSubject: Question\n\nMay I?\n";
    let found = split(outlook);
    assert!(found.own.starts_with("Yes") && !found.own.contains("May I?"), "{found:?}");
    assert!(found.quoted.starts_with("From: Belay") && found.quoted.ends_with("May I?"), "{found:?}");
    let german =
        "Ja\n\n-----Ursprüngliche Nachricht-----\nVon: Belay\nGesendet: heute\nAn: Ann\nBetreff: x\n\nDarf ich?";
    assert_eq!(split(german).own, "Ja");
    assert_eq!(
        split("See below\n\n---------- Forwarded message ---------\nFrom: Bob <bob@x.example>\n\nText").own,
        "See below"
    );
    assert_eq!(split("Look\n\nBegin forwarded message:\n\nFrom: Bob\nText").own, "Look");
}

#[test]
fn own_words_stay() {
    for own in [
        "From: here to there\nis a long way",
        "She wrote:\nnothing",
        "-- original --",
        "a > b\nand c < d",
        "2 lines\n\n\nwith a gap",
    ] {
        check(own, own, "");
    }
    check("He wrote:\n> x", "He wrote:", "x");
}

#[test]
fn answers_between_quoted_lines_stay_where_they_are() {
    let text = "> May I?\nYes\n> And this?\nNo";
    assert_eq!(split(text), Parts { own: text.to_owned(), quoted: String::new(), is_mixed: true }, "starts quoted");
    let text = "Hello,\n> May I?\nYes";
    assert_eq!(split(text), Parts { own: text.to_owned(), quoted: String::new(), is_mixed: true });
}

#[test]
fn hostile_texts_take_linear_time_and_no_panic() {
    for text in [
        "> ".repeat(50_000),
        "\n".repeat(100_000),
        "from:\n".repeat(20_000),
        "wrote:\n>\n".repeat(20_000),
        "ä>\n".into(),
    ] {
        let found = split(&text);
        assert!(found.own.len() + found.quoted.len() <= text.len());
    }
}
