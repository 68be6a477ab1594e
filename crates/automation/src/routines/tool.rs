//! `routine`: the tool with which the run of a conversation creates, changes, lists and starts routines of its person.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{
    Ask, CallPreview, Effect, Guardrails, Misfire, Notify, Refusal, RoutineAction, RoutineAnswer, RoutineRequest,
    RoutineSpec, RunId, ToolContext, ToolFailure, ToolOutput, ToolReply, ToolSpec, Trigger,
};
use serde_json::{Map, Value, json};

use super::commands::{self, RoutineCommand};
use super::requests::{RoutineRequester, find, request};
use super::service::RoutineService;
use belay_run::own_tools::{LIST_ROUTINES, ROUTINE};
use belay_run::request::RunRequest;
use belay_run::run_tool::{DeclaredTool, RunTool};

/// Declares the tool for models. It works once a [`RoutineToolContext`] binds it to the run of a conversation.
pub fn routine_tool() -> DeclaredTool {
    let spec = ToolSpec {
        deferred: true,
        effect: Effect::Write,
        timeout: Duration::from_secs(30),
        max_output_bytes: 8 * 1024,
        ..ToolSpec::new(
            ROUTINE,
            "Manages the user's routines: work at scheduled times, or on certain messages, that reports to the user. create \
             and update need name, prompt, and schedule or pattern.",
            json!({
                "type": "object",
                "properties": {
                    "action": {
                        "type": "string",
                        "enum": ["create", "update", "delete", "list", "show", "next", "on", "off", "fire"],
                    },
                    "name": { "type": "string", "description": "letters, digits, - and _" },
                    "prompt": { "type": "string", "description": "complete; the routine knows nothing else" },
                    "schedule": {
                        "type": "string",
                        "description": "cron (0 9 * * MON-FRI), @daily, every 2h, at 2026-12-01T09:00 or in 20m",
                    },
                    "zone": { "type": "string", "description": "IANA; default: UTC" },
                    "pattern": {
                        "type": "string",
                        "description": "instead of schedule: a regular expression; a message that matches starts it and gets \
                                        no other answer",
                    },
                    "mode": {
                        "type": "string", "enum": ["lightweight", "full_job"],
                        "description": "lightweight: a few steps",
                    },
                    "use_tools": { "type": "boolean", "description": "for lightweight: may call tools" },
                },
                "required": ["action"],
                "additionalProperties": false,
            }),
        )
    };
    DeclaredTool::new(spec, "only the run of a conversation can create and change routines; do the work yourself")
}

/// Declares `list_routines` for models. It works once a [`ListRoutines`] binds it to the run of a conversation.
pub fn list_routines_tool() -> DeclaredTool {
    let spec = ToolSpec {
        deferred: true,
        effect: Effect::Read,
        timeout: Duration::from_secs(30),
        max_output_bytes: 8 * 1024,
        ..ToolSpec::new(
            LIST_ROUTINES,
            "Lists the user's routines: name, trigger, next time, last outcome.",
            json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        )
    };
    DeclaredTool::new(spec, "only the run of a conversation can list routines")
}

/// Lists the routines of the person of a run.
pub struct ListRoutines(pub RoutineToolContext);

#[async_trait]
impl RunTool for ListRoutines {
    async fn call(&self, _arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let by = self.0.by(Some(context.run_id), context.call_id.as_str());
        let listed = commands::command(&self.0.service, RoutineCommand::List, &by).await;
        // For an operator, other people's routines are among them.
        let reply = |text| ToolReply { text, untrusted: true, ..ToolReply::default() };
        listed.map(reply).map_err(|refusal| ToolFailure::failed(refusal.to_string()))
    }
}

/// The client in whose name a run changes routines.
#[derive(Clone)]
pub struct RoutineToolContext {
    /// Executes the requests.
    pub service: Arc<RoutineService>,
    /// The request of the run, with its principal and session.
    pub request: Arc<RunRequest>,
}

impl RoutineToolContext {
    fn by(&self, run: Option<RunId>, call: &str) -> RoutineRequester {
        let RunRequest { asker, channel, session, .. } = &*self.request;
        RoutineRequester {
            asker: asker.clone(),
            channel: channel.clone(),
            session: session.clone(),
            reply_to: self.request.conversation(),
            key: run.map(|run| format!("{run}/{call}")),
        }
    }

