//! Changes single values of a settings file, and keeps its comments and its order.

use serde_json::Value as Json;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// The head of a new file.
const HEAD: &str = "\
# Settings of Belay. `belay setup` wrote this file; run it again to change single answers, it keeps the rest.
# `belay config show` prints every setting that applies here, and `belay check` checks them.
# After a change restart the daemon; `systemctl reload belay` is enough for some settings.

";

/// Comments of keys that are added.
const COMMENTS: &[(&str, &str)] = &[
    (
        "llm.provider",
        "The provider of the model: openai (and every server that speaks its chat completions), anthropic, …",
    ),
    ("llm.base_url", "The address of the server. Without it: the provider's own."),
    ("llm.model", "The model, as the provider names it."),
    ("llm.api_key_file", "The file that holds the key and nothing else. Only its owner may read it."),
    (
        "llm.api_key_env",
        "The environment variable that holds the key; in a service the credential llm_api_key. Empty: no key is sent.",
    ),
    ("tools.workspace", "The directory in which the model's tools read and write."),
    ("channels.telegram.enabled", "Whether the Telegram bot is served."),
    (
        "channels.telegram.mode",
        "polling: Belay asks Telegram for messages, which needs only outgoing connections. Or: webhook.",
    ),
    ("channels.telegram.api_base", "The address of the Bot API server."),
    (
        "channels.telegram.token_file",
        "The file that holds the bot's token and nothing else. Only its owner may read it.",
    ),
    (
        "channels.telegram.operators",
        "Numeric ids of the people who may do everything. `allow` lists people who may only talk.",
    ),
];

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// A text.
    Text(String),
    /// A boolean.
    Flag(bool),
    /// A list of numeric ids.
    #[cfg_attr(not(any(test, feature = "telegram")), expect(dead_code, reason = "a build without a bot"))]
    Ids(Vec<u64>),
}

impl Setting {
    /// The value as JSON, as the settings in force show it.
    pub(super) fn json(&self) -> Json {
        match self {
            Self::Text(text) => Json::from(text.as_str()),
            Self::Flag(flag) => Json::from(*flag),
            Self::Ids(ids) => Json::from(ids.as_slice()),
        }
    }

    fn toml(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Flag(flag) => Value::from(*flag),
            // The settings refuse larger numbers, so the check of the new file reports them.
            Self::Ids(ids) => {
                Value::from(ids.iter().map(|id| i64::try_from(*id).unwrap_or(i64::MAX)).collect::<Array>())
            }
        }
    }
}

/// The new value of a setting; `None` removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The full key.
    pub(super) key: &'static str,
    /// The value.
    pub(super) value: Option<Setting>,
}

impl Change {
    /// A new text.
    pub(super) fn text(key: &'static str, text: &str) -> Self {
        Self { key, value: Some(Setting::Text(text.to_owned())) }
    }

    /// The removal of a setting.
    pub(super) fn without(key: &'static str) -> Self {
        Self { key, value: None }
    }

    /// One line for a person.
    pub(super) fn line(&self) -> String {
        match &self.value {
            Some(value) => format!("{} = {}", self.key, value.toml().to_string().trim()),
            None => format!("{} is removed", self.key),
        }
    }
}

/// Applies changes to the text of a settings file; `None`: the file does not exist yet.
///
/// # Errors
/// The text is no TOML, or a section is not a table.
pub(super) fn changed(text: Option<&str>, changes: &[Change]) -> Result<String, String> {
    let mut document: DocumentMut =
        text.unwrap_or_default().parse().map_err(|error| format!("is not TOML: {error}"))?;
    for change in changes {
        apply(&mut document, change)?;
    }
    let mut new = document.to_string();
    if text.is_none() {
        new.insert_str(0, HEAD);
    }
    // The library writes plain line ends.
    let crlf = text.is_some_and(|text| text.contains("\r\n"));
    Ok(if crlf { new.replace("\r\n", "\n").replace('\n', "\r\n") } else { new })
}

fn apply(document: &mut DocumentMut, change: &Change) -> Result<(), String> {
    let mut path: Vec<&str> = change.key.split('.').collect();
    let key = path.pop().unwrap_or_default();
    let mut item = document.as_item_mut();
    let mut has_lines = true;
    for (at, section) in path.iter().enumerate() {
        let table = item.as_table_like_mut().ok_or_else(|| format!("{} is not a section", path[..at].join(".")))?;
        if change.value.is_none() && !table.contains_key(section) {
            return Ok(());
        }
        item = table.entry(section).or_insert_with(|| {
            let mut new = Table::new();
            // A table that only holds other tables has no header.
            new.set_implicit(at + 1 < path.len());
            Item::Table(new)
        });
        // Inline and dotted tables have no lines of their own for comments.
        has_lines &= item.as_table().is_some_and(|table| !table.is_dotted());
    }
    let table = item.as_table_like_mut().ok_or_else(|| format!("{} is not a section", path.join(".")))?;
    match &change.value {
        None => drop(table.remove(key)),
        Some(value) => set(table, key, value.toml(), comment_of(change.key).filter(|_| has_lines)),
    }
    Ok(())
}

