//! Analyses the arguments of a call.

use belay_protocol::{ToolKind, ToolSpec};
use serde_json::Value;

use super::Part;
use super::ToolLoopConfig;
use super::call::{CallAnalysis, ECHO_WORDS, Echo, VolatileParts};
use super::command;
use super::digest;
use super::keys::{self, Class};
use super::mask::{Piece, Place, pieces};
use super::shapes;
use super::values::{
    Sql, aim_digest, itoa, loose_digest, masked_digest, number_digest, path_digest, program, sql_kind, sql_word,
};
use super::words::{self, Kind};
use super::writes::Effect;

/// Bytes of a text argument that are examined for words. The digest covers all of it.
const WORDS_WITHIN: usize = 512;

/// The first letter of the scripts without spaces between words: Chinese, Japanese.
const FIRST_WITHOUT_SPACES: char = '\u{2e80}';

/// The different targets that a text names. Each counts once, in any order. Further ones than the array holds are
/// ignored.
#[derive(Default)]
struct Once {
    digests: [u64; 16],
    len: usize,
}

impl Once {
    fn add(&mut self, digest: u64) {
        if self.len < self.digests.len() && !self.known().contains(&digest) {
            self.digests[self.len] = digest;
            self.len += 1;
        }
    }

    fn known(&self) -> &[u64] {
        &self.digests[..self.len]
    }
}

/// Whether a text is a pattern of file names, with a star in the last path component. `.*` belongs to a regular
/// expression.
fn is_glob(text: &str) -> bool {
    let name = text.rsplit('/').next().unwrap_or_default();
    name.contains('*') && !text.contains(".*") && !text.contains([' ', '\\', '(', '^', '$'])
}

/// Visits the arguments. Every leaf becomes a digest of its path and its value. The sum of the digests does not depend
/// on the order of keys and needs no sorted copy.
pub(super) struct Reader<'a> {
    config: &'a ToolLoopConfig,
    spec: Option<&'a ToolSpec>,
    tool: &'a str,
    meaning: words::Meaning,
    action: Option<words::Meaning>,
    command: Option<Kind>,
    /// The sum of the leaves that count, and their number.
    key: u64,
    leaves: u32,
    /// Leaves that count only if there are no others.
    weak: u64,
    remarks: u64,
    /// Leaves that are not an action. They connect an addition with the removal of the same object.
    object: u64,
    target: u64,
    /// Texts that are written, or judged.
    content: u64,
    state: u64,
    old: u64,
    new: u64,
    sketch: u64,
    searches: bool,
    has_path: bool,
    aimed: bool,
    numbers: u64,
    web: bool,
    waits: bool,
    ticks: bool,
    echo: Echo,
}

impl<'a> Reader<'a> {
    pub(super) fn new(config: &'a ToolLoopConfig, tool: &'a str, spec: Option<&'a ToolSpec>) -> Self {
        let mut echo = Echo::default();
        echo.add(digest::of(tool.as_bytes()));
        let meaning = if config.has(Part::Words) { words::meaning(tool) } else { words::Meaning::default() };
        Self {
            config,
            spec,
            tool,
            meaning,
            action: None,
            command: None,
            key: 0,
            leaves: 0,
            weak: 0,
            remarks: 0,
            object: 0,
            target: 0,
            content: 0,
            state: 0,
            old: 0,
            new: 0,
            sketch: 0,
            searches: false,
            has_path: false,
            aimed: false,
            numbers: 0,
            web: false,
            waits: false,
            ticks: false,
            echo,
        }
    }

