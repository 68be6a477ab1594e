//! The chat command `/routine`: its parser, its requests and its answers.

use belay_protocol::{
    GrantOptions, Guardrails, Notify, Refusal, RoutineAction, RoutineAnswer, RoutineRecord, RoutineRequest,
    RoutineRunFilter, RoutineSpec, StoreError, Trigger, UnixMillis, WorkGrant,
};

use super::requests::{RoutineRequester, find, request};
use super::service::RoutineService;
use super::{check, preview};
use crate::grants;

/// Help text of the command.
pub const USAGE: &str = "/routine lists your routines; /routine show NAME, on NAME, off NAME, next NAME, \
delete NAME, and fire NAME [TEXT] are about one. /routine create NAME SCHEDULE [ZONE] | TEXT makes one, for example: \
/routine create morning 0 9 * * MON-FRI Europe/Berlin | What is new in the inbox? With --allow \"run_command: git fetch\" \
after create it calls tools, and that call without a question: the answer shows the grant, and --yes gives it; /routine revoke NAME N takes the grant back.";

/// Most routines in a list.
const LISTED: usize = 50;
/// Number of times that `/routine next` shows.
const NEXT: usize = 5;
/// Number of routine runs that `/routine show` shows.
const ROUTINE_RUNS: u32 = 5;
/// Longest text of a routine or a routine run in an answer, in characters.
const SHOWN_CHARS: usize = 200;

/// A chat command about routines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutineCommand {
    /// Lists the person's routines; all routines for an operator.
    List,
    /// Shows a routine with its newest routine runs.
    Show(String),
    /// Shows the next times of a routine.
    Next(String),
    /// Enables or disables a routine.
    Switch(String, bool),
    /// Starts a routine by hand, with an optional payload.
    Fire(String, Option<String>),
    /// Deletes a routine.
    Delete(String),
    /// Revokes the grant with this number, from 1.
    Revoke(String, usize),
    /// Shows the grants of a new routine before they are given.
    ShowGrants {
        /// The grants.
        allow: Vec<WorkGrant>,
        /// The text after `create`.
        argument: String,
    },
    /// Creates a lightweight routine with a schedule. It calls tools if it has grants.
    Create {
        /// The grants.
        allow: Vec<WorkGrant>,
        /// The name of the routine.
        name: String,
        /// The schedule.
        when: String,
        /// The time zone.
        zone: String,
        /// The prompt.
        prompt: String,
    },
}

impl RoutineCommand {
    /// Parses the text after `/routine`. `None`: it is invalid.
    pub fn parse(argument: Option<&str>) -> Option<Self> {
        let Some(argument) = argument.map(str::trim).filter(|argument| !argument.is_empty()) else {
            return Some(Self::List);
        };
        let (word, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
        let rest = rest.trim();
        let word = word.to_lowercase();
        if word == "list" {
            return Some(Self::List).filter(|_| rest.is_empty());
        }
        if word == "create" {
            return Self::parse_create(rest);
        }
        let (name, more) = named(rest)?;
        match word.as_str() {
            "fire" => return Some(Self::Fire(name, Some(more.to_owned()).filter(|more| !more.is_empty()))),
            "revoke" => return Some(Self::Revoke(name, more.parse().ok()?)),
            _ if !more.is_empty() => return None,
            _ => {}
        }
        Some(match word.as_str() {
            "show" => Self::Show(name),
            "next" => Self::Next(name),
            "on" => Self::Switch(name, true),
            "off" => Self::Switch(name, false),
            "delete" => Self::Delete(name),
            _ => return None,
        })
    }

    fn parse_create(argument: &str) -> Option<Self> {
        let GrantOptions { allow, is_confirmed, rest } = GrantOptions::parse(argument)?;
        let (name, more) = named(rest)?;
        let (when, prompt) = more.split_once('|')?;
        let (when, prompt) = (when.trim(), prompt.trim());
        if when.is_empty() || prompt.is_empty() {
            return None;
        }
        if !allow.is_empty() && !is_confirmed {
            return Some(Self::ShowGrants { allow, argument: argument.to_owned() });
        }
        let (when, zone) = match when.rsplit_once(char::is_whitespace) {
            Some((when, last)) if is_zone(last) => (when.trim(), last),
            _ => (when, "UTC"),
        };
        let (when, zone, prompt) = (when.to_owned(), zone.to_owned(), prompt.to_owned());
        Some(Self::Create { allow, name, when, zone, prompt })
    }
}

/// The name of a routine and the text after it; `None`: there is no name.
fn named(text: &str) -> Option<(String, &str)> {
    let (name, more) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (!name.is_empty()).then(|| (name.to_owned(), more.trim()))
}

/// Returns whether a word looks like a time zone, and not like a field of a cron line such as `*/5` or `MON/2`.
fn is_zone(word: &str) -> bool {
    let letters =
        |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '-'));
    match word.split_once('/') {
        Some((area, place)) => letters(area) && place.starts_with(|c: char| c.is_ascii_alphabetic()),
        None => matches!(word.to_ascii_uppercase().as_str(), "UTC" | "GMT"),
    }
}

