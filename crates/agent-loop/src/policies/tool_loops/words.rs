//! Determines the kind of a tool from the words of its name, if the tool does not declare it.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::lexicon::lexicon;

/// The kind of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Unknown.
    #[default]
    Other,
    /// Reads something.
    Read,
    /// Changes something.
    Write,
    /// Runs a program: a build, tests.
    Run,
    /// Polls the state of something.
    Poll,
    /// Lets time pass.
    Wait,
    /// Neither reports about the work nor changes anything: a clock, a thought.
    Harmless,
    /// A note of the model to itself, such as a to-do list. Harmless as well, but the same note again shows that there
    /// is no progress.
    Note,
}

impl Kind {
    /// Every kind. The index is the stored number.
    pub(super) const ALL: [Self; 8] =
        [Self::Other, Self::Read, Self::Write, Self::Run, Self::Poll, Self::Wait, Self::Harmless, Self::Note];

    /// Whether it neither reports about the work nor changes it.
    pub(super) fn is_harmless(self) -> bool {
        matches!(self, Self::Harmless | Self::Note)
    }
}

/// The meaning of a single word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    Read,
    Write,
    Add,
    Remove,
    Run,
    Poll,
    /// "check": polls a state, unless the name says what is checked.
    Check,
    /// The object of a check that is a build or a test.
    Checked,
    /// Something that runs elsewhere: reading its state is polling.
    Ongoing,
    Wait,
    Harmless,
    /// Notes of the model to itself. They are harmless even if the tool writes them.
    Note,
    /// "git": its status and its log do not change by themselves.
    Local,
    /// No meaning.
    Filler,
    Unknown,
}

/// The meaning of known words.
#[rustfmt::skip]
static HINTS: LazyLock<HashMap<&'static str, Hint>> = LazyLock::new(|| {
    lexicon(&[
        (Hint::Read, "read get list ls search find fetch query lookup grep glob view show describe inspect browse scrape \
            extract select count diff cat head download retrieve load explore snapshot screenshot recall"),
        (Hint::Write, "write edit update set put post send replace patch move rename copy upload save apply commit push \
            deploy publish submit toggle click press fill book pay cancel merge assign reply comment schedule \
            restart start stop kill mkdir mv cp touch chmod format upsert overwrite configure change modify \
            transfer approve reject spawn str close archive translate convert resize process import export tag \
            label generate draw render type rotate migrate scale switch notify"),
        (Hint::Add, "create add insert append enable lock subscribe install grant mount pin follow mute"),
        (Hint::Remove, "delete remove disable unlock unsubscribe uninstall revoke unmount unpin unfollow unmute rm drop \
            clear"),
        (Hint::Run, "run exec execute bash shell command terminal test tests build compile lint verify validate python \
            eval cargo pytest make typecheck unittest"),
        (Hint::Poll, "status poll watch progress health healthcheck logs tail monitor ready readiness liveness state"),
        (Hint::Check, "check log"),
        (Hint::Checked, "syntax types style spelling grammar code links file files answer answers guess solution flag"),
        (Hint::Ongoing, "job jobs task tasks deployment pipeline workflow queue inbox operation"),
        (Hint::Wait, "sleep wait await delay pause"),
        (Hint::Harmless, "clock time now date datetime timestamp think thought thoughts thinking reflect reason reasoning ping \
            echo noop nop uptime whoami pwd heartbeat sequentialthinking"),
        (Hint::Note, "note notes memo remember memorize jot scratchpad todo todos plan"),
        (Hint::Local, "git"),
        (Hint::Filler, "current local utc server system the a my for take is tool sequential world in to of"),
    ])
});

fn hint(word: &str) -> Hint {
    HINTS.get(word).copied().unwrap_or(Hint::Unknown)
}

/// The combined meaning of the words of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meaning {
    /// The kind.
    pub(super) kind: Kind,
    /// Whether it adds (`Some(true)`) or removes (`Some(false)`) something.
    pub(super) adds: Option<bool>,
    /// Whether it waits for something.
    pub(super) waits: bool,
    /// Whether at least one word is known.
    pub(super) known: bool,
}

/// Analyses a name: its words in any of the usual spellings (`get_job`, `getJob`, `get-job`). In `change__get` and
/// `mcp__ci__get_job`, the part before the last `__` names a server. It counts only if no word of the rest is known.
pub(super) fn meaning(name: &str) -> Meaning {
    match name.rsplit_once("__").map(|(_, tool)| words_meaning(tool)) {
        Some(meaning) if meaning.known => meaning,
        _ => words_meaning(name),
    }
}

fn words_meaning(name: &str) -> Meaning {
    let mut hints = Hints::default();
    for_each_word(name, |word| {
        hints.replaces |= word == "replace";
        hints.take(hint(word));
    });
    // "find_and_replace": the first verb is a preparation, the replacement is the purpose.
    if hints.replaces {
        hints.first_act = Some(Hint::Write);
    }
    hints.meaning()
}

