//! The fingerprint of a call: what it asks for, without what changes by itself.

use belay_protocol::Arguments;
use serde_json::Value;

use super::ToolLoopConfig;
use super::command;
use super::digest::{self, Digest};
use super::keys::{self, Class};
use super::mask::{Piece, Place, pieces};
use super::shapes;
use super::words::{self, Kind};
use super::writes::Effect;

/// Words of the arguments that are remembered until the result comes, to recognise them in it.
pub(super) const ECHO_WORDS: usize = 10;

/// Bytes of a text argument that are looked at for its words. The digest covers all of it.
const WORDS_WITHIN: usize = 512;

/// What a call asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// The masked key: name and arguments. Equal keys are the same call.
    pub(super) key: u64,
    /// Digest of the name.
    pub(super) name: u32,
    /// What it is about: ids, paths, names; without pages, limits and prose. 0: nothing of the kind.
    pub(super) target: u32,
    /// The words of its prose, as a set of 64 bits.
    pub(super) sketch: u64,
    /// What kind of call it is.
    pub(super) kind: Kind,
    /// It looks for words, so that a result may repeat them at length.
    pub(super) searches: bool,
    /// It names a file.
    pub(super) has_path: bool,
    /// What it changes, if it changes something.
    pub(super) effect: Effect,
    /// Its words.
    pub(super) echo: Echo,
}

/// The first different words of the arguments, as digests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Echo {
    pub(super) words: [u32; ECHO_WORDS],
    pub(super) len: usize,
}

impl Echo {
    fn add(&mut self, word: u64) {
        let word = Self::short(word);
        if self.len < ECHO_WORDS && !self.words[..self.len].contains(&word) {
            self.words[self.len] = word;
            self.len += 1;
        }
    }

    /// Whether the word of that digest is one of them.
    pub(super) fn has(&self, word: u64) -> bool {
        self.words[..self.len].contains(&Self::short(word))
    }

    /// 24 bits: a word in a result is taken for one of ten by accident less than once in a million times.
    fn short(word: u64) -> u32 {
        digest::short(word) & 0xff_ffff
    }
}

impl Asked {
    /// Reads a call.
    pub(super) fn of(config: &ToolLoopConfig, name: &str, arguments: &Arguments) -> Self {
        let mut reader = Reader::new(name);
        match arguments {
            Arguments::Object(map) => {
                for (key, value) in map {
                    reader.pair(0, key, value, None);
                }
            }
            Arguments::Malformed(raw) => reader.text(1, raw, Class::Content),
        }
        reader.finish(config)
    }
}

/// Walks through the arguments. Every leaf becomes a digest of its path and its value; their sum does not depend on
/// the order of keys, and needs no sorted copy.
struct Reader<'a> {
    tool: &'a str,
    meaning: words::Meaning,
    action: Option<words::Meaning>,
    command: Option<Kind>,
    /// Leaves that count, and how many.
    key: u64,
    leaves: u32,
    /// Leaves that count only where nothing else does.
    weak: u64,
    remarks: u64,
    /// Leaves that are no action: what is added is what is removed.
    object: u64,
    target: u64,
    state: u64,
    old: u64,
    new: u64,
    sketch: u64,
    searches: bool,
    has_path: bool,
    echo: Echo,
}

impl<'a> Reader<'a> {
    fn new(tool: &'a str) -> Self {
        let mut echo = Echo::default();
        echo.add(digest::of(tool.as_bytes()));
        Self {
            tool,
            meaning: words::meaning(tool),
            action: None,
            command: None,
            key: 0,
            leaves: 0,
            weak: 0,
            remarks: 0,
            object: 0,
            target: 0,
            state: 0,
            old: 0,
            new: 0,
            sketch: 0,
            searches: false,
            has_path: false,
            echo,
        }
    }

