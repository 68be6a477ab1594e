//! Which messages and events set routines off: compiled once, looked at for each message in linear time.

use std::collections::BTreeMap;

use belay_protocol::{Inbound, RoutineOrigin, RoutineRecord, Trigger};
use regex::Regex;
use serde_json::Value;

use super::check;

/// The enabled routines that wait for messages and events.
#[derive(Debug, Default)]
pub(crate) struct EventSet {
    messages: Vec<MessageRule>,
    system: Vec<SystemRule>,
}

#[derive(Debug)]
struct MessageRule {
    routine: String,
    pattern: Regex,
    /// Only through this channel, in lower case.
    channel: Option<String>,
    /// Whose messages: this person's in the channel that they made it through; `None`: an operator's.
    owner: Option<(String, String)>,
}

#[derive(Debug)]
struct SystemRule {
    routine: String,
    source: String,
    event: String,
    filters: BTreeMap<String, String>,
}

impl EventSet {
    /// Those of these routines that are on. A pattern that cannot be compiled any more is passed over with a warning.
    pub(super) fn of(routines: &[RoutineRecord]) -> Self {
        let mut set = Self::default();
        for routine in routines.iter().filter(|routine| routine.enabled) {
            let name = routine.spec.name.clone();
            match &routine.spec.trigger {
                Trigger::Event { pattern, channel } => match check::compile(pattern) {
                    Ok(pattern) => set.messages.push(MessageRule {
                        routine: name,
                        pattern,
                        channel: channel.as_ref().map(|channel| channel.to_lowercase()),
                        owner: match routine.origin {
                            RoutineOrigin::Made => {
                                Some((routine.creator.principal.clone(), routine.channel.as_str().to_owned()))
                            }
                            RoutineOrigin::Config => None,
                        },
                    }),
                    Err(problem) => tracing::warn!(routine = name, problem, "a routine waits for no message"),
                },
                Trigger::System { source, event, filters } => set.system.push(SystemRule {
                    routine: name,
                    source: source.to_lowercase(),
                    event: event.to_lowercase(),
                    filters: filters.iter().map(|(field, value)| (field.clone(), value.to_lowercase())).collect(),
                }),
                Trigger::Schedule { .. } | Trigger::Webhook { .. } | Trigger::Manual => {}
            }
        }
        set
    }

    /// The routines that a message of their owner sets off, by name.
    pub(crate) fn for_message(&self, inbound: &Inbound, text: &str) -> Vec<String> {
        let is_theirs = |rule: &MessageRule| match &rule.owner {
            Some((principal, channel)) => *inbound.principal.id == **principal && inbound.channel.as_str() == channel,
            None => inbound.principal.is_operator(),
        };
        let through = inbound.channel.as_str().to_lowercase();
        let fits = |rule: &&MessageRule| {
            is_theirs(rule)
                && rule.channel.as_ref().is_none_or(|channel| *channel == through)
                && rule.pattern.is_match(text)
        };
        self.messages.iter().filter(fits).map(|rule| rule.routine.clone()).collect()
    }

    /// The routines that wait for such an event, by name.
    pub(super) fn for_event(&self, source: &str, event: &str, payload: &Value) -> Vec<String> {
        let (source, event) = (source.to_lowercase(), event.to_lowercase());
        let fits = |rule: &&SystemRule| {
            rule.source == source
                && rule.event == event
                && rule.filters.iter().all(|(field, wanted)| as_text(payload.get(field)).as_ref() == Some(wanted))
        };
        self.system.iter().filter(fits).map(|rule| rule.routine.clone()).collect()
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
