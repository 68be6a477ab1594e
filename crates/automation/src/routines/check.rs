//! Validates a routine before it is stored: reports all problems at once, and writes its schedule in a form that does
//! not depend on the time of reading.

use belay_protocol::grant::GRANTS_MAX;
use belay_protocol::job::JOB_TASK_MAX_BYTES;
use belay_protocol::routine::{ROUTINE_NAME_MAX_BYTES, ROUTINE_TEXT_MAX_BYTES};
use belay_protocol::{Guardrails, HEARTBEAT, Misfire, RoutineAction, RoutineRecord, RoutineSpec, Trigger, UnixMillis};
use regex::{Regex, RegexBuilder};

use super::config::ANY_DATE;
use belay_schedule::ScheduleError;
use belay_schedule::schedule::Schedule;

/// Largest compiled pattern, in bytes. The engine searches each message with it, so a larger one would cost memory and
/// time.
const PATTERN_MAX_COMPILED: usize = 64 * 1024;
/// Longest pattern, in bytes.
const PATTERN_MAX_BYTES: usize = 1000;
/// Longest description, in characters.
const DESCRIPTION_MAX_CHARS: usize = 500;
/// Longest source, event, field or value of a system event, in bytes. Also the longest path of a webhook.
const WORD_MAX_BYTES: usize = 128;
/// Most files in the prompt of a lightweight routine.
const FILES_MAX: usize = 16;
/// Longest path of such a file, in bytes.
const FILE_MAX_BYTES: usize = 256;
/// Most rounds of tool calls that a routine may request.
const ROUNDS_MAX: u32 = 20;
/// Most missed times that a routine may catch up.
const CATCH_UP_MAX: u32 = 100;
/// Longest span of a guardrail: a year.
const SPAN_MAX_S: u64 = 366 * 86_400;
/// Most runs of one routine at the same time.
const CONCURRENT_MAX: u32 = 1000;

/// Returns all problems of a routine as written; each begins with its field. A schedule whose last time has passed is
/// not a problem here.
pub fn problems(spec: &RoutineSpec) -> Vec<String> {
    let mut problems = Vec::new();
    if !is_name(&spec.name) {
        problems.push(format!(
            "name: must begin with a letter and have letters, digits, - and _ alone, at most {ROUTINE_NAME_MAX_BYTES}"
        ));
    }
    if spec.description.chars().count() > DESCRIPTION_MAX_CHARS || spec.description.chars().any(char::is_control) {
        problems.push(format!("description: must be one line of at most {DESCRIPTION_MAX_CHARS} characters"));
    }
    of_trigger(&spec.trigger, &mut problems);
    of_action(&spec.action, &mut problems);
    of_guard(&spec.guard, &mut problems);
    if spec.allow.len() > GRANTS_MAX {
        problems.push(format!("allow: must be at most {GRANTS_MAX} grants"));
    }
    problems.extend(spec.allow.iter().filter_map(|grant| grant.check().err()));
    if matches!(&spec.action, RoutineAction::Lightweight { use_tools: false, .. }) && !spec.allow.is_empty() {
        problems.push("allow: this routine calls no tools; set action.use_tools".into());
    }
    problems
}

/// Why a name is reserved. `None`: it is free.
pub(super) fn reserved(name: &str) -> Option<&'static str> {
    match name {
        HEARTBEAT => Some("it is the name of the built-in heartbeat, see [heartbeat]; choose another"),
        "next" | "test" => Some("it is a word of the commands about routines; choose another"),
        _ => None,
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.len() <= ROUTINE_NAME_MAX_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(fits)
}

