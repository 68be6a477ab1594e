//! Finds the paths that a command line may name.
//!
//! A program can accept a path in any word, in any form. So every word is read as a path, whole and in parts, whether
//! or not the path exists now: a missing file can be written later, and a directory can be filled. Files that a program
//! or script reads without naming them on the command line are not found.

use std::path::{Path, PathBuf};

/// Separators between paths and other text within a word: in lists (`a:b`), options (`--file=a`), and the text of `sh
/// -c`.
const SEPARATORS: &[char] = &[
    '=', ':', ',', ';', '&', '|', '<', '>', '(', ')', '[', ']', '{', '}', '`', '$', '?', '*', '!', ' ', '\t', '\n',
    '\r',
];

/// Extensions of scripts and of files that interpreters load. A word with one of them counts as a file, even if it does
/// not exist.
const SCRIPTS: &[&str] = &[
    "sh", "bash", "zsh", "fish", "py", "pyc", "pyz", "js", "cjs", "mjs", "ts", "mts", "cts", "jsx", "tsx", "rb", "pl",
    "pm", "php", "lua", "tcl", "r", "jl", "jar", "class", "wasm", "awk", "sed", "mk", "exe", "so", "ex", "exs", "erl",
];

/// Variables with search paths of programs and libraries, or with files that interpreters load first.
///
/// Sources: environ(7), ld.so(8), bash(1) (`BASH_ENV`, `ENV`), and the manuals of Python, Node.js, Perl, Ruby and Java.
pub(super) const LOADING: &[&str] = &[
    "PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "BASH_ENV",
    "ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "NODE_PATH",
    "NODE_OPTIONS",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYLIB",
    "RUBYOPT",
    "CLASSPATH",
    "JAVA_TOOL_OPTIONS",
];

/// The start conditions of a command.
pub(super) struct Start {
    /// Its working directory.
    pub(super) directory: PathBuf,
    /// Whether the working directory is in the workspace. Then a word such as `mcp/github` would always be a path in
    /// it, so only words that look like files count.
    pub(super) in_workspace: bool,
    /// The home directory that shells insert for `~`.
    pub(super) home: Option<PathBuf>,
}

impl Start {
    /// All paths that a word may name. A word that only looks like a path leads to nothing important.
    pub(super) fn paths_in(&self, word: &str) -> Vec<PathBuf> {
        let home = self.home.as_deref().and_then(Path::to_str);
        let word = home.map_or(word.to_owned(), |home| word.replace("${HOME}", home).replace("$HOME", home));
        let bare = unquoted(&word);
        let after_equals = word.match_indices('=').map(|(at, _)| &word[at + 1..]);
        // `-I/usr/include`, `-Cdirectory`, `@options`
        let joined = word.strip_prefix('-').and_then(|option| option.strip_prefix(option.chars().next()?));
        let listed = word.strip_prefix('@');
        let whole = [Some(word.as_str()), joined, listed].into_iter().flatten();
        // `https://host/path` is no path, and neither is the part after its colon.
        let parts = bare.split(SEPARATORS).filter(|part| !part.starts_with("//") || part.starts_with("///"));
        whole.chain(after_equals).chain(parts).filter_map(|part| self.path(part)).collect()
    }

    fn path(&self, text: &str) -> Option<PathBuf> {
        if text.is_empty() || (text.contains("://") && !text.starts_with('/')) {
            return None;
        }
        if let (Some(below), Some(home)) = (text.strip_prefix("~/"), &self.home) {
            return Some(home.join(below));
        }
        let path = self.directory.join(text);
        (text.starts_with('/') || !self.in_workspace || looks_like_a_file(text, &path)).then_some(path)
    }
}

/// Whether a word that is no absolute path names a file or directory in the command's working directory.
fn looks_like_a_file(text: &str, path: &Path) -> bool {
    let extension = Path::new(text).extension().and_then(|extension| extension.to_str());
    text.starts_with("./")
        || text.starts_with("../")
        || extension.is_some_and(|extension| SCRIPTS.iter().any(|script| extension.eq_ignore_ascii_case(script)))
        || path.symlink_metadata().is_ok()
}

/// Removes quotes from a word, roughly like a shell.
fn unquoted(word: &str) -> String {
    word.replace(['\\', '\'', '"'], "")
}

/// Whether the text of a command contains a directory's path, even with spaces or quotes.
pub(super) fn mentions(text: &str, directory: &Path) -> bool {
    let Some(directory) = directory.to_str().map(unquoted).filter(|path| path.len() > 1) else { return false };
    let text = unquoted(text);
    let of_a_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut found = text.match_indices(&directory);
    found.any(|(at, _)| !text[..at].ends_with(of_a_name) && !text[at + directory.len()..].starts_with(of_a_name))
}