    fn pair(&mut self, path: u64, key: &str, value: &Value, outer: Option<Class>) {
        let path = digest::pair(path, digest::of(key.as_bytes()));
        let class = match (keys::class(key, self.tool), outer) {
            // Within something that is written or searched every key is a part of it.
            (Class::Volatile, _) => Class::Volatile,
            (_, Some(outer @ (Class::Content | Class::Command | Class::Volatile))) => outer,
            (class, _) => class,
        };
        self.value(path, value, class);
    }

    fn value(&mut self, path: u64, value: &Value, class: Class) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    self.pair(path, key, value, Some(class));
                }
            }
            Value::Array(items) if !items.is_empty() => {
                if class == Class::Command && self.command.is_none() {
                    self.command = Some(program(items));
                }
                for (place, item) in items.iter().enumerate() {
                    self.value(digest::pair(path, place as u64), item, class);
                }
            }
            Value::String(text) => self.text(path, text, class),
            Value::Number(number) => {
                let (digest, epoch) = number_digest(number);
                self.number(path, digest, epoch, class);
            }
            // An empty container differs from one with something in it by its path alone.
            Value::Null | Value::Object(_) | Value::Array(_) => self.leaf(path, 2, class),
            Value::Bool(value) => self.leaf(path, 3 + u64::from(*value), class),
        }
    }

    fn number(&mut self, path: u64, digest: u64, epoch: bool, class: Class) {
        if class == Class::Volatile {
            return;
        }
        self.echo.add(digest::of(itoa(digest).as_slice()));
        if epoch && class == Class::Other {
            self.leaf(path, digest, Class::Weak);
            return;
        }
        self.leaf(path, digest, class);
        if matches!(class, Class::Target | Class::Path | Class::Other) {
            self.aim(digest);
        }
    }

    fn text(&mut self, path: u64, text: &str, class: Class) {
        let bytes = text.as_bytes();
        let trimmed = text.trim();
        match class {
            Class::Volatile => {}
            Class::Content | Class::Old | Class::New => {
                // Spaces are part of what is written.
                let digest = digest::of(bytes);
                self.leaf(path, digest, class);
                self.note_words(bytes, Place::Argument, false);
            }
            Class::Target | Class::Path | Class::Page | Class::Weak => {
                let digest = path_digest(trimmed);
                self.leaf(path, digest, class);
                self.note_words(trimmed.as_bytes(), Place::Argument, false);
                self.has_path |= class == Class::Path;
                // A window of time under `start` and `end` says which, a page token does not.
                let window = class == Class::Page && trimmed.contains(['-', '/', ':']);
                if window || matches!(class, Class::Target | Class::Path) {
                    self.aim(aim_digest(trimmed));
                }
            }
            Class::Action => {
                if self.action.is_none() && !trimmed.contains(' ') {
                    self.action = Some(words::meaning(trimmed)).filter(|meaning| meaning.known);
                }
                self.leaf(path, digest::of(trimmed.as_bytes()), class);
            }
            Class::Command if !trimmed.contains(' ') && words::meaning(trimmed).known && self.action.is_none() => {
                // `command: "view"` of an editor is an action.
                self.action = Some(words::meaning(trimmed));
                self.leaf(path, digest::of(trimmed.as_bytes()), Class::Action);
            }
            Class::Command | Class::Query | Class::Remark | Class::Other => self.prose(path, trimmed, class),
        }
    }

    /// Text whose words may vary: a command, a query, a remark, anything unknown.
    fn prose(&mut self, path: u64, text: &str, class: Class) {
        if class == Class::Command && self.command.is_none() {
            self.command = Some(command::kind(text));
        }
        self.searches |= class == Class::Query;
        let single = !text.contains(char::is_whitespace);
        let place = if class == Class::Query { Place::Query } else { Place::Argument };
        let digest = masked_digest(text.as_bytes(), place);
        // A value that is nothing but a random id, under a name that says nothing, is most likely one.
        let word = text.as_bytes();
        let random = class == Class::Other && single && !word.is_empty() && {
            let end = shapes::word_end(word, 0);
            shapes::random_id(word, 0, end).or_else(|| shapes::epoch(word, 0, end)) == Some(word.len())
        };
        self.leaf(path, digest, if random { Class::Weak } else { class });
        if class == Class::Remark || random {
            return;
        }
        if single {
            self.note_words(word, place, false);
            self.aim(if class == Class::Query { loose_digest(text) } else { aim_digest(text) });
            return;
        }
        self.note_words(&word[..word.len().min(WORDS_WITHIN)], place, class == Class::Query);
        if class != Class::Query {
            self.aim_at_paths(&text[..text.floor_char_boundary(WORDS_WITHIN)], class);
        }
    }

    /// Puts the paths in a text into the target, and its other words into the sketch. The program itself and its flags
    /// are in neither.
    fn aim_at_paths(&mut self, text: &str, class: Class) {
        for (place, chunk) in text.split_ascii_whitespace().enumerate() {
            let chunk = chunk.trim_matches(['"', '\'', '(', ')', ',', ';']);
            let number = chunk.bytes().all(|byte| byte.is_ascii_digit());
            if class == Class::Command && (place == 0 || chunk.starts_with('-')) || number {
                continue;
            }
            let dot = chunk.rfind('.').is_some_and(|at| at > 0 && (1..=5).contains(&(chunk.len() - at - 1)));
            if chunk.contains('/') || dot {
                self.aim(aim_digest(chunk));
            } else {
                self.sketch_word(chunk.as_bytes());
            }
        }
    }

    fn note_words(&mut self, text: &[u8], place: Place, sketch: bool) {
        let mut words = 0;
        pieces(&text[..text.len().min(WORDS_WITHIN)], place, |piece| {
            if let Piece::Word(word) = piece
                && (sketch || words < 2 * ECHO_WORDS)
            {
                words += 1;
                self.echo.add(digest::of(word));
                if sketch {
                    self.sketch_word(word);
                }
            }
        });
    }

    /// The first five letters of a word, so that its forms are one. Short words and numbers say nothing.
    fn sketch_word(&mut self, word: &[u8]) {
        let mut stem = [0; 5];
        let mut len = 0;
        for byte in word.iter().filter(|byte| shapes::in_word(**byte)).take(5) {
            stem[len] = byte.to_ascii_lowercase();
            len += 1;
        }
        if len >= 3 && !stem[..len].iter().all(u8::is_ascii_digit) {
            self.sketch |= 1 << (digest::of(&stem[..len]) >> 58);
        }
    }

    fn aim(&mut self, digest: u64) {
        self.target = self.target.wrapping_add(digest::pair(7, digest));
    }

    fn leaf(&mut self, path: u64, value: u64, class: Class) {
        let leaf = digest::pair(path, value);
        match class {
            Class::Volatile => return,
            Class::Weak => {
                self.weak = self.weak.wrapping_add(leaf);
                return;
            }
            Class::Remark => {
                self.remarks = self.remarks.wrapping_add(leaf);
                return;
            }
            Class::Old => self.old = self.old.wrapping_add(digest::pair(9, value)),
            Class::New => self.new = self.new.wrapping_add(digest::pair(9, value)),
            Class::Target | Class::Path => {}
            _ => self.state = self.state.wrapping_add(leaf),
        }
        if class != Class::Action {
            self.object = self.object.wrapping_add(leaf);
        }
        self.key = self.key.wrapping_add(leaf);
        self.leaves += 1;
    }

    fn finish(mut self, config: &ToolLoopConfig) -> Asked {
        let meaning = self.action.unwrap_or(self.meaning);
        let listed = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case(self.tool));
        let kind = if listed(&config.harmless_tools) {
            Kind::Harmless
        } else if listed(&config.polling_tools) {
            Kind::Poll
        } else {
            match self.command {
                Some(kind) if matches!(self.meaning.kind, Kind::Run | Kind::Other | Kind::Write) => kind,
                _ => meaning.kind,
            }
        };
        // What a command or a look is made for is told to whoever reads along, and reworded each time. What is written
        // somewhere is its text, and so is a thought.
        let told = self.command.is_none() && matches!(kind, Kind::Write | Kind::Harmless | Kind::Other);
        if told || self.leaves == 0 {
            self.key = self.key.wrapping_add(self.remarks);
        }
        if self.leaves == 0 {
            self.key = self.key.wrapping_add(self.weak);
        }
        let name = digest::of(self.tool.as_bytes());
        let target = if self.target == 0 { 0 } else { digest::short(self.target) };
        Asked {
            key: digest::pair(name, self.key),
            name: digest::short(name),
            target,
            sketch: self.sketch,
            kind,
            searches: self.searches,
            has_path: self.has_path,
            effect: self.effect(kind, meaning.adds, target),
            echo: self.echo,
        }
    }

    fn effect(&self, kind: Kind, adds: Option<bool>, target: u32) -> Effect {
        if kind != Kind::Write || self.command.is_some() {
            return Effect::default();
        }
        let short = digest::short;
        // What has no target is told apart by the tool.
        let place = if target == 0 { short(digest::of(self.tool.as_bytes())) } else { target };
        if self.old != 0 {
            let there = digest::pair(self.old, self.new);
            return Effect { place, state: short(there), back: short(digest::pair(self.new, self.old)) };
        }
        match adds {
            // What is added and removed is told apart by all that is said of it; a file that is created by its path.
            Some(adds) => {
                let what = if target == 0 { self.object } else { self.target };
                let place = short(digest::pair(11, what));
                Effect { place, state: short(digest::pair(13, u64::from(adds))), back: 0 }
            }
            None if self.state != 0 => Effect { place, state: short(self.state), back: 0 },
            None => Effect::default(),
        }
    }
}

