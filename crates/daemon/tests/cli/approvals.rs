//! Questions on the command line: a rule makes a tool of the stand-in ask.

use std::io::Write;

use serde_json::Value;

use super::{Home, Screen, stderr, stdout};

const RULES: &str = "[[approvals.rules]]\ntool = \"calculate\"\nask = \"unless_approved\"\n";

/// A home whose settings have `calculate` ask.
fn home() -> Home {
    let home = Home::new();
    let settings = home.0.path().join(".config/belay");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("belay.toml"), RULES).unwrap();
    home
}

fn waiting(home: &Home) -> Vec<Value> {
    let list: Value = serde_json::from_slice(&home.run(&["approvals", "--json"]).stdout).unwrap();
    list["approvals"].as_array().unwrap().clone()
}

#[test]
fn a_run_that_rests_is_75_and_its_question_is_listed_shown_and_answered_once() {
    let home = home();
    let daemon = home.daemon();
    let asked = home.run(&["send", "--session", "me", "--wait", "calculate 17*23"]);
    assert_eq!(asked.status.code(), Some(75), "{}{}", stdout(&asked), stderr(&asked));
    assert!(stderr(&asked).contains("belay approvals approve"), "{}", stderr(&asked));

    let questions = waiting(&home);
    let id = questions[0]["id"].as_str().unwrap();
    assert_eq!(questions[0]["tool"], "calculate");
    let shown = home.run(&["approvals", "show", id]);
    assert!(stdout(&shown).contains("17*23") && stdout(&shown).contains("waiting"), "{}", stdout(&shown));
    let status = home.run(&["status"]);
    assert!(
        stdout(&status).contains("1 run waits for an answer") && stdout(&status).contains(id),
        "{}",
        stdout(&status)
    );
    let runs = home.run(&["runs"]);
    assert!(stdout(&runs).contains("asks about calculate"), "{}", stdout(&runs));

    let approved = home.run(&["approvals", "approve", id]);
    assert_eq!(approved.status.code(), Some(0), "{}", stderr(&approved));
    let late = home.run(&["approvals", "deny", id]);
    assert_eq!(late.status.code(), Some(1));
    assert!(stderr(&late).contains("was approved before"), "{}", stderr(&late));
    assert_eq!(waiting(&home), Vec::<Value>::new());
    let all = home.run(&["approvals", "list", "--all", "--full"]);
    assert!(stdout(&all).contains(id), "{}", stdout(&all));

    let asked = home.run(&["send", "--session", "me", "--wait", "calculate 2*21"]);
    assert_eq!(asked.status.code(), Some(75), "{}", stderr(&asked));
    let answered = home.run(&["send", "--session", "me", "--wait", "yes"]);
    assert_eq!(answered.status.code(), Some(0), "{}", stderr(&answered));
    assert!(stdout(&answered).contains("42"), "{}", stdout(&answered));
    home.run(&["shutdown"]);
    assert_eq!(daemon.ended().0, Some(0));
    assert_eq!(home.run(&["approvals"]).status.code(), Some(69));
}

#[test]
fn without_a_terminal_a_question_is_shown_and_denied() {
    let output = home().run(&["ask", "--set", "llm.provider=rehearsal", "calculate 17*23"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in ["17*23", "denied: there is no terminal to ask at"] {
        assert!(stderr(&output).contains(part), "{part} is missing in {}", stderr(&output));
    }
    assert!(!stdout(&output).contains("391"), "{}", stdout(&output));
}

#[test]
fn at_a_terminal_a_question_is_asked_and_the_answer_counts() {
    for (typed, is_done) in [("y\r", true), ("\r", false)] {
        let home = home();
        let mut screen = Screen::new();
        let mut command = home.command(&["ask", "--set", "llm.provider=rehearsal", "calculate 17*23"]);
        command.stdin(screen.side()).stderr(screen.side());
        let child = command.spawn().unwrap();
        screen.until("N (no): ");
        screen.keys.write_all(typed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", screen.shown.lock().unwrap());
        assert_eq!(stdout(&output).contains("391"), is_done, "{}", stdout(&output));
    }
}