fn of_trigger(trigger: &Trigger, problems: &mut Vec<String>) {
    match trigger {
        Trigger::Schedule { when, zone, misfire } => {
            if let Err(error) = Schedule::read(when, zone, Some(ANY_DATE)) {
                let field = if matches!(error, ScheduleError::Zone { .. }) { "zone" } else { "when" };
                problems.push(format!("trigger.{field}: {error}"));
            }
            if matches!(misfire, Misfire::All(most) if !(1..=CATCH_UP_MAX).contains(most)) {
                problems.push(format!("trigger.misfire: all must be between 1 and {CATCH_UP_MAX}"));
            }
        }
        Trigger::Event { pattern, channel } => {
            match compile(pattern) {
                Err(problem) => problems.push(format!("trigger.pattern: {problem}")),
                Ok(regex) if regex.is_match("") => problems.push(
                    "trigger.pattern: it matches every message, so that none would be answered any more; make it \
                     narrower"
                        .into(),
                ),
                Ok(_) => {}
            }
            if channel.as_ref().is_some_and(|channel| !is_word(channel)) {
                problems
                    .push(format!("trigger.channel: must be the name of a channel, at most {WORD_MAX_BYTES} bytes"));
            }
        }
        Trigger::Webhook { path, secret_sha256 } => {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if path.is_empty() || path.len() > WORD_MAX_BYTES || !path.chars().all(fits) || path.starts_with('.') {
                problems.push(format!(
                    "trigger.path: must be one part of an address: letters, digits, -, _ and ., at most {WORD_MAX_BYTES}"
                ));
            }
            if secret_sha256.len() != 64 || !secret_sha256.chars().all(|c| c.is_ascii_hexdigit()) {
                problems.push(
                    "trigger.secret_sha256: must be the SHA-256 of the secret, as 64 hexadecimal digits (printf %s \"$SECRET\" | \
                     sha256sum)"
                        .into(),
                );
            }
        }
        Trigger::System { source, event, filters } => {
            for (field, word) in [("source", source), ("event", event)] {
                if !is_word(word) {
                    problems.push(format!("trigger.{field}: must be a word of at most {WORD_MAX_BYTES} bytes"));
                }
            }
            let long = |text: &String| text.len() > WORD_MAX_BYTES;
            if filters.len() > 16 || filters.iter().any(|(field, value)| field.is_empty() || long(field) || long(value))
            {
                problems.push(format!(
                    "trigger.filters: must be at most 16 fields with their values, each of at most {WORD_MAX_BYTES} bytes"
                ));
            }
        }
        Trigger::Manual => {}
    }
}

fn is_word(word: &str) -> bool {
    !word.trim().is_empty() && word.len() <= WORD_MAX_BYTES && !word.chars().any(char::is_control)
}

fn is_text(text: &str, max_bytes: usize) -> bool {
    !text.trim().is_empty() && text.len() <= max_bytes && !text.contains('\0')
}

fn of_action(action: &RoutineAction, problems: &mut Vec<String>) {
    match action {
        RoutineAction::Lightweight { prompt, files, max_tool_rounds, use_tools: _ } => {
            if !is_text(prompt, ROUTINE_TEXT_MAX_BYTES) {
                problems.push(format!("action.prompt: must have text, at most {ROUTINE_TEXT_MAX_BYTES} bytes of it"));
            }
            if files.len() > FILES_MAX || files.iter().any(|path| !is_path(path)) {
                problems.push(format!(
                    "action.files: must be at most {FILES_MAX} paths within the workspace, without `..`, each of at most \
                     {FILE_MAX_BYTES} bytes"
                ));
            }
            if !(1..=ROUNDS_MAX).contains(max_tool_rounds) {
                problems.push(format!("action.max_tool_rounds: must be between 1 and {ROUNDS_MAX}"));
            }
        }
        RoutineAction::FullJob { task, .. } => {
            if !is_text(task, JOB_TASK_MAX_BYTES) {
                problems.push(format!("action.task: must have text, at most {JOB_TASK_MAX_BYTES} bytes of it"));
            }
        }
    }
}

/// Returns whether `path` is a path within the workspace.
fn is_path(path: &str) -> bool {
    let inside = !path.starts_with('/') && path.split('/').all(|part| !part.is_empty() && part != "..");
    inside && path.len() <= FILE_MAX_BYTES && !path.chars().any(char::is_control)
}

