//! The translation of the store's statements, which are in the dialect of SQLite, to that of PostgreSQL.
//!
//! It is pure, and knows only the forms that the store uses. A statement that cannot be translated is refused, so that
//! the tests find it. A statement is translated once for each connection: see `statements`.
//!
//! | SQLite | PostgreSQL |
//! |---|---|
//! | `?1`, `?`, `:name` | `$1` |
//! | `INDEXED BY name`, `NOT INDEXED` | (omitted) |
//! | `INSERT OR FAIL`, `UPDATE OR FAIL`, `OR ABORT` | (omitted: an error ends the transaction anyway) |
//! | `INSERT OR IGNORE` | `ON CONFLICT DO NOTHING` |
//! | `a ->> '$.b'`, `a ->> '$.b.c'` | `belay_json(a) ->> 'b'`, `#>> '{b,c}'` (texts, also for `true` and numbers) |
//! | `a IS b`, `a IS NOT b` | `IS [NOT] DISTINCT FROM` |
//! | `max(a, b)`, `min(a, b)` | `greatest`, `least` (which skip missing values) |
//! | `json_array`, `json_each`, `json_insert`, `json`, `unhex`, `date` | functions of the schema with the prefix `belay_` |
//! | `TOTAL(a)` | `COALESCE(SUM(a), 0)` |
//! | `CAST(a AS INTEGER)` | `CAST(a AS BIGINT)` |
//! | `AND +a` (without an index) | `AND a` |
//! | `a IN ()` | `a IN (NULL)`, which is never true |
//! | `FROM (SELECT …)` | with a name: PostgreSQL before 16 demands one |
//! | `message_index MATCH ?1`, `message_index.rank`, `message_index (text)` | `words @@ …`, `ts_rank`, `words` |

mod tokens;

use tokens::{Sort, Token, tokens};

/// Translates a statement. `names`: the names of its parameters, each with its colon, in the order of the values.
///
/// # Errors
/// The statement has a form that is not translated, in words for developers.
pub(crate) fn translate(sql: &str, names: &[&str]) -> Result<String, String> {
    let all = tokens(sql)?;
    let mut translation = Translation::new(&all);
    translation.number_parameters(names)?;
    for at in 0..translation.words.len() {
        translation.rewrite(at)?;
    }
    Ok(translation.text())
}

/// Functions that have another name in PostgreSQL.
const FUNCTIONS: [(&str, &str); 6] = [
    ("json_array", "belay_json_array"),
    ("json_each", "belay_json_each"),
    ("json_insert", "belay_json_insert"),
    ("json", "belay_json_text"),
    ("unhex", "belay_unhex"),
    ("date", "belay_date"),
];

/// The words that follow a subquery without a name.
const AFTER_SUBQUERY: [&str; 14] = [
    "WHERE",
    "ORDER",
    "GROUP",
    "LIMIT",
    "UNION",
    "JOIN",
    "LEFT",
    "INNER",
    "CROSS",
    "ON",
    "HAVING",
    "EXCEPT",
    "OFFSET",
    "RETURNING",
];

struct Translation<'a> {
    tokens: &'a [Token<'a>],
    /// The tokens that are not white space.
    words: Vec<usize>,
    /// The new text of each token. `None`: it stays.
    new: Vec<Option<String>>,
    /// Texts before each token, the last one at the end.
    before: Vec<String>,
    /// The number of subqueries that got a name.
    named: usize,
}