/// The hints that the words of a name have given.
#[derive(Default)]
struct Hints {
    first_act: Option<Hint>,
    poll: bool,
    check: bool,
    checked: bool,
    ongoing: bool,
    wait: bool,
    harmless: bool,
    note: bool,
    local: bool,
    unknown: bool,
    replaces: bool,
    any: bool,
}

impl Hints {
    fn take(&mut self, hint: Hint) {
        match hint {
            Hint::Read | Hint::Write | Hint::Add | Hint::Remove | Hint::Run => {
                // The first verb is the action. A later verb is its object: "get_commit", "run_command".
                self.first_act.get_or_insert(hint);
            }
            Hint::Poll => self.poll = true,
            Hint::Check => self.check = true,
            Hint::Checked => self.checked = true,
            Hint::Ongoing => self.ongoing = true,
            Hint::Wait => self.wait = true,
            Hint::Harmless => self.harmless = true,
            Hint::Note => self.note = true,
            Hint::Local => self.local = true,
            Hint::Filler => return,
            Hint::Unknown => self.unknown = true,
        }
        self.any |= hint != Hint::Unknown;
    }

    fn meaning(&self) -> Meaning {
        let act = self.first_act;
        let adds = match act {
            Some(Hint::Add) => Some(true),
            Some(Hint::Remove) => Some(false),
            _ => None,
        };
        let changes = matches!(act, Some(Hint::Write | Hint::Add | Hint::Remove));
        let objects = self.unknown || self.checked || self.ongoing;
        let notes = self.note && !objects && !matches!(act, Some(Hint::Remove | Hint::Read));
        let looks = matches!(act, None | Some(Hint::Read)) && !self.poll && !self.check;
        let kind = if notes {
            Kind::Note
        } else if self.harmless && !objects && looks {
            Kind::Harmless
        } else if changes {
            Kind::Write
        } else if self.poll && !self.local {
            Kind::Poll
        } else if self.wait {
            // "wait_for_element" observes something; "wait" lets time pass.
            if objects || act.is_some() { Kind::Poll } else { Kind::Wait }
        } else if act == Some(Hint::Run) {
            Kind::Run
        } else if self.check && !self.local {
            if self.checked { Kind::Run } else { Kind::Poll }
        } else if act == Some(Hint::Read) && self.ongoing {
            Kind::Poll
        } else if act == Some(Hint::Read) || self.local {
            Kind::Read
        } else {
            Kind::Other
        };
        Meaning { kind, adds, waits: self.wait, known: self.any }
    }
}

/// Calls `take` with each word of a name, in lower case. Words are cut at 20 bytes; longer words are never known.
pub(super) fn for_each_word(name: &str, mut take: impl FnMut(&str)) {
    let mut word = [0; 20];
    let mut len = 0;
    let mut before = 0u8;
    let mut flush = |word: &[u8; 20], len: &mut usize| {
        if let (true, Ok(text)) = (*len > 0, str::from_utf8(&word[..*len])) {
            take(text);
        }
        *len = 0;
    };
    for byte in name.bytes() {
        let begins = byte.is_ascii_uppercase() && !before.is_ascii_uppercase();
        if begins || !byte.is_ascii_alphanumeric() {
            flush(&word, &mut len);
        }
        if byte.is_ascii_alphanumeric() && len < word.len() {
            word[len] = byte.to_ascii_lowercase();
            len += 1;
        }
        before = byte;
    }
    flush(&word, &mut len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_kind_of_call_it_is() {
        for (names, kind) in [
            (
                "get_commit get_post read_file readFile fs.read list_dir web-search grep get_user git_status git_log git_diff",
                Kind::Read,
            ),
            ("write_file edit create_issue send_message set_status update_job delete find_and_replace", Kind::Write),
            ("apply_patch click add_label str_replace update_plan_file create_task", Kind::Write),
            ("bash run_tests exec execute_command cargo_test lint check_syntax check_types run_job", Kind::Run),
            ("get_status job_status getBuildStatus poll health get_job list_jobs logs check_inbox", Kind::Poll),
            ("wait_for_element check read_logs mcp__ci__get_pipeline", Kind::Poll),
            ("sleep wait pause wait_", Kind::Wait),
            ("change__get mcp__time__get_zone crm__frobnicate_get", Kind::Read),
            ("clock think get_current_time ping echo sequentialthinking now", Kind::Harmless),
            ("note add_note remember take_notes todo_write update_plan", Kind::Note),
            ("frobnicate weather hash_password schedule_of_trains_", Kind::Other),
        ] {
            for name in names.split(' ').filter(|name| !name.ends_with("trains_")) {
                assert_eq!(meaning(name).kind, kind, "{name}");
            }
        }
    }

    #[test]
    fn names_tell_what_adds_and_what_removes() {
        for (name, adds) in [
            ("add_label", Some(true)),
            ("deleteFile", Some(false)),
            ("edit", None),
            ("enable", Some(true)),
            ("x", None),
        ] {
            assert_eq!(meaning(name).adds, adds, "{name}");
        }
    }
}
