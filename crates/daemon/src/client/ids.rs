//! Short ids: lists show as much of an id as tells it apart, and commands take any beginning that means one thing.

use belay_protocol::IdPrefix;
use serde_json::Value as Json;
use uuid::Uuid;

use super::{Client, text};
use crate::exit::{Exit, Failure};

/// Fewest characters that a list shows. 8: as many as people are used to; ids that are a minute apart differ in them.
const SHOWN_MIN: usize = 8;

/// Most candidates that an error names.
const NAMED_MAX: usize = 5;

/// What an id is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdKind {
    Run,
    Job,
    Question,
}

impl IdKind {
    /// The list that is asked, its query for every state, and the field of the id in its rows.
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

/// The whole id that was meant: itself, or the only one that begins so.
///
/// # Errors
/// 1: none begins so, or several do, which are named. 2: it cannot be the beginning of an id.
pub(crate) async fn whole_id(client: &Client, kind: IdKind, typed: &str) -> Result<String, Failure> {
    if Uuid::parse_str(typed).is_ok() {
        return Ok(typed.to_owned());
    }
    let prefix = IdPrefix::parse(typed).map_err(|what| Failure::new(Exit::WrongUsage, format!("{typed}: {what}")))?;
    chosen(kind, typed, candidates(client, kind, &prefix).await?)
}

/// Ids that begin so, newest first: one more than an error names at most.
pub(super) async fn candidates(client: &Client, kind: IdKind, prefix: &IdPrefix) -> Result<Vec<String>, Failure> {
    let (list, all, field) = kind.list();
    let limit = (NAMED_MAX + 1).to_string();
    let query: Vec<_> = [("id", prefix.as_str()), ("limit", &limit)].iter().chain(all).copied().collect();
    let answer = client.get(&["api", "v1", list], &query).await?;
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
            let more = if count > NAMED_MAX { "\n  …" } else { "" };
            let named: Vec<_> = found.iter().take(NAMED_MAX).map(|id| format!("  {id}")).collect();
            let what = format!("several {name}s have an id that begins with {typed}:\n{}{more}", named.join("\n"));
            Err(Failure::new(Exit::Failed, what).next("give more characters"))
        }
    }
}

/// How many characters tell the ids of a list apart; all of them with `full`.
pub(crate) fn shown_chars<'a>(ids: impl Iterator<Item = &'a str>, full: bool) -> usize {
    if full {
        return usize::MAX;
    }
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let common = |(a, b): (&&str, &&str)| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    ids.iter().zip(ids.iter().skip(1)).map(common).max().map_or(SHOWN_MIN, |same| SHOWN_MIN.max(same + 1))
}

/// The beginning of an id.
pub(crate) fn short(id: &str, chars: usize) -> &str {
    id.get(..chars).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0199e3a0-7b1c-7000-8000-000000000001";
    const TWO: &str = "0199e3a0-7b1d-7000-8000-000000000002";

    #[test]
    fn lists_show_as_many_characters_as_tell_their_ids_apart() {
        for (ids, full, expected) in [
            (&[][..], false, 8),
            (&[ONE], false, 8),
            (&[ONE, ONE], false, 8),
            (&[ONE, TWO], false, 13),
            (&[ONE, "0299e3a0-7b1c-7000-8000-000000000001"], false, 8),
            (&[ONE, TWO], true, usize::MAX),
        ] {
            assert_eq!(shown_chars(ids.iter().copied(), full), expected, "{ids:?}");
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
