//! The stop rules of a run, compiled from the configuration.

use std::time::Duration;

use super::condition::{Leaf, Observed};
use super::config::StopsConfig;
use super::judge::JudgeConfig;
use super::limits::{ACTIVE_S, RunLimits};
use super::measures::Watched;
use super::mentions::Wanted;
use super::rule::{Condition, Count, Counter, Rule, Then, Touched};
use super::state::StopState;
use super::tool_loops::{Part, ToolLoopConfig};

/// Stop rules, compiled once from the configuration and shared by all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct StopRules {
    /// In the order of evaluation. If several become true at once, [`StopReason::precedence`] decides.
    ///
    /// [`StopReason::precedence`]: belay_protocol::StopReason::precedence
    pub(crate) compiled: Vec<Compiled>,
    /// The measures, tools and texts that the rules use.
    pub(crate) watched: Watched,
    /// Strikes of loop detection that end a run. The ones before give a recovery turn. At least 1.
    pub max_strikes: u32,
    /// The settings of the judge. Disabled together with loop detection.
    pub judge: JudgeConfig,
    limits: RunLimits,
    closing_turn: Option<Duration>,
}

/// The shortest time for a closing turn. 10 s: most models need some of it before they begin.
const CLOSING_MIN: Duration = Duration::from_secs(10);

/// Time between the end of the work and the closing turn, for storing what was done.
const CLOSING_SLACK: Duration = Duration::from_secs(1);

/// The origin of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `[limits]`.
    Limit,
    /// The built-in rules of `[stops]`.
    Progress,
    /// `[[stops.rules]]`.
    Operator,
}

/// A rule with facts that are known beforehand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compiled {
    pub(crate) rule: Rule,
    pub(crate) origin: Origin,
    pub(crate) depends_on: Touched,
    /// The part of a limit of time that is left for the closing turn, in milliseconds.
    pub(crate) held_ms: u64,
}

impl Compiled {
    /// A limit as a rule. A limit of time includes the closing turn, so the work ends before.
    fn limit(mut rule: Rule, closing: Option<Duration>) -> Self {
        let mut held_ms = 0;
        if let Condition::AtLeast(counter @ (Counter::ActiveMs | Counter::WallMs), ms) = rule.when {
            held_ms = held_for_closing(closing, ms);
            rule.when = Condition::AtLeast(counter, ms - held_ms);
        }
        Self { depends_on: rule.when.depends_on(), rule, origin: Origin::Limit, held_ms }
    }

    /// The clock reading at which a limit of time is over, with the closing turn. `None`: it limits no time.
    fn end_ms(&self, state: &StopState) -> Option<u64> {
        match self.rule.when {
            _ if self.origin != Origin::Limit => None,
            Condition::AtLeast(Counter::ActiveMs, ms) => state.measures.time.reading_at_active(ms + self.held_ms),
            Condition::AtLeast(Counter::WallMs, ms) => state.measures.time.reading_at_wall(ms + self.held_ms),
            _ => None,
        }
    }

