//! Classifies arguments by their keys.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::lexicon::lexicon;
use super::words::{self, Kind};

/// The purpose of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Changes from call to call without meaning: a nonce, a timestamp, an attempt.
    Volatile,
    /// Usually without meaning, but sometimes the target: a session, a token.
    Weak,
    /// Text for human readers: a thought, a justification.
    Remark,
    /// The action: `action: "poll"`.
    Action,
    /// A position to continue from, or an amount: a page, an offset, a limit.
    Page,
    /// Identifies the target: an id, a name.
    Target,
    /// Identifies a file.
    Path,
    /// A search query.
    Query,
    /// A task for a model. The model's answer does not repeat it.
    Prompt,
    /// A program and its arguments.
    Command,
    /// Content that is written.
    Content,
    /// The text that an edit replaces.
    Old,
    /// The replacement text of an edit.
    New,
    /// Anything else.
    Other,
}

/// The class of a key, in any of the usual spellings, as an argument of this tool.
pub(super) fn class(key: &str, tool: &str) -> Class {
    let mut squashed = [0; 24];
    let mut len = 0;
    for byte in key.bytes().filter(u8::is_ascii_alphanumeric) {
        if len == squashed.len() {
            break;
        }
        squashed[len] = byte.to_ascii_lowercase();
        len += 1;
    }
    let word = str::from_utf8(&squashed[..len]).unwrap_or_default();
    if word.is_empty() && !key.is_ascii() {
        return Class::Other;
    }
    let class = by_word(word);
    // A noun in the tool's name is the target of the tool: the session of `close_session` identifies it.
    if matches!(class, Class::Volatile | Class::Weak) && names(tool, word.strip_suffix("id").unwrap_or(word)) {
        return Class::Target;
    }
    // A question to a person is not a search that is reworded until it succeeds: each question is its own.
    if matches!(class, Class::Query | Class::Prompt) && names_a_person(tool) && words::meaning(tool).kind != Kind::Read
    {
        return Class::Content;
    }
    // A tool that asks somebody returns an answer that does not repeat the question.
    if matches!(class, Class::Query | Class::Content) && !names_a_person(tool) && asks(tool) {
        return Class::Prompt;
    }
    class
}

/// Whether a tool asks somebody, by its name.
fn asks(tool: &str) -> bool {
    let mut asks = false;
    words::for_each_word(tool, |word| asks |= matches!(word, "ask" | "consult"));
    asks
}

/// Whether a tool concerns a person, by its name.
pub(super) fn names_a_person(tool: &str) -> bool {
    ["user", "human", "person"].iter().any(|noun| names(tool, noun))
}

fn names(tool: &str, noun: &str) -> bool {
    let noun = noun.as_bytes();
    noun.len() >= 4 && tool.as_bytes().windows(noun.len()).any(|part| part.eq_ignore_ascii_case(noun))
}

/// Classes of complete keys, written without dashes and underscores.
#[rustfmt::skip]
static KEYS: LazyLock<HashMap<&'static str, Class>> = LazyLock::new(|| {
    lexicon(&[
        (Class::Volatile, "nonce requestid reqid xrequestid traceid trace spanid traceparent correlationid idempotencykey \
            idempotencytoken timestamp ts now currenttime requestedat requesttime clienttime sentat calledat \
            cachebuster cachebust cb attempt attempts attemptnumber retry retries retrycount retryattempt try \
            trynumber salt rand random callid toolcallid tooluseid invocationid invocation counter \
            clientrequestid clientts xcorrelationid xtraceid"),
        (Class::Weak, "session sessionid token sessiontoken transactionid uuid"),
        (Class::Remark, "thought thoughts reasoning explanation justification rationale description reason intent purpose why \
            goal"),
        (Class::Action, "action operation op method mode subcommand"),
        (Class::Page, "page pagenumber pageno pagenum pagesize perpage offset cursor pagetoken nexttoken nextpagetoken \
            nextcursor continuation continuationtoken skip start startline endline end limit maxresults max \
            count numresults top k topk from size depth timeout timeoutms timeoutseconds seconds ms lines \
            viewrange line after before since until startindex startat p"),
        (Class::Command, "command cmd script shellcommand commandline bash"),
        (Class::Query, "query q search searchquery searchterm searchterms pattern regex question keywords keyword term terms \
            sql queries statement sqlquery sqlstatement"),
        (Class::Prompt, "prompt instruction instructions"),
        (Class::Content, "content contents text body data filetext newcontent code source patch diff message comment note \
            summary"),
        (Class::Old, "oldstring oldstr old oldtext original find"),
        (Class::New, "newstring newstr new newtext replace replacement"),
    ])
});

fn by_word(word: &str) -> Class {
    match KEYS.get(word) {
        Some(class) => *class,
        None if word.is_empty() => Class::Volatile,
        // "page_hint", "page_info": each of these is a position to continue from.
        None if word.starts_with("page") => Class::Page,
        None if ends_with(word, FILES) => Class::Path,
        None if ends_with(word, NOUNS) => Class::Target,
        None => Class::Other,
    }
}

/// Nouns for files.
const FILES: &str = "path file filename dir directory folder";

/// Nouns that identify something. Slack identifies messages by their times.
#[rustfmt::skip]
const NOUNS: &str = "id cwd url uri href link key name title index idx row col column cell range sheet table host hostname domain \
    ip address port email user account customer order ticket issue number repo repository owner branch commit \
    sha ref version package symbol selector element channel thread recipient to phone date container pod node \
    image instance hash digest messagets threadts";

/// Whether a key is one of the nouns, alone, at its end (`user_id`), or in the plural.
fn ends_with(word: &str, nouns: &str) -> bool {
    let single = word.strip_suffix('s').unwrap_or(word);
    let is = |noun: &str| word == noun || single == noun || (noun != "to" && single.ends_with(noun));
    nouns.split_ascii_whitespace().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_what_their_values_are_for() {
        for (keys, tool, expected) in [
            (
                "nonce request_id requestId X-Request-Id X-Correlation-Id trace_id timestamp ts client_ts _ attempt retryCount",
                "x",
                Class::Volatile,
            ),
            ("session_id sessionId token", "x", Class::Weak),
            ("session_id", "close_session", Class::Target),
            ("request_id", "get_request", Class::Target),
            ("timestamp", "convertTimestamp", Class::Target),
            ("id user_id userIds url to", "x", Class::Target),
            ("path file_path paths", "x", Class::Path),
            ("page offset cursor limit start_line page_hint", "x", Class::Page),
            ("query q pattern question statement sql_query", "x", Class::Query),
            ("question", "ask_user", Class::Content),
            ("prompt instructions", "x", Class::Prompt),
            ("message question", "ask_agent", Class::Prompt),
            ("message", "task_agent", Class::Content),
            ("query", "search_users", Class::Query),
            ("command cmd", "x", Class::Command),
            ("content text", "x", Class::Content),
            ("old_string", "x", Class::Old),
            ("new_str", "x", Class::New),
            ("reasoning description", "x", Class::Remark),
            ("action", "x", Class::Action),
            ("n x recursive encoding", "x", Class::Other),
        ] {
            for key in keys.split(' ') {
                assert_eq!(class(key, tool), expected, "{key} of {tool}");
            }
        }
    }
}
