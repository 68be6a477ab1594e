//! `belay jobs watch`: shows the progress of a job until it ends. On a terminal it updates one line; elsewhere it
//! prints a line for each change.

use std::time::Duration;

use belay_program::exit::{Exit, Failure};
use belay_program::output::Output;
use serde_json::Value as Json;
use tokio::time::{Instant, sleep, timeout_at};

use super::jobs::{last_action, tokens};
use super::{Client, dollars, number, send, text};

/// Changes within this time are shown together: people read no faster.
const PAUSE: Duration = Duration::from_millis(250);

/// Pause before a broken stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether changes of a job are shown before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Each change.
    Shown,
    /// Only the end, or the question that the job waits for: then the wait ends too, as nobody sees it otherwise.
    Hidden,
}

/// Watches a job until it ends. The exit code is its verdict: 0 if there is a result.
pub(super) async fn watch(
    client: &Client,
    id: &str,
    progress: Progress,
    as_json: bool,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    let mut view = View { out, as_json, progress, shown: None };
    loop {
        // Opened before the job is read, so that no change is missed in between.
        let mut news = client.events(&["api", "v1", "jobs", id, "events"]).await?;
        loop {
            let job = client.get(&["api", "v1", "jobs", id], &[]).await?;
            if progress == Progress::Shown {
                view.show(&job);
            }
            if let Some(verdict) = verdict(&job) {
                view.end(&job);
                return Ok(verdict);
            }
            if progress == Progress::Hidden
                && let Some(run) = paused_run(client, &job).await?
            {
                return Ok(send::verdict(&run, as_json, out));
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

/// The run of the job, if it waits for an approval.
async fn paused_run(client: &Client, job: &Json) -> Result<Option<Json>, Failure> {
    let id = text(job, "/run_id");
    if id.is_empty() {
        return Ok(None);
    }
    let run = client.get(&["api", "v1", "runs", id], &[]).await?;
    Ok((text(&run, "/status") == "paused").then_some(run))
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
    progress: Progress,
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
        match (self.as_json, self.progress) {
            (true, Progress::Shown) => return, // its last change was printed
            (true, Progress::Hidden) => return self.out.json(job),
            (false, _) => {}
        }
        if self.out.is_terminal() && self.progress == Progress::Shown {
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
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;
    use crate::client::testing::answering;

    #[tokio::test]
    async fn a_wait_without_progress_ends_at_the_question_of_the_job() {
        let (client, serve) = answering(vec![
            String::new(), // no event of the job
            json!({"state": "in_progress", "run_id": "r"}).to_string(),
            json!({"status": "paused", "waiting_for": {"approval": "q1", "tool": "run_command"}}).to_string(),
        ])
        .await;
        let error = OnceLock::new();
        let wait = watch(&client, "j", Progress::Hidden, false, Output::plain(&error));
        let (asked, exit) = tokio::join!(serve, wait);
        assert_eq!(exit.ok(), Some(Exit::Busy));
        assert_eq!(asked, ["/api/v1/jobs/j/events", "/api/v1/jobs/j", "/api/v1/runs/r"]);
    }

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
