//! The JSON Schema of a tool's arguments: as a tree for the code that looks inside, and as a text for what is sent and
//! stored.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::compact_json::compact;
use crate::shown_schema::shown;

/// The deepest nesting of a schema that somebody else has written. 100: a tree is read to 127 levels, and a stored run
/// has its schemas some levels down.
const MAX_DEPTH: usize = 100;

/// A JSON Schema. It has a tree, a text without spaces, or both: each is made of the other when it is first needed, and
/// kept. Clones share both. It is serialised by its text, so a schema that is sent in each request is written once.
#[derive(Clone)]
pub struct ToolSchema(Arc<Forms>);

/// At least one of them is set.
#[derive(Default)]
struct Forms {
    tree: OnceLock<Value>,
    text: OnceLock<Box<RawValue>>,
    /// The text that a model reads, if it was asked for.
    shown: OnceLock<Box<RawValue>>,
}

impl ToolSchema {
    /// The schema as its text alone: for one that is passed on, and that hardly anything looks into. A tree takes
    /// several times the memory of its text.
    pub fn as_text(tree: &Value) -> Self {
        Self(Arc::new(Forms { text: text_of(tree).into(), ..Forms::default() }))
    }

    /// The schema of this text, as somebody has written it. Most texts are kept without their tree.
    ///
    /// # Errors
    /// The text has no tree: it has half of a character, or a number that is too large. Or it is too deep, as for
    /// [`Self::of_tree`].
    pub fn of_text(text: &RawValue) -> Result<Self, serde_json::Error> {
        let text = match compact(text.get()) {
            Some(Cow::Borrowed(_)) => text.to_owned(),
            Some(Cow::Owned(shorter)) => RawValue::from_string(shorter)?,
            None => return Self::of_tree(&serde_json::from_str(text.get())?),
        };
        Ok(Self(Arc::new(Forms { text: text.into(), ..Forms::default() })))
    }

    /// The schema of this tree, as somebody has written it, as its text alone.
    ///
    /// # Errors
    /// It is too deep to be read again where it is stored.
    pub fn of_tree(tree: &Value) -> Result<Self, serde_json::Error> {
        if is_deeper(tree, MAX_DEPTH) {
            return Err(serde_json::Error::custom(format!("the schema has more than {MAX_DEPTH} levels")));
        }
        Ok(Self::as_text(tree))
    }

    /// The text, without spaces.
    pub fn text(&self) -> &RawValue {
        self.0.text.get_or_init(|| text_of(self))
    }

    /// The text for a model: see [`shown`].
    pub fn shown(&self) -> &RawValue {
        self.0.shown.get_or_init(|| text_of(&shown(self)))
    }

    /// Whether it is a JSON object. The tree is not made for this.
    pub fn is_object(&self) -> bool {
        self.text().get().starts_with('{')
    }
}

/// Whether the tree has more levels of lists and objects.
fn is_deeper(tree: &Value, levels: usize) -> bool {
    let below = |part: &Value| is_deeper(part, levels - 1);
    match tree {
        Value::Array(parts) => levels == 0 || parts.iter().any(below),
        Value::Object(parts) => levels == 0 || parts.values().any(below),
        _ => false,
    }
}

fn text_of(tree: &Value) -> Box<RawValue> {
    to_raw_value(tree).expect("a JSON value always serialises")
}

impl From<Value> for ToolSchema {
    fn from(tree: Value) -> Self {
        Self(Arc::new(Forms { tree: tree.into(), ..Forms::default() }))
    }
}

impl Deref for ToolSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        let read = |text: &RawValue| serde_json::from_str(text.get()).expect("each text has a tree");
        self.0.tree.get_or_init(|| self.0.text.get().map(|text| read(text)).unwrap_or_default())
    }
}

impl DerefMut for ToolSchema {
    /// The tree, to change it. The old text is dropped, and other clones keep what they have.
    fn deref_mut(&mut self) -> &mut Value {
        *self = Self::from(Value::clone(self));
        let forms = Arc::get_mut(&mut self.0).expect("it has just been made");
        forms.tree.get_mut().expect("it has just been made")
    }
}

