//! Tests of the book: its reports, the disabled times, and a comparison with a naive model over random sequences of
//! results.

use std::time::Duration;

use belay_protocol::tool_health::{BY_RULE, LONGEST_OFF_S};
use belay_protocol::{
    FaultKind, RunId, ToolHealthAction, ToolHealthConfig, ToolHealthRule, ToolOff, ToolState, ToolSwitch, UnixMillis,
};
use proptest::prelude::*;
use tokio::time::Instant;

use super::book::{Book, News, Now};
use super::evidence::{Fault, ToolSignal};
use super::rules::Rules;

const TOOL: &str = "web_search";
const SERVER: &str = "mcp:files";

/// A book with one tool and a manual clock.
struct Story {
    book: Book,
    began: Instant,
    seconds: u64,
    runs: Vec<RunId>,
}

fn config(rules: Vec<ToolHealthRule>) -> ToolHealthConfig {
    ToolHealthConfig { report_after: 3, within_s: 100, runs: 2, rules }
}

fn disable(failures: u32, within_s: u64, runs: u32, for_s: u64) -> ToolHealthRule {
    ToolHealthRule {
        tools: vec!["web_*".into(), "mcp:*".into()],
        failures,
        within_s,
        runs,
        action: ToolHealthAction::Disable,
        for_s,
    }
}

fn fails() -> ToolSignal {
    ToolSignal::Fails(Fault::of(FaultKind::TimedOut, "no answer within 30 s", &[]))
}

impl Story {
    fn new(config: &ToolHealthConfig, switches: Vec<ToolSwitch>) -> Self {
        let began = Instant::now();
        let now = Now { date: UnixMillis(0), instant: began };
        let runs = (0..8).map(|_| RunId::new()).collect();
        Self { book: Book::new(Rules::compile(config), switches, now), began, seconds: 0, runs }
    }

    fn now(&self) -> Now {
        let date = UnixMillis(i64::try_from(self.seconds * 1000).expect("short"));
        Now { date, instant: self.began + Duration::from_secs(self.seconds) }
    }

    /// Makes a call of a run, if it is admitted, and returns the changes.
    fn call(&mut self, subjects: &[&str], run: usize, says: &ToolSignal) -> Result<Vec<News>, String> {
        let subjects: Vec<String> = subjects.iter().map(|&subject| subject.to_owned()).collect();
        let trials = self.book.admit(&subjects, self.now())?;
        Ok(self.book.ended(&trials, &subjects, self.runs[run], says, self.now()))
    }

    fn state(&self) -> ToolState {
        self.book.health(TOOL, self.now()).state
    }
}

/// The changes, one word each.
fn told(news: &[News]) -> Vec<&'static str> {
    let word = |news: &News| match news {
        News::Failing { .. } => "failing",
        News::Switched { switch, .. } if switch.off.is_some() => "off",
        News::Switched { .. } => "on",
    };
    news.iter().map(word).collect()
}

#[test]
fn what_fails_in_several_runs_is_told_once_until_it_works_or_a_day_has_passed() {
    let mut story = Story::new(&config(Vec::new()), Vec::new());
    let mut one = |after: u64, run, says: &ToolSignal| {
        story.seconds += after;
        told(&story.call(&[TOOL], run, says).expect("on"))
    };
    for _ in 0..10 {
        assert_eq!(one(1, 0, &fails()), [""; 0], "one run that goes in circles damns no tool");
    }
    assert_eq!(one(1, 1, &fails()), ["failing"]);
    assert_eq!(one(1, 2, &fails()), [""; 0], "it is told once");
    assert_eq!(one(1, 2, &ToolSignal::Nothing), [""; 0]);
    assert_eq!(one(1, 2, &ToolSignal::Works), [""; 0]);
    assert_eq!([one(1, 0, &fails()), one(1, 1, &fails())].concat(), [""; 0], "it is counted anew");
    assert_eq!(one(1, 0, &fails()), ["failing"]);
    for _ in 0..23 {
        assert_eq!(one(3600, 0, &fails()), [""; 0]);
    }
    assert_eq!([one(3590, 0, &fails()), one(5, 1, &fails())].concat(), [""; 0], "a day has not passed");
    assert_eq!(one(10, 2, &fails()), ["failing"]);
}