/// The program in a list of arguments: what a shell is told to run, or the list itself.
fn program(items: &[Value]) -> Kind {
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    match words.as_slice() {
        [shell, flag, line, ..] if shell.ends_with("sh") && flag.starts_with('-') => command::kind(line),
        words => command::kind(&words.join(" ")),
    }
}

/// The digest of a number, and whether it looks like seconds since 1970. 1 and 1.0 are the same number.
fn number_digest(number: &serde_json::Number) -> (u64, bool) {
    let value = number.as_f64().unwrap_or_default();
    let epoch = [1.0, 1e3, 1e6].iter().any(|unit| (1.5e9..2.1e9).contains(&(value / unit)));
    let whole = number.as_i64().or_else(|| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64));
    (whole.map_or(value.to_bits(), |whole| whole as u64), epoch)
}

/// A whole number as text on the stack, to find it again in a result.
fn itoa(value: u64) -> Decimal {
    let mut decimal = Decimal { digits: [0; 20], from: 20 };
    let mut rest = value;
    loop {
        decimal.from -= 1;
        decimal.digits[decimal.from] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return decimal;
        }
    }
}

struct Decimal {
    digits: [u8; 20],
    from: usize,
}

impl Decimal {
    fn as_slice(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

/// Words and punctuation with volatile pieces hidden; runs of spaces are one.
fn masked_digest(text: &[u8], place: Place) -> u64 {
    let mut digest = Digest::new(3);
    pieces(text, place, |piece| match piece {
        Piece::Word(word) => digest.bytes(word),
        Piece::Mark(mark) => digest.word(u64::from(mark)),
        Piece::Volatile => digest.word(1 << 32),
    });
    digest.finish()
}

/// A path, id or name as it stands; of a path `./a//b` only `a/b`, and without random names of temporary files.
fn path_digest(text: &str) -> u64 {
    let mut digest = Digest::new(5);
    let bytes = text.as_bytes();
    let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => at += 1,
            b'/' if bytes[at..].starts_with(b"/./") => at += 2,
            b'/' if let Some(end) = shapes::temporary(bytes, at) => {
                digest.word(2 << 32);
                at = end;
            }
            _ => {
                let len = bytes[at + 1..].iter().take_while(|byte| **byte != b'/').count() + 1;
                digest.bytes(&bytes[at..at + len]);
                at += len;
            }
        }
    }
    digest.finish()
}

