//! Announcements in English.
//!
//! `opening filler* action`, or `opening filler* carrier … (and | then | to | ,) filler* action`: "I'll now quickly
//! search", "let me use the web tool to look it up". Anything else between opening and action makes it something other
//! than an announcement: "I'll be happy to search", "let me explain how to search".

use super::prose::OBJECT;

/// What begins an announcement.
const OPENINGS: &[&[&str]] = &[
    &["let", "me"],
    &["i'll"],
    &["i", "will"],
    &["i'm", "going", "to"],
    &["i", "am", "going", "to"],
    &["i'm", "gonna"],
    &["i'm", "about", "to"],
    &["i", "am", "about", "to"],
    &["i'm", "now", "going", "to"],
    &["i", "need", "to"],
    &["allow", "me", "to"],
];

/// Words before an opening that make it somebody else's, or no announcement: "could you let me", "don't let me".
const FOREIGN: &[&str] = &["you", "to", "not", "don't", "won't", "will", "can", "that", "what", "whether", "please"];

/// What may stand between opening and action without changing the meaning.
const FILLERS: &[&str] = &[
    "again",
    "ahead",
    "also",
    "and",
    "attempt",
    "begin",
    "by",
    "directly",
    "do",
    "first",
    "go",
    "have",
    "immediately",
    "just",
    "need",
    "next",
    "now",
    "please",
    "proceed",
    "quick",
    "quickly",
    "quietly",
    "really",
    "start",
    "starting",
    "then",
    "to",
    "try",
    "will",
];

/// What may come before the action itself: "I'll open the browser and search".
const CARRIERS: &[&str] = &["access", "connect", "go", "head", "navigate", "open", "use", "visit"];

/// What makes a carrier's "to" lead to an action: "use the web to find", but not "use a loop to find".
const MEANS: &[&str] = &[
    "api",
    "browser",
    "calculator",
    "database",
    "engine",
    "function",
    "google",
    "internet",
    "plugin",
    "search",
    "tool",
    "tools",
    "web",
];

/// Most words between opening and action.
const REACH: usize = 14;

/// Words that alone say that a tool is needed.
const ACTIONS: &[&str] = &[
    "browse",
    "browsing",
    "check",
    "checking",
    "delete",
    "deleting",
    "download",
    "downloading",
    "execute",
    "executing",
    "fetch",
    "fetching",
    "find",
    "finding",
    "grep",
    "query",
    "querying",
    "research",
    "retrieve",
    "retrieving",
    "search",
    "searching",
];

/// Words that say so only about certain things.
const ACTIONS_ON: &[(&[&str], &[&str])] = &[
    (&["look", "looking"], &["up", "into", "for", "at", "through", "inside"]),
    (&["look", "looking"], &["it up", "this up", "that up", "them up", "those up", "these up"]),
    (&["take"], &["a look", "a quick look", "a closer look"]),
    (&["have"], &["a look", "a quick look", "a closer look"]),
    (&["read", "reading"], &["the", "that", "this", "it", "your", "those", "these", "from", "file", "\u{FFFC}"]),
    (&["open", "opening"], &["the", "that", "this", "it", "your", "\u{FFFC}"]),
    (&["inspect", "examine", "scan"], &["the", "that", "this", "it", "your", "\u{FFFC}"]),
    (&["run", "running"], &["the", "a", "an", "that", "this", "it", "some", "those", "these", "\u{FFFC}"]),
    (&["call", "invoke", "calling"], &["the", "\u{FFFC}"]),
    (&["calculate", "compute"], &["that", "this", "it", "the result"]),
    (&["get"], &["the latest", "the current", "the weather", "that information", "more information", "current"]),
    (&["pull"], &["up the", "up your", "up that", "the latest", "the data"]),
    (&["gather"], &["the", "some", "more"]),
    (&["list", "listing"], &["the files", "the directory", "the folder", "all files", "files"]),
];

/// Words that say so about things kept outside the conversation: "update the file", but not "update the plan".
const CHANGES: &[&str] =
    &["add", "create", "creating", "edit", "modify", "remove", "save", "store", "update", "write", "writing"];

/// Such things.
const THINGS: &[&str] = &[
    "branch",
    "calendar",
    "commit",
    "config",
    "configuration",
    "database",
    "directory",
    "document",
    "entry",
    "event",
    "file",
    "files",
    "folder",
    "issue",
    "memory",
    "note",
    "notes",
    "record",
    "reminder",
    "repository",
    "script",
    "settings",
    "spreadsheet",
    "task",
    "ticket",
    OBJECT_WORD,
];

const OBJECT_WORD: &str = "\u{FFFC}";

/// Words behind "I'm" that announce by themselves: "I'm searching the web now".
const GOING_ON: &[&str] =
    &["browsing", "checking", "downloading", "executing", "fetching", "querying", "retrieving", "searching"];

/// Words that ask for patience: "one moment while I check".
const PATIENCE: &[&str] = &["bear", "hang", "hold", "minute", "moment", "sec", "second", "wait"];

/// Words anywhere in a sentence that make it no announcement of anything now.
const NOT_NOW: &[&str] = &[
    "can't",
    "cannot",
    "unable",
    "won't",
    "couldn't",
    "tomorrow",
    "later",
    "future",
    "yesterday",
    "whenever",
    "would",
    "could",
    "might",
    "unfortunately",
];

