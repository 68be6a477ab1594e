//! Finds the routines that a message or an event triggers.
//!
//! Each routine waits for the messages of one person in one channel, for those of operators, or for one event of one
//! source. The index by this origin keeps the search independent of the number of other routines. The dispatcher
//! searches, and must never wait. Patterns therefore take linear time, and longer messages are not searched.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use belay_protocol::{Inbound, RoutineId, RoutineOrigin, RoutineRecord, Trigger};
use regex::Regex;
use serde_json::Value;

use super::check;

/// Longest message that can trigger a routine, in bytes. People type shorter ones, and a hundred patterns search this
/// much in negligible time. The beginning of a longer message is not searched, since a pattern that ends with `$`
/// would match at the cut.
const SEARCHED_MAX_BYTES: usize = 16 * 1024;

/// The enabled routines that wait for messages and events.
#[derive(Clone, Debug, Default)]
pub struct EventSet {
    /// By origin, then by name.
    waiting: HashMap<Source, BTreeMap<String, Arc<Rule>>>,
    /// The origin for which each routine waits.
    sources: HashMap<String, Source>,
}

/// The origin of a message or an event that can trigger routines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    /// Messages of this person, in the channel in which they created the routine.
    Person { principal: String, channel: String },
    /// Messages of operators.
    Operators,
    /// An event; both words in lower case.
    System { source: String, event: String },
}

#[derive(Debug)]
struct Rule {
    id: RoutineId,
    fits: Fits,
}

#[derive(Debug)]
enum Fits {
    /// A text that contains a match, in this channel only (in lower case) if one is given.
    Text { pattern: Regex, channel: Option<String> },
    /// A payload with these field values, in lower case.
    Payload(BTreeMap<String, String>),
}

/// A routine that a message or an event triggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggeredRoutine {
    /// The id. By the time of the claim, another routine may have the name.
    pub(super) id: RoutineId,
    pub(super) name: String,
}

impl TriggeredRoutine {
    pub(super) fn of(routine: &RoutineRecord) -> Self {
        Self { id: routine.routine_id, name: routine.spec.name.clone() }
    }
}

impl EventSet {
    /// The set of these routines. Reuses the compiled patterns of `known`.
    pub(super) fn of(routines: &[RoutineRecord], known: &Self) -> Self {
        let mut set = Self::default();
        for routine in routines {
            if let Some((source, rule)) = rule(routine, known) {
                set.insert(routine.spec.name.clone(), source, rule);
            }
        }
        set
    }

    /// Inserts a routine, or replaces it.
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

    /// Removes a routine.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(source) = self.sources.remove(name) else { return };
        if let Some(rules) = self.waiting.get_mut(&source) {
            rules.remove(name);
            if rules.is_empty() {
                self.waiting.remove(&source);
            }
        }
    }

    /// The compiled pattern of a routine, if its text is `pattern`.
    fn compiled(&self, name: &str, pattern: &str) -> Option<Regex> {
        match &self.waiting.get(self.sources.get(name)?)?.get(name)?.fits {
            Fits::Text { pattern: known, .. } if known.as_str() == pattern => Some(known.clone()),
            Fits::Text { .. } | Fits::Payload(_) => None,
        }
    }

    /// The routines that this message of their owner triggers, by name. A message longer than [`SEARCHED_MAX_BYTES`]
    /// triggers none.
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

    /// The routines that wait for this event, by name.
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

/// The origin and the rule of a routine. `None`: the routine is disabled, or waits for neither messages nor events. A
/// pattern that no longer compiles is skipped with a warning.
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

/// A field's value as filters compare it. A null, a list or an object matches no filter.
fn as_text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.to_lowercase()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
