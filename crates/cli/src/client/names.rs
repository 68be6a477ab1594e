//! Words for sessions: the title of a job, the name of a routine, the title of a conversation. Lists for people show
//! them beside the key, whose id alone says nothing.

use std::collections::{BTreeSet, HashMap};

use belay_program::exit::{Exit, Failure};
use belay_program::output::MAX_COLUMN;
use serde_json::Value as Json;

use super::ids::{distinguishing_chars, short};
use super::{Client, text};
use crate::args::LIST_MAX;

/// Fewest shown characters of the id of a job or a routine run: the time of its creation in milliseconds. The first 8
/// are the same for all that were made within a minute.
const ID_CHARS: usize = 13;

/// Most unknown sessions of a kind that are asked about one by one alone. For more, their list is read first.
const FEW: usize = 4;

/// Fewest rows that are read of a list.
const ROWS_MIN: usize = 50;

/// Most sessions that are asked about one by one for a list of runs. 20: all that `belay top` shows.
const ASKED_MAX: usize = 20;

/// Looks after which a session without words is asked about again: most conversations never get a title.
const AGAIN_AFTER: u32 = 30;

/// Most kept words. Beyond it, those that the newest list does not show are forgotten.
const KEPT_MAX: usize = 1000;

/// A kind of session: the beginning of its keys, the list that has its words, and in each row the field of what follows
/// that beginning and the field of the words.
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

/// The known words.
#[derive(Debug, Default)]
pub(super) struct Names {
    words: HashMap<String, String>,
    /// Sessions without words, each with the look from which on it is asked about again.
    wordless: HashMap<String, u32>,
    looks: u32,
    /// Whether ids are shown whole.
    full: bool,
    /// Shown characters of ids.
    id_chars: usize,
}

impl Names {
    /// No words yet. `full`: keys are shown whole.
    pub(super) fn new(full: bool) -> Self {
        Self { full, ..Self::default() }
    }

    /// Asks for the words of those of these sessions that have none. Such a session is shown by its key. A later call
    /// asks about it again: the next one if the daemon did not answer.
    pub(super) async fn learn(&mut self, client: &Client, sessions: impl Iterator<Item = &str>) {
        let shown: BTreeSet<&str> = sessions.collect();
        self.looks = self.looks.saturating_add(1);
        // The words are an extra: a list with keys alone is better than none.
        let _ = self.ask(client, &shown).await;
        let ids: BTreeSet<&str> = shown.iter().filter_map(|session| id_of(session)).collect();
        let known = self.words.keys().filter_map(|session| id_of(session));
        let all = known.chain(ids.iter().copied()).map(str::to_owned).collect();
        self.id_chars = distinguishing_chars(&ids, &all).max(ID_CHARS);
        if self.words.len() + self.wordless.len() > KEPT_MAX {
            self.words.retain(|session, _| shown.contains(session.as_str()));
            self.wordless.retain(|session, _| shown.contains(session.as_str()));
        }
    }

