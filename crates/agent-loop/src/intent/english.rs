//! Detects announcements of tool use in English.
//!
//! The grammar is `opening filler* action`, or `opening filler* carrier … (and | then | to | ,) filler* action`: "I'll
//! now quickly search", "let me use the web tool to look it up". With any other words between the opening and the
//! action, the sentence is not an announcement: "I'll be happy to search", "let me explain how to search".

use super::words::{Phrases, Words, phrases, words};

/// Phrases that begin an announcement.
const OPENINGS: Phrases = phrases!(
    "let me | i'll | i will | i'm going to | i am going to | i'm gonna | i'm about to | i am about to | \
     i'm now going to | i need to | allow me to"
);

/// Words before an opening that give it another subject or negate it: "could you let me", "don't let me".
const FOREIGN: Words = words!("you to not don't won't will can that what whether please");

/// Words between opening and action that do not change the meaning.
const FILLERS: Words = words!(
    "again ahead also and attempt begin by directly do first go have immediately just need next now please \
     proceed quick quickly quietly really start starting then to try will"
);

/// Verbs that may precede the action itself: "I'll open the browser and search".
const CARRIERS: Words = words!("access connect go head navigate open use visit");

/// Words behind a carrier whose "to" leads to an action: "use the web to find", but not "use a loop to find".
const MEANS: Words =
    words!("api browser calculator database engine function google internet plugin search tool tools web \u{FFFC}");

/// Words behind a carrier after which an action has another subject, or is no longer announced.
const TURNS: Words = words!("you if how when");

/// Most words between opening and action.
const REACH: usize = 14;

/// Words that alone are an action that needs a tool.
const ACTIONS: Words = words!(
    "browse browsing check checking delete deleting download downloading execute executing fetch fetching \
     find finding grep query querying research retrieve retrieving search searching"
);

/// Words that are an action only before one of these phrases. U+FFFC stands for a piece of code or a quotation.
const ACTIONS_ON: &[(Words, Phrases)] = &[
    (words!("look looking"), phrases!("up | into | for | at | through | inside")),
    (words!("look looking"), phrases!("it up | this up | that up | them up | those up | these up")),
    (words!("take have"), phrases!("a look | a quick look | a closer look")),
    (words!("read reading"), phrases!("the | that | this | it | your | those | these | from | file | \u{FFFC}")),
    (words!("open opening"), phrases!("the | that | this | it | your | \u{FFFC}")),
    (words!("inspect examine scan"), phrases!("the | that | this | it | your | \u{FFFC}")),
    (words!("run running"), phrases!("the | a | an | that | this | it | some | those | these | \u{FFFC}")),
    (words!("call calling invoke"), phrases!("the | \u{FFFC}")),
    (words!("calculate compute"), phrases!("that | this | it | the result")),
    (words!("get"), phrases!("the latest | the current | the weather | that information | more information | current")),
    (words!("pull"), phrases!("up the | up your | up that | the latest | the data")),
    (words!("gather"), phrases!("the | some | more")),
    (words!("list listing"), phrases!("the files | the directory | the folder | all files | files")),
];

/// Words that are an action only with one of [`THINGS`] behind them: "update the file", but not "update the plan".
const CHANGES: Words = words!("add create creating edit modify remove save store update write writing");

/// Things outside the conversation.
const THINGS: Words = words!(
    "branch calendar commit config configuration database directory document entry event file files folder \
     issue memory note notes record reminder repository script settings spreadsheet task ticket \u{FFFC}"
);

/// Words behind "I'm" that announce an action without further words: "I'm searching the web now".
const GOING_ON: Words = words!("browsing checking downloading executing fetching querying retrieving searching");

/// Words that ask the reader to wait: "one moment while I check".
const WAIT_REQUESTS: Words = words!("bear hang hold minute moment sec second wait");

/// Words that begin a condition.
const CONDITIONALS: Words = words!("if when unless once");

/// Words that make a sentence something other than an announcement, wherever they are in it.
const NOT_NOW: Words = words!(
    "can't cannot unable won't couldn't tomorrow later future yesterday whenever would could might \
     unfortunately"
);