/// Executes a chat command and returns its answer.
///
/// # Errors
/// Why the command was not executed.
pub async fn command(
    service: &RoutineService,
    command: RoutineCommand,
    by: &RoutineRequester,
) -> Result<String, Refusal> {
    let asked = match command {
        RoutineCommand::List => return list(service, by).await,
        RoutineCommand::Show(name) => return show(service, &name, by).await,
        RoutineCommand::ShowGrants { allow, argument } => {
            return Ok(grants::shown(&allow, "/routine create", &argument));
        }
        RoutineCommand::Next(name) => return next(service, &find(service, &name, by).await?),
        RoutineCommand::Switch(name, on) => RoutineRequest::Enable { name, on },
        RoutineCommand::Fire(name, payload) => RoutineRequest::Fire { name, payload },
        RoutineCommand::Delete(name) => RoutineRequest::Delete(name),
        RoutineCommand::Revoke(name, grant) => RoutineRequest::Revoke { name, grant },
        RoutineCommand::Create { allow, name, when, zone, prompt } => RoutineRequest::Put {
            spec: RoutineSpec {
                name,
                description: String::new(),
                trigger: Trigger::Schedule { when, zone, misfire: Default::default() },
                action: RoutineAction::Lightweight {
                    prompt,
                    files: Vec::new(),
                    use_tools: !allow.is_empty(),
                    max_tool_rounds: 3,
                },
                guard: Guardrails { cooldown_s: 0, ..Guardrails::default() }, // the schedule sets the frequency
                notify: Notify::default(),
                allow,
            },
            fresh: true,
        },
    };
    let fires = matches!(asked, RoutineRequest::Fire { .. });
    Ok(match request(service, asked, by).await? {
        RoutineAnswer::Routine(routine) => line(service, &routine) + &grants(&routine),
        RoutineAnswer::Deleted(name) => format!("The routine {name} is deleted."),
        RoutineAnswer::Fired(routine_runs) => match routine_runs.first() {
            Some(routine_run) if fires => format!("Routine {} has started.", routine_run.routine),
            _ => "No routine was started.".to_owned(),
        },
        RoutineAnswer::Heartbeat(report) => report.would, // no chat command requests it
    })
}

fn unread(error: StoreError) -> Refusal {
    Refusal::Store(error.to_string())
}

async fn list(service: &RoutineService, by: &RoutineRequester) -> Result<String, Refusal> {
    let routines = service.routines.routines().await.map_err(unread)?;
    let theirs: Vec<_> = routines.iter().filter(|routine| by.may_touch(routine)).collect();
    if theirs.is_empty() {
        return Ok(format!("There are no routines. {USAGE}"));
    }
    let mut lines: Vec<_> = theirs.iter().take(LISTED).map(|routine| format!("- {}", line(service, routine))).collect();
    if theirs.len() > LISTED {
        lines.push(format!("and {} more", theirs.len() - LISTED));
    }
    Ok(lines.join("\n"))
}

/// A routine as one line.
fn line(service: &RoutineService, routine: &RoutineRecord) -> String {
    let name = &routine.spec.name;
    if !routine.enabled {
        let why = if routine.disabled_detail.is_empty() { "" } else { ": " };
        return format!("`{name}`: off{why}{}", routine.disabled_detail);
    }
    let when = match &routine.spec.trigger {
        Trigger::Schedule { when, .. } => match routine.next_at {
            Some(at) => format!("`{when}`, next {}", local(routine, at)),
            None => format!("`{when}`, over"),
        },
        Trigger::Event { pattern, .. } => format!("messages with `{pattern}`"),
        Trigger::Webhook { path, .. } => format!("webhook {path}"),
        Trigger::System { source, event, .. } => format!("event {source} {event}"),
        Trigger::Manual => "by hand".to_owned(),
    };
    let asleep = if service.registry.config.enabled { "" } else { " (routines are disabled here)" };
    format!("`{name}`: {when}{asleep}")
}

/// A time in the routine's time zone.
fn local(routine: &RoutineRecord, at: UnixMillis) -> String {
    match check::schedule_of(&routine.spec) {
        Ok(Some(schedule)) => format!("{} ({})", schedule.local(at), schedule.zone()),
        _ => at.to_rfc3339(),
    }
}

