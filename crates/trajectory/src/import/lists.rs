//! Reads message lists in their wrappings, and formats with one conversation a file.
//!
//! A list is a JSON array, `{"messages":[…]}` (a request, or a row of training data), or one message a line. An array or
//! lines can also hold several of them.

use serde_json::Value;

use super::content::{field, list};
use super::recorder::Recorder;
use super::responses::Items;
use super::tape::Tape;
use super::{Format, InvalidItem, Reads, anthropic, openai};

/// The message in this value: the value itself, or the message that it wraps, as in session logs:
/// `{"type":"assistant","message":{…}}`.
pub(super) fn message(value: &Value) -> Option<&Value> {
    let inner = value.get("message").filter(|inner| inner.get("role").is_some());
    inner.or_else(|| value.get("role").map(|_| value))
}

/// Reads lists of one of the message formats.
pub(super) struct Lists {
    format: Format,
    /// The conversation that single messages belong to: its run, and the number of the next message.
    current: Option<(usize, usize)>,
    answer_id: Option<String>,
    items: Items,
}

impl Lists {
    pub(super) fn new(format: Format) -> Self {
        Self { format, current: None, answer_id: None, items: Items::default() }
    }

    fn is_item(&self, value: &Value) -> bool {
        message(value).is_some() || (self.format == Format::Responses && !field(value, "type").is_empty())
    }

    fn begin(&mut self, tape: &mut Tape) -> usize {
        (self.answer_id, self.items) = (None, Items::default());
        tape.begin()
    }

    fn conversation(&mut self, items: &[Value], tape: &mut Tape) {
        if items.is_empty() {
            return;
        }
        tape.next();
        let run = self.begin(tape);
        for (index, item) in items.iter().enumerate() {
            self.item(item, (run, index), tape);
        }
        self.current = None;
    }

    fn item(&mut self, item: &Value, (run, index): (usize, usize), tape: &mut Tape) {
        let read = match (self.format, message(item)) {
            (Format::Responses, _) => self.items.item(tape.at(run), item),
            (Format::Anthropic, Some(message)) => anthropic::message(tape.at(run), message, &mut self.answer_id),
            (_, Some(message)) => openai::message(tape.at(run), message),
            (_, None) => Err(field(item, "type").to_owned()),
        };
        if let Err(what) = read {
            let conversation = (tape.runs() > 1).then_some(run);
            tape.invalid(InvalidItem { index, item_kind: "message", what }, conversation);
        }
    }

    /// The lists that an object holds. Those of a request and its answer are one conversation.
    fn held(&self, object: &Value) -> Vec<Vec<Value>> {
        if self.format == Format::TauBench {
            let runs = list(object, "simulations").iter().map(|run| list(run, "messages").to_vec());
            return std::iter::once(list(object, "traj").to_vec()).chain(runs).collect();
        }
        let (messages, input, output) = (list(object, "messages"), list(object, "input"), list(object, "output"));
        if messages.iter().any(Value::is_array) {
            return messages.iter().map(|inner| inner.as_array().cloned().unwrap_or_default()).collect();
        }
        let asked = object.get("input").filter(|input| input.is_string());
        let asked = asked.map(|text| serde_json::json!({"role": "user", "content": text}));
        vec![messages.iter().chain(asked.iter()).chain(input).chain(output).cloned().collect()]
    }
}

impl Reads for Lists {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        match record {
            Value::Array(items) if items.iter().any(|item| self.is_item(item)) => self.conversation(items, tape),
            Value::Array(items) => items.iter().for_each(|item| self.record(item, tape)),
            _ => {
                let held: Vec<_> = self.held(record).into_iter().filter(|items| !items.is_empty()).collect();
                if !held.is_empty() {
                    held.iter().for_each(|items| self.conversation(items, tape));
                } else if self.is_item(record) {
                    let (run, index) = match self.current {
                        Some(current) => current,
                        None => (self.begin(tape), 0),
                    };
                    self.item(record, (run, index), tape);
                    self.current = Some((run, index + 1));
                } else {
                    tape.skip(field(record, "type"));
                }
            }
        }
    }
}

/// Reads files that hold one conversation each.
pub(super) struct Files {
    pub(super) is_typical: fn(&Value) -> bool,
    pub(super) read: fn(&Value) -> Result<Recorder, InvalidItem>,
}

impl Reads for Files {
    fn record(&mut self, record: &Value, tape: &mut Tape) {
        match record {
            Value::Array(items) => items.iter().for_each(|item| self.record(item, tape)),
            file if (self.is_typical)(file) => match (self.read)(file) {
                Ok(recorded) => {
                    tape.next();
                    let run = tape.begin();
                    tape.at(run).add(recorded);
                }
                Err(invalid) => tape.invalid(invalid, (tape.runs() > 0).then_some(tape.runs())),
            },
            other => tape.skip(field(other, "type")),
        }
    }
}
