//! Parses the head of a `SKILL.md`: YAML between two lines of three dashes. Pure.

use belay_text::{escaped_line, is_clear, removed};
use serde::Deserialize;
use serde_norway::Value;

/// Longest head in bytes. 16 KiB: enough for names and descriptions. A longer head is an error or an attack.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Longest name and description, in characters.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1024;
/// Most characters of a parser error that are quoted.
const MAX_COMPLAINT_CHARS: usize = 200;

/// The parsed head of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: String,
    /// The description, on one line.
    pub(super) description: String,
    pub(super) user_invocable: bool,
    pub(super) disable_model_invocation: bool,
    pub(super) needs: Needs,
}

/// The requirements of a skill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Needs {
    /// The skill can be used even if the other requirements are not met.
    pub(super) always: bool,
    /// Operating systems of which one is required; empty: any.
    pub(super) os: Vec<String>,
    pub(super) requires: Requires,
    /// The variable in which the skill's programs expect the API key.
    pub(super) primary_env: Option<String>,
}

/// The required programs, variables and settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Requires {
    /// Programs; all are required.
    pub(super) bins: Vec<String>,
    /// Programs; one of them is required.
    pub(super) any_bins: Vec<String>,
    /// Variables; all are required.
    pub(super) env: Vec<String>,
    /// Keys of settings; all are required.
    pub(super) config: Vec<String>,
}

/// The head as written. Other fields (`homepage`, `license`, …) are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Written {
    name: Option<String>,
    description: Option<String>,
    #[serde(default = "yes")]
    user_invocable: bool,
    #[serde(default)]
    disable_model_invocation: bool,
    #[serde(default)]
    metadata: Value,
}

fn yes() -> bool {
    true
}

/// Parses the head of a file.
///
/// # Errors
/// The problem, in plain words.
pub(super) fn read(text: &str) -> Result<Head, String> {
    let yaml = between_dashes(text)?;
    let written: Written = serde_norway::from_str(yaml).map_err(|error| complaint(&error))?;
    let name = name(written.name.as_deref().unwrap_or_default().trim())?;
    let description = one_line(written.description.as_deref().unwrap_or_default());
    if description.is_empty() {
        return Err("it has no description, by which the model knows when to use it".to_owned());
    }
    let needs = needs(written.metadata)?;
    let Written { user_invocable, disable_model_invocation, .. } = written;
    Ok(Head { name, description, user_invocable, disable_model_invocation, needs })
}

fn between_dashes(text: &str) -> Result<&str, String> {
    let missing = || "it does not begin with a head: a line ---, then name and description, then a line ---".to_owned();
    let rest = text.strip_prefix("---\n").ok_or_else(missing)?;
    let end = if rest.starts_with("---") {
        0
    } else {
        rest.find("\n---").ok_or_else(|| "its head has no end: a line ---".to_owned())? + 1
    };
    if end > MAX_HEAD_BYTES {
        return Err(format!("its head has more than {MAX_HEAD_BYTES} bytes"));
    }
    Ok(&rest[..end])
}

fn complaint(error: &serde_norway::Error) -> String {
    let words: String = escaped_line(&error.to_string()).chars().take(MAX_COMPLAINT_CHARS).collect();
    format!("its head cannot be read: {words}")
}

fn name(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let fits = |c: char| !matches!(c, '`' | '<' | '>' | '/');
    if name.chars().count() > MAX_NAME_CHARS
        || !is_clear(name)
        || !name.chars().all(fits)
        || !name.chars().any(char::is_alphanumeric)
    {
        return Err(format!(
            "its name has to be at most {MAX_NAME_CHARS} letters, digits and signs on one line, without ` < > /"
        ));
    }
    Ok(name.to_owned())
}

/// The text on one line, without hidden characters, and at most [`MAX_DESCRIPTION_CHARS`] long.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let visible = words.join(" ");
    removed(&visible).chars().take(MAX_DESCRIPTION_CHARS).collect()
}

