use belay_agent_loop::policies::StopRules;

use super::*;
use crate::rule_set::{Part, belay};

/// A rule set that stops at the n-th call of a tool.
struct NthCall(usize, usize);

impl RuleSet for NthCall {
    fn observe(&mut self, event: &TrajectoryEvent) -> Option<String> {
        self.1 += usize::from(matches!(event, TrajectoryEvent::Tool { .. }));
        (self.1 == self.0).then(|| "nth".to_owned())
    }
}

fn nth(count: usize) -> Candidate {
    Candidate { name: "nth", source: "a test", make: Box::new(move || Box::new(NthCall(count, 0))) }
}

fn calls(count: usize) -> Vec<TrajectoryEvent> {
    let step = [
        TrajectoryEvent::Turn,
        TrajectoryEvent::tool("f", r#"{"a":1,"b":2}"#),
        TrajectoryEvent::result("f", true, "same"),
    ];
    step.iter().cycle().take(count * 3).cloned().collect()
}

fn case(name: &str, label: Label, onset: Option<usize>, calls_made: usize) -> Case {
    Case { name: name.into(), label: Labelled { onset, ..Labelled::new(label) }, events: calls(calls_made) }
}

#[test]
fn recall_false_stops_and_waste_are_counted_as_they_are_defined() {
    let cases = [
        case("long", Label::Pathology, Some(4), 20), // the onset is the second call: index 4
        case("short", Label::Pathology, Some(4), 5),
        case("late", Label::Pathology, Some(58), 30), // the onset is the twentieth call
        case("fine", Label::Healthy, None, 8),
        case("work", Label::Healthy, None, 12),
    ];
    let report = evaluate(&cases, &[nth(10)], &NoCopies, &|_, _| {});
    let expected = Score {
        pathologies: 3,
        caught: 1,
        early: 1,
        healthy: 2,
        false_stops: 1,
        wasted_median: Some(3), // the short one has 3 calls left, 8 were spent in the long one; the early one has none
        wasted_p90: Some(8),
    };
    assert_eq!(report.sets[0].plain, expected);
    let failures: Vec<_> = report.sets[0].failures.iter().map(|it| (it.file.as_str(), it.kind, it.at_event)).collect();
    assert_eq!(
        failures,
        [
            ("short", FailureKind::Miss, None),
            ("late", FailureKind::Early, Some(28)),
            ("work", FailureKind::FalseStop, Some(28)),
        ]
    );
}

#[test]
fn runs_of_text_waste_model_calls() {
    let said = || [TrajectoryEvent::Turn, TrajectoryEvent::Assistant("Let me know.".into())];
    let run = |onset| Run {
        events: (0..6).flat_map(|_| said()).collect(),
        onset,
        stuck: true,
        restarts: vec![],
        changes: vec![],
    };
    for (onset, stop, expected) in [
        (Some(3), None, Some(4)),
        (Some(3), Some(6), Some(2)), // the turns at 4 and 6
        (Some(3), Some(3), Some(0)),
        (Some(3), Some(2), None),
        (None, Some(2), None),
    ] {
        assert_eq!(wasted(&run(onset), stop), expected, "{onset:?} {stop:?}");
    }
}

/// Makes two unchanged copies of each recording, with one name of a change each. Recordings whose name begins with
/// `rigid` have none.
struct Twice;

impl Copies for Twice {
    fn count(&self) -> usize {
        2
    }

    fn copy(&self, case: &Case, number: usize) -> Option<Run> {
        let changes = vec![["first", "second"][number - 1]];
        (!case.name.starts_with("rigid")).then(|| Run { changes, ..Run::of(case) })
    }
}

#[test]
fn the_report_is_the_same_on_one_thread_and_on_three() {
    let cases = [case("loop", Label::Pathology, Some(4), 60), case("fine", Label::Healthy, None, 3)];
    let all = belay(&StopRules::progress(), &[Part::Words]);
    let report = |threads| evaluate_on(threads, &cases, &all, &Twice, &|_, _| {});
    assert_eq!(report(1), report(3));
}

#[test]
fn copies_are_counted_apart_and_their_failures_name_the_changes() {
    let cases = [case("fine", Label::Healthy, None, 3), case("rigid", Label::Healthy, None, 4)];
    let told = Mutex::new((0, 0));
    let report = evaluate(&cases, &[nth(1)], &Twice, &|done, all| *told.lock().unwrap() = (done, all));
    assert_eq!(report.copies(), Some((0, 2)));
    assert_eq!(told.lock().unwrap().1, 6);
    let failures: Vec<_> = report.sets[0].failures.iter().map(|it| (it.file.as_str(), it.mutations.concat())).collect();
    let expected = [("fine", ""), ("fine", "first"), ("fine", "second"), ("rigid", "")];
    assert_eq!(failures, expected.map(|(file, changes)| (file, changes.to_owned())));
}

#[test]
fn the_tables_say_what_was_measured() {
    let cases = [case("loop", Label::Pathology, Some(4), 60), case("fine", Label::Healthy, None, 3)];
    let report = evaluate(&cases, &[nth(10)], &Twice, &|_, _| {});
    assert_eq!(report.rows()[1][..5], ["nth", "100.0 % (1/1)", "0.0 % (0/1)", "0", "8"]);
    let page = report.markdown();
    assert!(page.contains("1 pathological and 1 healthy recordings; 2 and 2 mutated copies of them."), "{page}");
    assert!(page.contains("\n| nth | 100.0 % (1/1) | 0.0 % (0/1) | 0 | 8 | 8 |"), "{page}");
    assert!(page.ends_with("- **nth**: a test\n"), "{page}");
    let page = evaluate(&cases, &[nth(10)], &NoCopies, &|_, _| {}).markdown();
    assert!(page.starts_with("1 pathological and 1 healthy recordings.\n\n| rule set | recall |"), "{page}");
    assert!(
        page.contains("| p90 |\n|---|---:|---:|---:|---:|---:|\n| nth | 100.0 % (1/1) | 0.0 % (0/1) | 0 | 8 | 8 |\n"),
        "{page}"
    );
}

#[test]
fn restarts_reach_the_rule_set_before_their_event() {
    struct Restarted(Vec<usize>, usize);
    impl RuleSet for Restarted {
        fn observe(&mut self, _: &TrajectoryEvent) -> Option<String> {
            self.1 += 1;
            (self.1 == 6).then(|| format!("{:?}", self.0))
        }
        fn restart(&mut self) {
            self.0.push(self.1);
        }
    }
    let run = Run { events: calls(3), onset: None, stuck: false, restarts: vec![2, 5, 8], changes: vec![] };
    assert_eq!(first_stop(&mut Restarted(vec![], 0), &run), Some((5, "[2, 5]".into())));
}

#[test]
fn a_part_that_is_left_out_is_judged_beside_the_whole() {
    let cases = [case("long", Label::Pathology, Some(4), 20)];
    let sets = belay(&StopRules::progress(), &[Part::Cycles, Part::Words]);
    let report = evaluate(&cases, &sets, &NoCopies, &|_, _| {});
    let judged: Vec<_> = report.sets.iter().map(|set| (set.name, set.plain.caught)).collect();
    assert_eq!(judged, [("belay", 1), ("without cycles", 1), ("without words", 1)]);
}
