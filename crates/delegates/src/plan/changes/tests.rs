use super::*;
use crate::plan::plans::NewStep;

/// A plan whose first step is completed, whose second is running, and whose last needs the first alone.
fn state() -> PlanState {
    let mut state = PlanState::default();
    let step = |text: &str, after: Option<Vec<usize>>| NewStep { text: text.into(), after };
    let steps = [step("a", None), step("b", None), step("c", None), step("d", Some(vec![0, 2]))];
    state.plans.create_ordered(None, "t", &steps).expect("fits");
    state.plans.mark_step(None, 0, Some(StepStatus::Completed), None).expect("there");
    state.plans.mark_step(None, 1, Some(StepStatus::InProgress), None).expect("there");
    state
}

fn texts(state: &PlanState) -> Vec<String> {
    let plan = state.plans.active().expect("made");
    plan.steps.iter().map(|step| format!("{} {}", step.text, step.status.word())).collect()
}

fn change(step: u64, text: &str) -> PlanCommand {
    PlanCommand::Change { step, text: text.into() }
}

fn add(step: u64, text: &str) -> PlanCommand {
    PlanCommand::Add { step, text: text.into() }
}

#[test]
fn a_step_changes_before_it_begins_and_not_later() {
    let over = |status| Refused::Over { number: 1, status };
    for (command, expected) in [
        (change(1, "x"), over("completed")),
        (change(2, "x"), Refused::Running { number: 2 }),
        (PlanCommand::Drop { step: 2 }, Refused::Running { number: 2 }),
        (change(0, "x"), Refused::NoStep { number: 0, last: 4 }),
        (change(u64::MAX, "x"), Refused::NoStep { number: u64::MAX, last: 4 }),
        (change(5, "x"), Refused::NoStep { number: 5, last: 4 }),
        (change(4, " \n "), Refused::Text(PlanError::Empty("the text of the step"))),
        (
            change(3, &"x".repeat(501)),
            Refused::Text(PlanError::TooLong { what: "the text of the step".into(), chars: 501, max: 500 }),
        ),
        (add(2, "x"), Refused::NoPlace { first: 3, last: 5 }),
        (add(6, "x"), Refused::NoPlace { first: 3, last: 5 }),
        (PlanCommand::Approve, Refused::NotHeld),
    ] {
        let mut state = state();
        let refused = apply(&mut state, &command, &[1]).expect_err("refused");
        assert_eq!(refused, expected, "{command:?}");
        assert_eq!(state, self::state(), "nothing has changed: {command:?}");
    }
    let mut state = state();
    apply(&mut state, &change(3, "c two\nlines"), &[1]).expect("changed");
    apply(&mut state, &PlanCommand::Drop { step: 4 }, &[1]).expect("dropped");
    assert_eq!(texts(&state), ["a completed", "b in_progress", "c two lines not_started", "d dropped"]);
    let again = apply(&mut state, &PlanCommand::Drop { step: 4 }, &[1]).expect_err("refused");
    assert_eq!(again, Refused::Over { number: 4, status: "dropped" });
}

#[test]
fn a_new_step_moves_those_behind_it_and_what_they_need() {
    let mut state = state();
    state.fail(2, "no broom");
    let made = apply(&mut state, &add(3, "new"), &[1]).expect("added");
    assert_eq!((made.kind, made.index), ("added", Some(2)));
    assert_eq!(texts(&state)[2..], ["new not_started", "c not_started", "d not_started"]);
    assert_eq!(state.plans.active().expect("made").steps[4].after, Some(vec![0, 3]));
    assert_eq!((state.trouble(2), state.trouble(3)), (None, Some("no broom")), "the work moves with its step");
    apply(&mut state, &add(6, "last"), &[1]).expect("added");
    for _ in 6..MAX_STEPS {
        apply(&mut state, &add(3, "x"), &[1]).expect("added");
    }
    assert_eq!(apply(&mut state, &add(3, "x"), &[1]), Err(Refused::TooMany));
}

#[test]
fn a_plan_is_held_once_and_only_while_a_step_is_open() {
    let mut state = state();
    apply(&mut state, &PlanCommand::Hold, &[1]).expect("held");
    assert_eq!(apply(&mut state, &PlanCommand::Hold, &[1]), Err(Refused::Held));
    apply(&mut state, &PlanCommand::Approve, &[1]).expect("approved");
    for step in [3, 4] {
        apply(&mut state, &PlanCommand::Drop { step }, &[1]).expect("dropped");
    }
    assert_eq!(apply(&mut state, &PlanCommand::Hold, &[1]), Err(Refused::NothingOpen));
}
