//! The fingerprint of a call: its content without the parts that change by themselves.

use belay_protocol::{Arguments, ToolSpec};

use super::ToolLoopConfig;
use super::digest;
use super::keys::Class;
use super::reader::Reader;
use super::words::Kind;
use super::writes::Effect;

/// Words of the arguments that are stored until the result arrives, to recognise them in it.
pub(super) const ECHO_WORDS: usize = 10;

/// The analysed form of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallAnalysis {
    /// The masked key: name and arguments. Two calls with equal keys are the same call.
    pub(super) key: u64,
    /// Digest of the name.
    pub(super) name: u32,
    /// The target: ids, paths, names; without pages, limits and prose. 0: none.
    pub(super) target: u32,
    /// The words of its prose, as a bit set of 64 bits.
    pub(super) sketch: u64,
    /// The kind of call.
    pub(super) kind: Kind,
    /// Whether it searches for words, so that a long result may repeat them.
    pub(super) searches: bool,
    /// Whether it names a file or asks a person: then time alone changes no answer.
    pub(super) has_path: bool,
    /// Whether a path, an id or a name identifies its target.
    pub(super) aimed: bool,
    /// A small digest of the numbers under keys without a known meaning; 0: none.
    pub(super) numbers: u8,
    /// Whether its target is a web address.
    pub(super) web: bool,
    /// Whether it lets time pass.
    pub(super) waits: bool,
    /// The parts of its result that are no news.
    pub(super) volatile: VolatileParts,
    /// The change that it makes, if any.
    pub(super) effect: Effect,
    /// The words of its arguments.
    pub(super) echo: Echo,
}

/// The parts of a call's result that change by themselves, in addition to those that are masked in every text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum VolatileParts {
    /// None.
    #[default]
    None,
    /// The numbers of receipts, because every change gets a new one.
    Receipts,
    /// All numbers, because they come from clocks and processes.
    AllNumbers,
}

/// The first different words of the arguments, as digests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Echo {
    pub(super) words: [u32; ECHO_WORDS],
    pub(super) len: usize,
}

impl Echo {
    pub(super) fn add(&mut self, word: u64) {
        let word = Self::short(word);
        if self.len < ECHO_WORDS && !self.words[..self.len].contains(&word) {
            self.words[self.len] = word;
            self.len += 1;
        }
    }

    /// Whether it contains the word with this digest.
    pub(super) fn has(&self, word: u64) -> bool {
        self.words[..self.len].contains(&Self::short(word))
    }

    /// Shortens a digest to 24 bits: a word in a result matches one of ten words by accident less than once in a
    /// million times.
    fn short(word: u64) -> u32 {
        digest::short(word) & 0xff_ffff
    }
}

impl CallAnalysis {
    /// Analyses a call.
    pub(super) fn of(config: &ToolLoopConfig, name: &str, arguments: &Arguments, spec: Option<&ToolSpec>) -> Self {
        let mut reader = Reader::new(config, name, spec);
        match arguments {
            Arguments::Object(map) => {
                for (key, value) in map {
                    reader.pair(0, key, value, None);
                }
            }
            Arguments::Malformed(raw) => reader.text(1, raw, Class::Content),
        }
        reader.finish()
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::ToolKind;

    use super::*;

    fn analyse(call: &str) -> CallAnalysis {
        let (name, arguments) = call.split_once(' ').unwrap_or((call, ""));
        CallAnalysis::of(&ToolLoopConfig::default(), name, &Arguments::parse(arguments), None)
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
            // Never volatile: identities, positions to continue from, written content.
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
            // Remarks in other words.
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
            assert_eq!(analyse(one).key == analyse(other).key, same, "{one} {other}");
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
            assert_eq!(analyse(one).target == analyse(other).target, same, "{one} {other}");
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
            assert_eq!(analyse(call).kind, kind, "{call}");
        }
    }

    #[test]
    fn what_a_tool_declares_comes_before_what_its_name_and_keys_tell() {
        let declared = |name: &str, arguments: &str, kind| {
            let spec = ToolSpec {
                kind,
                volatile_args: vec!["round".into()],
                target_args: vec!["q".into()],
                ..ToolSpec::new(name, "", serde_json::Value::Null)
            };
            CallAnalysis::of(&ToolLoopConfig::default(), name, &Arguments::parse(arguments), Some(&spec))
        };
        for (name, kind, expected) in [
            ("frobnicate", None, Kind::Other),
            ("frobnicate", Some(ToolKind::Poll), Kind::Poll),
            ("read_file", Some(ToolKind::Wait), Kind::Wait),
            ("read_file", Some(ToolKind::Note), Kind::Note),
            ("read_file", Some(ToolKind::Clock), Kind::Harmless),
            ("frobnicate", Some(ToolKind::Read), Kind::Read),
            ("get_status", Some(ToolKind::Read), Kind::Poll),
        ] {
            assert_eq!(declared(name, "{}", kind).kind, expected, "{name} declared as {kind:?}");
        }
        let of = |arguments| declared("f", arguments, None);
        assert_eq!(of(r#"{"q":"a","round":1}"#).key, of(r#"{"q":"a","round":2}"#).key, "a volatile argument");
        assert_ne!(of(r#"{"q":"mend it"}"#).target, of(r#"{"q":"leave it"}"#).target, "a target in words");
    }
}
