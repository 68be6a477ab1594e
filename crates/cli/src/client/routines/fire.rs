//! `belay routines fire`: starts a run of a routine by hand, and with `--wait` waits for its end.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note};
use belay_protocol::{ChannelId, FreezeScope};
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::args::RoutineArgs;
use crate::client::send::{verdict, wait};
use crate::client::watch::{Progress, watch};
use crate::client::{Client, text};

/// Pause before the routine run is read again. It gets its run or its job within some milliseconds, unless it waits for a
/// place or a thaw.
const AGAIN: Duration = Duration::from_millis(250);

/// Looks at a routine run that has not begun, before the person is told what it waits for, and before each look at
/// whether that has changed: 2 s.
const LOOKS_BEFORE_NOTE: u32 = 8;

/// Starts the routine run. With `waits` the exit code is the verdict of its run or job.
pub(super) async fn fire(
    args: &RoutineArgs,
    payload: Option<&str>,
    waits: bool,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    let payload = payload.map(belay_program::input::message).transpose()?;
    let client = Client::find(&args.client, env)?;
    let path = ["api", "v1", "routines", &args.name, "fire"];
    let routine_run = client.post(&path, Some(&json!({ "payload": payload })), Duration::ZERO).await?;
    let id = text(&routine_run, "/routine_run_id");
    match (waits, args.client.json) {
        (true, json) => {
            let exit = ended(&client, id, json, out).await?;
            if exit != Exit::Busy {
                settled(&client, id).await;
            }
            return Ok(exit);
        }
        (false, true) => out.json(&routine_run),
        (false, false) => out.line(id),
    }
    Ok(Exit::Fine)
}