async fn show(service: &RoutineService, name: &str, by: &RoutineRequester) -> Result<String, Refusal> {
    let routine = find(service, name, by).await?;
    // The filter has the id too, since another routine may have had this name before.
    let (name, ids) = (Some(name.to_owned()), Some(vec![routine.routine_id]));
    let filter =
        RoutineRunFilter { routine: name, routine_ids: ids, limit: ROUTINE_RUNS, ..RoutineRunFilter::default() };
    let routine_runs = service.routines.routine_runs(filter).await.map_err(unread)?;
    let task = match &routine.spec.action {
        RoutineAction::Lightweight { prompt, .. } => shortened(prompt),
        RoutineAction::FullJob { task, .. } => format!("a job: {}", shortened(task)),
    };
    let mut lines = vec![line(service, &routine) + &grants(&routine), task];
    lines.push(format!("fired {} times, {} failures in a row", routine.routine_runs, routine.failures));
    for routine_run in routine_runs {
        let summary =
            routine_run.summary.as_deref().map(|summary| format!(": {}", shortened(summary))).unwrap_or_default();
        let at = routine_run.scheduled_at.unwrap_or(routine_run.claimed_at);
        lines.push(format!("- {} {}{summary}", local(&routine, at), routine_run.status.word()));
    }
    Ok(lines.join("\n"))
}

/// The grants of a routine, one line each; empty without any.
fn grants(routine: &RoutineRecord) -> String {
    if routine.spec.allow.is_empty() {
        return String::new();
    }
    let lines: String = routine.spec.allow.iter().enumerate().map(|(at, grant)| grant.line(at + 1)).collect();
    format!("\nWithout a question it may call:{lines}\n`/routine revoke {} N` takes one back.", routine.spec.name)
}

fn next(service: &RoutineService, routine: &RoutineRecord) -> Result<String, Refusal> {
    let times = preview(&routine.spec, service.clock.now(), NEXT).map_err(Refusal::Invalid)?;
    let name = &routine.spec.name;
    if !routine.enabled {
        return Ok(format!("The routine {name} is disabled; `/routine on {name}` enables it."));
    }
    let lines: Vec<_> = times.iter().map(|time| format!("- {} ({})", time.local, time.zone)).collect();
    Ok(if lines.is_empty() { format!("The routine {name} has no further scheduled time.") } else { lines.join("\n") })
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        let create = |name: &str, when: &str, zone: &str, prompt: &str| RoutineCommand::Create {
            allow: Vec::new(),
            name: name.into(),
            when: when.into(),
            zone: zone.into(),
            prompt: prompt.into(),
        };
        for (text, expected) in [
            ("", Some(RoutineCommand::List)),
            ("list", Some(RoutineCommand::List)),
            ("Show a", Some(RoutineCommand::Show("a".into()))),
            ("next a", Some(RoutineCommand::Next("a".into()))),
            ("on a", Some(RoutineCommand::Switch("a".into(), true))),
            ("off  a ", Some(RoutineCommand::Switch("a".into(), false))),
            ("off a b", None),
            ("off", None),
            ("fire a", Some(RoutineCommand::Fire("a".into(), None))),
            ("fire a with words", Some(RoutineCommand::Fire("a".into(), Some("with words".into())))),
            ("delete a", Some(RoutineCommand::Delete("a".into()))),
            ("create a @daily | tidy", Some(create("a", "@daily", "UTC", "tidy"))),
            (
                "create a 0 9 * * MON-FRI Europe/Berlin | a | b",
                Some(create("a", "0 9 * * MON-FRI", "Europe/Berlin", "a | b")),
            ),
            ("create a */5 * * * */2 | go", Some(create("a", "*/5 * * * */2", "UTC", "go"))),
            ("create a at 2026-12-01T09:00 utc | go", Some(create("a", "at 2026-12-01T09:00", "utc", "go"))),
            ("revoke a 2", Some(RoutineCommand::Revoke("a".into(), 2))),
            ("revoke a", None),
            ("create --allow \"run_*: ls\" a @daily | tidy", None),
            ("create a @daily tidy", None),
            ("create a | tidy", None),
            ("what", None),
        ] {
            assert_eq!(RoutineCommand::parse(Some(text)), expected, "{text:?}");
        }
        assert_eq!(RoutineCommand::parse(None), Some(RoutineCommand::List));
        let granted = RoutineCommand::parse(Some("create --yes --allow \"run_command: git fetch\" a @daily | tidy"));
        let Some(RoutineCommand::Create { allow, name, prompt, .. }) = granted else { panic!("{granted:?}") };
        let shown: Vec<String> = allow.iter().map(ToString::to_string).collect();
        assert_eq!((shown, &*name, &*prompt), (vec!["run_command: argv=git fetch".to_owned()], "a", "tidy"));
    }
}
