//! Cuts lines of code into comments, strings, keywords, numbers and names of functions: enough to read code in colours.
//! A line that is not understood is plain text.

/// The kind of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Comment,
    String,
    Keyword,
    Number,
    Function,
    Text,
}

/// What languages of one family have in common.
pub(crate) struct Language {
    names: &'static [&'static str],
    /// Begins a comment that ends with the line.
    line_comment: &'static str,
    /// Begins and ends a comment over several lines.
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static str,
    keywords: &'static [&'static str],
}

const LANGUAGES: &[Language] = &[
    Language {
        names: &[
            "rust",
            "rs",
            "c",
            "h",
            "cpp",
            "c++",
            "cc",
            "hpp",
            "java",
            "js",
            "javascript",
            "jsx",
            "mjs",
            "ts",
            "typescript",
            "tsx",
            "go",
            "golang",
            "swift",
            "kotlin",
            "kt",
            "csharp",
            "c#",
            "cs",
            "php",
            "scala",
            "dart",
            "zig",
        ],
        line_comment: "//",
        block_comment: Some(("/*", "*/")),
        quotes: "\"`",
        keywords: &[
            "abstract",
            "as",
            "async",
            "await",
            "bool",
            "break",
            "case",
            "catch",
            "char",
            "class",
            "const",
            "continue",
            "default",
            "defer",
            "do",
            "double",
            "else",
            "enum",
            "export",
            "extends",
            "extern",
            "false",
            "final",
            "finally",
            "float",
            "fn",
            "for",
            "from",
            "func",
            "function",
            "go",
            "goto",
            "if",
            "impl",
            "implements",
            "import",
            "in",
            "int",
            "interface",
            "let",
            "long",
            "loop",
            "match",
            "mod",
            "move",
            "mut",
            "namespace",
            "new",
            "nil",
            "null",
            "override",
            "package",
            "private",
            "protected",
            "pub",
            "public",
            "range",
            "ref",
            "return",
            "self",
            "Self",
            "short",
            "static",
            "struct",
            "super",
            "switch",
            "this",
            "throw",
            "trait",
            "true",
            "try",
            "type",
            "typeof",
            "union",
            "unsafe",
            "unsigned",
            "use",
            "using",
            "val",
            "var",
            "virtual",
            "void",
            "where",
            "while",
            "yield",
        ],
    },
    Language {
        names: &[
            "python",
            "python3",
            "py",
            "ruby",
            "rb",
            "bash",
            "sh",
            "shell",
            "zsh",
            "console",
            "yaml",
            "yml",
            "toml",
            "ini",
            "r",
            "perl",
            "make",
            "makefile",
            "dockerfile",
            "nix",
            "elixir",
        ],
        line_comment: "#",
        block_comment: None,
        quotes: "\"'",
        keywords: &[
            "and", "as", "assert", "async", "await", "begin", "break", "case", "class", "continue", "def", "do",
            "done", "elif", "else", "elsif", "end", "ensure", "esac", "except", "export", "false", "False", "fi",
            "finally", "for", "from", "function", "if", "import", "in", "is", "lambda", "local", "module", "nil",
            "None", "not", "null", "or", "pass", "raise", "require", "rescue", "return", "self", "set", "then", "true",
            "True", "try", "unless", "until", "when", "while", "with", "yield",
        ],
    },
    Language {
        names: &["sql", "postgresql", "sqlite", "mysql", "lua", "haskell", "hs", "ada", "elm"],
        line_comment: "--",
        block_comment: None,
        quotes: "\"'",
        keywords: &[
            "SELECT", "FROM", "WHERE", "INSERT", "INTO", "VALUES", "UPDATE", "SET", "DELETE", "CREATE", "TABLE",
            "INDEX", "DROP", "ALTER", "JOIN", "LEFT", "INNER", "ON", "AS", "AND", "OR", "NOT", "NULL", "ORDER",
            "GROUP", "BY", "HAVING", "LIMIT", "PRIMARY", "KEY", "select", "from", "where", "insert", "into", "values",
            "update", "set", "delete", "create", "table", "join", "on", "as", "and", "or", "not", "null", "order",
            "group", "by", "limit", "local", "function", "end", "if", "then", "else", "for", "while", "do", "return",
            "let", "in", "case", "of", "data", "type", "module", "import",
        ],
    },
    Language {
        names: &["json", "jsonc", "json5"],
        line_comment: "//",
        block_comment: None,
        quotes: "\"",
        keywords: &["true", "false", "null"],
    },
    Language {
        names: &["css", "scss"],
        line_comment: "",
        block_comment: Some(("/*", "*/")),
        quotes: "\"'",
        keywords: &[],
    },
    Language {
        names: &["html", "xml", "svg"],
        line_comment: "",
        block_comment: Some(("<!--", "-->")),
        quotes: "\"",
        keywords: &[],
    },
];

