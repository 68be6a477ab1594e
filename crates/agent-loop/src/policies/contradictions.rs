//! Finds rules that cannot work: they never fire, fire at once, or another rule always ends the run before them.
//!
//! A condition is expanded to a list of cases. Each case is a list of leaves that must hold together, or must not hold.
//! A rule can fire if one of its cases can. Every reported problem is certain; uncertain ones are not searched for.

use std::time::Duration;

use super::condition::{Leaf, Observed, Part, View};
use super::config::StopsConfig;
use super::limits::RunLimits;
use super::measures::Measures;
use super::rule::{Condition, Count, Counter, Rule, Since, Then};
use super::rules::held_for_closing;

/// Most cases of one condition. A condition with more is accepted unchecked. 512: nine pairs of alternatives that must
/// all hold.
const MAX_CASES: usize = 512;

/// The place of the rules that are no settings.
const BUILT_IN: &str = "the built-in rule";

/// A leaf that must hold, or must not hold.
#[derive(Clone, Copy)]
struct Literal<'a> {
    leaf: Leaf<'a>,
    holds: bool,
}

/// Leaves that must hold, or must not hold, at the same moment.
type Case<'a> = Vec<Literal<'a>>;

/// A count at which the run always ends.
struct Ceiling<'a> {
    count: Count<'a>,
    at: u64,
    /// The setting that defines it.
    key: String,
    /// The index of its rule among the operator's rules.
    index: Option<usize>,
    /// Whether reaching this count does not end the run yet; only going beyond it does.
    is_reached: bool,
}

impl StopsConfig {
    /// Returns every rule that cannot work together with these limits, each beginning with its key and the reason.
    /// `max_steps` is the last step that a run can reach; `None`: unknown.
    ///
    /// Complete only for settings that [`StopsConfig::validate`] accepts.
    pub fn problems(&self, limits: &RunLimits, max_steps: Option<u64>) -> Vec<String> {
        let mut problems = Vec::new();
        let is_own = |name: &str| self.rules.iter().any(|rule| rule.name == name);
        if self.enabled
            && !(is_own("errors_notice") || is_own("errors_stop"))
            && (1..=self.errors_notice).contains(&self.errors_stop)
        {
            problems.push(format!(
                "stops.errors_notice: never comes: errors_stop = {} ends the run no later",
                self.errors_stop
            ));
        }
        let (limits, progress) = (limits.rules(), self.built_in_rules());
        let ceilings = ceilings(&self.rules, (&limits, self.closing_turn()), &progress, max_steps);
        for (index, rule) in self.rules.iter().enumerate() {
            let what = self.problems_of(index, rule, &ceilings);
            problems.extend(what.into_iter().map(|what| format!("stops.rules[{index}]: `{}` {what}", rule.name)));
        }
        problems
    }