/// Phrases of conditions that the person must fulfil first.
const CONDITIONS: Phrases = phrases!(
    "once you | when you | after you | before you | until you | unless you | as soon as | if you want | \
     if you like | if you'd | if you wish | if you prefer | if you need | if you give | if you tell | \
     if you send | if you share | if you provide | if you confirm | if needed | if necessary | from now on | \
     next time"
);

/// Whether a sentence, given as its words, announces a tool.
pub(super) fn announces(words: &[&str]) -> bool {
    let first = |list: Words| words.iter().position(|word| list.has(word)).unwrap_or(words.len());
    let (wait_request_from, conditional_from) = (first(WAIT_REQUESTS), first(CONDITIONALS));
    let announced = (0..words.len()).take_while(|at| *at <= conditional_from).any(|at| {
        let foreign = at > 0 && FOREIGN.has(words[at - 1]);
        !foreign && announced_at(&words[at..], wait_request_from < at)
    });
    announced && !NOT_NOW.has_any(words) && (0..words.len()).all(|at| CONDITIONS.strip(&words[at..]).is_none())
}

/// Whether an announcement begins with these words. `after_wait_request`: a word of [`WAIT_REQUESTS`] precedes them.
fn announced_at(words: &[&str], after_wait_request: bool) -> bool {
    if let Some(behind) = OPENINGS.strip(words) {
        return leads_to_action(behind);
    }
    match words {
        ["i'm", behind @ ..] | ["i", "am", behind @ ..] => {
            let behind = if let ["now" | "currently" | "just", behind @ ..] = behind { behind } else { behind };
            behind.first().is_some_and(|word| GOING_ON.has(word)) && is_action(behind)
        }
        ["while", "i", behind @ ..] => after_wait_request && leads_to_action(behind),
        _ => false,
    }
}

/// Whether the words behind an opening lead to an action.
fn leads_to_action(words: &[&str]) -> bool {
    let mut carrier: Option<usize> = None;
    for (at, word) in words.iter().enumerate().take(REACH) {
        let reachable = carrier.is_none_or(|carrier| leads_on(words[at - 1], &words[carrier..at]));
        if reachable && is_action(&words[at..]) {
            return true;
        }
        match carrier {
            Some(_) if TURNS.has(word) => return false,
            Some(_) => {}
            None if CARRIERS.has(word) => carrier = Some(at),
            None if FILLERS.has(word) => {}
            None => return false,
        }
    }
    false
}

/// Whether the word before an action connects it with the carrier in front of it.
fn leads_on(joint: &str, carrier: &[&str]) -> bool {
    match joint {
        "and" | "then" | "," => true,
        "to" => MEANS.has_any(carrier),
        filler => FILLERS.has(filler) && carrier.iter().any(|word| matches!(*word, "and" | "then")),
    }
}

/// Whether the words begin with an action.
fn is_action(words: &[&str]) -> bool {
    let Some((verb, object)) = words.split_first() else { return false };
    if ACTIONS.has(verb) {
        return !(begins_explanation(object) || begins_idiom(verb, object));
    }
    if CHANGES.has(verb) {
        return object.iter().take(5).any(|word| THINGS.has(word)) && !begins_explanation(object);
    }
    if *verb == "use" || *verb == "using" {
        return object.iter().take(5).any(|word| matches!(*word, "tool" | "tools" | "function" | "api" | "calculator"));
    }
    ACTIONS_ON.iter().any(|(verbs, objects)| verbs.has(verb) && objects.strip(object).is_some())
}

/// Whether an explanation follows the action. "Let me check: 2 + 2 is 4." does in words what it announces.
fn begins_explanation(words: &[&str]) -> bool {
    matches!(words, [":", _, ..])
}

/// Whether a phrase begins like an action but is an idiom: "check my understanding", "find a way".
fn begins_idiom(verb: &str, words: &[&str]) -> bool {
    match verb {
        "check" => matches!(
            words,
            ["my", ..] | ["back", ..] | ["in", "with", ..] | ["if" | "whether", "i", "understand" | "understood", ..]
        ),
        "find" => matches!(words, ["a", "way", ..] | ["it", "hard" | "useful" | "helpful" | "easier", ..]),
        _ => false,
    }
}
