//! Tests each command with a table, and sequences of commands with a property.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn steps(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn trip() -> Plans {
    let mut plans = Plans::default();
    plans.create(Some("trip"), "Go to Rome", &steps(&["book", "pack", "go"])).unwrap();
    plans
}

#[test]
fn a_plan_is_shown_with_marks_progress_counts_and_notes() {
    let mut plans = trip();
    plans.mark_step(None, 0, Some(StepStatus::Completed), Some("by\n train")).unwrap();
    plans.mark_step(None, 1, Some(StepStatus::Blocked), None).unwrap();
    let plan = plans.mark_step(None, 2, Some(StepStatus::InProgress), None).unwrap();
    let expected = "Plan: Go to Rome (ID: trip)\n===========================\n\nProgress: 1/3 steps completed (33.3%)\n\
                    Status: 1 completed, 1 in progress, 1 blocked, 0 not started\n\nSteps:\n0. [✓] book\n   Note: by train\n\
                    1. [!] pack\n2. [→] go";
    assert_eq!(plan.render(), expected);
    assert!(trip().get(None).unwrap().render().ends_with("0. [ ] book\n1. [ ] pack\n2. [ ] go"));
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence() {
    let long = "x".repeat(MAX_CHARS + 1);
    let just = "x".repeat(MAX_CHARS);
    let fits = || steps(&["a"]);
    type Command = Box<dyn Fn(&mut Plans) -> Result<(), PlanError>>;
    let create = |id: Option<&'static str>, title: &str, steps: Vec<String>| -> Command {
        let title = title.to_owned();
        Box::new(move |plans| plans.create(id, &title, &steps).map(drop))
    };
    let mark = |index, status, note: Option<String>| -> Command {
        Box::new(move |plans| plans.mark_step(None, index, status, note.as_deref()).map(drop))
    };
    for (name, command, expected) in [
        ("an id of its own", create(None, "t", fits()), None),
        ("a taken id", create(Some("trip"), "t", fits()), Some("already a plan")),
        ("a blank id", create(Some(" "), "t", fits()), Some("the id must not be empty")),
        ("a blank title", create(None, " \n", fits()), Some("the title must not be empty")),
        ("a long title", create(None, &long, fits()), Some("at most 500")),
        ("no steps", create(None, "t", vec![]), Some("list of steps must not be empty")),
        ("a blank step", create(None, "t", steps(&["a", " "])), Some("a step must not be empty")),
        ("the longest step", create(None, "t", vec![just.clone()]), None),
        ("a step too long", create(None, "t", vec![long.clone()]), Some("step 0 has 501 characters")),
        ("50 steps", create(None, "t", vec!["a".into(); 50]), None),
        ("51 steps", create(None, "t", vec!["a".into(); 51]), Some("at most 50 steps")),
        ("the last step", mark(2, Some(StepStatus::Blocked), None), None),
        ("behind the last step", mark(3, Some(StepStatus::Blocked), None), Some("numbered 0 to 2")),
        ("a number beyond everything", mark(u64::MAX, Some(StepStatus::Blocked), None), Some("no step")),
        ("a mark without anything", mark(0, None, None), Some("mark_step needs")),
        ("a note alone", mark(0, None, Some("n".into())), None),
        ("a note too long", mark(0, None, Some(long.clone())), Some("at most 500")),
        ("an unknown one shown", Box::new(|plans| plans.get(Some("x")).map(drop)), Some("no plan with the id x")),
    ] as [(&str, Command, Option<&str>); 18]
    {
        let mut plans = trip();
        match (command(&mut plans), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => {
                assert!(error.to_string().contains(part), "{name}: {error}");
                assert_eq!(plans, trip(), "{name}: an error changes nothing");
            }
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(Option<u8>, Vec<String>),
    Mark(u64, StepStatus, String),
}

fn step() -> impl Strategy<Value = Step> {
    let texts = || prop::collection::vec(prop_oneof!["[ab]", "x{0,520}", "[a-c \n]{0,9}"], 0..55);
    let status = prop::sample::select(StepStatus::ALL.to_vec());
    prop_oneof![
        (prop::option::of(0u8..20), texts()).prop_map(|(id, texts)| Step::Create(id, texts)),
        (0u64..60, status, ".{0,600}").prop_map(|(at, status, note)| Step::Mark(at, status, note)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_is_asked_the_bounds_hold_and_the_plans_can_be_stored(sequence in prop::collection::vec(step(), 0..40)) {
        let mut plans = Plans::default();
        for step in sequence {
            let before = plans.clone();
            let id = |n: u8| format!("p{n}");
            let done = match step {
                Step::Create(n, texts) => plans.create(n.map(id).as_deref(), "t", &texts).map(drop),
                Step::Mark(at, status, note) => plans.mark_step(None, at, Some(status), Some(&note)).map(drop),
            };
            if done.is_err() {
                prop_assert_eq!(&plans, &before);
            }
            prop_assert!(plans.plans.len() <= MAX_PLANS);
            prop_assert!(plans.active.is_none() || plans.active().is_some());
            for plan in &plans.plans {
                prop_assert!((1..=MAX_STEPS).contains(&plan.steps.len()));
                prop_assert!(plan.steps.iter().all(|step| step.text.chars().count() <= MAX_CHARS && !step.text.is_empty()));
                let counted: usize = StepStatus::ALL.into_iter().map(|status| plan.count(status)).sum();
                prop_assert_eq!(counted, plan.steps.len());
                // Each step occupies one line, whatever its text is.
                let lines = plan.render().lines().filter(|line| !line.starts_with("   Note: ")).count();
                prop_assert_eq!(lines, 7 + plan.steps.len());
            }
            let stored = serde_json::to_string(&plans).unwrap();
            prop_assert_eq!(serde_json::from_str::<Plans>(&stored).unwrap(), plans.clone());
        }
    }
}