    fn problems_of(&self, index: usize, rule: &Rule, ceilings: &[Ceiling<'_>]) -> Vec<String> {
        let mut problems = Vec::new();
        if self.rules[index + 1..].iter().any(|later| later.name == rule.name) {
            return vec!["is replaced by a later rule of the same name".into()];
        }
        if rule.then == Then::Strike && !self.loops {
            problems.push("is a strike, and loops = false switches strikes off".into());
        }
        if rule.since == Since::Notice {
            let mut counts = false;
            rule.when.each_leaf(&mut |leaf| counts |= matches!(leaf, Leaf::AtLeast(..)));
            if rule.then == Then::Stop {
                problems.push("ends the run, so that since = \"notice\" means nothing".into());
            } else if !counts {
                problems.push("has since = \"notice\", but nothing in it counts".into());
            }
        }
        problems.extend(self.why_never(index, rule, ceilings));
        problems
    }

    /// Why a rule never fires, or fires at once.
    fn why_never(&self, index: usize, rule: &Rule, ceilings: &[Ceiling<'_>]) -> Option<String> {
        if is_true_at_once(&rule.when) {
            return Some("is true from the beginning of every run".into());
        }
        let unconditional = |(other, first): &(usize, &Rule)| {
            *other != index && first.then == Then::Stop && is_true_at_once(&first.when)
        };
        if let Some((_, first)) = self.rules.iter().enumerate().find(unconditional) {
            return Some(format!("is never reached: `{}` ends every run at once", first.name));
        }
        let mut why = None;
        for case in cases(&rule.when, true)? {
            match contradiction(&case).or_else(|| forestalled(index, rule, &case, ceilings)) {
                Some(reason) => why = why.or(Some(reason)),
                None => return None,
            }
        }
        Some(why.unwrap_or_else(|| "can never fire: it is an empty `any`".into()))
    }
}

/// Every count that ends a run without another condition: of the limits, of the built-in rules and of the operator's
/// rules.
fn ceilings<'a>(
    own: &'a [Rule],
    (limits, closing): (&'a [Rule], Option<Duration>),
    progress: &'a [Rule],
    max_steps: Option<u64>,
) -> Vec<Ceiling<'a>> {
    let mut ceilings: Vec<Ceiling<'a>> = Vec::new();
    let of_limits = limits.iter().map(|rule| ("limits", rule));
    let of_progress = progress.iter().map(|rule| (BUILT_IN, rule));
    let ends = |rule: &Rule| rule.then == Then::Stop && !own.iter().any(|other| other.name == rule.name);
    for (section, rule) in of_limits.chain(of_progress).filter(|(_, rule)| ends(rule)) {
        each_alternative(&rule.when, &mut |count, at| {
            let is_time = matches!(count, Count::Of(Counter::ActiveMs | Counter::WallMs));
            let held = if is_time && section == "limits" { held_for_closing(closing, at) } else { 0 };
            let joint = if section == BUILT_IN { " " } else { "." };
            let mut key = format!("{section}{joint}{} = {}", rule.name, shown(count, at));
            if held > 0 {
                key = format!("{key}, of which {} s are for the closing turn,", held.div_ceil(1000));
            }
            ceilings.push(Ceiling { count, at: at - held, key, index: None, is_reached: false });
        });
    }
    if let Some(last) = max_steps {
        let key = format!("the limit of {last} steps");
        ceilings.push(Ceiling { count: Count::Of(Counter::Steps), at: last, key, index: None, is_reached: true });
    }
    for (index, rule) in own.iter().enumerate().filter(|(_, rule)| rule.then == Then::Stop) {
        each_alternative(&rule.when, &mut |count, at| {
            let key = format!("`{}` ({} = {})", rule.name, count.word(), shown(count, at));
            ceilings.push(Ceiling { count, at, key, index: Some(index), is_reached: false });
        });
    }
    ceilings
}

/// Calls `visit` with each count that makes the condition true alone.
fn each_alternative<'a>(condition: &'a Condition, visit: &mut dyn FnMut(Count<'a>, u64)) {
    match condition.part() {
        Part::Any(parts) => parts.iter().for_each(|part| each_alternative(part, visit)),
        Part::Leaf(Leaf::AtLeast(count, at)) => visit(count, at),
        Part::All(_) | Part::Not(_) | Part::Leaf(_) => {}
    }
}

fn is_true_at_once(condition: &Condition) -> bool {
    condition.is_true(&View { measures: &Measures::default(), since: None })
}

/// The cases in which a condition is true, or false. `None`: there are too many.
fn cases(condition: &Condition, holds: bool) -> Option<Vec<Case<'_>>> {
    match (condition.part(), holds) {
        (Part::Leaf(leaf), holds) => Some(vec![vec![Literal { leaf, holds }]]),
        (Part::Not(part), holds) => cases(part, !holds),
        (Part::Any(parts), true) | (Part::All(parts), false) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(cases(part, holds)?);
                if all.len() > MAX_CASES {
                    return None;
                }
            }
            Some(all)
        }
        (Part::All(parts), true) | (Part::Any(parts), false) => {
            let mut all: Vec<Case<'_>> = vec![Vec::new()];
            for part in parts {
                let more = cases(part, holds)?;
                if all.len() * more.len() > MAX_CASES {
                    return None;
                }
                let pairs = all.iter().flat_map(|case| more.iter().map(move |other| [case.as_slice(), other].concat()));
                all = pairs.collect();
            }
            Some(all)
        }
    }
}