#[test]
fn failures_of_long_ago_do_not_count() {
    let mut story = Story::new(&config(Vec::new()), Vec::new());
    for run in 0..6 {
        assert_eq!(told(&story.call(&[TOOL], run, &fails()).expect("on")), [""; 0]);
        story.seconds += 60;
    }
    assert_eq!(story.state(), ToolState::Ok);
    let within = [60, 20].map(|after| {
        story.seconds += after;
        told(&story.call(&[TOOL], 0, &fails()).expect("on"))
    });
    assert_eq!(within.concat(), [""; 0], "three within the time, of one run");
    assert_eq!(told(&story.call(&[TOOL], 1, &fails()).expect("on")), ["failing"]);
}

#[test]
fn a_rule_switches_off_for_twice_as_long_each_time_until_a_call_that_is_let_through_succeeds() {
    let mut story = Story::new(&config(vec![disable(2, 0, 2, 50_000)]), Vec::new());
    assert_eq!(told(&story.call(&[TOOL], 0, &fails()).expect("on")), [""; 0]);
    assert_eq!(told(&story.call(&[TOOL], 1, &fails()).expect("on")), ["off"], "no second word of the same");
    let refused = story.call(&[TOOL], 2, &fails()).expect_err("off");
    assert_eq!(
        refused,
        "denied: the tool web_search is disabled: it failed 2 times in a row, in 2 runs, since \
         1970-01-01T00:00:00.000Z; most recently it gave no result in time. It is tried again after \
         1970-01-01T13:53:20.000Z. Do not call it again; use another approach, or state what is missing."
    );
    for (seconds, next) in [(50_000, LONGEST_OFF_S), (LONGEST_OFF_S, LONGEST_OFF_S)] {
        story.seconds += seconds - 1;
        assert_eq!(story.state(), ToolState::Off);
        story.seconds += 1;
        assert_eq!(story.state(), ToolState::Trial);
        let news = story.call(&[TOOL], 3, &fails()).expect("let through");
        let [News::Switched { switch, by }] = &news[..] else { panic!("{news:?}") };
        assert_eq!(by, "trial");
        assert_eq!(switch.off.as_ref().map(|off| off.for_s), Some(next));
    }
    story.seconds += LONGEST_OFF_S;
    assert_eq!(told(&story.call(&[TOOL], 3, &ToolSignal::Works).expect("let through")), ["on"]);
    assert_eq!(story.state(), ToolState::Ok);
    assert_eq!(told(&story.call(&[TOOL], 0, &fails()).expect("on")), [""; 0], "it is counted anew");
}

#[test]
fn one_call_at_a_time_is_let_through_and_one_that_says_nothing_lets_the_next() {
    let mut story = Story::new(&config(vec![disable(1, 0, 1, 60)]), Vec::new());
    assert_eq!(told(&story.call(&[TOOL], 0, &fails()).expect("on")), ["off"]);
    story.seconds = 60;
    let subjects = [TOOL.to_owned()];
    let trials = story.book.admit(&subjects, story.now()).expect("let through");
    let refused = story.book.admit(&subjects, story.now()).expect_err("one at a time");
    assert!(refused.contains("Another call is testing it"), "{refused}");
    assert_eq!(story.book.ended(&trials, &subjects, story.runs[0], &ToolSignal::Nothing, story.now()), []);
    let trials = story.book.admit(&subjects, story.now()).expect("the next");
    story.book.give_back(&trials);
    let trials = story.book.admit(&subjects, story.now()).expect("the one after a call that was dropped");

    // The result of a trial does not change what a person has switched meanwhile.
    let by_hand = ToolOff {
        since: story.now().date,
        until: None,
        for_s: 0,
        actor: "ann".into(),
        detail: "it lies".into(),
        failures: 0,
        runs: 0,
    };
    let switch = story.book.switch(TOOL, Some(by_hand), story.now());
    story.book.apply(switch, story.now());
    assert_eq!(story.book.ended(&trials, &subjects, story.runs[0], &ToolSignal::Works, story.now()), []);
    story.seconds = 1_000_000;
    let refused = story.call(&[TOOL], 0, &ToolSignal::Works).expect_err("until a person switches it on");
    assert!(refused.contains("an operator says: it lies."), "{refused}");
}