    async fn ask(&mut self, client: &Client, shown: &BTreeSet<&str>) -> Result<(), Failure> {
        let mut left = ASKED_MAX;
        for kind in &KINDS {
            let unknown = self.unknown(kind, shown);
            if unknown.len() > FEW {
                let limit = unknown.len().clamp(ROWS_MIN, LIST_MAX as usize).to_string();
                let answer = client.get(&["api", "v1", kind.list], &[("limit", &limit)]).await?;
                for row in answer.pointer(kind.rows).and_then(Json::as_array).into_iter().flatten() {
                    let session = format!("{}{}", kind.prefix, text(row, kind.id));
                    if shown.contains(session.as_str()) {
                        self.keep(&session, text(row, kind.words));
                    }
                }
            }
            for session in self.unknown(kind, shown).into_iter().take(left) {
                left -= 1;
                let id = session.strip_prefix(kind.prefix).unwrap_or(session);
                match client.get(&["api", "v1", kind.list, id], &[]).await {
                    Ok(row) => self.keep(session, text(&row, kind.words)),
                    // It was deleted, or this person may not see it. The others have words.
                    Err(failure) if matches!(failure.exit, Exit::Failed | Exit::UnusableInput) => {
                        self.keep(session, "")
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(())
    }

    /// Those of the sessions of this kind that have no words, ids by their age, the newest first.
    fn unknown<'a>(&self, kind: &Kind, shown: &BTreeSet<&'a str>) -> Vec<&'a str> {
        let is_of_kind = |session: &str| Kind::of(session).is_some_and(|of| of.list == kind.list);
        let waits = |session: &str| self.wordless.get(session).is_some_and(|look| *look > self.looks);
        let is_unknown = |session: &str| !self.words.contains_key(session) && !waits(session);
        let unknown = shown.iter().rev().copied();
        unknown.filter(|session| is_of_kind(session) && is_unknown(session)).collect()
    }

    fn keep(&mut self, session: &str, words: &str) {
        if words.is_empty() {
            self.wordless.insert(session.to_owned(), self.looks.saturating_add(AGAIN_AFTER));
        } else {
            self.wordless.remove(session);
            self.words.insert(session.to_owned(), words.to_owned());
        }
    }

    /// The session in a list: its key with the words. They come first where the key is an id, unless it is shown whole.
    /// Without words: the key.
    pub(super) fn shown(&self, session: &str) -> String {
        let Some(words) = self.words.get(session) else { return session.to_owned() };
        match Kind::of(session).map(|kind| kind.prefix) {
            Some(prefix @ ("job:" | "routine:")) if !self.full => {
                let id = short(&session[prefix.len()..], self.id_chars);
                let key = format!(" ({} {id})", prefix.trim_end_matches(':'));
                belay_terminal::cut(words, MAX_COLUMN.saturating_sub(key.len())) + &key
            }
            _ => format!("{session}: {words}"),
        }
    }
}

/// The id in the key of a job or of a routine run.
fn id_of(session: &str) -> Option<&str> {
    session.strip_prefix("job:").or_else(|| session.strip_prefix("routine:"))
}

#[cfg(test)]
mod tests {
    use belay_program::output::{Cell, Column, Output, fitted};
    use serde_json::json;

    use super::*;
    use crate::client::testing::answering_with;

    fn refusal() -> String {
        json!({"error": {"message": "not now"}}).to_string()
    }

    async fn learned(names: &mut Names, sessions: &[&str], answers: Vec<(u16, String)>) -> Vec<String> {
        let (client, serve) = answering_with(answers).await;
        tokio::join!(serve, names.learn(&client, sessions.iter().copied())).0
    }

    #[tokio::test]
    async fn each_session_is_shown_with_its_words_and_those_without_are_asked_for_again_later() {
        let sessions =
            ["job:0199e3a0-7b1c-7000", "routine:0199e3a0-7b1d-7000", "job:0199e3a0-7b1e-7000", "cli", "x", "gone"];
        let words = |field: &str, words: &str| (200, json!({ field: words }).to_string());
        let answers = vec![
            (404, refusal()),
            words("title", "Count the words"),
            words("routine", "morning"),
            (200, json!({"title": null}).to_string()),
            (404, refusal()),
            words("title", "A \u{1b}[2J trip"),
        ];
        let mut names = Names::default();
        assert_eq!(
            learned(&mut names, &sessions, answers).await,
            [
                "/api/v1/jobs/0199e3a0-7b1e-7000",
                "/api/v1/jobs/0199e3a0-7b1c-7000",
                "/api/v1/routine-runs/0199e3a0-7b1d-7000",
                "/api/v1/sessions/x",
                "/api/v1/sessions/gone",
                "/api/v1/sessions/cli",
            ]
        );
        let shown = sessions.map(|session| names.shown(session));
        assert_eq!(
            shown,
            [
                "Count the words (job 0199e3a0-7b1c)",
                "morning (routine 0199e3a0-7b1d)",
                "job:0199e3a0-7b1e-7000",
                "cli: A \u{1b}[2J trip",
                "x",
                "gone"
            ]
        );
        let nothing: [&str; 0] = [];
        assert_eq!(learned(&mut names, &sessions, vec![]).await, nothing);
        names.looks += AGAIN_AFTER;
        let answers = vec![words("title", "Late"), words("title", "Later"), words("title", "Latest")];
        assert_eq!(
            learned(&mut names, &sessions, answers).await,
            ["/api/v1/jobs/0199e3a0-7b1e-7000", "/api/v1/sessions/x", "/api/v1/sessions/gone"],
            "words that are known are not asked for"
        );
        assert_eq!(names.shown("x"), "x: Later");
        let rows: Vec<Vec<Cell>> = shown.iter().map(|words| vec![words.as_str().into(), "$1".into()]).collect();
        let error = std::sync::OnceLock::new();
        let lines = Output::plain(&error).aligned(&fitted(&rows, &[Column::cut(12), Column::WHOLE], 18));
        assert_eq!(lines[0], "Count the wor…  $1");
        assert!(!lines[3].contains('\u{1b}'), "{lines:?}");
    }

    #[tokio::test]
    async fn a_busy_daemon_is_asked_again_at_the_next_look() {
        let (mut names, sessions) = (Names::default(), ["cli", "x"]);
        assert_eq!(learned(&mut names, &sessions, vec![(503, refusal())]).await, ["/api/v1/sessions/x"]);
        assert_eq!(names.shown("x"), "x");
        let title = || (200, json!({"title": "A trip"}).to_string());
        learned(&mut names, &sessions, vec![title(), title()]).await;
        assert_eq!(names.shown("x"), "x: A trip");
    }

    #[tokio::test]
    async fn of_many_sessions_a_list_is_read_first_and_few_of_the_rest_are_asked_for() {
        let sessions: Vec<String> = (0..60).map(|n| format!("job:0199e3a0-7b1c-7000-{n:04}")).collect();
        let sessions: Vec<&str> = sessions.iter().map(String::as_str).collect();
        let rows: Vec<Json> =
            sessions[30..].iter().map(|key| json!({"job_id": key.replace("job:", ""), "title": "Count"})).collect();
        let one = (200, json!({"title": "An old one"}).to_string());
        let mut answers = vec![(200, json!({ "jobs": rows }).to_string())];
        answers.extend(std::iter::repeat_n(one, ASKED_MAX));
        let mut names = Names::default();
        let asked = learned(&mut names, &sessions, answers).await;
        assert_eq!((asked.len(), asked[0].as_str()), (ASKED_MAX + 1, "/api/v1/jobs?limit=60"));
        assert_eq!(names.shown(sessions[29]), "An old one (job 0199e3a0-7b1c-7000-0029)", "jobs of one millisecond");
        assert_eq!(names.shown(sessions[0]), sessions[0]);

        names.words.extend((0..KEPT_MAX).map(|n| (format!("s{n}"), "words".to_owned())));
        learned(&mut names, &sessions[59..], vec![]).await;
        assert_eq!(names.words.len(), 1, "the words that the list shows are kept");
    }

    #[tokio::test]
    async fn whole_keys_come_before_the_words() {
        let mut names = Names::new(true);
        let key = "job:0199e3a0-7b1c-7000-8000-000000000001";
        learned(&mut names, &[key], vec![(200, json!({"title": "Count"}).to_string())]).await;
        assert_eq!(names.shown(key), format!("{key}: Count"));
    }

    #[test]
    fn without_words_a_key_is_shown_as_it_is() {
        assert_eq!(Names::default().shown("job:0199e3a0"), "job:0199e3a0");
    }
}