/// Beginnings of conditions that the person must fulfil first.
const CONDITIONS: &[&[&str]] = &[
    &["once", "you"],
    &["when", "you"],
    &["after", "you"],
    &["before", "you"],
    &["until", "you"],
    &["unless", "you"],
    &["as", "soon", "as"],
    &["if", "you", "want"],
    &["if", "you", "like"],
    &["if", "you'd"],
    &["if", "you", "wish"],
    &["if", "you", "prefer"],
    &["if", "you", "need"],
    &["if", "you", "give"],
    &["if", "you", "tell"],
    &["if", "you", "send"],
    &["if", "you", "share"],
    &["if", "you", "provide"],
    &["if", "you", "confirm"],
    &["if", "needed"],
    &["if", "necessary"],
    &["from", "now", "on"],
    &["next", "time"],
];

/// Whether a sentence, given as its words, announces a tool.
pub(super) fn announces(words: &[&str]) -> bool {
    if words.iter().any(|word| NOT_NOW.contains(word))
        || (0..words.len()).any(|at| begins_any(&words[at..], CONDITIONS))
    {
        return false;
    }
    (0..words.len()).any(|at| {
        let lead = &words[..at];
        let foreign = lead.last().is_some_and(|word| FOREIGN.contains(word));
        let conditional = lead.iter().any(|word| matches!(*word, "if" | "when" | "unless" | "once"));
        !foreign && !conditional && announced_at(lead, &words[at..])
    })
}

fn announced_at(lead: &[&str], words: &[&str]) -> bool {
    if let Some(opening) = OPENINGS.iter().find(|opening| words.starts_with(opening)) {
        return leads_to_action(&words[opening.len()..]);
    }
    match words {
        ["i'm", rest @ ..] | ["i", "am", rest @ ..] => {
            let rest = if let ["now" | "currently" | "just", rest @ ..] = rest { rest } else { rest };
            rest.first().is_some_and(|word| GOING_ON.contains(word)) && is_action(rest)
        }
        ["while", "i", rest @ ..] => lead.iter().any(|word| PATIENCE.contains(word)) && leads_to_action(rest),
        _ => false,
    }
}

/// Whether the words behind an opening come to an action.
fn leads_to_action(words: &[&str]) -> bool {
    let mut carried: Option<usize> = None;
    for at in 0..words.len().min(REACH) {
        let word = words[at];
        let reachable = match carried {
            None => true,
            Some(carrier) => leads_on(words[at - 1], &words[carrier..at]),
        };
        if reachable && is_action(&words[at..]) {
            return true;
        }
        if carried.is_none() && CARRIERS.contains(&word) {
            carried = Some(at);
        } else if carried.is_none() && !FILLERS.contains(&word) {
            return false;
        } else if matches!(word, "you" | "if" | "how" | "when") {
            return false;
        }
    }
    false
}

/// Whether the word before an action joins it to the carrier in front.
fn leads_on(joint: &str, carrier: &[&str]) -> bool {
    match joint {
        "and" | "then" | "," => true,
        "to" => carrier.iter().any(|word| MEANS.contains(word) || *word == OBJECT_WORD),
        filler => FILLERS.contains(&filler) && carrier.iter().any(|word| matches!(*word, "and" | "then")),
    }
}

/// Whether the words begin with an action.
fn is_action(words: &[&str]) -> bool {
    let Some((verb, object)) = words.split_first() else { return false };
    if ACTIONS.contains(verb) {
        return !(begins_explanation(object) || begins_idiom(verb, object));
    }
    if CHANGES.contains(verb) {
        return object.iter().take(5).any(|word| THINGS.contains(word)) && !begins_explanation(object);
    }
    if *verb == "use" || *verb == "using" {
        return object.iter().take(5).any(|word| matches!(*word, "tool" | "tools" | "function" | "api" | "calculator"));
    }
    ACTIONS_ON
        .iter()
        .any(|(verbs, objects)| verbs.contains(verb) && objects.iter().any(|phrase| begins_phrase(object, phrase)))
}

/// "Let me check: 2 + 2 is 4." does in words what it announces.
fn begins_explanation(words: &[&str]) -> bool {
    matches!(words, [":", _, ..])
}

/// Phrases that begin like an action and are none.
fn begins_idiom(verb: &str, words: &[&str]) -> bool {
    match (verb, words) {
        ("check", ["my", ..] | ["in", "with", ..] | ["back", ..] | ["if", "i", "understand" | "understood", ..]) => {
            true
        }
        ("check", ["whether", "i", "understand" | "understood", ..]) => true,
        ("find", ["a", "way", ..] | ["it", "hard" | "useful" | "helpful" | "easier", ..]) => true,
        _ => false,
    }
}

fn begins_phrase(words: &[&str], phrase: &str) -> bool {
    let mut words = words.iter();
    phrase.split(' ').all(|part| words.next() == Some(&part))
}

fn begins_any(words: &[&str], phrases: &[&[&str]]) -> bool {
    phrases.iter().any(|phrase| words.starts_with(phrase))
}

const _: () = assert!(OBJECT as u32 == 0xFFFC, "the word lists spell it out");