/// The same without what leads on within one thing: `?page=3` of an address.
fn aim_digest(text: &str) -> u64 {
    let Some((address, query)) = text.split_once('?') else { return path_digest(text) };
    let mut digest = path_digest(address);
    for part in query.split('&') {
        let key = part.split('=').next().unwrap_or_default();
        if !matches!(keys::class(key, ""), Class::Page | Class::Volatile) {
            digest = digest.wrapping_add(digest::of(part.as_bytes()));
        }
    }
    digest
}

/// A symbol without regard to its spelling: `processOrder`, `process_order`.
fn loose_digest(text: &str) -> u64 {
    let mut digest = Digest::new(6);
    for byte in text.bytes().filter(|byte| *byte != b'_' && shapes::in_word(*byte)) {
        digest.word(u64::from(byte.to_ascii_lowercase()));
    }
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(call: &str) -> Asked {
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        Asked::of(&ToolLoopConfig::default(), name, &Arguments::parse(arguments))
    }

    #[test]
    fn equal_keys_are_the_same_work() {
        for (one, other, same) in [
            (r#"f {"a":1,"b":{"x":[1,2],"y":"z"}}"#, r#"f { "b":{"y":"z","x":[1.0,2]}, "a":1.0 }"#, true),
            (r#"f {"a":1}"#, r#"f {"b":1}"#, false),
            (r#"f {"a":"1"}"#, r#"f {"a":1}"#, false),
            (r#"f {"a":[1,2]}"#, r#"f {"a":[2,1]}"#, false),
            (r#"f {"a":{"b":1}}"#, r#"f {"a":[1]}"#, false),
            (r#"f {"a":1}"#, r#"g {"a":1}"#, false),
            (r#"f {"ab":"c"}"#, r#"f {"a":"bc"}"#, false),
            (r#"f {"x":"a","y":"b"}"#, r#"f {"x":"b","y":"a"}"#, false),
            // Volatile by name.
            (r#"f {"path":"a","nonce":"x1"}"#, r#"f {"path":"a","nonce":"x2"}"#, true),
            (r#"f {"path":"a","request_id":7}"#, r#"f {"path":"a"}"#, true),
            (r#"run_tests {"attempt":1}"#, r#"run_tests {"attempt":2}"#, true),
            (r#"f {"path":"a","sessionId":"x1"}"#, r#"f {"path":"a","sessionId":"x2"}"#, true),
            (r#"f {"session_id":"x1"}"#, r#"f {"session_id":"x2"}"#, false),
            // Volatile by shape.
            (r#"f {"path":"a","x":"a8f3k2l9x1q"}"#, r#"f {"path":"a","x":"z9k3l4m1n7p"}"#, true),
            (r#"f {"x":"a8f3k2l9x1q"}"#, r#"f {"x":"z9k3l4m1n7p"}"#, false),
            (r#"f {"path":"a","x":1767322222}"#, r#"f {"path":"a","x":1767322999}"#, true),
            (r#"f {"x":"seen 2026-01-02T03:04:05Z"}"#, r#"f {"x":"seen 2026-01-02T03:09:17Z"}"#, true),
            (r#"f {"path":"/tmp/tmpa1b2c3/x"}"#, r#"f {"path":"/tmp/tmpd4e5f6/x"}"#, true),
            // Never volatile: which, where to go on, what is written.
            (
                r#"close {"id":"550e8400-e29b-41d4-a716-446655440000"}"#,
                r#"close {"id":"550e8400-e29b-41d4-a716-446655440001"}"#,
                false,
            ),
            (r#"f {"page":1}"#, r#"f {"page":2}"#, false),
            (r#"f {"cursor":"a8f3k2l9x1q"}"#, r#"f {"cursor":"z9k3l4m1n7p"}"#, false),
            (r#"f {"since":"2026-01-02T03:04:05Z"}"#, r#"f {"since":"2026-01-02T03:09:17Z"}"#, false),
            (r#"bash {"command":"docker rm 3f2a9bc1d2e4"}"#, r#"bash {"command":"docker rm 9bc1d2e43f2a"}"#, false),
            (
                r#"edit {"path":"a","old_string":" x","new_string":"y"}"#,
                r#"edit {"path":"a","old_string":"  x","new_string":"y"}"#,
                false,
            ),
            (r#"f {"date":"2026-01-02"}"#, r#"f {"date":"2026-01-03"}"#, false),
            (r#"f {"größe":1}"#, r#"f {"größe":2}"#, false),
            // Reformatted.
            (r#"bash {"command":"ls   -la\n x"}"#, r#"bash {"command":"ls -la x"}"#, true),
            (r#"read {"path":"./a//b"}"#, r#"read {"path":"a/b"}"#, true),
            // Reworded remarks.
            (r#"bash {"command":"ls","description":"see"}"#, r#"bash {"command":"ls","description":"look"}"#, true),
            (
                r#"issue_create {"title":"a","description":"b"}"#,
                r#"issue_create {"title":"a","description":"c"}"#,
                false,
            ),
            (r#"think {"thought":"a"}"#, r#"think {"thought":"b"}"#, false),
            ("f {broken", "f {broken", true),
            ("f {broken", "f {broke", false),
        ] {
            assert_eq!(asked(one).key == asked(other).key, same, "{one} {other}");
        }
    }

    #[test]
    fn targets_say_which_and_leave_out_pages_and_prose() {
        for (one, other, same) in [
            (r#"get {"id":1}"#, r#"get {"id":2}"#, false),
            (r#"get {"id":1,"page":1}"#, r#"get {"id":1,"page":2}"#, true),
            (r#"get {"url":"http://x/a?page=1"}"#, r#"get {"url":"http://x/a?page=2"}"#, true),
            (r#"get {"url":"http://x/a?id=1"}"#, r#"get {"url":"http://x/a?id=2"}"#, false),
            (r#"search {"query":"how to mend it"}"#, r#"search {"query":"mending it"}"#, true),
            (r#"search {"query":"processOrder"}"#, r#"search {"query":"process_order"}"#, true),
            (r#"search {"query":"foo"}"#, r#"search {"query":"bar"}"#, false),
            (r#"bash {"command":"grep -n foo a.txt"}"#, r#"bash {"command":"grep -n foo b.txt"}"#, false),
            (r#"bash {"command":"tail -n 50 a.txt"}"#, r#"bash {"command":"tail -n 90 a.txt"}"#, true),
            (
                r#"events {"start":"2026-01-01","end":"2026-02-01"}"#,
                r#"events {"start":"2026-02-01","end":"2026-03-01"}"#,
                false,
            ),
        ] {
            assert_eq!(asked(one).target == asked(other).target, same, "{one} {other}");
        }
    }

    #[test]
    fn calls_have_the_kind_of_their_tool_their_action_or_their_command() {
        for (call, kind) in [
            (r#"process {"action":"poll","sessionId":"x"}"#, Kind::Poll),
            (r#"str_replace_based_edit_tool {"command":"view","path":"a"}"#, Kind::Read),
            (r#"bash {"command":"cat a"}"#, Kind::Read),
            (r#"bash {"command":["bash","-lc","sleep 5 && cat a"]}"#, Kind::Poll),
            (r#"shell {"command":["git","status"]}"#, Kind::Read),
            (r#"read_file {"path":"a"}"#, Kind::Read),
            (r#"memory {"action":"add","content":"x"}"#, Kind::Write),
        ] {
            assert_eq!(asked(call).kind, kind, "{call}");
        }
    }
}