impl Language {
    /// The family of the language with this name in lower case.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LANGUAGES.iter().find(|language| language.names.contains(&name))
    }

    /// Cuts a line into its pieces; together they are the line. `in_comment`: whether the line begins, and then whether the
    /// next one begins, within a comment.
    pub(crate) fn tokens<'a>(&self, line: &'a str, in_comment: &mut bool) -> Vec<(Token, &'a str)> {
        let (mut tokens, mut rest) = (Vec::new(), line);
        let mut before = None;
        while let Some(c) = rest.chars().next() {
            let (token, length) = self.next(rest, c, before, in_comment);
            let (piece, behind) = rest.split_at(length);
            before = piece.chars().next_back();
            rest = behind;
            tokens.push((token, piece));
        }
        tokens
    }

    /// The kind and the length in bytes of the next piece, which begins with `c` and follows `before`.
    fn next(&self, rest: &str, c: char, before: Option<char>, in_comment: &mut bool) -> (Token, usize) {
        if let Some((begin, end)) = self.block_comment {
            let skip = if *in_comment { 0 } else { begin.len() };
            if *in_comment || rest.starts_with(begin) {
                let close = rest[skip..].find(end).map(|at| skip + at + end.len());
                *in_comment = close.is_none();
                return (Token::Comment, close.unwrap_or(rest.len()));
            }
        }
        // In a shell, # within a word is no comment.
        let is_apart = self.line_comment != "#" || before.is_none_or(char::is_whitespace);
        if !self.line_comment.is_empty() && rest.starts_with(self.line_comment) && is_apart {
            return (Token::Comment, rest.len());
        }
        if self.quotes.contains(c) {
            return (Token::String, quoted(rest, c));
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if is_word(c) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let word = &rest[..length];
            let token = match () {
                () if c.is_ascii_digit() => Token::Number,
                () if self.keywords.contains(&word) => Token::Keyword,
                () if rest[length..].starts_with('(') => Token::Function,
                () => Token::Text,
            };
            return (token, length);
        }
        (Token::Text, c.len_utf8())
    }
}

/// The length of a string in quotes: up to the next quote that is not escaped, or to the end of the line.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_into_their_pieces() {
        use Token::{Comment, Function, Keyword, Number, String};
        for (name, line, expected) in [
            (
                "rust",
                "let x = f(\"a\\\"b\", 42); // end",
                vec![(Keyword, "let"), (Function, "f"), (String, "\"a\\\"b\""), (Number, "42"), (Comment, "// end")],
            ),
            ("bash", "echo $# 'x' # y", vec![(String, "'x'"), (Comment, "# y")]),
            ("sql", "SELECT 1 -- one", vec![(Keyword, "SELECT"), (Number, "1"), (Comment, "-- one")]),
            ("json", "{\"a\": true", vec![(String, "\"a\""), (Keyword, "true")]),
            ("c", "a /* b */ c", vec![(Comment, "/* b */")]),
            ("python", "'open", vec![(String, "'open")]),
        ] {
            let mut tokens = Language::named(name).expect(name).tokens(line, &mut false);
            tokens.retain(|(token, _)| *token != Token::Text);
            assert_eq!(tokens, expected, "{line}");
        }
    }

    #[test]
    fn a_comment_goes_on_over_lines() {
        let (language, mut in_comment) = (Language::named("c").expect("c"), false);
        assert_eq!(language.tokens("/* a", &mut in_comment), [(Token::Comment, "/* a")]);
        assert_eq!(language.tokens("b", &mut in_comment), [(Token::Comment, "b")]);
        assert_eq!(language.tokens("*/", &mut in_comment), [(Token::Comment, "*/")]);
        assert!(!in_comment);
    }
}