#[test]
fn a_call_that_began_before_says_nothing_of_what_was_switched_off_meanwhile() {
    let mut story = Story::new(&config(vec![disable(1, 0, 1, 60)]), Vec::new());
    let subjects = [TOOL.to_owned()];
    let early = story.book.admit(&subjects, story.now()).expect("on");
    assert_eq!(told(&story.call(&[TOOL], 0, &fails()).expect("on")), ["off"]);
    for says in [ToolSignal::Works, fails()] {
        assert_eq!(story.book.ended(&early, &subjects, story.runs[1], &says, story.now()), []);
        assert_eq!(story.state(), ToolState::Off);
    }
}

#[test]
fn a_server_fails_with_any_of_its_tools_and_takes_them_all_with_it() {
    let rule = ToolHealthRule { tools: vec![SERVER.into()], ..disable(3, 0, 2, 60) };
    let mut story = Story::new(&config(vec![rule]), Vec::new());
    for (tool, run) in [("mcp_files_read", 0), ("mcp_files_list", 0), ("mcp_files_find", 1)] {
        let news = story.call(&[tool, SERVER], run, &fails()).expect("on");
        assert_eq!(told(&news), if run == 1 { vec!["off"] } else { vec![] }, "{tool}");
    }
    let refused = story.call(&["mcp_files_stat", SERVER], 0, &fails()).expect_err("off with its server");
    assert!(refused.starts_with("denied: the MCP server files, with all its tools, is disabled: "), "{refused}");
    assert_eq!(told(&story.call(&["mcp_other_stat", "mcp:other"], 0, &fails()).expect("another server")), [""; 0]);
    story.seconds = 60;
    assert_eq!(told(&story.call(&["mcp_files_stat", SERVER], 0, &ToolSignal::Works).expect("let through")), ["on"]);
}

#[test]
fn a_restart_keeps_what_is_off_and_a_clock_that_was_set_makes_it_no_longer() {
    let off = |since: i64, for_s: u64| ToolSwitch {
        name: TOOL.into(),
        revision: 7,
        off: Some(ToolOff {
            since: UnixMillis(since),
            until: (for_s > 0).then(|| UnixMillis(since + for_s as i64 * 1000)),
            for_s,
            actor: BY_RULE.into(),
            detail: "it failed".into(),
            failures: 10,
            runs: 3,
        }),
    };
    // The start is at 0. Columns: time of disabling, planned duration, remaining duration.
    for (since, for_s, left) in [
        (-10_000, 60, Some(50)),
        (-90_000, 60, Some(0)),
        (80_000_000, 60, Some(60)), // the clock was set back
        (0, 0, None),
    ] {
        let mut story = Story::new(&config(Vec::new()), vec![off(since, for_s)]);
        if let Some(left) = left {
            story.seconds = left;
            assert_eq!(story.state(), ToolState::Trial, "{since}");
            story.seconds = left.saturating_sub(1);
        }
        let expected = if left == Some(0) { ToolState::Trial } else { ToolState::Off };
        assert_eq!(story.state(), expected, "{since}");
        let next = story.book.switch(TOOL, None, story.now());
        assert_eq!(next.revision, 8, "revisions go on where they were");
    }
}