    pub(super) fn pair(&mut self, path: u64, key: &str, value: &Value, outer: Option<Class>) {
        let path = digest::pair(path, digest::of(key.as_bytes()));
        let declares = |list: fn(&ToolSpec) -> &[String]| {
            self.spec.is_some_and(|spec| list(spec).iter().any(|declared| declared == key))
        };
        let class = match () {
            () if declares(|spec| &spec.volatile_args) => Class::Volatile,
            () if declares(|spec| &spec.target_args) => Class::Target,
            () if self.config.has(Part::Keys) => keys::class(key, self.tool),
            () => Class::Other,
        };
        let class = match (class, outer) {
            // Within written or searched content, every key is a part of the content.
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
                if class == Class::Command && self.command.is_none() && self.config.has(Part::Command) {
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
            // An empty container differs from a full one by its path alone.
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
        match class {
            Class::Target | Class::Path => {
                self.aimed = true;
                self.aim(digest);
            }
            Class::Other | Class::Content => self.numbers = self.numbers.wrapping_add(digest::pair(path, digest)),
            _ => {}
        }
    }

    pub(super) fn text(&mut self, path: u64, text: &str, class: Class) {
        let bytes = text.as_bytes();
        let trimmed = text.trim();
        match class {
            Class::Volatile => {}
            Class::Content if self.meaning.kind == Kind::Run => self.program(path, text),
            Class::Content | Class::Old | Class::New => {
                // Spaces are part of written content.
                let digest = digest::of(bytes);
                self.leaf(path, digest, class);
                self.content = self.content.wrapping_add(digest::pair(7, digest));
                self.note_words(bytes, Place::Argument, false);
            }
            Class::Target | Class::Path | Class::Page | Class::Weak => {
                let digest = path_digest(trimmed);
                self.leaf(path, digest, class);
                self.note_words(trimmed.as_bytes(), Place::Argument, false);
                self.has_path |= class == Class::Path;
                self.aimed |= matches!(class, Class::Target | Class::Path);
                self.web |= trimmed.contains("://");
                // A time range under `start` and `end` identifies the target, a page token does not.
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
            Class::Query if self.config.has(Part::Sql) && sql_kind(trimmed).is_some() => self.sql(path, trimmed),
            Class::Query if is_glob(trimmed) => {
                // A glob is a wording of a search. The path before its first star is the target.
                self.searches = true;
                self.leaf(path, digest::of(bytes), class);
                let fixed = trimmed.split(['*', '?', '[', '{']).next().unwrap_or_default();
                if let Some((folder, _)) = fixed.rsplit_once('/') {
                    self.aim(aim_digest(folder));
                }
            }
            Class::Command | Class::Query | Class::Prompt | Class::Remark | Class::Other => {
                self.prose(path, trimmed, class)
            }
        }
    }

    /// Reads text whose wording may vary: a command, a query, a remark, anything unknown.
    fn prose(&mut self, path: u64, text: &str, class: Class) {
        if class == Class::Command && self.command.is_none() && self.config.has(Part::Command) {
            self.command = Some(command::kind(text));
            self.waits |= command::sleeps(text);
            self.ticks |= command::prints_pids(text);
        }
        self.searches |= class == Class::Query;
        // Text without spaces may be a whole sentence.
        let single = !text.contains(|letter: char| letter.is_whitespace() || letter >= FIRST_WITHOUT_SPACES);
        let masks = self.config.has(Part::Masks);
        let place = match class {
            _ if !masks => Place::Plain,
            Class::Query | Class::Prompt => Place::Query,
            _ => Place::Argument,
        };
        let digest = masked_digest(text.as_bytes(), place);
        // A value that consists only of a random id, under a key without a known meaning, is most likely volatile.
        let word = text.as_bytes();
        let random = masks && class == Class::Other && single && !word.is_empty() && {
            let end = shapes::word_end(word, 0);
            shapes::random_id(word, 0, end).or_else(|| shapes::epoch(word, 0)) == Some(word.len())
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
        if class == Class::Prompt {
            pieces(&word[..word.len().min(WORDS_WITHIN)], place, |piece| {
                if let Piece::Word(word) = piece {
                    self.sketch_word(word);
                }
            });
            return;
        }
        self.note_words(&word[..word.len().min(WORDS_WITHIN)], place, class == Class::Query);
        if class != Class::Query {
            self.aim_at_paths(&text[..text.floor_char_boundary(WORDS_WITHIN)], class);
        }
    }

    /// Reads a database query. Its tables and values are the target, and the columns of its conditions are the words of
    /// the search. The selected columns and the order do not count, because they can be worded in many ways.
    fn sql(&mut self, path: u64, text: &str) {
        self.leaf(path, masked_digest(text.as_bytes(), Place::Query), Class::Query);
        if self.command.is_none() {
            self.command = sql_kind(text);
        }
        let mut aims = Once::default();
        let (mut before, mut place) = (Sql::Keyword, Sql::Keyword);
        // The name of a table, until it is clear that it is not the name of its schema.
        let mut source = None;
        let within = &text.as_bytes()[..text.len().min(WORDS_WITHIN)];
        // Every second part is a value between quotes.
        for (part, quoted) in within.split(|byte| *byte == b'\'').zip([false, true].into_iter().cycle()) {
            pieces(part, Place::Query, |piece| {
                let word = match piece {
                    Piece::Word(word) => word,
                    Piece::Mark(b'.') if source.take().is_some() => {
                        before = Sql::Source;
                        return;
                    }
                    _ => return,
                };
                source.take().into_iter().for_each(|source| aims.add(source));
                // A single character occurs in too many results: "0 rows".
                if word.len() > 1 {
                    self.echo.add(digest::of(word));
                }
                let what = sql_word(word);
                let value = quoted || word.iter().all(u8::is_ascii_digit);
                let digest = || loose_digest(str::from_utf8(word).unwrap_or_default());
                match () {
                    () if before == Sql::Page || (what != Sql::Name && !value) => {}
                    () if before == Sql::Source => source = Some(digest()),
                    () if value && place != Sql::Order => aims.add(digest()),
                    () if place == Sql::Condition => self.sketch_word(word),
                    () => {}
                }
                if matches!(what, Sql::Source | Sql::Condition | Sql::Order) {
                    place = what;
                }
                before = what;
            });
        }
        source.into_iter().for_each(|source| aims.add(source));
        for aim in aims.known() {
            self.aim(*aim);
        }
    }

    /// Reads a program. The files and numbers in it are the target, its other words are the wording.
    fn program(&mut self, path: u64, text: &str) {
        self.leaf(path, digest::of(text.as_bytes()), Class::Content);
        let mut aims = Once::default();
        let within = &text[..text.floor_char_boundary(WORDS_WITHIN)];
        for chunk in within.split(|letter: char| !(letter.is_alphanumeric() || "_./-".contains(letter))) {
            let named = |at: usize| at > 0 && (2..=8).contains(&(chunk.len() - at - 1));
            // In `f(17)` the number is a target; in `head(10)` it is an amount.
            let head = &within[..chunk.as_ptr() as usize - within.as_ptr() as usize];
            let shows = ["head(", "tail(", "limit(", "sample("].iter().any(|call| head.ends_with(call));
            let digits = !chunk.is_empty() && chunk.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits && !shows && (chunk.len() >= 3 || head.ends_with(['(', ',']));
            if number || (head.ends_with(['"', '\'']) && (chunk.contains('/') || chunk.rfind('.').is_some_and(named))) {
                aims.add(aim_digest(chunk));
            }
        }
        for aim in aims.known() {
            self.aim(*aim);
        }
        self.note_words(within.as_bytes(), Place::Argument, true);
    }

    /// Adds the paths in a text to the target, and its other words to the sketch. The program itself and its flags are
    /// in neither.
    fn aim_at_paths(&mut self, text: &str, class: Class) {
        for (place, chunk) in text.split_ascii_whitespace().enumerate() {
            let chunk = chunk.trim_matches(['"', '\'', '(', ')', ',', ';']);
            let number = chunk.bytes().all(|byte| byte.is_ascii_digit());
            if class == Class::Command && (place == 0 || chunk.starts_with('-')) || number {
                continue;
            }
            let dot = chunk.rfind('.').is_some_and(|at| at > 0 && (1..=5).contains(&(chunk.len() - at - 1)));
            // In an `ssh` command, a host stands right after `ssh`.
            let host = place == 1 && class == Class::Command && text.starts_with("ssh ");
            self.web |= chunk.contains("://");
            if chunk.contains('/') || dot || host {
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

    /// Adds the first five letters of a word to the sketch, so that its inflected forms are equal. Short words and
    /// numbers are ignored.
    fn sketch_word(&mut self, word: &[u8]) {
        if !self.config.has(Part::Wording) {
            return;
        }
        if word.first().is_some_and(|byte| *byte >= 0x80)
            && let Ok(text) = str::from_utf8(word)
            && text.contains(|letter| letter >= FIRST_WITHOUT_SPACES)
        {
            // In a script without spaces, each character counts as a word, and one bit stands for the script. So half
            // of the characters are enough for similarity.
            self.sketch |= 1;
            for letter in text.chars().filter(|letter| *letter >= FIRST_WITHOUT_SPACES) {
                self.sketch |= 1 << (digest::of(letter.encode_utf8(&mut [0; 4]).as_bytes()) >> 58);
            }
            return;
        }
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

    pub(super) fn finish(mut self) -> CallAnalysis {
        let config = self.config;
        let meaning = self.action.unwrap_or(self.meaning);
        let listed = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case(self.tool));
        let kind = if listed(&config.harmless_tools) {
            Kind::Harmless
        } else if listed(&config.polling_tools) {
            Kind::Poll
        } else if let Some(kind) = self.declared_kind() {
            kind
        } else {
            match self.command {
                Some(kind) if matches!(self.meaning.kind, Kind::Run | Kind::Other | Kind::Write) => kind,
                _ => meaning.kind,
            }
        };
        // The remarks of a command or a read are for human readers and are reworded each time. The remarks of a write
        // or of a thought are its content.
        let remarks_are_content =
            self.command.is_none() && matches!(kind, Kind::Write | Kind::Harmless | Kind::Note | Kind::Other);
        if remarks_are_content || self.leaves == 0 {
            self.key = self.key.wrapping_add(self.remarks);
        }
        if self.leaves == 0 {
            self.key = self.key.wrapping_add(self.weak);
        }
        // Written content is not a target, but examined content is: forty texts to classify are forty targets.
        if kind != Kind::Write {
            self.target = self.target.wrapping_add(self.content);
        }
        let volatile = match kind {
            _ if !config.has(Part::Receipts) => VolatileParts::None,
            Kind::Harmless => VolatileParts::AllNumbers,
            _ if self.ticks => VolatileParts::AllNumbers,
            Kind::Write | Kind::Note => VolatileParts::Receipts,
            _ => VolatileParts::None,
        };
        let local = self.command.is_some() && kind == Kind::Read && !self.web;
        let person = self.command.is_none() && keys::names_a_person(self.tool);
        let name = digest::of(self.tool.as_bytes());
        let target = if self.target == 0 { 0 } else { digest::short(self.target) };
        CallAnalysis {
            key: digest::pair(name, self.key),
            name: digest::short(name),
            target,
            sketch: self.sketch,
            kind,
            searches: self.searches,
            has_path: self.has_path || local || person,
            aimed: self.aimed,
            numbers: if self.numbers == 0 { 0 } else { (self.numbers >> 56).max(1) as u8 },
            web: self.web,
            waits: self.waits || meaning.waits || self.declared_kind() == Some(Kind::Wait),
            volatile,
            effect: self.effect(kind, meaning.adds, target),
            echo: if config.has(Part::Echo) { self.echo } else { Echo::default() },
        }
    }

    /// The kind that the tool declares.
    fn declared_kind(&self) -> Option<Kind> {
        match self.spec?.kind? {
            ToolKind::Read => (self.meaning.kind == Kind::Other && self.action.is_none()).then_some(Kind::Read),
            ToolKind::Poll => Some(Kind::Poll),
            ToolKind::Wait => Some(Kind::Wait),
            ToolKind::Note => Some(Kind::Note),
            ToolKind::Clock => Some(Kind::Harmless),
        }
    }

    fn effect(&self, kind: Kind, adds: Option<bool>, target: u32) -> Effect {
        if kind != Kind::Write || self.command.is_some() {
            return Effect::default();
        }
        let short = digest::short;
        // Without a target, the tool identifies the location.
        let place = if target == 0 { short(digest::of(self.tool.as_bytes())) } else { target };
        if self.old != 0 {
            let there = digest::pair(self.old, self.new);
            return Effect { place, state: short(there), back: short(digest::pair(self.new, self.old)) };
        }
        match adds {
            // An addition and its removal are matched by all their arguments; a created file by its path.
            Some(adds) => {
                let what = if target == 0 { self.object } else { self.target };
                let place = short(digest::pair(11, what));
                // A file that is created with content is identified by the content too.
                let state = if adds && target != 0 && self.state != 0 { self.state } else { 13 + u64::from(adds) };
                Effect { place, state: short(digest::pair(13, state)), back: 0 }
            }
            None if self.state != 0 => Effect { place, state: short(self.state), back: 0 },
            None => Effect::default(),
        }
    }
}
