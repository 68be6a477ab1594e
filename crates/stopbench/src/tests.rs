use belay_trajectory::eval::{Case, Copies as _, Label, Labelled};

use super::*;
use mutate::Mutated;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The published figures equal those that the program prints, and Belay is better than every other rule set.
#[test]
fn stopbench_publishes_what_it_measures_and_ours_is_ahead() {
    let report = report(&root().join("tests/stopbench"), None, 1, &[]).unwrap();
    let path = root().join("docs/stopbench.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once("<!-- table").expect("the mark is there");
    let (mark, rest) = rest.split_once("-->\n").expect("the mark ends");
    let (published, tail) = rest.split_once("<!-- /table -->").expect("the mark is closed");
    let printed = report.markdown();
    if std::env::var("BELAY_UPDATE_GOLDEN").is_ok_and(|value| value == "1") {
        std::fs::write(&path, format!("{head}<!-- table{mark}-->\n{printed}<!-- /table -->{tail}")).unwrap();
    } else {
        assert_eq!(published, printed, "`make golden` writes the table anew; read the difference");
    }

    let recall = |caught: usize, of: usize| caught as f64 / of as f64;
    let (ours, others) = report.sets.split_first().expect("ours is the first");
    let mutated = ours.mutated.as_ref().expect("copies were made");
    assert!(recall(ours.plain.caught, 195) >= 0.9 && recall(mutated.caught, 1560) >= 0.9, "recall: {ours:?}");
    assert!(ours.plain.false_stops == 0 && mutated.false_stops == 0, "false stops: {ours:?}");
    assert!(ours.plain.wasted_median <= Some(5) && mutated.wasted_median <= Some(5), "wasted calls: {ours:?}");
    assert_eq!(others.len(), 6);
    for other in others {
        let (ours, theirs) = (&ours.plain, &other.plain);
        assert!(
            ours.caught > theirs.caught
                && ours.false_stops < theirs.false_stops
                && ours.wasted_median < theirs.wasted_median,
            "{other:?}"
        );
    }
}

fn case(name: &str, calls: usize, mutations: Option<&[&str]>) -> Case {
    let step = [
        belay_trajectory::TrajectoryEvent::Turn,
        belay_trajectory::TrajectoryEvent::tool("f", r#"{"a":1,"b":2}"#),
        belay_trajectory::TrajectoryEvent::result("f", true, "same"),
    ];
    let mutations = mutations.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    Case {
        name: name.into(),
        label: Labelled { mutations, ..Labelled::new(Label::Healthy) },
        events: step.iter().cycle().take(calls * 3).cloned().collect(),
    }
}

#[test]
fn without_a_number_enough_healthy_copies_are_made() {
    let cases = [case("fine", 3, None), case("well", 4, None)];
    assert_eq!(Mutated::of(&cases, None, 1).unwrap().count(), 500);
    assert_eq!(Mutated::of(&cases, Some(7), 1).unwrap().count(), 7);
}

#[test]
fn only_the_mutations_that_a_label_allows_are_made() {
    let cases = [case("fine", 3, Some(&["shuffle", "paraphrase"])), case("rigid", 3, Some(&[]))];
    let mutated = Mutated::of(&cases, Some(5), 1).unwrap();
    for number in 1..=5 {
        assert_eq!(mutated.copy(&cases[0], number).unwrap().changes, ["shuffle"]);
        assert_eq!(mutated.copy(&cases[1], number), None);
    }
    let error = Mutated::of(&[case("odd", 3, Some(&["x"]))], None, 1).unwrap_err().to_string();
    assert!(error.starts_with("odd: there is no mutation `x`; there are paraphrase, "), "{error}");
}