fn of_guard(guard: &Guardrails, problems: &mut Vec<String>) {
    for (field, value) in [("cooldown_s", guard.cooldown_s), ("dedup_window_s", guard.dedup_window_s)] {
        if value > SPAN_MAX_S {
            problems.push(format!("guard.{field}: must be at most {SPAN_MAX_S} (a year)"));
        }
    }
    if !(1..=CONCURRENT_MAX).contains(&guard.max_concurrent) {
        problems.push(format!("guard.max_concurrent: must be between 1 and {CONCURRENT_MAX}"));
    }
}

/// Compiles a pattern for messages. Searching takes linear time and little memory.
///
/// # Errors
/// What is wrong with the pattern, as the end of a sentence.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.is_empty() || pattern.len() > PATTERN_MAX_BYTES {
        return Err(format!("must have 1 to {PATTERN_MAX_BYTES} bytes"));
    }
    let compiled =
        RegexBuilder::new(pattern).size_limit(PATTERN_MAX_COMPILED).dfa_size_limit(PATTERN_MAX_COMPILED).build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("it takes more than {PATTERN_MAX_COMPILED} bytes once it is compiled; use smaller repetitions")
        }
        other => other.to_string(),
    })
}

/// Completes a webhook routine that is put without the digest of its secret with the stored digest. The API does not
/// return the digest, so a client that puts back what it has read sends none.
pub(super) fn with_known_secret(mut spec: RoutineSpec, old: Option<&RoutineRecord>) -> RoutineSpec {
    if let Trigger::Webhook { secret_sha256, .. } = &mut spec.trigger
        && let Some(Trigger::Webhook { secret_sha256: known, .. }) = old.map(|old| &old.spec.trigger)
        && secret_sha256.is_empty()
    {
        known.clone_into(secret_sha256);
    }
    spec
}

/// Returns whether the schedule is a span from the time of reading (`in …`). Reading it again gives another schedule.
pub(super) fn counts_from_now(spec: &RoutineSpec) -> bool {
    let Trigger::Schedule { when, .. } = &spec.trigger else { return false };
    when.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("in"))
}

/// Returns the routine with its schedule written so that it does not depend on the time of reading, and that schedule.
/// An unchanged schedule keeps its stored start, so that putting `every 15m` again does not restart it.
///
/// # Errors
/// The schedule is invalid.
pub(super) fn written_out(
    mut spec: RoutineSpec,
    old: Option<&RoutineRecord>,
    now: UnixMillis,
) -> Result<(RoutineSpec, Option<Schedule>), ScheduleError> {
    let Trigger::Schedule { when, zone, .. } = &mut spec.trigger else { return Ok((spec, None)) };
    let mut schedule = Schedule::read(when, zone, Some(now))?;
    if let Some(Trigger::Schedule { when: known, zone: known_zone, .. }) = old.map(|old| &old.spec.trigger) {
        let words = when.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        let same = known.to_lowercase().strip_prefix(&words).is_some_and(|rest| rest.starts_with(" from "));
        if same && known_zone == schedule.zone() {
            schedule = Schedule::read(known, known_zone, None)?;
        }
    }
    (*when, *zone) = (schedule.text().to_owned(), schedule.zone().to_owned());
    Ok((spec, Some(schedule)))
}

/// The schedule of a stored routine. `None`: it has none.
///
/// # Errors
/// The stored schedule is no longer valid.
pub(super) fn schedule_of(spec: &RoutineSpec) -> Result<Option<Schedule>, ScheduleError> {
    match &spec.trigger {
        Trigger::Schedule { when, zone, .. } => Schedule::read(when, zone, None).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_commands_and_the_heartbeat_are_no_names_for_routines() {
        for (name, expected) in
            [("next", true), ("test", true), (HEARTBEAT, true), ("nextday", false), ("watch", false)]
        {
            assert_eq!(reserved(name).is_some(), expected, "{name}");
        }
    }
}