#[test]
fn a_change_of_another_daemon_replaces_an_older_one_and_one_of_the_same_revision() {
    let mut story = Story::new(&config(vec![disable(1, 0, 1, 60)]), Vec::new());
    assert_eq!(told(&story.call(&[TOOL], 0, &fails()).expect("on")), ["off"]);
    let stored = |revision, off| ToolSwitch { name: TOOL.into(), revision, off };
    story.book.reload(vec![stored(0, None)], story.now());
    assert_eq!(story.state(), ToolState::Off, "the own change is newer, and on its way to the store");
    story.book.reload(vec![stored(1, None)], story.now());
    assert_eq!(story.state(), ToolState::Ok, "another daemon has written this revision first");
    let next = story.book.switch(TOOL, None, story.now());
    assert_eq!(next.revision, 2);
    story.book.reload(vec![next.clone(), ToolSwitch { name: "other".into(), revision: 9, off: None }], story.now());
    assert!(story.book.apply(next, story.now()), "it is applied already");
    assert_eq!(story.book.switch(TOOL, None, story.now()).revision, 10);
}

#[test]
fn what_a_run_needs_to_end_is_never_switched_off_by_a_rule() {
    let rule = ToolHealthRule { tools: vec!["*".into()], ..disable(1, 0, 1, 60) };
    let mut story = Story::new(&config(vec![rule]), Vec::new());
    for needed in ["terminate", "complete_task", "emit_value", "planning"] {
        assert_eq!(told(&story.call(&[needed], 0, &fails()).expect("on")), [""; 0], "{needed}");
    }
}

#[test]
fn a_run_names_the_tool_that_failed_it_most_and_did_not_work_again() {
    let mut story = Story::new(&config(Vec::new()), Vec::new());
    for (tool, run, says) in [
        ("fetch_url", 0, fails()),
        ("fetch_url", 0, fails()),
        ("fetch_url", 0, fails()),
        ("fetch_url", 0, fails()),
        (TOOL, 0, fails()),
        (TOOL, 1, fails()),
        (TOOL, 0, fails()),
        (TOOL, 0, fails()),
        ("fetch_url", 1, ToolSignal::Works),
    ] {
        story.call(&[tool], run, &says).expect("on");
    }
    assert_eq!(story.book.blamed(story.runs[0]), Some((TOOL.to_owned(), 3)));
    assert_eq!(story.book.blamed(story.runs[1]), None, "once is no reason");
}

#[test]
fn the_newest_failures_are_kept_and_no_more() {
    let mut story = Story::new(&config(Vec::new()), Vec::new());
    for n in 0..500 {
        story.seconds = n;
        let says = ToolSignal::Fails(Fault::of(FaultKind::Failed, &format!("failure {n}"), &[]));
        story.call(&[TOOL], 0, &says).expect("on");
    }
    let health = story.book.health(TOOL, story.now());
    assert_eq!((health.failures, health.runs, health.since), (500, 1, Some(UnixMillis(0))));
    let quotes: Vec<&str> = health.last.iter().map(|fault| &*fault.quote).collect();
    assert_eq!(quotes, ["failure 495", "failure 496", "failure 497", "failure 498", "failure 499"]);
}

/// One event of a random sequence.
#[derive(Clone, Copy, Debug)]
enum Event {
    Works(usize),
    Fails(usize),
    Nothing(usize),
    Later(u64),
    ByHand(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0..4usize).prop_map(Event::Works),
        6 => (0..4usize).prop_map(Event::Fails),
        1 => (0..4usize).prop_map(Event::Nothing),
        3 => prop_oneof![1..10u64, 20..60u64, 80_000..90_000u64].prop_map(Event::Later),
        1 => any::<bool>().prop_map(Event::ByHand),
    ]
}

/// The naive model: a list of every failure since the last success, searched each time.
#[derive(Default)]
struct Naive {
    seconds: u64,
    failures: Vec<(u64, usize)>,
    told_at: Option<u64>,
    /// End and duration; `None`: only a person enables it.
    off: Option<(Option<u64>, u64)>,
}