/// How a routine run does its work.
#[derive(Debug, PartialEq, Eq)]
enum Work<'a> {
    /// By this run.
    Run(&'a str),
    /// By this job.
    Job(&'a str),
    /// It has ended without either.
    Ended(Exit),
    /// It has not begun.
    Waiting,
}

impl<'a> Work<'a> {
    fn of(routine_run: &'a Json) -> Self {
        match (text(routine_run, "/run_id"), text(routine_run, "/job_id"), text(routine_run, "/status")) {
            ("", "", "running") => Self::Waiting,
            ("", "", "ok" | "attention" | "skipped") => Self::Ended(Exit::Fine),
            ("", "", _) => Self::Ended(Exit::Failed),
            ("", job, _) => Self::Job(job),
            (run, ..) => Self::Run(run),
        }
    }
}

/// Waits for the end of the routine run, and prints its answer. If the daemon goes away, the wait ends, not the work.
async fn ended(client: &Client, id: &str, as_json: bool, out: Output<'_>) -> Result<Exit, Failure> {
    let (mut looks, mut told) = (0_u32, Told::default());
    loop {
        let routine_run = client.get(&["api", "v1", "routine-runs", id], &[]).await?;
        looks += 1;
        match Work::of(&routine_run) {
            Work::Run(run) => return Ok(verdict(&wait(client, run).await?, as_json, out)),
            Work::Job(job) => return watch(client, job, Progress::Hidden, as_json, out).await,
            Work::Ended(exit) => {
                match (as_json, exit) {
                    (true, _) => out.json(&routine_run),
                    (false, Exit::Fine) => out.line(text(&routine_run, "/summary")),
                    (false, _) => note(&format!("the routine run failed: {}", text(&routine_run, "/summary"))),
                }
                return Ok(exit);
            }
            Work::Waiting => {
                if looks.is_multiple_of(LOOKS_BEFORE_NOTE)
                    && !as_json
                    && let Some(news) = told.news(client, text(&routine_run, "/routine")).await
                {
                    note(&news);
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// The last sentence about what a routine run waits for.
#[derive(Default)]
struct Told(String);

impl Told {
    /// The sentence, if it is another one now. It is an extra, so a daemon that does not answer ends no wait: the next
    /// look asks again.
    async fn news(&mut self, client: &Client, name: &str) -> Option<String> {
        let now = why_waiting(client, name).await.ok().filter(|now| *now != self.0)?;
        self.0.clone_from(&now);
        Some(now)
    }
}

/// The sentence about what a run of this routine waits for, and how the wait is ended.
async fn why_waiting(client: &Client, name: &str) -> Result<String, Failure> {
    let status = client.get(&["api", "v1", "status"], &[]).await?;
    let frozen = status.pointer("/frozen").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    if frozen.is_empty() {
        return Ok(waits(name, &[]));
    }
    let routine = match client.get(&["api", "v1", "routines", name], &[]).await {
        // It was deleted meanwhile: it has no creator whose freeze could hold it.
        Err(failure) if failure.exit == Exit::Failed => Json::Null,
        answer => answer?,
    };
    let holds: Vec<_> = frozen.iter().filter_map(|freeze| Some((freeze, holding(freeze, name, &routine)?))).collect();
    Ok(waits(name, &holds))
}

/// The scope of a freeze that holds this routine; `None`: it does not.
fn holding(freeze: &Json, name: &str, routine: &Json) -> Option<FreezeScope> {
    let scope: FreezeScope = serde_json::from_value(freeze.get("scope")?.clone()).ok()?;
    let channel = ChannelId::new(text(routine, "/channel"));
    scope.covers_work(Some(name), &channel, text(routine, "/creator/principal")).then_some(scope)
}

/// Says what a run of this routine waits for: the end of all these freezes. None: the person sees no freeze that holds
/// it.
fn waits(name: &str, freezes: &[(&Json, FreezeScope)]) -> String {
    if freezes.is_empty() {
        let what = "for a place (`belay top` shows who has it), or for the thaw of this routine by an operator";
        return format!("the run of {name} has not begun: it waits {what}; Ctrl-C ends this wait alone");
    }
    let freezes: Vec<String> = freezes.iter().map(|(freeze, scope)| frozen(freeze, scope)).collect();
    format!("the run of {name} waits for a thaw: {}; Ctrl-C ends this wait alone", freezes.join("; "))
}

/// Says what this freeze holds, and how it is ended.
fn frozen(freeze: &Json, scope: &FreezeScope) -> String {
    let option = match scope {
        FreezeScope::All => String::new(),
        FreezeScope::Person { channel: Some(channel), id } => format!(" --person {channel}:{id}"),
        FreezeScope::Person { channel: None, id } => format!(" --person {id}"),
        FreezeScope::Channel { channel } => format!(" --channel {channel}"),
        FreezeScope::Routine { name } => format!(" --routine {name}"),
    };
    let detail = match text(freeze, "/detail") {
        "" => String::new(),
        detail => format!(" ({})", detail.replace('\n', " ")),
    };
    let (at, actor) = (text(freeze, "/at"), text(freeze, "/actor"));
    format!(
        "{scope} is frozen since {at} by {actor}{detail}; an operator ends it by `belay thaw{option}`, or `/thaw{option}` in \
         a chat"
    )
}

/// Waits until the routine run itself has ended, some moments after its work: the next one may begin only then. The answer
/// is known, so a daemon that goes away is no failure.
async fn settled(client: &Client, id: &str) {
    while let Ok(routine_run) = client.get(&["api", "v1", "routine-runs", id], &[]).await
        && text(&routine_run, "/status") == "running"
    {
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::testing::{answering, answering_with};

    #[tokio::test]
    async fn a_wait_for_a_thaw_names_the_freeze_and_how_it_is_ended() {
        let freeze = |scope: Json| json!({"scope": scope, "at": "2026-11-30T09:00:00.000Z", "actor": "http:operator"});
        let everything = json!({
            "scope": {"kind": "all"}, "at": "2026-11-30T09:00:00.000Z", "actor": "http:operator", "detail": "too\nloud",
        });
        let other = freeze(json!({"kind": "routine", "name": "other"}));
        let channel = freeze(json!({"kind": "channel", "channel": "http"}));
        let thaw = |what: &str, option: &str| {
            format!("{what}; an operator ends it by `belay thaw{option}`, or `/thaw{option}` in a chat")
        };
        let held = |freezes: &str| format!("the run of watch waits for a thaw: {freezes}; Ctrl-C ends this wait alone");
        let since = "since 2026-11-30T09:00:00.000Z by http:operator";
        let place = waits("watch", &[]);
        assert!(place.contains("`belay top`"), "{place}");
        let watch = freeze(json!({"kind": "routine", "name": "watch"}));
        let all = thaw(&format!("everything is frozen {since} (too loud)"), "");
        let of_watch = thaw(&format!("routine watch is frozen {since}"), " --routine watch");
        for (frozen, expected) in [
            (vec![], place.clone()),
            (vec![other.clone(), channel], place),
            (vec![other.clone(), everything.clone()], held(&all)),
            (vec![other, watch.clone()], held(&of_watch)),
            (vec![everything, watch], held(&format!("{all}; {of_watch}"))),
            (
                vec![freeze(json!({"kind": "person", "channel": "http", "id": "ann"}))],
                held(&thaw(&format!("person http:ann is frozen {since}"), " --person http:ann")),
            ),
        ] {
            let mut answers = vec![json!({ "frozen": frozen }).to_string()];
            if !frozen.is_empty() {
                answers.push(json!({"channel": "http", "creator": {"principal": "ann"}}).to_string());
            }
            let (client, serve) = answering(answers).await;
            let (said, _) = tokio::join!(why_waiting(&client, "watch"), serve);
            assert_eq!(said.as_deref(), Ok(expected.as_str()));
        }
    }

    #[tokio::test]
    async fn a_wait_is_told_again_when_the_freeze_changes_and_outlives_a_daemon_that_does_not_answer() {
        let refusal = || (503, json!({"error": {"message": "not now"}}).to_string());
        let frozen = |scope: Json| (200, json!({"frozen": [{"scope": scope}]}).to_string());
        let routine = || (200, json!({"channel": "http", "creator": {"principal": "ann"}}).to_string());
        let (all, own) = (json!({"kind": "all"}), json!({"kind": "routine", "name": "watch"}));
        let mut told = Told::default();
        for (answers, expected) in [
            (vec![refusal()], None),
            (vec![frozen(all.clone()), refusal()], None),
            (vec![frozen(all.clone()), routine()], Some("everything is frozen")),
            (vec![frozen(all.clone()), routine()], None),
            (vec![refusal()], None),
            (vec![frozen(own.clone()), (404, refusal().1)], Some("routine watch is frozen")),
            (vec![frozen(all), routine()], Some("everything is frozen")),
            (vec![(200, json!({"frozen": []}).to_string())], Some("it waits for a place")),
        ] {
            let (client, serve) = answering_with(answers).await;
            let (news, _) = tokio::join!(told.news(&client, "watch"), serve);
            assert!(news.is_some() == expected.is_some(), "{news:?}");
            assert!(expected.is_none_or(|words| news.is_some_and(|news| news.contains(words))), "{expected:?}");
        }
    }

    #[test]
    fn the_work_of_a_routine_run_is_its_run_or_its_job() {
        for (routine_run, expected) in [
            (json!({"status": "running", "run_id": null, "job_id": null}), Work::Waiting),
            (json!({"status": "running", "run_id": "r", "job_id": null}), Work::Run("r")),
            (json!({"status": "attention", "run_id": "r", "job_id": null}), Work::Run("r")),
            (json!({"status": "running", "run_id": null, "job_id": "j"}), Work::Job("j")),
            (json!({"status": "failed", "summary": "why"}), Work::Ended(Exit::Failed)),
            (json!({"status": "ok"}), Work::Ended(Exit::Fine)),
        ] {
            assert_eq!(Work::of(&routine_run), expected, "{routine_run}");
        }
    }
}
