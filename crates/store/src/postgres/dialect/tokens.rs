//! The tokens of a statement.

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// White space or a comment.
    Space,
    /// A name or a keyword without quotes.
    Word,
    /// A name in double quotes.
    Name,
    /// A text in single quotes.
    Text,
    /// A number.
    Number,
    /// A parameter: `?`, `?1` or `:name`.
    Param,
    /// An operator or a punctuation mark.
    Mark,
}

/// A token. The texts of all tokens, one after the other, are the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) sort: Sort,
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Whether it is this keyword or name, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        self.sort == Sort::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// Whether it is this mark.
    pub(super) fn is_mark(&self, mark: &str) -> bool {
        self.sort == Sort::Mark && self.text == mark
    }
}

/// Operators of more than one character.
const LONG_MARKS: [&str; 9] = ["->>", "->", "||", "<>", "<=", ">=", "!=", "==", "::"];

/// Cuts a statement into tokens.
///
/// # Errors
/// A quote or a comment has no end.
pub(super) fn tokens(sql: &str) -> Result<Vec<Token<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let (sort, length) = token(rest, first)?;
        let (text, after) = rest.split_at(length);
        found.push(Token { sort, text });
        rest = after;
    }
    Ok(found)
}

/// The sort and the length of the first token.
fn token(rest: &str, first: char) -> Result<(Sort, usize), String> {
    let span = |part: fn(char) -> bool, from: usize| {
        rest[from..].find(|c: char| !part(c)).map_or(rest.len(), |length| from + length)
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    Ok(match first {
        '\'' => (Sort::Text, quoted(rest, '\'')?),
        '"' => (Sort::Name, quoted(rest, '"')?),
        '?' => (Sort::Param, span(|c| c.is_ascii_digit(), 1)),
        ':' if rest[1..].starts_with(|c: char| c.is_ascii_alphabetic()) => (Sort::Param, span(is_word, 1)),
        _ if rest.starts_with("--") => (Sort::Space, rest.find('\n').map_or(rest.len(), |end| end + 1)),
        _ if rest.starts_with("/*") => {
            (Sort::Space, rest.find("*/").ok_or("a comment of the statement has no end")? + 2)
        }
        _ if first.is_whitespace() => (Sort::Space, span(char::is_whitespace, 0)),
        _ if first.is_ascii_digit() => (Sort::Number, span(|c| c.is_ascii_alphanumeric() || c == '.', 0)),
        _ if is_word(first) => (Sort::Word, span(is_word, 0)),
        _ => {
            let long = LONG_MARKS.into_iter().find(|mark| rest.starts_with(mark));
            (Sort::Mark, long.map_or(first.len_utf8(), str::len))
        }
    })
}

/// The length of a quoted token. A doubled quote is part of it.
fn quoted(rest: &str, quote: char) -> Result<usize, String> {
    let mut at = 1;
    loop {
        at += rest[at..].find(quote).ok_or("a quote of the statement has no end")? + 1;
        if !rest[at..].starts_with(quote) {
            return Ok(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_statement_are_the_statement() {
        let sql = "SELECT 'it''s ?1', \"a\"\"b\", c->>'$.d' /* ? */ -- :e\nFROM t WHERE a = ?12 AND b<>:name_1 OR é >= 1.5::int";
        let found = tokens(sql).unwrap();
        assert_eq!(found.iter().map(|token| token.text).collect::<String>(), sql);
        let of = |sort| found.iter().filter(|token| token.sort == sort).map(|token| token.text).collect::<Vec<_>>();
        assert_eq!(of(Sort::Param), ["?12", ":name_1"]);
        assert_eq!(of(Sort::Text), ["'it''s ?1'", "'$.d'"]);
        assert_eq!(of(Sort::Name), ["\"a\"\"b\""]);
        assert_eq!(of(Sort::Mark), [",", ",", "->>", "=", "<>", ">=", "::"]);
        assert_eq!(of(Sort::Number), ["1.5"]);
    }

    #[test]
    fn an_open_quote_or_comment_is_refused() {
        for sql in ["SELECT 'a", "SELECT \"a", "SELECT 'a''", "SELECT /* a"] {
            assert!(tokens(sql).is_err(), "{sql}");
        }
    }
}
