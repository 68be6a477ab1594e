//! The words of a command line, as a shell would split it, without anything else that a shell does.

/// Characters that mean something to a shell outside of quotes.
const OF_SHELL: &str = "|&;<>()$*?\n";

/// The words of a command. `None`: a quote is not closed, or a shell would do more than split the words.
pub(super) fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut chars) = (Vec::new(), None::<String>, text.trim().chars());
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next()?),
            '~' if word.is_none() => return None,
            '=' if words.is_empty() => return None, // a variable for the program
            c if OF_SHELL.contains(c) => return None,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// Reads up to the closing quote.
fn quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()? {
            '"' => return Some(()),
            '$' => return None,
            '\\' => match chars.next()? {
                c @ ('"' | '\\' | '$') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

/// The command line with these words.
pub(super) fn joined(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./,:+@%^".contains(c);
    let shown = |(at, word): (usize, &String)| match word.chars().all(|c| plain(c) || (c == '=' && at > 0)) {
        true if !word.is_empty() => word.clone(),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().enumerate().map(shown).collect::<Vec<_>>().join(" ")
}
