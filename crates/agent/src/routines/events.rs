//! Which messages and events set routines off: compiled once, looked at for each message in linear time.

use std::collections::BTreeMap;
use std::sync::Arc;

use belay_protocol::{Inbound, RoutineId, RoutineOrigin, RoutineRecord, Trigger};
use regex::Regex;
use serde_json::Value;

use super::check;

/// The enabled routines that wait for messages and events, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventSet(BTreeMap<String, (RoutineId, Arc<Rule>)>);

/// A routine that is set off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Which. One that has its name by the time it is claimed may be another.
    pub(super) id: RoutineId,
    pub(super) name: String,
}

impl Waiting {
    pub(super) fn of(routine: &RoutineRecord) -> Self {
        Self { id: routine.routine_id, name: routine.spec.name.clone() }
    }
}

#[derive(Debug)]
enum Rule {
    Message(MessageRule),
    System(SystemRule),
}

#[derive(Debug)]
struct MessageRule {
    pattern: Regex,
    /// Only through this channel, in lower case.
    channel: Option<String>,
    /// Whose messages: this person's in the channel that they made it through; `None`: an operator's.
    owner: Option<(String, String)>,
}

#[derive(Debug)]
struct SystemRule {
    source: String,
    event: String,
    filters: BTreeMap<String, String>,
}

impl Rule {
    /// What sets the routine off; `None`: it is off, or waits for neither messages nor events. A pattern that cannot be
    /// compiled any more is passed over with a warning.
    fn of(routine: &RoutineRecord) -> Option<Self> {
        if !routine.enabled {
            return None;
        }
        match &routine.spec.trigger {
            Trigger::Event { pattern, channel } => {
                let compiled = check::compile(pattern).inspect_err(|problem| {
                    tracing::warn!(routine = routine.spec.name, problem, "a routine waits for no message");
                });
                Some(Self::Message(MessageRule {
                    pattern: compiled.ok()?,
                    channel: channel.as_ref().map(|channel| channel.to_lowercase()),
                    owner: match routine.origin {
                        RoutineOrigin::Made => {
                            Some((routine.creator.principal.clone(), routine.channel.as_str().to_owned()))
                        }
                        RoutineOrigin::Config | RoutineOrigin::Heartbeat => None,
                    },
                }))
            }
            Trigger::System { source, event, filters } => Some(Self::System(SystemRule {
                source: source.to_lowercase(),
                event: event.to_lowercase(),
                filters: filters.iter().map(|(field, value)| (field.clone(), value.to_lowercase())).collect(),
            })),
            Trigger::Schedule { .. } | Trigger::Webhook { .. } | Trigger::Manual => None,
        }
    }
}

impl EventSet {
    /// Those of these routines.
    pub(super) fn of(routines: &[RoutineRecord]) -> Self {
        let rule = |routine: &RoutineRecord| {
            Some((routine.spec.name.clone(), (routine.routine_id, Arc::new(Rule::of(routine)?))))
        };
        Self(routines.iter().filter_map(rule).collect())
    }

    /// Puts a routine as it is now.
    pub(super) fn put(&mut self, routine: &RoutineRecord) {
        match Rule::of(routine) {
            Some(rule) => drop(self.0.insert(routine.spec.name.clone(), (routine.routine_id, Arc::new(rule)))),
            None => self.remove(&routine.spec.name),
        }
    }

    /// Takes a routine out.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The routines that a message of their owner sets off, by name.
    pub(crate) fn for_message(&self, inbound: &Inbound, text: &str) -> Vec<Waiting> {
        let is_theirs = |rule: &MessageRule| match &rule.owner {
            Some((principal, channel)) => *inbound.principal.id == **principal && inbound.channel.as_str() == channel,
            None => inbound.principal.is_operator(),
        };
        let through = inbound.channel.as_str().to_lowercase();
        self.fitting(|rule| match rule {
            Rule::Message(rule) => {
                is_theirs(rule)
                    && rule.channel.as_ref().is_none_or(|channel| *channel == through)
                    && rule.pattern.is_match(text)
            }
            Rule::System(_) => false,
        })
    }

    /// The routines that wait for such an event, by name.
    pub(super) fn for_event(&self, source: &str, event: &str, payload: &Value) -> Vec<Waiting> {
        let (source, event) = (source.to_lowercase(), event.to_lowercase());
        self.fitting(|rule| match rule {
            Rule::Message(_) => false,
            Rule::System(rule) => {
                let fits = |(field, wanted): (&String, &String)| as_text(payload.get(field)).as_ref() == Some(wanted);
                rule.source == source && rule.event == event && rule.filters.iter().all(fits)
            }
        })
    }

    fn fitting(&self, fits: impl Fn(&Rule) -> bool) -> Vec<Waiting> {
        let all = self.0.iter().filter(|(_, (_, rule))| fits(rule));
        all.map(|(name, (id, _))| Waiting { id: *id, name: name.clone() }).collect()
    }
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