impl PartialEq for ToolSchema {
    /// The order of the keys does not matter.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.text().get() == other.text().get() || **self == **other
    }
}

impl Eq for ToolSchema {}

impl PartialEq<Value> for ToolSchema {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

impl fmt::Debug for ToolSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().get())
    }
}

impl fmt::Display for ToolSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().get())
    }
}

impl Serialize for ToolSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|tree| Self::as_text(&tree))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_the_same_as_a_tree_and_as_a_text() {
        let tree = json!({"type": "object", "properties": {"b": {"const": "é\n\""}, "a": {"default": 1.0}}});
        let text = tree.to_string();
        for schema in [ToolSchema::from(tree.clone()), ToolSchema::as_text(&tree)] {
            assert_eq!((schema.text().get(), &*schema), (text.as_str(), &tree));
            assert_eq!(
                (schema.to_string(), serde_json::to_string(&schema).expect("JSON")),
                (text.clone(), text.clone())
            );
            assert_eq!(json!({"schema": schema}), json!({"schema": tree}), "also within a tree");
            assert_eq!(serde_json::from_str::<ToolSchema>(&text).expect("a schema"), schema);
            assert!(schema.is_object() && schema["properties"]["b"].is_object());
        }
        assert_eq!(ToolSchema::from(json!({"a": 1, "b": 2})), ToolSchema::as_text(&json!({"b": 2, "a": 1})));
        assert_ne!(ToolSchema::from(json!([])), ToolSchema::from(json!({})));
        assert!(!ToolSchema::from(json!([])).is_object());
    }

    #[test]
    fn a_text_of_somebody_else_is_the_same_as_its_tree() {
        let of = |text: &str| ToolSchema::of_text(serde_json::from_str(text).expect("JSON"));
        for text in [r#"{ "type": "object", "properties": {"a": {"const": 1e3}} }"#, r#"{"a":"\ud83d\ude00"}"#, "[ ]"] {
            let (schema, tree) = (of(text).expect("a tree"), serde_json::from_str::<Value>(text).expect("a tree"));
            assert_eq!((&schema, &*schema), (&ToolSchema::from(tree.clone()), &tree));
            assert!(!schema.text().get().contains(' '), "{schema}");
            assert_eq!(schema.is_object(), tree.is_object());
        }
        let plain = of(r#"{"a":[]}"#).expect("a tree");
        assert!(plain.0.tree.get().is_none());
        for text in [r#"{"a":1e999}"#, r#"{"a":"\ud83d"}"#, &format!("{}{}", "[".repeat(1000), "]".repeat(1000))] {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_schema_that_would_be_too_deep_where_it_is_stored_is_refused() {
        for (depth, is_taken) in [(64, true), (65, true), (99, true), (100, true), (101, false), (124, false)] {
            let lists = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let objects = format!("{}[]{}", r#"{"a":"#.repeat(depth - 1), "}".repeat(depth - 1));
            for text in [lists, objects] {
                let (raw, tree) = (RawValue::from_string(text.clone()), serde_json::from_str::<Value>(&text));
                let of_text = ToolSchema::of_text(&raw.expect("JSON"));
                let of_tree = ToolSchema::of_tree(&tree.expect("a tree"));
                assert_eq!((of_text.is_ok(), of_tree.is_ok()), (is_taken, is_taken), "{depth}: {text}");
            }
        }
    }

    #[test]
    fn a_change_is_in_both_forms_and_in_no_clone() {
        let before = ToolSchema::as_text(&json!({"type": "object"}));
        let mut after = before.clone();
        after["type"] = json!("string");
        assert_eq!((before.text().get(), after.text().get()), (r#"{"type":"object"}"#, r#"{"type":"string"}"#));
    }

    #[test]
    fn clones_share_the_text_and_nothing_makes_a_tree_that_nobody_reads() {
        let schema = ToolSchema::as_text(&json!({"type": "object"}));
        let clone = schema.clone();
        assert!(std::ptr::eq(schema.text(), clone.text()) && clone.is_object() && schema == clone);
        assert!(schema.0.tree.get().is_none());
    }
}