/// Reads the requirements from the metadata: from its own fields, or from the first program's table that has any of
/// them. Several programs share skills, and each writes its requirements under its own name.
fn needs(metadata: Value) -> Result<Needs, String> {
    let known = |value: &Value| {
        ["always", "os", "requires", "primaryEnv"].iter().any(|field| value.get(*field).is_some_and(|it| !it.is_null()))
    };
    let found = match metadata {
        own if known(&own) => own,
        Value::Mapping(programs) => match programs.into_iter().map(|(_, value)| value).find(known) {
            Some(found) => found,
            None => return Ok(Needs::default()),
        },
        _ => return Ok(Needs::default()),
    };
    serde_norway::from_value(found).map_err(|error| complaint(&error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use belay_testkit::clock::processor_time;

    use super::*;

    fn whole(head: &str) -> Result<Head, String> {
        read(&format!("---\n{head}\n---\n# Do this\n"))
    }

    #[test]
    fn a_head_has_description_and_requirements() {
        let head = whole(
            "name: web-search\ndescription: |\n  Looks things\n  up.\nhomepage: https://example.org\nuser-invocable: false\n\
             disable-model-invocation: true\nmetadata: {\"always\": true, \"os\": [\"linux\"], \"primaryEnv\": \"KEY\", \
             \"requires\": {\"bins\": [\"jq\"], \"anyBins\": [\"a\", \"b\"], \"env\": [\"E\"], \"config\": [\"tools.web\"]}}",
        );
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let requires = Requires {
            bins: words(&["jq"]),
            any_bins: words(&["a", "b"]),
            env: words(&["E"]),
            config: words(&["tools.web"]),
        };
        let needs = Needs { always: true, os: words(&["linux"]), requires, primary_env: Some("KEY".into()) };
        let expected = Head {
            name: "web-search".into(),
            description: "Looks things up.".into(),
            user_invocable: false,
            disable_model_invocation: true,
            needs,
        };
        assert_eq!(head, Ok(expected));
    }

    #[test]
    fn missing_fields_have_defaults() {
        let head = whole("name: a\ndescription: b").unwrap();
        assert!(head.user_invocable && !head.disable_model_invocation);
        assert_eq!(head.needs, Needs::default());
    }

    #[test]
    fn needs_written_for_another_program_are_understood() {
        let head = whole("name: a\ndescription: b\nmetadata:\n  emoji: x\n  some-agent:\n    requires: {bins: [jq]}");
        assert_eq!(head.unwrap().needs.requires.bins, ["jq"]);
        for other in ["metadata: text", "metadata: [1, 2]", "metadata: {version: 1}", "metadata:"] {
            assert_eq!(whole(&format!("name: a\ndescription: b\n{other}")).unwrap().needs, Needs::default(), "{other}");
        }
    }

    #[test]
    fn problems_are_named() {
        for (text, why) in [
            ("# Just a text", "does not begin with a head"),
            ("", "does not begin with a head"),
            ("---\nname: a\n", "has no end"),
            ("---\n---\n", "no name"),
            ("---\ndescription: d\n---\n", "no name"),
            ("---\nname: a\n---\n", "no description"),
            ("---\nname: a\ndescription: '  '\n---\n", "no description"),
            ("---\nname: [a\n---\n", "cannot be read"),
            ("---\nname: {a: b}\ndescription: d\n---\n", "cannot be read"),
            ("---\nname: \"a\\nb\"\ndescription: d\n---\n", "its name has to be"),
            ("---\nname: \"a\\u202eb\"\ndescription: d\n---\n", "its name has to be"),
            ("---\nname: \"`rm`\"\ndescription: d\n---\n", "its name has to be"),
            ("---\nname: '...'\ndescription: d\n---\n", "its name has to be"),
            ("---\nname: a\nname: b\ndescription: d\n---\n", "cannot be read"),
            ("---\nname: a\ndescription: d\nmetadata: {requires: {bins: jq}}\n---\n", "cannot be read"),
            (&format!("---\nname: {}\ndescription: d\n---\n", "a".repeat(65)), "its name has to be"),
            (&format!("---\nname: a\ndescription: {}\n---\n", "d".repeat(20_000)), "more than 16384 bytes"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(why), "{text:?}: {found}");
        }
    }

    #[test]
    fn a_description_is_one_line_without_hidden_characters() {
        let head = whole("name: a\ndescription: \"one\\n\\n## two\\u200b \\u001bthree\"").unwrap();
        assert_eq!(head.description, "one ## two three");
    }

    #[test]
    fn a_head_that_is_meant_to_explode_is_refused_at_once() {
        let mut bomb = "name: a\ndescription: d\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..30 {
            let alias = format!("*a{}", level - 1);
            let line = [&*alias; 9].join(", ");
            bomb.push_str(&format!("  a{level}: &a{level} [{line}]\n"));
        }
        let deep = format!("name: a\ndescription: d\nmetadata: {}{}", "[".repeat(4000), "]".repeat(4000));
        let before = processor_time();
        for head in [bomb, deep] {
            assert!(whole(&head).unwrap_err().contains("cannot be read"));
        }
        // The test document would expand to 9^30 elements, which no parser could build.
        assert!(processor_time() - before < Duration::from_secs(60));
    }
}
