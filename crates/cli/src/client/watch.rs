//! `belay jobs watch`: shows the progress of a job until it ends. On a terminal it updates one line; elsewhere it
//! prints a line for each change.

use std::time::Duration;

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use serde_json::Value as Json;
use tokio::time::{Instant, sleep, timeout_at};

use super::jobs::{last_action, tokens};
use super::{Client, dollars, number, text};

/// Changes within this time are shown together: people read no faster.
const PAUSE: Duration = Duration::from_millis(250);

/// Pause before a broken stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// Watches a job until it ends. The exit code is its verdict: 0 if there is a result.
pub(super) async fn watch(client: &Client, id: &str, as_json: bool, out: Output<'_>) -> Result<Exit, Failure> {
    let mut view = View { out, as_json, shown: None };
    loop {
        // Opened before the job is read, so that no change is missed in between.
        let mut news = client.events(&["api", "v1", "jobs", id, "events"]).await?;
        loop {
            let job = client.get(&["api", "v1", "jobs", id], &[]).await?;
            view.show(&job);
            if let Some(verdict) = verdict(&job) {
                view.end(&job);
                return Ok(verdict);
            }
            if news.next().await.is_none() {
                break;
            }
            let until = Instant::now() + PAUSE;
            while let Ok(Some(_)) = timeout_at(until, news.next()).await {}
        }
        sleep(AGAIN).await;
    }
}

/// The exit code of an ended job; `None`: it has not ended.
fn verdict(job: &Json) -> Option<Exit> {
    match text(job, "/state") {
        "completed" | "submitted" | "accepted" => Some(Exit::Fine),
        "failed" | "cancelled" => Some(Exit::Failed),
        _ => None,
    }
}

struct View<'a> {
    out: Output<'a>,
    as_json: bool,
    /// The line that was shown last, so that it is not repeated.
    shown: Option<String>,
}

impl View<'_> {
    fn show(&mut self, job: &Json) {
        let line = if self.as_json { job.to_string() } else { line(job) };
        if self.shown.as_ref() == Some(&line) {
            return;
        }
        match (self.as_json, self.out.is_terminal()) {
            (true, _) => self.out.json(job),
            (false, true) => self.out.again(&line),
            (false, false) => self.out.line(&line),
        }
        self.shown = Some(line);
    }

    /// Prints the result.
    fn end(&self, job: &Json) {
        if self.as_json {
            return;
        }
        if self.out.is_terminal() {
            self.out.line("");
        }
        let said = job.pointer("/result").and_then(Json::as_str).unwrap_or(text(job, "/detail"));
        if !said.is_empty() {
            self.out.line(said);
        }
    }
}

/// The progress of a job, in one line.
fn line(job: &Json) -> String {
    let mut parts = vec![text(job, "/state").to_owned()];
    match number(job, "/attempt") {
        0 | 1 => {}
        attempt => parts.push(format!("attempt {attempt}")),
    }
    if number(job, "/attempt") > 0 {
        parts.push(format!("step {}", number(job, "/steps")));
        parts.extend(last_action(job));
        parts.push(format!("{} tokens", tokens(job)));
        parts.push(dollars(number(job, "/cost_micro_usd")));
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_shows_the_progress_of_a_job_without_empty_parts() {
        let at_work = json!({
            "state": "in_progress", "attempt": 2, "steps": 4, "usage": {"input": 1200, "output": 34},
            "cost_micro_usd": 1200, "last_action": {"tool": "list_files", "status": "running"},
        });
        for (job, expected, end) in [
            (json!({"state": "pending", "attempt": 0, "last_action": null}), "pending", None),
            (at_work, "in_progress · attempt 2 · step 4 · list_files (running) · 1234 tokens · $0.0012", None),
            (json!({"state": "stuck", "attempt": 1, "steps": 1}), "stuck · step 1 · 0 tokens · $0.0000", None),
            (json!({"state": "cancelled", "attempt": 0}), "cancelled", Some(Exit::Failed)),
            (json!({"state": "submitted", "attempt": 0}), "submitted", Some(Exit::Fine)),
        ] {
            assert_eq!((line(&job).as_str(), verdict(&job)), (expected, end));
        }
    }
}