/// Why the leaves of a case exclude each other.
fn contradiction(case: &Case<'_>) -> Option<String> {
    let must = |holds: bool| case.iter().filter(move |literal| literal.holds == holds).map(|literal| literal.leaf);
    if must(true).any(|leaf| leaf == Leaf::Never) {
        return Some("can never fire: a condition that is `false` never holds".into());
    }
    for no in must(false) {
        if let Leaf::AtLeast(count, 0) = no {
            return Some(format!("can never fire: {} is always at least 0", count.word()));
        }
        if let Some(yes) = must(true).find(|yes| implies(*yes, no)) {
            return Some(format!("can never fire: it asks for {} and not {}", written(yes), written(no)));
        }
    }
    None
}

/// Whether `other` holds whenever `one` holds.
fn implies(one: Leaf<'_>, other: Leaf<'_>) -> bool {
    match (one, other) {
        (Leaf::AtLeast(less, low), Leaf::AtLeast(more, high)) => is_at_most(less, more) && low >= high,
        (Leaf::Seen(Observed::Says(longer)), Leaf::Seen(Observed::Says(part))) => longer.contains(part),
        (one, other) => one == other,
    }
}

/// Why something else ends the run before a case can become true.
fn forestalled(index: usize, rule: &Rule, case: &Case<'_>, ceilings: &[Ceiling<'_>]) -> Option<String> {
    let asked = case.iter().filter_map(|literal| match literal {
        Literal { leaf: Leaf::AtLeast(count, at), holds: true } => Some((*count, *at)),
        _ => None,
    });
    for (count, at) in asked {
        for ceiling in ceilings.iter().filter(|ceiling| ceiling.index != Some(index)) {
            if is_at_most(count, ceiling.count) && at > ceiling.at {
                let wanted = written(Leaf::AtLeast(count, at));
                return Some(format!("can never fire: {} ends the run before {wanted}", ceiling.key));
            }
            // Of two rules that end the run at the same moment, only the first one is effective.
            let comes_second = rule.then != Then::Stop || ceiling.index.is_none_or(|other| other < index);
            if count == ceiling.count && at == ceiling.at && !ceiling.is_reached && comes_second {
                return Some(format!("decides nothing: {} ends the run at the same moment", ceiling.key));
            }
        }
    }
    None
}

/// Whether the first count is never greater than the second.
fn is_at_most(less: Count<'_>, more: Count<'_>) -> bool {
    use Counter::*;
    let (Count::Of(more_of), false) = (more, less == more) else { return less == more };
    let Count::Of(less_of) = less else { return more_of == ToolCalls };
    match more_of {
        WallMs => less_of == ActiveMs,
        ToolCalls => matches!(less_of, Errors | UnknownTools | InvalidArguments | ApprovalReasks),
        TokensTotal => matches!(less_of, TokensIn | TokensOut),
        SessionMicroUsd => less_of == RunMicroUsd,
        ModelCalls => matches!(less_of, Steps | Errors | EmptyReplies),
        Steps => matches!(less_of, Errors | EmptyReplies),
        _ => false,
    }
}

/// A leaf in the form of the settings.
fn written(leaf: Leaf<'_>) -> String {
    match leaf {
        Leaf::AtLeast(Count::ToolCallsOf(tool), at) => format!("tool_calls_of {tool} = {at}"),
        Leaf::AtLeast(count, at) => format!("{} = {}", count.word(), shown(count, at)),
        Leaf::Seen(Observed::Says(text)) => format!("says = {text:?}"),
        Leaf::Seen(Observed::Calls(tool)) => format!("calls = {tool:?}"),
        Leaf::Seen(observed) => observed.word().to_owned(),
        Leaf::Never => "false".to_owned(),
    }
}

/// A threshold in the unit of the settings.
fn shown(count: Count<'_>, at: u64) -> String {
    (at as f64 / count.counter().scale() as f64).to_string()
}

#[cfg(test)]
mod tests;
