//! The descriptions of the settings: the comments of the built-in settings file.

use std::collections::BTreeMap;

use super::layers::DEFAULT_TOML;

/// The comment of each setting, as one text, by full key. A setting without a comment has that of the one before it. A
/// setting without a default is a comment of the form `# key = value`, and is part of it.
pub fn descriptions() -> BTreeMap<String, String> {
    described(DEFAULT_TOML)
}

fn described(text: &str) -> BTreeMap<String, String> {
    let (mut found, mut section, mut comment, mut used) = (BTreeMap::new(), String::new(), String::new(), false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = format!("{}.", name.trim_start_matches('['));
        } else if let Some(key) = key_of(line) {
            found.insert(format!("{section}{key}"), comment.trim_end().to_owned());
            used = true;
            continue;
        } else if let Some(words) = line.strip_prefix('#') {
            if std::mem::take(&mut used) {
                comment.clear();
            }
            let (indented, words) = (words.starts_with("  "), words.trim());
            // Indented lines are examples, each a line of its own.
            if !comment.is_empty() && !comment.ends_with('\n') {
                comment.push(if indented { '\n' } else { ' ' });
            }
            comment.push_str(words);
            if indented {
                comment.push('\n');
            }
            continue;
        }
        comment.clear();
        used = false;
    }
    found
}

/// The key of a line `key = value` or `# key = value`.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!key.is_empty() && key.chars().all(is_name)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_belongs_to_the_key_below_it() {
        let text = "# About all.\n\n[a.b]\n# One,\n# two:\n#   x = 1   example\nkey = 1\nnext = 2\n# Not set: none.\n# other = 3\n\nbare = 4\n";
        let found: Vec<_> = described(text).into_iter().collect();
        let expected = [
            ("a.b.bare", ""),
            ("a.b.key", "One, two:\nx = 1   example"),
            ("a.b.next", "One, two:\nx = 1   example"),
            ("a.b.other", "Not set: none."),
        ];
        assert_eq!(found, expected.map(|(key, words)| (key.to_owned(), words.to_owned())));
    }

    #[test]
    fn every_built_in_setting_has_one() {
        let all = descriptions();
        let bare: Vec<_> = all.iter().filter(|(_, words)| words.is_empty()).map(|(key, _)| key).collect();
        assert_eq!(bare, Vec::<&String>::new());
        assert!(all["limits.active_s"].contains("Seconds of active time"), "{}", all["limits.active_s"]);
        assert!(all["llm.base_url"].starts_with("Address of the server"), "a setting that is not set");
    }
}
