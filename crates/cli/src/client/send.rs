//! `belay send`: sends one message to the running daemon.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, ask, note, print_error};
use belay_protocol::{GOAL_WORD, GoalCheck, GoalMessage, IdEnd, LiveView};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::approvals::{how_to_answer, waits_for};
use super::chat::follow::{Follow, Step};
use super::ids::end_of;
use super::screen::AnswerScreen;
use super::{Client, duration_text, text, until};
use crate::args::{GoalArgs, SendArgs};

/// How long one request waits for the end of a run before the next request continues the wait. 30 s: below the idle
/// limits of proxies.
const WAIT_ROUND: Duration = Duration::from_secs(30);

/// Sends the message. With `--wait` the exit code is the verdict of the run that the message started or resumed.
pub async fn send(args: &SendArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let message = with_goal(&args.goal, belay_program::input::message(&args.text)?)?;
    let client = Client::find(&args.client, env)?;
    let body = json!({ "session": client.session(args.session.as_deref()), "text": message, "idempotency_key": Uuid::now_v7().to_string() });
    let answer = client.post(&["api", "v1", "messages"], Some(&body), Duration::ZERO).await?;
    if !text(&answer, "/frozen").is_empty() && !args.client.json {
        note(text(&answer, "/frozen"));
    }
    let run_id = match (text(&answer, "/run_id"), text(&answer, "/resumes")) {
        // The message answered an approval request: the paused run continues.
        ("", run_id) if args.wait && !run_id.is_empty() => run_id,
        ("", _) => return Ok(command_answered(&answer, args.client.json, out)),
        (_, _) if !args.wait => {
            accepted(&answer, args.client.json, out);
            return Ok(Exit::Fine);
        }
        (run_id, _) => run_id,
    };
    let screen = AnswerScreen::find(env, args.client.json);
    watch(&client, run_id, &screen).await;
    let run = wait(&client, run_id).await.inspect_err(|_| screen.clear())?;
    if text(&run, "/status") == "completed" && screen.answered(text(&run, "/reply")) {
        return Ok(Exit::Fine);
    }
    screen.clear();
    Ok(verdict(&run, args.client.json, out))
}

/// Shows a run at a terminal while it works, until it has ended or asks. A stream that breaks is no failure: the caller
/// waits for the run in any case.
async fn watch(client: &Client, run_id: &str, screen: &AnswerScreen) {
    if !screen.is_live() {
        return;
    }
    let mut follow = Follow::default();
    let Ok(mut events) = client.events(&["api", "v1", "runs", run_id, "stream"]).await else { return };
    let shown = async {
        while let Some(event) = events.next().await {
            for step in follow.event(&event) {
                match step {
                    Step::Live(run, news) => screen.show(run, news),
                    Step::Asked(..) | Step::Over(_) => return,
                    Step::Message(..) | Step::File { .. } => {}
                }
            }
        }
    };
    tokio::select! {
        () = shown => {}
        () = screen.draw() => {}
    }
}

/// The message that asks for `text` until the check of the goal holds. Without a check, `text` itself.
///
/// # Errors
/// 2: the goal cannot be read, or a part of the text would be read as its check.
fn with_goal(goal: &GoalArgs, text: String) -> Result<String, Failure> {
    let GoalArgs { until, attempts, usd, minutes, seconds } = goal;
    let Some(until) = until else { return Ok(text) };
    let wrong = |why: &str| Failure::new(Exit::WrongUsage, format!("--until: {why}"));
    // Checked alone first: the mistakes of a whole message explain `/goal`.
    GoalCheck::parse(until).map_err(|why| wrong(&why))?;
    let mut message = GOAL_WORD.to_owned();
    let options = [
        ("attempts", attempts.map(|n| n.to_string())),
        ("usd", usd.clone()),
        ("minutes", minutes.map(|n| n.to_string())),
        ("seconds", seconds.map(|n| n.to_string())),
    ];
    for (name, value) in options.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        message.push_str(&format!(" --{name} {value}"));
    }
    message.push_str(&format!(" {} until {until}", text.trim()));
    match GoalMessage::of(&message) {
        Some(GoalMessage::Request(read)) if read.text == text.trim() => Ok(message),
        Some(GoalMessage::Usage(why)) => Err(wrong(&why)),
        _ => Err(wrong("the message has an `until` of its own that reads like a check; say it in other words")),
    }
}

/// Waits until a run has ended or waits for approval. If the daemon goes away, the wait ends, not the run.
pub(super) async fn wait(client: &Client, run_id: &str) -> Result<Json, Failure> {
    let limit = WAIT_ROUND.as_millis().to_string();
    loop {
        let path = ["api", "v1", "runs", run_id, "wait"];
        let run = client.get_slowly(&path, &[("timeout_ms", &limit)], WAIT_ROUND).await.map_err(|failure| {
            failure.next(format!("the message is accepted and its run continues: `belay runs show {run_id}`"))
        })?;
        if matches!(text(&run, "/status"), "completed" | "stopped" | "failed" | "paused") {
            return Ok(run);
        }
    }
}