impl<'a> Translation<'a> {
    fn new(tokens: &'a [Token<'a>]) -> Self {
        let words = (0..tokens.len()).filter(|at| tokens[*at].sort != Sort::Space).collect();
        Self { tokens, words, new: vec![None; tokens.len()], before: vec![String::new(); tokens.len() + 1], named: 0 }
    }

    /// The token at this place among those that are not white space.
    fn at(&self, word: usize) -> Option<&'a Token<'a>> {
        self.words.get(word).map(|at| &self.tokens[*at])
    }

    fn is(&self, word: usize, keyword: &str) -> bool {
        self.at(word).is_some_and(|token| token.is(keyword))
    }

    fn is_mark(&self, word: usize, mark: &str) -> bool {
        self.at(word).is_some_and(|token| token.is_mark(mark))
    }

    fn replace(&mut self, word: usize, text: impl Into<String>) {
        self.new[self.words[word]] = Some(text.into());
    }

    fn omit(&mut self, words: std::ops::Range<usize>) {
        words.for_each(|word| self.replace(word, ""));
    }

    /// Puts a text before the token, or at the end of the statement.
    fn insert(&mut self, word: usize, text: &str) {
        let at = self.words.get(word).copied().unwrap_or(self.tokens.len());
        self.before[at].push_str(text);
    }

    /// Puts a text directly after the token.
    fn append(&mut self, word: usize, text: &str) {
        self.before[self.words[word] + 1].insert_str(0, text);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (at, token) in self.tokens.iter().enumerate() {
            text.push_str(&self.before[at]);
            text.push_str(self.new[at].as_deref().unwrap_or(token.text));
        }
        text.push_str(&self.before[self.tokens.len()]);
        text
    }

    fn number_parameters(&mut self, names: &[&str]) -> Result<(), String> {
        let mut highest = 0;
        for word in 0..self.words.len() {
            let Some(token) = self.at(word).filter(|token| token.sort == Sort::Param) else { continue };
            let number = match token.text.strip_prefix('?') {
                None => {
                    let place = names.iter().position(|name| *name == token.text);
                    place.ok_or_else(|| format!("the parameter {} has no value", token.text))? + 1
                }
                // As in SQLite, a parameter without a number has the one after the highest.
                Some("") => highest + 1,
                Some(number) => number.parse().map_err(|_| format!("the parameter {} has no number", token.text))?,
            };
            highest = highest.max(number);
            self.replace(word, format!("${number}"));
        }
        Ok(())
    }

    /// Rewrites what begins at this token.
    fn rewrite(&mut self, at: usize) -> Result<(), String> {
        let Some(token) = self.at(at) else { return Ok(()) };
        if token.is_mark("->>") {
            return self.json(at);
        }
        if token.is_mark("+") && at > 0 && ["AND", "OR", "WHERE"].iter().any(|word| self.is(at - 1, word)) {
            self.omit(at..at + 1);
        }
        if token.sort != Sort::Word {
            return Ok(());
        }
        // Columns and tables are written in lower case, and one of them is named `indexed`.
        match token.text {
            "INDEXED" if self.is(at + 1, "BY") => self.omit(at..at + 3),
            "NOT" if self.at(at + 1).is_some_and(|next| next.text == "INDEXED") => self.omit(at..at + 2),
            "INSERT" | "UPDATE" if self.is(at + 1, "OR") => return self.conflict(at),
            "IS" => self.compare(at),
            "AS" if self.is(at + 1, "INTEGER") => self.replace(at + 1, "BIGINT"),
            "AS" if self.is(at + 1, "REAL") => self.replace(at + 1, "DOUBLE PRECISION"),
            "IN" if self.is_mark(at + 1, "(") && self.is_mark(at + 2, ")") => {
                if at > 0 && self.is(at - 1, "NOT") {
                    return Err("NOT IN () is not translated".into());
                }
                self.append(at + 1, "NULL");
            }
            "PRAGMA" | "REPLACE" | "GLOB" => return Err(format!("{} is not translated", token.text)),
            "message_index" => return self.search(at),
            _ if self.is_mark(at + 1, "(") => return self.call(at),
            _ => {}
        }
        Ok(())
    }

    /// A word with an opening parenthesis: a call, or a subquery.
    fn call(&mut self, at: usize) -> Result<(), String> {
        let Some(token) = self.at(at) else { return Ok(()) };
        let end = self.closing(at + 1)?;
        if token.is("FROM") || token.is("JOIN") {
            if self.is(at + 2, "SELECT") {
                self.name_subquery(end + 1);
            }
            return Ok(());
        }
        let scalar = self.commas(at + 1, end) > 0;
        match token.text.to_ascii_lowercase().as_str() {
            "max" if scalar => self.replace(at, "greatest"),
            "min" if scalar => self.replace(at, "least"),
            "total" => {
                self.replace(at, "COALESCE(SUM");
                self.append(end, ", 0)");
            }
            "group_concat" | "ifnull" | "iif" | "strftime" | "printf" | "datetime" | "instr" | "last_insert_rowid" => {
                return Err(format!("the function {} is not translated", token.text));
            }
            name => {
                if let Some((_, new)) = FUNCTIONS.iter().find(|(old, _)| *old == name) {
                    self.replace(at, *new);
                }
            }
        }
        Ok(())
    }

    /// The place of the parenthesis that closes this one.
    fn closing(&self, open: usize) -> Result<usize, String> {
        let mut depth = 0_usize;
        for word in open..self.words.len() {
            if self.is_mark(word, "(") {
                depth += 1;
            } else if self.is_mark(word, ")") {
                depth -= 1;
                if depth == 0 {
                    return Ok(word);
                }
            }
        }
        Err("a parenthesis of the statement has no end".into())
    }

    /// The number of commas directly in these parentheses.
    fn commas(&self, open: usize, end: usize) -> usize {
        let (mut depth, mut commas) = (0, 0);
        for word in open..end {
            match self.at(word) {
                Some(token) if token.is_mark("(") => depth += 1,
                Some(token) if token.is_mark(")") => depth -= 1,
                Some(token) if token.is_mark(",") && depth == 1 => commas += 1,
                _ => {}
            }
        }
        commas
    }

    /// Names a subquery that ends before this token, if it has no name.
    fn name_subquery(&mut self, after: usize) {
        let nameless = match self.at(after) {
            None => true,
            Some(next) if next.sort == Sort::Word => AFTER_SUBQUERY.iter().any(|word| next.is(word)),
            Some(next) => next.sort == Sort::Mark,
        };
        if nameless {
            self.named += 1;
            let name = format!(" AS subquery{}", self.named);
            self.append(after - 1, &name);
        }
    }

    /// `INSERT OR …` and `UPDATE OR …`.
    fn conflict(&mut self, at: usize) -> Result<(), String> {
        if self.is(at + 2, "IGNORE") && self.is(at, "INSERT") {
            let returning = (at..self.words.len()).find(|word| self.is(*word, "RETURNING"));
            match returning {
                Some(word) => self.insert(word, "ON CONFLICT DO NOTHING "),
                None => self.insert(self.words.len(), " ON CONFLICT DO NOTHING"),
            }
        } else if !self.is(at + 2, "FAIL") && !self.is(at + 2, "ABORT") {
            return Err("OR REPLACE, OR ROLLBACK and UPDATE OR IGNORE are not translated: use ON CONFLICT".into());
        }
        self.omit(at + 1..at + 3);
        Ok(())
    }

    /// `IS` between two values.
    fn compare(&mut self, at: usize) {
        let not = self.is(at + 1, "NOT");
        let operand = at + 1 + usize::from(not);
        let of_sql = ["NULL", "TRUE", "FALSE", "DISTINCT", "UNKNOWN"].iter().any(|word| self.is(operand, word));
        match (of_sql, not) {
            (true, _) => {}
            (false, true) => self.replace(at + 1, "DISTINCT FROM"),
            (false, false) => self.replace(at, "IS NOT DISTINCT FROM"),
        }
    }

    /// `a ->> 'b'`, where `a` is a column, with its table or without.
    fn json(&mut self, at: usize) -> Result<(), String> {
        let is_name =
            |token: Option<&Token<'_>>| token.is_some_and(|token| matches!(token.sort, Sort::Word | Sort::Name));
        if at == 0 || !is_name(self.at(at - 1)) {
            return Err("->> is translated after a column only".into());
        }
        let first = if at >= 3 && self.is_mark(at - 2, ".") && is_name(self.at(at - 3)) { at - 3 } else { at - 1 };
        self.insert(first, "belay_json(");
        self.append(at - 1, ")");
        let Some(key) = self.at(at + 1).filter(|key| matches!(key.sort, Sort::Text | Sort::Number)) else {
            return Err("->> is translated before a constant only".into());
        };
        let Some(path) = key.text.strip_prefix("'$") else { return Ok(()) };
        let fields: Vec<&str> = path.trim_end_matches('\'').split('.').skip(1).collect();
        if fields.is_empty()
            || !fields.iter().all(|field| field.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        {
            return Err(format!("the path {} is not translated", key.text));
        }
        match fields.as_slice() {
            [field] => self.replace(at + 1, format!("'{field}'")),
            fields => {
                self.replace(at, "#>>");
                self.replace(at + 1, format!("'{{{}}}'", fields.join(",")));
            }
        }
        Ok(())
    }

    /// The full-text index: see `words` for the texts that its parameters have.
    fn search(&mut self, at: usize) -> Result<(), String> {
        if self.is(at + 1, "MATCH") {
            let query = self.query(at + 2)?;
            self.replace(at, "message_index.words");
            self.replace(at + 1, "@@");
            self.replace(at + 2, query);
        } else if self.is_mark(at + 1, ".") && self.is(at + 2, "rank") {
            let matching = (0..at).find(|word| self.is(*word, "message_index") && self.is(*word + 1, "MATCH"));
            let matching = matching.ok_or("the rank of a search without MATCH is not translated")?;
            let query = self.query(matching + 2)?;
            self.omit(at..at + 2);
            // The best row has the lowest rank, as in FTS5.
            self.replace(at + 2, format!("-ts_rank(message_index.words, {query})"));
        } else if self.is_mark(at + 1, "(") {
            // `text` is the last column, and its value the last parameter.
            let text = self.closing(at + 1)? - 1;
            let is_param = |word: &usize| self.at(*word).is_some_and(|token| token.sort == Sort::Param);
            let place = (text..self.words.len()).rfind(is_param);
            let place = place.filter(|_| self.is(text, "text"));
            let place = place.ok_or("an insert into message_index without a text is not translated")?;
            let number = self.new[self.words[place]].clone().unwrap_or_default();
            self.replace(text, "words");
            self.replace(place, format!("CAST({number} AS tsvector)"));
        }
        Ok(())
    }

    /// The parameter of a search.
    fn query(&self, word: usize) -> Result<String, String> {
        let param = self.at(word).filter(|token| token.sort == Sort::Param);
        param.ok_or("MATCH is translated before a parameter only")?;
        // Replaced once already if the rank is rewritten.
        let number = self.new[self.words[word]].clone().unwrap_or_default();
        Ok(if number.starts_with("CAST") { number } else { format!("CAST({number} AS tsquery)") })
    }
}

#[cfg(test)]
mod both;
#[cfg(test)]
mod tests;
