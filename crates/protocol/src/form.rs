//! Forms: what another program asks a person for, and what an answer must be.

mod formats;
mod reading;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A form that a person fills in, or an address that a person opens. It is stored with its question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Form {
    /// The program that asks: the name of an MCP server in the settings.
    pub server: String,
    /// Its words, as they came, bounded.
    pub message: String,
    /// The fields, at most 32; empty: a yes is the whole answer.
    #[serde(default)]
    pub fields: Vec<FormField>,
    /// The address that the person is to open. The answer says whether they did, and has no other content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<FormUrl>,
    /// Whether the form seems to ask for a password or a key, which MCP forbids.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_for_secret: bool,
}

/// An address to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FormUrl {
    /// The whole address; https, or http on this machine.
    pub address: String,
    /// Its host in ASCII, with the port if it is not the usual one.
    pub host: String,
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FormField {
    /// Its name for the program.
    pub name: String,
    /// Its name for people; empty: there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// What it means; empty: the program does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether it must have a value.
    #[serde(default)]
    pub required: bool,
    /// The value that counts if the answer has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Its values.
    #[serde(flatten)]
    pub kind: FieldKind,
}

/// The values that a field takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FieldKind {
    /// A text.
    Text {
        /// The least number of characters.
        min: u32,
        /// The greatest number of characters.
        max: u32,
        /// Its form.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<FieldFormat>,
    },
    /// A number.
    Number {
        /// Whether it must be whole.
        whole: bool,
        /// The least value, as the program wrote it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min: Option<serde_json::Number>,
        /// The greatest value, as the program wrote it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<serde_json::Number>,
    },
    /// Yes or no.
    YesNo,
    /// One of these.
    Choice {
        /// The options.
        options: Vec<FormOption>,
    },
    /// Some of these.
    Choices {
        /// The options.
        options: Vec<FormOption>,
        /// The least number of them.
        min: u32,
        /// The greatest number of them.
        max: u32,
    },
}

/// An option of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FormOption {
    /// Its value for the program.
    pub value: String,
    /// Its name for people; empty: the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FieldFormat {
    /// An e-mail address.
    Email,
    /// An address with a scheme.
    Uri,
    /// A day: 2026-07-28.
    Date,
    /// A time: 2026-07-28T12:00:00Z.
    DateTime,
}

/// A name of a wrong answer, as far as it is shown.
fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

impl Form {
    /// Reads an answer as people write it: for a form with one field its value alone, else a line `field: value` for
    /// each field, or a JSON object.
    ///
    /// # Errors
    /// What is wrong, as a sentence for the person.
    pub fn read(&self, text: &str) -> Result<Map<String, Value>, String> {
        reading::read(self, text.trim())
    }

    /// Checks the values of an answer, adds the defaults of fields without a value, and converts texts.
    ///
    /// # Errors
    /// What is wrong, as a sentence for the person.
    pub fn check(&self, values: Map<String, Value>) -> Result<Map<String, Value>, String> {
        reading::check(self, values)
    }

    /// Whether a plain "no" is a value of the form and not a refusal.
    pub fn takes_no(&self) -> bool {
        let is_no = |text: &str| text.eq_ignore_ascii_case("no");
        match &self.fields[..] {
            [FormField { kind: FieldKind::YesNo, .. }] => true,
            [FormField { kind: FieldKind::Choice { options }, .. }] => {
                options.iter().any(|option| is_no(&option.value) || is_no(&option.title))
            }
            _ => false,
        }
    }
}