/// Prints the reply to a command. One that did nothing has failed.
fn command_answered(answer: &Json, as_json: bool, out: Output<'_>) -> Exit {
    let is_refused = answer.pointer("/refused").and_then(Json::as_bool).unwrap_or_default();
    if as_json {
        out.json(answer)
    } else {
        out.line(text(answer, "/reply"))
    }
    if is_refused { Exit::Failed } else { Exit::Fine }
}

fn accepted(answer: &Json, as_json: bool, out: Output<'_>) {
    if as_json { out.json(answer) } else { out.line(&format!("accepted as run {}", text(answer, "/run_id"))) }
}

/// Prints a run that has ended or waits for approval: its reply; or on stderr why there is none, or its approval
/// request. `belay ask` ends with this too.
pub fn verdict(run: &Json, as_json: bool, out: Output<'_>) -> Exit {
    let completed = text(run, "/status") == "completed";
    let reply = text(run, "/reply");
    if as_json {
        out.json(run);
    } else if completed {
        out.line(reply);
    } else if let Some(question) = run.pointer("/waiting_for") {
        show_question(question, reply, out);
    } else {
        note(&format!("the run {} ({}): {reply}", text(run, "/status"), text(run, "/reason")));
    }
    match text(run, "/reason") {
        _ if completed => Exit::Fine,
        _ if text(run, "/status") == "paused" => Exit::Busy,
        "network" => Exit::OutOfReach,
        _ => Exit::Failed,
    }
}

/// Shows an approval request on stderr, and how it is answered.
fn show_question(question: &Json, words: &str, out: Output<'_>) {
    let colour = out.has_colour();
    let [paused, about, how] = asked(question, words);
    note(&paused);
    print_error("");
    ask(&about, colour, None);
    print_error(&format!("\n{how}"));
}

/// The time that an approval request waits, the request, and how it is answered. The id is shown by its end.
fn asked(question: &Json, words: &str) -> [String; 3] {
    let left =
        until(text(question, "/expires_at")).map_or(String::new(), |left| format!(" within {}", duration_text(left)));
    let (id, end) = (text(question, "/approval"), end_of(text(question, "/approval"), IdEnd::MIN_CHARS));
    let about = if words.is_empty() { waits_for(question) } else { words.replace(id, end) };
    [format!("the run is paused until the question is answered{left}"), about, how_to_answer(question, end)]
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    #[test]
    fn a_goal_is_written_as_a_person_would_and_a_wrong_one_is_refused() {
        let goal = |until: &str| GoalArgs { until: Some(until.into()), ..GoalArgs::default() };
        let written = |goal: &GoalArgs, text: &str| with_goal(goal, text.into());
        assert_eq!(written(&GoalArgs::default(), "wait until noon").as_deref(), Ok("wait until noon"));
        assert_eq!(written(&goal("run make test"), "mend it\n").as_deref(), Ok("/goal mend it until run make test"));
        let all =
            GoalArgs { attempts: Some(3), usd: Some("0.50".into()), minutes: Some(9), ..goal("outputs n:integer") };
        let message = "/goal --attempts 3 --usd 0.50 --minutes 9 count until outputs n:integer";
        assert_eq!(written(&all, "count").as_deref(), Ok(message));
        let brief = GoalArgs { seconds: Some(90), ..goal("run make") };
        assert_eq!(written(&brief, "x").as_deref(), Ok("/goal --seconds 90 x until run make"));
        for (goal, text, why) in [
            (goal("true"), "mend it", "--until: `true` is no check; did you mean `run true`?"),
            (goal(""), "mend it", "A check is missing."),
            (goal("run a | b"), "mend it", "No shell reads the command"),
            (GoalArgs { usd: Some("0".into()), ..goal("run make") }, "mend it", "The budget of a goal"),
            (goal("run make"), "wait until run x and tell me", "an `until` of its own"),
        ] {
            let refused = written(&goal, text).expect_err(text);
            assert!(refused.exit == Exit::WrongUsage && refused.what.contains(why), "{refused}");
            assert!(!refused.what.contains("/goal"), "its form is not that of the option: {refused}");
        }
    }

    #[test]
    fn a_paused_run_is_75_and_shows_its_approval_request_and_how_to_answer() {
        let question = json!({
            "approval": "q1", "kind": "approval", "tool": "run_command", "summary": "git push",
            "expires_at": "1999-01-01T00:00:00.000Z",
        });
        let said = asked(&question, "").join("\n");
        assert_eq!(asked(&question, "May I? (/approve q1)")[1], "May I? (/approve q1)", "the words of the requester");
        for part in ["run_command: git push", "belay approvals approve q1", "belay approvals deny q1"] {
            assert!(said.contains(part), "{part} in {said}");
        }
        let run = json!({"status": "paused", "reason": null, "reply": null, "waiting_for": question});
        assert_eq!(verdict(&run, false, Output::plain(&OnceLock::new())), Exit::Busy);
    }
}
