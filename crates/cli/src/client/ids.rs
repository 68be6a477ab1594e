//! Short ids. Lists show a prefix that identifies each id, and commands accept any unique prefix. A question is shown and
//! named by the end of its id.

use std::collections::BTreeSet;

use belay_program::exit::{Exit, Failure};
use belay_protocol::{IdEnd, IdPrefix};
use serde_json::Value as Json;
use uuid::Uuid;

use super::{Client, text};
use crate::args::LIST_MAX;

/// Fewest characters that a list shows. 8: the usual length of short ids; ids that were made a minute apart differ in
/// them.
const SHOWN_MIN: usize = 8;

/// Most candidates in an error message.
const NAMED_MAX: u32 = 5;

/// Questions of which the end of the id is compared.
const ENDS_MAX: u32 = 1000;

/// The kind of object that an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// A run.
    Run,
    /// A job.
    Job,
    /// An approval request.
    Question,
}

impl IdKind {
    /// The list route, its query for every state, and the field of the id in its rows.
    fn list(self) -> (&'static str, &'static [(&'static str, &'static str)], &'static str) {
        match self {
            Self::Run => ("runs", &[], "/run_id"),
            Self::Job => ("jobs", &[], "/job_id"),
            Self::Question => ("approvals", &[("all", "true")], "/id"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Job => "job",
            Self::Question => "question",
        }
    }

    /// The command that lists them.
    fn command(self) -> &'static str {
        match self {
            Self::Run => "belay runs",
            Self::Job => "belay jobs",
            Self::Question => "belay approvals --all",
        }
    }
}

/// Resolves an id or a prefix to the whole id. A question is named by the end of its id too.
///
/// # Errors
/// 1: no id or several ids begin so; several are listed. 2: it cannot be the prefix of an id.
pub async fn whole_id(client: &Client, kind: IdKind, typed: &str) -> Result<String, Failure> {
    if Uuid::parse_str(typed).is_ok() {
        return Ok(typed.to_owned());
    }
    if let Some(end) = IdEnd::parse(typed).filter(|_| kind == IdKind::Question)
        && let found @ [_, ..] = &ending(client, &end).await?[..]
    {
        return chosen(kind, typed, found.to_vec());
    }
    let prefix = IdPrefix::parse(typed).map_err(|what| Failure::new(Exit::WrongUsage, format!("{typed}: {what}")))?;
    chosen(kind, typed, candidates(client, kind, &prefix).await?)
}

/// Ids with this prefix, newest first: at most one more than an error lists.
pub(super) async fn candidates(client: &Client, kind: IdKind, prefix: &IdPrefix) -> Result<Vec<String>, Failure> {
    beginning(client, kind, prefix, NAMED_MAX + 1).await
}

