//! The part of a call that people recognise: the script that runs, the command, the file, the address.

use belay_protocol::Arguments;
use belay_text::untrusted;
use serde_json::Value;

/// Longest target that is shown, in bytes. 60: a path in a project, or a short command.
const TARGET_BYTES: usize = 60;

/// Parameters that hold a command.
const COMMANDS: &[&str] = &["command", "cmd", "script", "commands"];

/// Parameters that name the target, the most telling first.
const TARGETS: &[&str] = &[
    "path",
    "file_path",
    "filepath",
    "file",
    "filename",
    "url",
    "uri",
    "query",
    "pattern",
    "q",
    "symbol",
    "name",
    "title",
    "dir",
    "directory",
    "id",
    "code",
];

/// Programs that run another one, with their own arguments between.
const WRAPPERS: &[&str] = &["sudo", "env", "nohup", "time", "nice", "timeout", "stdbuf", "xvfb-run"];

/// Programs that prepare the command behind them.
const PREPARING: &[&str] = &["cd", "export", "source", "set", "sleep", "pushd", "ulimit", ".", "true", "mkdir"];

/// Programs whose first argument is the program that people mean.
const INTERPRETERS: &[&str] =
    &["python", "python3", "python2", "node", "ruby", "perl", "php", "bash", "sh", "zsh", "Rscript", "deno"];

/// The target of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its text: one line, at most 60 bytes.
    pub text: String,
    /// Whether it is a script, which is shown without quotation marks.
    pub script: bool,
}

impl Target {
    /// The target of a call with these arguments. `None`: they name nothing.
    pub fn of(arguments: &Arguments) -> Option<Self> {
        let map = match arguments {
            Arguments::Object(map) => map,
            Arguments::Malformed(raw) => return Self::plain(raw),
        };
        let text = |key: &&str| map.get(*key).and_then(text_of).filter(|text| !text.trim().is_empty());
        if let Some(command) = COMMANDS.iter().find_map(text) {
            return of_command(&command);
        }
        let mut keys: Vec<&String> = map.keys().collect();
        keys.sort_unstable();
        let any = || keys.iter().find_map(|key| text(&key.as_str()));
        Self::plain(&TARGETS.iter().find_map(text).or_else(any)?)
    }

    fn plain(text: &str) -> Option<Self> {
        let text = line(text, TARGET_BYTES);
        (!text.is_empty()).then_some(Self { text, script: false })
    }
}

/// One line of a text: without markers and hidden characters, with single blanks, at most this many bytes.
pub(super) fn line(text: &str, max_bytes: usize) -> String {
    let text = untrusted::without(text);
    let shown = belay_text::removed(&text[..text.floor_char_boundary(16 * max_bytes)]);
    cut(&shown.split_whitespace().collect::<Vec<_>>().join(" "), max_bytes)
}

/// The text, cut at this many bytes with a sign that it was cut.
pub(super) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}…", text[..text.floor_char_boundary(max_bytes - '…'.len_utf8())].trim_end())
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(items) => {
            let parts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            (!parts.is_empty()).then(|| parts.join(" "))
        }
        _ => None,
    }
}

/// The script that a command runs, or the command itself without its preparation.
fn of_command(command: &str) -> Option<Target> {
    let parts = command.split(['\n', ';', '|']).flat_map(|part| part.split("&&")).map(str::trim);
    let telling = parts.filter(|part| !part.is_empty()).find(|part| {
        let first = program(part).next().unwrap_or_default();
        !PREPARING.contains(&first) && !first.is_empty()
    });
    let mut words = program(telling.unwrap_or(command));
    let first = words.next()?;
    let script = match base(first) {
        name if INTERPRETERS.contains(&name) => {
            words.find(|word| !word.starts_with('-')).filter(|word| word.contains('.'))
        }
        _ if first.starts_with("./") || first.contains('/') => Some(first),
        _ => None,
    };
    match script.map(|script| base(script).trim_matches(['"', '\''])) {
        Some(script) if !script.is_empty() => Some(Target { text: line(script, TARGET_BYTES), script: true }),
        _ => Target::plain(telling.unwrap_or(command)),
    }
}

/// The words of a command from its program on, without assignments and programs that only run another.
fn program(part: &str) -> impl Iterator<Item = &str> {
    let mut words = part.split_whitespace().peekable();
    let mut wrapped = false;
    while let Some(word) = words.peek() {
        let assigns =
            word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let wraps = WRAPPERS.contains(word);
        let of_wrapper = wrapped && (word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit()));
        if !(assigns || wraps || of_wrapper) {
            break;
        }
        wrapped |= wraps;
        words.next();
    }
    words
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_what_people_recognise() {
        for (arguments, expected, script) in [
            (r#"{"command":"cd /srv && timeout 10 python3 -u /srv/solve.py --fast 2>&1 | head"}"#, "solve.py", true),
            (r#"{"command":"A=1 ./run.sh"}"#, "run.sh", true),
            (r#"{"command":["bash","build.sh"]}"#, "build.sh", true),
            (r#"{"command":"python -c 'print(1)'"}"#, "python -c 'print(1)'", false),
            (r#"{"cmd":"cargo test -p x\n"}"#, "cargo test -p x", false),
            (r#"{"lines":40,"path":"src/build.log"}"#, "src/build.log", false),
            (r#"{"url":"https://example.org/a","depth":2}"#, "https://example.org/a", false),
            (r#"{"guess":"1234"}"#, "1234", false),
            (r#"{"b":"two","a":"one\u0007 line"}"#, "one line", false),
            (r#"{"id":7}"#, "7", false),
            ("{broken", "{broken", false),
        ] {
            let found = Target::of(&Arguments::parse(arguments)).expect(arguments);
            assert_eq!((found.text.as_str(), found.script), (expected, script), "{arguments}");
        }
        assert_eq!(Target::of(&Arguments::parse("{}")), None);
        let long = Target::of(&Arguments::parse(&format!(r#"{{"path":"{}"}}"#, "é".repeat(200)))).expect("a path");
        assert!(long.text.len() <= TARGET_BYTES && long.text.ends_with('…'), "{}", long.text);
    }
}
