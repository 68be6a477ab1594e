//! The rules of a run: conditions and what follows from each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::condition::{Condition, Leaf, Part, Sight, ToolCount};
use super::config::StopsConfig;
use super::judge::JudgeConfig;
use super::limits::RunLimits;
use super::measures::{Count, Touched};
use super::mentions::Wanted;
use super::state::StopState;
use super::tool_loops::ToolLoopConfig;

/// The name of the limit of the time at work.
pub(crate) const ACTIVE_S: &str = "active_s";

/// Rules, compiled from the configuration once and shared by all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct StopRules {
    /// In the order in which they are asked; of several that turn true at once, [`StopReason::precedence`] decides.
    ///
    /// [`StopReason::precedence`]: belay_protocol::StopReason::precedence
    pub(crate) compiled: Vec<Compiled>,
    /// How tool cycles are recognised.
    pub tool_loops: ToolLoopConfig,
    /// Strikes of loop detection that end a run; the ones before give a recovery turn. At least 1.
    pub max_strikes: u32,
    /// When the judge is asked. Off when loop detection is.
    pub judge: JudgeConfig,
    /// Earlier equal answers that make a repetition.
    pub(crate) equal_replies: u64,
    /// Tools that rules count by name.
    pub(crate) counted_tools: Vec<String>,
    /// Texts and tools that rules look for.
    pub(crate) wanted: Wanted,
    /// Everything that some rule asks about.
    pub(crate) asked: Touched,
    limits: RunLimits,
    closing_turn: Option<Duration>,
}

/// A rule.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name: in evidence, in the log, and to replace a built-in rule of that name.
    pub name: String,
    /// When it fires.
    pub when: Condition,
    /// What follows.
    #[serde(default)]
    pub then: Then,
    /// What the model is told with a notice or a strike. Absent: a sentence that says what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    /// From where on its conditions count.
    #[serde(default)]
    pub since: Since,
}

/// What follows when a rule fires.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The model is told, once for each time the condition turns true; the run goes on.
    Notice,
    /// A strike: feedback and a recovery turn; the last strike ends the run. Off with `/loops off`. A condition that is
    /// still true after the recovery turn, such as a number of steps, is the next strike.
    Strike,
    /// The run ends.
    #[default]
    Stop,
}

/// From where on a rule counts.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Since {
    /// From the beginning of the request.
    #[default]
    Request,
    /// From its own last notice or strike: "every 20 calls" instead of "from 20 calls on". Texts, tools and loops are
    /// seen or not, and do not count.
    Notice,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `[limits]`.
    Limit,
    /// The built-in rules of `[stops]`.
    Progress,
    /// `[[stops.rules]]`.
    Operator,
}

/// A rule with what is known of it beforehand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compiled {
    pub(crate) rule: Rule,
    pub(crate) origin: Origin,
    pub(crate) asks_about: Touched,
}

impl Rule {
    /// A rule that counts from the beginning of the request and has no words of its own.
    pub fn new(name: impl Into<String>, when: Condition, then: Then) -> Self {
        Self { name: name.into(), when, then, say: None, since: Since::Request }
    }
}

impl Compiled {
    /// Whether it is silent once loop detection is off: every built-in progress rule and every strike.
    pub(crate) fn is_detection(&self) -> bool {
        self.origin == Origin::Progress || self.rule.then == Then::Strike
    }
}

impl StopRules {
    /// The rules of this configuration: limits, the built-in progress rules, then the operator's, of which each replaces
    /// a built-in rule of its name. Nothing is checked here; see [`StopsConfig::validate`] and
    /// [`StopsConfig::problems`].
    pub fn compile(stops: &StopsConfig, limits: &RunLimits) -> Self {
        let mut compiled: Vec<Compiled> = Vec::new();
        let mut add = |rule: Rule, origin| {
            let asks_about = rule.when.asks_about();
            let new = Compiled { rule, origin, asks_about };
            match compiled.iter_mut().find(|old| old.rule.name == new.rule.name) {
                Some(old) => *old = new,
                None => compiled.push(new),
            }
        };
        limits.rules().into_iter().for_each(|rule| add(rule, Origin::Limit));
        stops.built_in_rules().into_iter().for_each(|rule| add(rule, Origin::Progress));
        stops.rules.iter().for_each(|rule| add(rule.clone(), Origin::Operator));
        compiled.retain(|one| stops.loops || one.rule.then != Then::Strike);
        let judge = JudgeConfig { enabled: stops.enabled && stops.loops && stops.judge.enabled, ..stops.judge.clone() };
        let mut rules = Self {
            compiled,
            tool_loops: stops.tool_loops.clone(),
            max_strikes: stops.max_strikes,
            judge,
            equal_replies: match stops.repeated_replies {
                0 => StopsConfig::default().repeated_replies, // no built-in rule, but the operator's may ask
                equal => equal,
            },
            counted_tools: Vec::new(),
            wanted: Wanted::default(),
            asked: Touched::NOTHING,
            limits: limits.clone(),
            closing_turn: stops.closing_turn(),
        };
        rules.note_what_is_asked();
        rules
    }