/// The questions with this end of their id: those that wait, otherwise the newest ones.
async fn ending(client: &Client, end: &IdEnd) -> Result<Vec<String>, Failure> {
    for all in ["false", "true"] {
        let answer = client.list(&["api", "v1", "approvals"], &[("all", all)], "approvals", ENDS_MAX).await?;
        let rows = answer.get("approvals").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let ids = rows.iter().map(|row| text(row, "/id"));
        let found: Vec<_> = ids.filter(|id| id.parse().is_ok_and(|id| end.ends(id))).map(str::to_owned).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The ends of ids of questions that a list shows, all of the same length: as many characters as distinguish them.
pub(crate) fn end_chars<'a>(ids: impl Iterator<Item = &'a str> + Clone, full: bool) -> usize {
    if full {
        return usize::MAX;
    }
    let count = ids.clone().collect::<BTreeSet<_>>().len();
    let distinguishes =
        |chars: &usize| ids.clone().map(|id| end_of(id, *chars)).collect::<BTreeSet<_>>().len() == count;
    (IdEnd::MIN_CHARS..=12).find(distinguishes).unwrap_or(usize::MAX)
}

/// The end of an id.
pub(crate) fn end_of(id: &str, chars: usize) -> &str {
    id.get(id.len().saturating_sub(chars)..).unwrap_or(id)
}

/// At most `limit` ids with this prefix, in any state and of any session, newest first.
async fn beginning(client: &Client, kind: IdKind, prefix: &IdPrefix, limit: u32) -> Result<Vec<String>, Failure> {
    let (list, all, field) = kind.list();
    let query: Vec<_> = [("id", prefix.as_str())].iter().chain(all).copied().collect();
    let answer = client.list(&["api", "v1", list], &query, list, limit).await?;
    let rows = answer.get(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    Ok(rows.iter().map(|row| text(row, field).to_owned()).collect())
}

fn chosen(kind: IdKind, typed: &str, mut found: Vec<String>) -> Result<String, Failure> {
    let name = kind.name();
    match found.len() {
        0 => Err(Failure::new(Exit::Failed, format!("no {name} has an id that begins with {typed}"))
            .next(format!("`{}` lists them", kind.command()))),
        1 => Ok(found.remove(0)),
        count => {
            let more = if count > NAMED_MAX as usize { "\n  …" } else { "" };
            let named: Vec<_> = found.iter().take(NAMED_MAX as usize).map(|id| format!("  {id}")).collect();
            let what = format!("several {name}s have an id that begins with {typed}:\n{}{more}", named.join("\n"));
            Err(Failure::new(Exit::Failed, what).next("give more characters"))
        }
    }
}

/// How many characters of each listed id identify it; `usize::MAX` (all) with `full`. A command searches all ids
/// ([`whole_id`]), of which a list may show only a part.
///
/// # Errors
/// The daemon does not answer.
pub(crate) async fn shown_chars(
    client: &Client,
    kind: IdKind,
    shown: impl Iterator<Item = &str>,
    full: bool,
) -> Result<usize, Failure> {
    if full {
        return Ok(usize::MAX);
    }
    let shown: BTreeSet<&str> = shown.collect();
    let begins: BTreeSet<&str> = shown.iter().map(|id| short(id, SHOWN_MIN)).collect();
    let mut all: BTreeSet<String> = shown.iter().map(|id| (*id).to_owned()).collect();
    for begin in begins {
        // An id that cannot be a prefix for the search is shown completely.
        let Ok(prefix) = IdPrefix::parse(begin) else { return Ok(usize::MAX) };
        let found = beginning(client, kind, &prefix, LIST_MAX).await?;
        if found.len() == LIST_MAX as usize {
            return Ok(usize::MAX); // there may be more, which cannot be compared
        }
        all.extend(found);
    }
    Ok(distinguishing_chars(&shown, &all))
}

/// How many characters distinguish each of the shown ids from all others.
pub(super) fn distinguishing_chars(shown: &BTreeSet<&str>, all: &BTreeSet<String>) -> usize {
    let common = |(a, b): (&String, &String)| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    // In sorted order, the most similar ids are neighbours.
    let pairs = all.iter().zip(all.iter().skip(1));
    let of_shown = pairs.filter(|(a, b)| shown.contains(a.as_str()) || shown.contains(b.as_str()));
    of_shown.map(common).max().map_or(SHOWN_MIN, |same| SHOWN_MIN.max(same + 1))
}

/// The prefix of an id.
pub(crate) fn short(id: &str, chars: usize) -> &str {
    id.get(..chars).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0199e3a0-7b1c-7000-8000-000000000001";
    const TWO: &str = "0199e3a0-7b1d-7000-8000-000000000002";

    #[test]
    fn lists_show_enough_characters_to_distinguish_their_ids() {
        let other = "0299e3a0-7b1c-7000-8000-000000000001";
        for (shown, all, expected) in [
            (&[][..], &[][..], 8),
            (&[ONE], &[ONE], 8),
            (&[ONE, TWO], &[ONE, TWO], 13),
            (&[ONE], &[ONE, TWO], 13), // TWO is not shown, but a command finds it
            (&[other], &[ONE, TWO, other], 8),
            (&[ONE, other], &[ONE, other], 8),
        ] {
            let all = all.iter().map(|id| (*id).to_owned()).collect();
            assert_eq!(distinguishing_chars(&shown.iter().copied().collect(), &all), expected, "{shown:?} of {all:?}");
        }
        assert_eq!(short(ONE, 13), "0199e3a0-7b1c");
        assert_eq!(short(ONE, usize::MAX), ONE);
    }

    #[test]
    fn the_only_one_is_meant_and_several_are_named() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen(IdKind::Run, "0199e3", ids(&[ONE])).as_deref(), Ok(ONE));
        let none = chosen(IdKind::Job, "0199e3", ids(&[])).expect_err("none");
        assert_eq!((none.exit, none.what.as_str()), (Exit::Failed, "no job has an id that begins with 0199e3"));
        let several = chosen(IdKind::Question, "0199e3", ids(&[ONE, TWO])).expect_err("several");
        assert!(several.what.contains(ONE) && several.what.contains(TWO), "{several}");
    }
}