    /// Whether turning off loop detection disables it: every built-in progress rule and every strike.
    pub(crate) fn is_detection(&self) -> bool {
        self.origin == Origin::Progress || self.rule.then == Then::Strike
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The part of a limit of time that is left for the closing turn: its longest duration, and a quarter of the limit at most. 0:
/// that would be too little, so the whole time is for the work, and there is no closing turn.
pub(crate) fn held_for_closing(closing: Option<Duration>, ms: u64) -> u64 {
    let Some(longest) = closing else { return 0 };
    let held = millis(longest + CLOSING_SLACK).min(ms / 4);
    if held < millis(longest.min(CLOSING_MIN) + CLOSING_SLACK) { 0 } else { held }
}

impl StopRules {
    /// Compiles this configuration: limits, built-in progress rules, and the operator's rules. A rule of the operator
    /// replaces the built-in rule of the same name. Nothing is checked here; see [`StopsConfig::validate`] and
    /// [`StopsConfig::problems`].
    pub fn compile(stops: &StopsConfig, limits: &RunLimits) -> Self {
        let mut compiled: Vec<Compiled> = Vec::new();
        let mut add = |rule: Rule, origin| {
            let new = match origin {
                Origin::Limit => Compiled::limit(rule, stops.closing_turn()),
                _ => Compiled { depends_on: rule.when.depends_on(), rule, origin, held_ms: 0 },
            };
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
            watched: Watched {
                read_measures: Touched::NOTHING,
                tool_loops: stops.tool_loops.clone(),
                equal_replies: match stops.repeated_replies {
                    0 => StopsConfig::default().repeated_replies, // no built-in rule, but an own rule may use it
                    equal => equal,
                },
                counted_tools: Vec::new(),
                wanted: Wanted::default(),
            },
            max_strikes: stops.max_strikes,
            judge,
            limits: limits.clone(),
            closing_turn: stops.closing_turn(),
        };
        rules.collect_watched();
        rules
    }

    /// The same rules with another limit of active time, in milliseconds; 0: none.
    #[must_use]
    pub fn with_active_ms(&self, ms: u64) -> Self {
        let mut rules = self.clone();
        rules.limits.active_s = ms.div_ceil(1000);
        rules.compiled.retain(|one| one.origin != Origin::Limit || one.rule.name != ACTIVE_S);
        if ms > 0 {
            let rule = Rule::new(ACTIVE_S, Condition::AtLeast(Counter::ActiveMs, ms), Then::Stop);
            rules.compiled.insert(0, Compiled::limit(rule, self.closing_turn));
        }
        rules.watched.read_measures = Touched::NOTHING;
        rules.collect_watched();
        rules
    }

    /// The same rules with at most this much money for a run, in millionths of a US dollar. It includes the closing turn.
    #[must_use]
    pub fn with_micro_usd(&self, micro: u64) -> Self {
        let most = micro as f64 / 1e6;
        let usd = self.limits.usd_per_run.map_or(most, |limit| limit.min(most));
        let mut rules = self.with_limits(RunLimits { usd_per_run: Some(usd), ..self.limits.clone() });
        // The limit of active time may be finer than the whole seconds of the limits.
        let is_active = |one: &&mut Compiled| one.origin == Origin::Limit && one.rule.name == ACTIVE_S;
        let finer = self.compiled.iter().find(|one| one.origin == Origin::Limit && one.rule.name == ACTIVE_S);
        if let (Some(active), Some(finer)) = (rules.compiled.iter_mut().find(is_active), finer) {
            *active = finer.clone();
        }
        rules
    }

    /// The same rules with other limits of a run. An operator's rule with the name of a limit remains, in addition to
    /// it.
    #[must_use]
    pub fn with_limits(&self, limits: RunLimits) -> Self {
        let mut rules = self.clone();
        rules.compiled.retain(|one| one.origin != Origin::Limit);
        let limit = |rule| Compiled::limit(rule, self.closing_turn);
        rules.compiled.splice(0..0, limits.rules().into_iter().map(limit));
        rules.limits = limits;
        rules.watched.read_measures = Touched::NOTHING;
        rules.collect_watched();
        rules
    }

    fn collect_watched(&mut self) {
        let Self { compiled, watched: Watched { counted_tools, wanted, read_measures, .. }, .. } = self;
        for one in compiled {
            *read_measures = read_measures.and(one.depends_on);
            one.rule.when.each_leaf(&mut |leaf| match leaf {
                Leaf::AtLeast(Count::ToolCallsOf(tool), _) => counted_tools.push(tool.to_owned()),
                Leaf::Seen(Observed::Says(text)) => wanted.texts.push(text.to_owned()),
                Leaf::Seen(Observed::Calls(tool)) => wanted.tools.push(tool.to_owned()),
                _ => {}
            });
        }
        for names in [counted_tools, &mut wanted.texts, &mut wanted.tools] {
            names.sort_unstable();
            names.dedup();
        }
    }

    /// Only the progress rules: loops, chanting, repetition, errors. `belay stops check` uses them.
    pub fn progress() -> Self {
        Self::compile(&StopsConfig::default(), &RunLimits::none())
    }

    /// Only these rules, as rules of an operator.
    pub fn of(rules: Vec<Rule>) -> Self {
        Self::compile(&StopsConfig { enabled: false, rules, ..StopsConfig::default() }, &RunLimits::none())
    }

    /// No rules at all.
    pub fn none() -> Self {
        Self::of(Vec::new())
    }

    /// The rules, in the order of evaluation.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.compiled.iter().map(|one| &one.rule)
    }

    /// The same rules without one part of the analysis of tool calls, or one rule, to measure its effect.
    #[must_use]
    pub fn without(&self, part: Part) -> Self {
        let mut rules = self.clone();
        rules.watched.tool_loops.without = Some(part);
        rules.compiled.retain(|one| part.rule() != Some(one.rule.name.as_str()));
        rules
    }

    /// The settings that calls are analysed with.
    pub(crate) fn tool_loops(&self) -> &ToolLoopConfig {
        &self.watched.tool_loops
    }

    /// The limits that they were compiled with.
    pub fn limits(&self) -> &RunLimits {
        &self.limits
    }

    /// Longest duration of the closing turn of a run that a limit or a rule has ended. `None`: there is no closing
    /// turn.
    pub fn closing_turn(&self) -> Option<Duration> {
        self.closing_turn
    }

    /// The part of this time of work that is left for the closing turn.
    pub fn held_for_closing(&self, time: Duration) -> Duration {
        Duration::from_millis(held_for_closing(self.closing_turn, millis(time)))
    }

    /// The time for a closing turn that begins at this clock reading: what the limits of time leave, and `most`.
    ///
    /// # Errors
    /// Why there is none, as a word of the evidence.
    pub fn closing_time(
        &self,
        state: &StopState,
        now_ms: u64,
        most: Option<Duration>,
    ) -> Result<Duration, &'static str> {
        let longest = self.closing_turn.ok_or("off")?;
        let ends = self.compiled.iter().filter_map(|one| one.end_ms(state));
        let left = ends.map(|end| Duration::from_millis(end.saturating_sub(now_ms))).chain(most);
        let left = left.fold(longest, Duration::min);
        if left < longest.min(CLOSING_MIN) { Err("no_time") } else { Ok(left) }
    }

    /// Whether some rule reads the money of the whole session. If so, the caller must know the cost of its earlier
    /// runs.
    pub fn counts_session_money(&self) -> bool {
        let mut counts = false;
        for one in &self.compiled {
            one.rule
                .when
                .each_leaf(&mut |leaf| counts |= matches!(leaf, Leaf::AtLeast(Count::Of(Counter::SessionMicroUsd), _)));
        }
        counts
    }
}
