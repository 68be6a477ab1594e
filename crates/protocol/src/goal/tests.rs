use super::*;

fn request(text: &str) -> GoalRequest {
    match GoalMessage::of(text) {
        Some(GoalMessage::Request(request)) => *request,
        other => panic!("{text:?} is no request: {other:?}"),
    }
}

fn mistake(text: &str) -> String {
    match GoalMessage::of(text) {
        Some(GoalMessage::Usage(why)) => why,
        other => panic!("{text:?} is no mistake: {other:?}"),
    }
}

fn command(words: &[&str]) -> Option<Vec<String>> {
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

#[test]
fn goals_are_read_as_people_write_them() {
    let of = |text: &str| {
        let GoalRequest { text, until, budget } = request(text);
        (text, until.command, until.outputs, until.judge, budget)
    };
    let budget = |attempts, micro_usd, seconds| GoalBudget { attempts, micro_usd, seconds };
    let none = || budget(None, None, None);
    for (text, expected) in [
        ("/goal fix it until `make test`", ("fix it", command(&["make", "test"]), vec![], None, none())),
        ("/Goal@MyBot fix\nit until run make test", ("fix\nit", command(&["make", "test"]), vec![], None, none())),
        (
            "/goal wait until noon until `test -f 'a b'`",
            ("wait until noon", command(&["test", "-f", "a b"]), vec![], None, none()),
        ),
        (
            "/goal --attempts 3 --usd .25 —minutes 2 x until `true` and judge \"it is short\" and outputs a, n:integer",
            (
                "x",
                command(&["true"]),
                vec!["a:string", "n:integer"],
                Some("it is short"),
                budget(Some(3), Some(250_000), Some(120)),
            ),
        ),
        ("/goal x until judge “good”", ("x", None, vec![], Some("good"), none())),
        ("/goal x until run sh -c 'a | b && c'", ("x", command(&["sh", "-c", "a | b && c"]), vec![], None, none())),
        ("/goal x until `grep \"a \\\" b\" f=1`", ("x", command(&["grep", "a \" b", "f=1"]), vec![], None, none())),
    ] {
        let (words, command, outputs, judge, budget) = expected;
        let outputs = outputs.into_iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(of(text), (words.to_owned(), command, outputs, judge.map(str::to_owned), budget), "{text}");
    }
}

#[test]
fn what_is_no_goal_is_told_the_form() {
    for (text, begins) in [
        ("/goal fix it", NO_UNTIL),
        ("/goal until `true`", NO_TEXT),
        ("/goal x until", NO_UNTIL),
        ("/goal x until soon", "`soon` is no check; did you mean `run soon`? A check is run COMMAND"),
        ("/goal x until make test", "`make test` is no check; did you mean `run make test`?"),
        ("/goal x until run", "The command is missing."),
        ("/goal x until ``", "The command is missing."),
        ("/goal x until `true", "A backtick is not closed."),
        ("/goal x until `true` and", "A check is missing."),
        ("/goal x until `true` or `false`", "Behind a check stands `or `false``."),
        ("/goal x until `true` and `false`", "There are two commands"),
        ("/goal x until judge good", "The criterion of a judge stands in double quotes."),
        ("/goal x until judge \"good", "The quotes around a criterion are not closed."),
        ("/goal x until judge \"\"", "A criterion has 1 to 2000 bytes."),
        ("/goal x until judge \"a\" and judge \"b\"", "There are two judges"),
        ("/goal x until outputs 1a", "`1a` is no output"),
        ("/goal x until `make test | tee log`", NO_SHELL),
        ("/goal x until `A=1 make`", NO_SHELL),
        ("/goal x until `ls *.rs`", NO_SHELL),
        ("/goal x until `echo $HOME`", NO_SHELL),
        ("/goal x until `echo 'open`", NO_SHELL),
        ("/goal --attempts 0 x until `true`", BAD_BUDGET),
        ("/goal --attempts 101 x until `true`", BAD_BUDGET),
        ("/goal --usd 0 x until `true`", BAD_BUDGET),
        ("/goal --usd 0.0000001 x until `true`", BAD_BUDGET),
        ("/goal --usd -1 x until `true`", BAD_BUDGET),
        ("/goal --minutes 99999999999999999999 x until `true`", BAD_BUDGET),
        ("/goal --speed 9 x until `true`", BAD_BUDGET),
    ] {
        assert!(mistake(text).starts_with(begins), "{text}: {}", mistake(text));
    }
    assert!(mistake("/goal fix it").contains("--minutes N or --seconds N"), "the form follows the mistake");
    assert_eq!(mistake(&format!("/goal x until {}", "a".repeat(99))).matches('…').count(), 2);
    for (text, command) in [
        ("/goal", GoalCommand::Show),
        (" /goal Status ", GoalCommand::Show),
        ("/goal cancel", GoalCommand::Cancel),
        ("/goal STOP", GoalCommand::Cancel),
    ] {
        assert_eq!(GoalMessage::of(text), Some(GoalMessage::Command(command)), "{text}");
    }
    assert_eq!((GoalMessage::of("/goals"), GoalMessage::of("a /goal x until `true`")), (None, None));
}

#[test]
fn the_checks_are_in_the_last_part_of_a_long_text() {
    let places = "until run a ".repeat(50_000);
    assert!(matches!(GoalMessage::of(&format!("/goal x {places} '")), Some(GoalMessage::Usage(_))));
    let read = request(&format!("/goal {} until `true`", "do it until ".repeat(2_000)));
    assert_eq!((read.text.len(), read.until.command), (2_000 * 12 - 1, command(&["true"])));
    let long = format!("/goal x until run echo {}", "a".repeat(9_000));
    assert_eq!(mistake(&long), NO_CHECK);
}

#[test]
fn a_written_goal_is_read_again_as_the_same() {
    for text in [
        "/goal fix it until `make test`",
        "/goal --attempts 3 --usd 0.25 --seconds 90 x until `sh -c 'a | b' ''` and outputs a:string, b:string[] and judge \"ok\"",
        r#"/goal x until `grep 'it'\''s' a=b "c d"`"#,
    ] {
        let request = request(text);
        let written = request.written().expect("written");
        assert_eq!(*Box::new(self::request(&written)), request, "{written}");
    }
    let of = |text: &str, until| GoalRequest { text: text.into(), until, budget: GoalBudget::default() };
    let judge = |criterion: &str| GoalCheck { judge: Some(criterion.into()), ..GoalCheck::default() };
    for lost in [
        of("", judge("ok")),
        of("x", GoalCheck::default()),
        of("x", judge("it says \"ok\"")),
        of("x", GoalCheck { command: command(&["echo", "`"]), ..GoalCheck::default() }),
        of("--attempts 2 x", judge("ok")),
    ] {
        assert!(lost.written().is_err(), "{lost:?}");
    }
}