/// Sets a value. An existing one keeps its place and the comments around it; a new one gets a comment.
fn set(table: &mut dyn TableLike, key: &str, mut value: Value, comment: Option<&str>) {
    if let Some(before) = table.get_mut(key) {
        if let Some(decor) = before.as_value().map(|before| before.decor().clone()) {
            *value.decor_mut() = decor;
        }
        *before = Item::Value(value);
        return;
    }
    table.insert(key, Item::Value(value));
    if let (Some(comment), Some(mut key)) = (comment, table.key_mut(key)) {
        key.leaf_decor_mut().set_prefix(format!("# {comment}\n"));
    }
}

fn comment_of(key: &str) -> Option<&'static str> {
    COMMENTS.iter().find(|(of, _)| *of == key).map(|(_, comment)| *comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, changes: &[Change]) -> String {
        changed(Some(text), changes).expect("it can be changed")
    }

    #[test]
    fn a_new_file_is_commented_and_parses() {
        let changes = [
            Change::text("llm.provider", "openai"),
            Change::text("llm.model", "m \"quoted\""),
            Change::without("llm.api_key_env"),
            Change { key: "channels.telegram.enabled", value: Some(Setting::Flag(true)) },
            Change { key: "channels.telegram.operators", value: Some(Setting::Ids(vec![42, 7])) },
        ];
        let new = changed(None, &changes).expect("it can be made");
        for part in [
            "# Settings of Belay.",
            "[llm]\n# The provider of the model",
            "provider = \"openai\"\n# The model, as",
            "\n\n[channels.telegram]\n# Whether the Telegram bot",
            "operators = [42, 7]\n",
        ] {
            assert!(new.contains(part), "{part}\n{new}");
        }
        assert!(!new.contains("[channels]") && !new.contains("api_key_env"), "{new}");
        let read: toml::Table = new.parse().expect("it is TOML");
        assert_eq!(read["llm"]["model"].as_str(), Some("m \"quoted\""));
    }

    #[test]
    fn only_the_changed_value_changes() {
        for (before, changes, after) in [
            (
                "# mine\n[llm] # section\nmodel = 'a' # why\n\n# end\n[limits]\nusd_per_day = 1.0\n# last\n",
                vec![Change::text("llm.model", "b")],
                "# mine\n[llm] # section\nmodel = \"b\" # why\n\n# end\n[limits]\nusd_per_day = 1.0\n# last\n",
            ),
            (
                "[limits]\nusd_per_day = 1.0\n",
                vec![Change::text("tools.workspace", "/w")],
                "[limits]\nusd_per_day = 1.0\n\n[tools]\n# The directory in which the model's tools read and write.\nworkspace = \"/w\"\n",
            ),
            (
                "llm = { model = \"a\", provider = \"x\" }\n",
                vec![Change::text("llm.model", "b")],
                "llm = { model = \"b\", provider = \"x\" }\n",
            ),
            (
                "llm = { provider = \"x\" }\n",
                vec![Change::text("llm.model", "b")],
                "llm = { provider = \"x\" , model = \"b\" }\n",
            ),
            ("llm.model = \"a\"\n", vec![Change::text("llm.model", "b")], "llm.model = \"b\"\n"),
            (
                "[channels.stdin]\nenabled = false\n",
                vec![Change { key: "channels.telegram.enabled", value: Some(Setting::Flag(true)) }],
                "[channels.stdin]\nenabled = false\n\n[channels.telegram]\n# Whether the Telegram bot is served.\nenabled = true\n",
            ),
            (
                "[llm]\nmodel = \"a\"\nbase_url = \"b\"\n",
                vec![Change::without("llm.base_url")],
                "[llm]\nmodel = \"a\"\n",
            ),
            ("[llm]\r\nmodel = \"a\"\r\n", vec![Change::text("llm.model", "b")], "[llm]\r\nmodel = \"b\"\r\n"),
            ("", vec![Change::without("channels.telegram.mode")], ""),
        ] {
            assert_eq!(edit(before, &changes), after, "{before}");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_refused() {
        for text in ["llm = 3\n", "[llm\n"] {
            assert!(changed(Some(text), &[Change::text("llm.model", "b")]).is_err(), "{text}");
        }
    }
}
