//! Formats a command as one line for a person. It can be copied into a shell and hides nothing.

use std::fmt::Write as _;

use belay_text::is_unclear;

/// The arguments, quoted for a shell.
pub(super) fn quoted(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| quote(word)).collect();
    words.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.chars().any(is_unclear) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut quoted = "$'".to_owned();
    for c in word.chars() {
        // Writing to a String cannot fail.
        let _ = match c {
            '\n' => quoted.write_str("\\n"),
            '\t' => quoted.write_str("\\t"),
            '\'' | '\\' => write!(quoted, "\\{c}"),
            c if is_unclear(c) => match u32::from(c) {
                code @ ..=0xffff => write!(quoted, "\\u{code:04x}"),
                code => write!(quoted, "\\U{code:08x}"),
            },
            c => quoted.write_char(c),
        };
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_line_that_hides_nothing() {
        for (argv, expected) in [
            (&["ls", "-la", "src/main.rs"][..], "ls -la src/main.rs"),
            (&["echo", "a b", "", "it's"], "echo 'a b' '' 'it'\\''s'"),
            (&["echo", "$HOME;rm -rf *"], "echo '$HOME;rm -rf *'"),
            (&["printf", "a\nb\t\u{1b}[31m\\'"], "printf $'a\\nb\\t\\u001b[31m\\\\\\''"),
            (&["cat", "txt.\u{202e}exe", "\u{e0041}"], "cat $'txt.\\u202eexe' $'\\U000e0041'"),
            (&["echo", "ключ"], "echo 'ключ'"),
        ] {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(quoted(&argv), expected);
        }
    }
}