    async fn put(&self, arguments: &Map<String, Value>, by: &RoutineRequester) -> Result<String, Refusal> {
        let spec = spec_of(arguments).map_err(Refusal::Invalid)?;
        let fresh = action_of(arguments) == "create";
        let spec = match fresh {
            true => spec,
            false => {
                // Parts of the routine that the tool has no argument for stay unchanged.
                let old = find(&self.service, &spec.name, by).await?.spec;
                RoutineSpec { description: old.description, guard: old.guard, notify: old.notify, ..spec }
            }
        };
        match request(&self.service, RoutineRequest::Put { spec, fresh }, by).await? {
            RoutineAnswer::Routine(routine) => {
                commands::command(&self.service, RoutineCommand::Show(routine.spec.name), by).await
            }
            RoutineAnswer::Deleted(_) | RoutineAnswer::Fired(_) | RoutineAnswer::Heartbeat(_) => Ok("done".to_owned()),
        }
    }
}

fn text_of<'a>(arguments: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    arguments.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
}

fn action_of(arguments: &Map<String, Value>) -> &str {
    text_of(arguments, "action").unwrap_or_default()
}

/// Builds the routine that the arguments describe.
fn spec_of(arguments: &Map<String, Value>) -> Result<RoutineSpec, String> {
    let needed = |key: &str| text_of(arguments, key).map(str::to_owned).ok_or_else(|| format!("{key}: is missing"));
    let trigger = match (text_of(arguments, "schedule"), text_of(arguments, "pattern")) {
        (Some(when), None) => Trigger::Schedule {
            when: when.to_owned(),
            zone: text_of(arguments, "zone").unwrap_or("UTC").to_owned(),
            misfire: Misfire::default(),
        },
        (None, Some(pattern)) => Trigger::Event { pattern: pattern.to_owned(), channel: None },
        (None, None) => Trigger::Manual,
        (Some(_), Some(_)) => return Err("schedule, pattern: give only one of them".to_owned()),
    };
    let prompt = needed("prompt")?;
    let action = match text_of(arguments, "mode") {
        Some("full_job") => RoutineAction::FullJob {
            task: prompt,
            plan: false,
            runs_in: Default::default(),
            budget: Default::default(),
        },
        _ => RoutineAction::Lightweight {
            prompt,
            files: Vec::new(),
            use_tools: arguments.get("use_tools").and_then(Value::as_bool).unwrap_or_default(),
            max_tool_rounds: 3,
        },
    };
    let cooldown_s = match trigger {
        Trigger::Schedule { .. } => 0, // the schedule sets the frequency
        _ => Guardrails::default().cooldown_s,
    };
    Ok(RoutineSpec {
        name: needed("name")?,
        description: String::new(),
        trigger,
        action,
        guard: Guardrails { cooldown_s, ..Guardrails::default() },
        notify: Notify::default(),
        allow: Vec::new(),
    })
}

#[async_trait]
impl RunTool for RoutineToolContext {
    /// Requires approval for each change of work that continues after the conversation.
    async fn preview(&self, arguments: &Map<String, Value>) -> Result<CallPreview, ToolFailure> {
        let (action, name) = (action_of(arguments), text_of(arguments, "name").unwrap_or_default());
        if !matches!(action, "create" | "update" | "delete") {
            return Ok(CallPreview::default());
        }
        let mut summary = format!("{action} the routine {name}");
        let mut shows: &'static [&'static str] = &["action", "name"];
        if action != "delete" {
            let spec = spec_of(arguments).map_err(ToolFailure::failed)?;
            let problems = super::problems(&spec);
            if !problems.is_empty() {
                return Err(ToolFailure::failed(problems.join("\n")));
            }
            let _ = match &spec.trigger {
                // A String takes everything.
                Trigger::Schedule { when, zone, .. } => write!(summary, " at `{when}` ({zone})"),
                Trigger::Event { pattern, .. } => write!(summary, " at messages with `{pattern}`"),
                _ => Ok(()),
            };
            shows = &["action", "name", "schedule", "pattern"];
        }
        Ok(CallPreview { summary, shows, ask: Some(Ask::UnlessApproved), ..CallPreview::default() })
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let by = self.by(Some(context.run_id), context.call_id.as_str());
        let name = || {
            let name = text_of(arguments, "name").map(str::to_owned);
            name.ok_or_else(|| ToolFailure::failed("name: is missing"))
        };
        let command = match action_of(arguments) {
            "create" | "update" => None,
            "list" => Some(RoutineCommand::List),
            "show" => Some(RoutineCommand::Show(name()?)),
            "next" => Some(RoutineCommand::Next(name()?)),
            "on" => Some(RoutineCommand::Switch(name()?, true)),
            "off" => Some(RoutineCommand::Switch(name()?, false)),
            "delete" => Some(RoutineCommand::Delete(name()?)),
            "fire" => Some(RoutineCommand::Fire(name()?, None)),
            other => return Err(ToolFailure::failed(format!("action: there is no {other}"))),
        };
        let done = match command {
            Some(command) => commands::command(&self.service, command, &by).await,
            None => self.put(arguments, &by).await,
        };
        done.map(Into::into).map_err(|refusal| ToolFailure::failed(refusal.to_string()))
    }
}