    /// The same rules with another limit of the time at work, in milliseconds; 0: none.
    #[must_use]
    pub fn with_active_ms(&self, ms: u64) -> Self {
        let mut rules = self.clone();
        rules.limits.active_s = ms.div_ceil(1000);
        rules.compiled.retain(|one| one.origin != Origin::Limit || one.rule.name != ACTIVE_S);
        if ms > 0 {
            let rule = Rule::new(ACTIVE_S, Condition::ActiveMs(ms), Then::Stop);
            let asks_about = rule.when.asks_about();
            rules.compiled.insert(0, Compiled { rule, origin: Origin::Limit, asks_about });
        }
        rules.asked = Touched::NOTHING;
        rules.note_what_is_asked();
        rules
    }

    /// The same rules with other limits of a run. An operator's rule that has the name of a limit stays, beside it.
    #[must_use]
    pub fn with_limits(&self, limits: RunLimits) -> Self {
        let mut rules = self.clone();
        rules.compiled.retain(|one| one.origin != Origin::Limit);
        let limit = |rule: Rule| Compiled { asks_about: rule.when.asks_about(), rule, origin: Origin::Limit };
        rules.compiled.splice(0..0, limits.rules().into_iter().map(limit));
        rules.limits = limits;
        rules.asked = Touched::NOTHING;
        rules.note_what_is_asked();
        rules
    }

    fn note_what_is_asked(&mut self) {
        let Self { compiled, counted_tools, wanted, asked, .. } = self;
        for one in compiled {
            *asked = asked.and(one.asks_about);
            one.rule.when.each_leaf(&mut |leaf| match leaf {
                Leaf::AtLeast(Count::ToolCallsOf(tool), _) => counted_tools.push(tool.to_owned()),
                Leaf::Seen(Sight::Says(text)) => wanted.texts.push(text.to_owned()),
                Leaf::Seen(Sight::Calls(tool)) => wanted.tools.push(tool.to_owned()),
                _ => {}
            });
        }
        for names in [counted_tools, &mut wanted.texts, &mut wanted.tools] {
            names.sort_unstable();
            names.dedup();
        }
    }

    /// The progress rules alone: loops, chanting, repetition, errors. What `belay stops check` judges by.
    pub fn progress() -> Self {
        Self::compile(&StopsConfig::default(), &RunLimits::none())
    }

    /// These rules alone, as an operator's.
    pub fn of(rules: Vec<Rule>) -> Self {
        Self::compile(&StopsConfig { enabled: false, rules, ..StopsConfig::default() }, &RunLimits::none())
    }

    /// No rules at all.
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// The rules, in the order in which they are asked.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.compiled.iter().map(|one| &one.rule)
    }

    /// The limits they were compiled with.
    pub fn limits(&self) -> &RunLimits {
        &self.limits
    }

    /// Longest last turn without tools of a run that a limit or a rule has ended. `None`: there is none.
    pub fn closing_turn(&self) -> Option<Duration> {
        self.closing_turn
    }

    /// Whether a stream is to be cut when it chants: some rule about that would do more than tell the model.
    pub fn cuts_streams(&self, state: &StopState) -> bool {
        self.compiled.iter().any(|one| {
            let listens = one.rule.then != Then::Notice && !(state.detection_off && one.is_detection());
            let mut chanting = false;
            one.rule.when.each_leaf(&mut |leaf| chanting |= matches!(leaf, Leaf::Seen(Sight::Chanting)));
            listens && chanting
        })
    }

    /// Whether some rule is about the money of the whole session, so that what its earlier runs have cost must be known.
    pub fn counts_session_money(&self) -> bool {
        let mut counts = false;
        for one in &self.compiled {
            one.rule.when.each_leaf(&mut |leaf| counts |= matches!(leaf, Leaf::AtLeast(Count::SessionMicroUsd, _)));
        }
        counts
    }

    /// Whether some rule asks about one of these.
    pub(crate) fn ask_about(&self, measures: Touched) -> bool {
        self.asked.meets(measures)
    }

    /// The earliest clock reading, in milliseconds, at which a rule would end the run by its time alone, for a timer
    /// during a model call. Rules that need something else besides time are not foreseen. `None`: there is no such
    /// rule, or no reading has been seen yet.
    pub fn deadline_ms(&self, state: &StopState) -> Option<u64> {
        let ending = self.compiled.iter().filter(|one| one.rule.then == Then::Stop);
        let asked = ending.filter(|one| !(state.detection_off && one.is_detection()));
        asked.filter_map(|one| deadline(&one.rule.when, state)).min()
    }
}

fn deadline(condition: &Condition, state: &StopState) -> Option<u64> {
    let time = &state.measures.time;
    match condition.part() {
        Part::Any(parts) => parts.iter().filter_map(|part| deadline(part, state)).min(),
        Part::Leaf(Leaf::AtLeast(Count::WallMs, wall_ms)) => time.reading_at_wall(wall_ms),
        Part::Leaf(Leaf::AtLeast(Count::ActiveMs, active_ms)) => time.reading_at_active(active_ms),
        Part::All(_) | Part::Not(_) | Part::Leaf(_) => None,
    }
}

/// A limit on one tool, as a rule.
pub(crate) fn tool_limit(tool: &str, count: u64) -> Rule {
    let when = Condition::ToolCallsOf(ToolCount { tool: tool.to_owned(), count });
    Rule::new(format!("tool_calls_of.{tool}"), when, Then::Stop)
}
