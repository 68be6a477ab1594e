//! Words for sessions: the title of a job, the name of a routine, the title of a conversation. Lists for people show them
//! beside the key, whose id alone says nothing.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::ids::short;
use super::{Client, text};
use crate::args::LIST_MAX;

/// Shown characters of the id of a job or a routine run.
const ID_CHARS: usize = 8;

/// Fewest rows of a list in which words are looked for: work that is not in the newest rows has none.
const ROWS_MIN: usize = 50;

/// A kind of session: the beginning of its keys, the list that has its words, and in each row the field of what follows that
/// beginning and the field of the words.
struct Kind {
    prefix: &'static str,
    list: &'static str,
    rows: &'static str,
    id: &'static str,
    words: &'static str,
}

/// The last one has every other session.
const KINDS: [Kind; 3] = [
    Kind { prefix: "job:", list: "jobs", rows: "/jobs", id: "/job_id", words: "/title" },
    Kind { prefix: "routine:", list: "routine-runs", rows: "/routine_runs", id: "/routine_run_id", words: "/routine" },
    Kind { prefix: "", list: "sessions", rows: "/sessions", id: "/session", words: "/title" },
];

impl Kind {
    fn of(session: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| session.starts_with(kind.prefix))
    }
}

/// The known words. Empty words: the daemon knows none.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, String>);

impl Names {
    /// Asks for the words of those of these sessions that it was not asked for before: one request for each kind of them.
    /// A session for which the daemon has no answer is shown by its key.
    pub(super) async fn learn(&mut self, client: &Client, sessions: impl Iterator<Item = &str>) {
        let new: Vec<&str> = sessions.filter(|session| !self.0.contains_key(*session)).collect();
        let limit = new.len().clamp(ROWS_MIN, LIST_MAX as usize).to_string();
        for kind in &KINDS {
            let is_of_kind = |session: &&&str| Kind::of(session).is_some_and(|of| of.list == kind.list);
            let wanted: Vec<&str> = new.iter().filter(is_of_kind).copied().collect();
            if wanted.is_empty() {
                continue;
            }
            let answer = client.get(&["api", "v1", kind.list], &[("limit", &limit)]).await.unwrap_or_default();
            let rows = answer.pointer(kind.rows).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
            let words_of = |session: &str| {
                let row = rows.iter().find(|row| session.strip_prefix(kind.prefix) == Some(text(row, kind.id)));
                row.map_or("", |row| text(row, kind.words)).to_owned()
            };
            self.0.extend(wanted.into_iter().map(|session| (session.to_owned(), words_of(session))));
        }
    }

    /// What a list shows for a session: its key with the words. They come first where the key is an id. Without words: the
    /// key.
    pub(super) fn shown(&self, session: &str) -> String {
        let words = self.0.get(session).map(String::as_str).unwrap_or_default();
        match Kind::of(session).map(|kind| kind.prefix) {
            _ if words.is_empty() => session.to_owned(),
            Some(prefix @ ("job:" | "routine:")) => {
                let id = short(&session[prefix.len()..], ID_CHARS);
                format!("{words} ({} {id})", prefix.trim_end_matches(':'))
            }
            _ => format!("{session}: {words}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_program::output::{Cell, Column, Output, fitted};
    use serde_json::json;

    use super::*;
    use crate::client::testing::answering;

    #[tokio::test]
    async fn each_session_is_shown_with_its_words_and_asked_for_once() {
        let (client, serve) = answering(vec![
            json!({"jobs": [{"job_id": "0199e3a0-7b1c-7000", "title": "Count the words"}]}).to_string(),
            json!({"routine_runs": [{"routine_run_id": "0199e3a0-7b1d-7000", "routine": "morning"}]}).to_string(),
            json!({"sessions": [{"session": "cli", "title": "A \u{1b}[2J trip"}, {"session": "x", "title": null}]})
                .to_string(),
        ])
        .await;
        let sessions =
            ["job:0199e3a0-7b1c-7000", "routine:0199e3a0-7b1d-7000", "job:0199e3a0-7b1e-7000", "cli", "x", "gone"];
        let mut names = Names::default();
        let learn = async {
            names.learn(&client, sessions.into_iter()).await;
            names.learn(&client, sessions.into_iter()).await;
        };
        let (asked, ()) = tokio::join!(serve, learn);
        assert_eq!(
            asked,
            ["/api/v1/jobs?limit=50", "/api/v1/routine-runs?limit=50", "/api/v1/sessions?limit=50"],
            "nothing is asked for again"
        );
        let shown = sessions.map(|session| names.shown(session));
        assert_eq!(
            shown,
            [
                "Count the words (job 0199e3a0)",
                "morning (routine 0199e3a0)",
                "job:0199e3a0-7b1e-7000",
                "cli: A \u{1b}[2J trip",
                "x",
                "gone"
            ]
        );
        let rows: Vec<Vec<Cell>> = shown.iter().map(|words| vec![words.as_str().into(), "$1".into()]).collect();
        let error = std::sync::OnceLock::new();
        let lines = Output::plain(&error).aligned(&fitted(&rows, &[Column::cut(12), Column::WHOLE], 18));
        assert_eq!(lines[0], "Count the wor…  $1");
        assert!(!lines[3].contains('\u{1b}'), "{lines:?}");
    }

    #[test]
    fn without_words_a_key_is_shown_as_it_is() {
        assert_eq!(Names::default().shown("job:0199e3a0"), "job:0199e3a0");
    }
}