impl Naive {
    fn over(&self, failures: usize, within: u64, runs: usize) -> bool {
        let near: Vec<_> = self.failures.iter().filter(|(at, _)| self.seconds - at <= within).collect();
        let mut of: Vec<usize> = near.iter().map(|(_, run)| *run).collect();
        of.sort_unstable();
        of.dedup();
        near.len() >= failures && of.len() >= runs
    }

    fn on(&mut self) {
        let seconds = self.seconds;
        *self = Self { seconds, ..Self::default() };
    }

    fn happens(&mut self, event: Event) -> Vec<&'static str> {
        let may = self.off.is_none_or(|(until, _)| until.is_some_and(|until| until <= self.seconds));
        match (event, self.off) {
            (Event::Later(seconds), _) => self.seconds += seconds,
            (Event::ByHand(true), _) => self.on(),
            (Event::ByHand(false), _) => self.off = Some((None, 0)),
            (Event::Works(_) | Event::Fails(_) | Event::Nothing(_), _) if !may => return vec!["refused"],
            (Event::Nothing(_), _) => {}
            (Event::Works(_), Some(_)) => {
                self.on();
                return vec!["on"];
            }
            (Event::Works(_), None) => self.on(),
            (Event::Fails(run), Some((_, for_s))) => {
                self.failures.push((self.seconds, run));
                let for_s = (for_s * 2).min(86_400);
                self.off = Some((Some(self.seconds + for_s), for_s));
                return vec!["off"];
            }
            (Event::Fails(run), None) => {
                self.failures.push((self.seconds, run));
                if self.over(4, 50, 2) {
                    self.told_at = Some(self.seconds);
                    self.off = Some((Some(self.seconds + 40), 40));
                    return vec!["off"];
                }
                let silent = self.told_at.is_some_and(|at| self.seconds - at < 86_400);
                if !silent && self.over(3, 100, 2) {
                    self.told_at = Some(self.seconds);
                    return vec!["failing"];
                }
            }
        }
        Vec::new()
    }

    fn state(&self) -> ToolState {
        match self.off {
            Some((Some(until), _)) if until <= self.seconds => ToolState::Trial,
            Some(_) => ToolState::Off,
            None if self.told_at.is_some() => ToolState::Failing,
            None => ToolState::Ok,
        }
    }
}

proptest! {
    #[test]
    fn any_order_of_results_gives_what_the_naive_account_gives(events in prop::collection::vec(event(), 1..80)) {
        let mut story = Story::new(&config(vec![disable(4, 50, 2, 40)]), Vec::new());
        let mut naive = Naive::default();
        for (at, event) in events.iter().enumerate() {
            let said = match *event {
                Event::Works(run) => story.call(&[TOOL], run, &ToolSignal::Works),
                Event::Fails(run) => story.call(&[TOOL], run, &fails()),
                Event::Nothing(run) => story.call(&[TOOL], run, &ToolSignal::Nothing),
                Event::Later(seconds) => {
                    story.seconds += seconds;
                    Ok(Vec::new())
                }
                Event::ByHand(on) => {
                    let now = story.now();
                    let by_hand = ToolOff {
                        since: now.date,
                        until: None,
                        for_s: 0,
                        actor: "ann".into(),
                        detail: "so".into(),
                        failures: 0,
                        runs: 0,
                    };
                    let switch = story.book.switch(TOOL, (!on).then_some(by_hand), now);
                    story.book.apply(switch, now);
                    Ok(Vec::new())
                }
            };
            let told = said.map_or_else(|_| vec!["refused"], |news| told(&news));
            prop_assert_eq!(told, naive.happens(*event), "{} {:?}", at, event);
            prop_assert_eq!(story.state(), naive.state(), "{} {:?}", at, event);
        }
    }
}
