//! Which messages and events set routines off: compiled once, and looked for where they can be.
//!
//! A routine waits for the messages of one person through one channel, or of operators, or for one event of one source: so what
//! comes is compared with those alone that wait for it, however many others there are. A pattern is looked for in linear time, and
//! in messages of a bounded length alone: the dispatcher does it, which must never wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use belay_protocol::{Inbound, RoutineId, RoutineOrigin, RoutineRecord, Trigger};
use regex::Regex;
use serde_json::Value;

use super::check;

/// Longest message that sets anything off, in bytes: longer than what people type, and short enough that a hundred patterns take no
/// time that anybody sees. Of a longer one the beginning alone would not do: a pattern that ends with `$` would fit where it was
/// cut.
const SEARCHED_MAX_BYTES: usize = 16 * 1024;

/// The enabled routines that wait for messages and events.
#[derive(Clone, Debug, Default)]
pub struct EventSet {
    /// By what they wait for, and there by name.
    waiting: HashMap<Source, BTreeMap<String, Arc<Rule>>>,
    /// What each of them waits for.
    sources: HashMap<String, Source>,
}

/// Where something comes from that sets routines off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// Messages of this person, through the channel that they made the routine through.
    Person { principal: String, channel: String },
    /// Messages of operators.
    Operators,
    /// An event, both words in lower case.
    System { source: String, event: String },
}

#[derive(Debug)]
struct Rule {
    id: RoutineId,
    fits: Fits,
}

#[derive(Debug)]
enum Fits {
    /// A text in which this is found, through this channel, in lower case, alone.
    Text { pattern: Regex, channel: Option<String> },
    /// A payload whose fields are these, in lower case.
    Payload(BTreeMap<String, String>),
}

/// A routine that is set off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggeredRoutine {
    /// Which. One that has its name by the time it is claimed may be another.
    pub(super) id: RoutineId,
    pub(super) name: String,
}

impl TriggeredRoutine {
    pub(super) fn of(routine: &RoutineRecord) -> Self {
        Self { id: routine.routine_id, name: routine.spec.name.clone() }
    }
}

impl EventSet {
    /// Those of these routines. Patterns that are `known` are not compiled again.
    pub(super) fn of(routines: &[RoutineRecord], known: &Self) -> Self {
        let mut set = Self::default();
        for routine in routines {
            if let Some((source, rule)) = rule(routine, known) {
                set.insert(routine.spec.name.clone(), source, rule);
            }
        }
        set
    }

    /// Puts a routine as it is now.
    pub(super) fn put(&mut self, routine: &RoutineRecord) {
        let rule = rule(routine, self);
        self.remove(&routine.spec.name);
        if let Some((source, rule)) = rule {
            self.insert(routine.spec.name.clone(), source, rule);
        }
    }

    fn insert(&mut self, name: String, source: Source, rule: Rule) {
        self.waiting.entry(source.clone()).or_default().insert(name.clone(), Arc::new(rule));
        self.sources.insert(name, source);
    }

    /// Takes a routine out.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(source) = self.sources.remove(name) else { return };
        if let Some(rules) = self.waiting.get_mut(&source) {
            rules.remove(name);
            if rules.is_empty() {
                self.waiting.remove(&source);
            }
        }
    }

    /// The pattern of a routine, if it is this one.
    fn compiled(&self, name: &str, pattern: &str) -> Option<Regex> {
        match &self.waiting.get(self.sources.get(name)?)?.get(name)?.fits {
            Fits::Text { pattern: known, .. } if known.as_str() == pattern => Some(known.clone()),
            Fits::Text { .. } | Fits::Payload(_) => None,
        }
    }

    /// The routines that a message of their owner sets off, by name. None for one that is longer than [`SEARCHED_MAX_BYTES`].
    pub fn for_message(&self, inbound: &Inbound, text: &str) -> Vec<TriggeredRoutine> {
        if self.waiting.is_empty() || text.len() > SEARCHED_MAX_BYTES {
            return Vec::new();
        }
        let through = inbound.channel.as_str().to_lowercase();
        let fits = |fits: &Fits| match fits {
            Fits::Text { pattern, channel } => {
                channel.as_ref().is_none_or(|channel| *channel == through) && pattern.is_match(text)
            }
            Fits::Payload(_) => false,
        };
        let (principal, channel) = (inbound.principal.id.to_string(), inbound.channel.as_str().to_owned());
        let mut found = self.fitting(&Source::Person { principal, channel }, fits);
        if inbound.principal.is_operator() {
            found.extend(self.fitting(&Source::Operators, fits));
            found.sort_by(|one, other| one.name.cmp(&other.name));
        }
        found
    }

    /// The routines that wait for such an event, by name.
    pub(super) fn for_event(&self, source: &str, event: &str, payload: &Value) -> Vec<TriggeredRoutine> {
        let source = Source::System { source: source.to_lowercase(), event: event.to_lowercase() };
        let is = |(field, wanted): (&String, &String)| as_text(payload.get(field)).as_ref() == Some(wanted);
        self.fitting(&source, |fits| match fits {
            Fits::Text { .. } => false,
            Fits::Payload(filters) => filters.iter().all(is),
        })
    }

    fn fitting(&self, source: &Source, fits: impl Fn(&Fits) -> bool) -> Vec<TriggeredRoutine> {
        let rules = self.waiting.get(source).into_iter().flatten();
        let fitting = rules.filter(|(_, rule)| fits(&rule.fits));
        fitting.map(|(name, rule)| TriggeredRoutine { id: rule.id, name: name.clone() }).collect()
    }
}

/// What sets a routine off; `None`: it is off, or waits for neither messages nor events. A pattern that cannot be compiled any
/// more is passed over with a warning.
fn rule(routine: &RoutineRecord, known: &EventSet) -> Option<(Source, Rule)> {
    if !routine.enabled {
        return None;
    }
    let name = &routine.spec.name;
    let (source, fits) = match &routine.spec.trigger {
        Trigger::Event { pattern, channel } => {
            let compiled = known.compiled(name, pattern).map_or_else(|| check::compile(pattern), Ok);
            let pattern = compiled
                .inspect_err(|problem| {
                    tracing::warn!(
                        routine = name,
                        problem,
                        "a routine cannot be triggered by a \
                                                                                message"
                    )
                })
                .ok()?;
            let source = match routine.origin {
                RoutineOrigin::Made => Source::Person {
                    principal: routine.creator.principal.clone(),
                    channel: routine.channel.as_str().to_owned(),
                },
                RoutineOrigin::Config | RoutineOrigin::Heartbeat => Source::Operators,
            };
            (source, Fits::Text { pattern, channel: channel.as_ref().map(|channel| channel.to_lowercase()) })
        }
        Trigger::System { source, event, filters } => {
            let filters = filters.iter().map(|(field, value)| (field.clone(), value.to_lowercase())).collect();
            (Source::System { source: source.to_lowercase(), event: event.to_lowercase() }, Fits::Payload(filters))
        }
        Trigger::Schedule { .. } | Trigger::Webhook { .. } | Trigger::Manual => return None,
    };
    Some((source, Rule { id: routine.routine_id, fits }))
}

/// A field as filters compare it; what has parts of its own is equal to nothing.
fn as_text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.to_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
