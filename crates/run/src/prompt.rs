//! The system prompt. Its parts have a fixed order, the stable ones first, so that a provider's prompt cache stays
//! valid as long as possible.
//! ```text
//! identity · tools · ending · safety · skills · workspace · files · output · channel · notes · date · extra
//! ```
//!
//! There are three kinds of prompts. A conversation's prompt has all parts that are not empty; without tools it omits
//! the parts about tools. Subagents, steps of plans and workers have prompts of their own, followed by the rules of the
//! workspace ([`Briefing::rules`]). Planners, judges and summaries have only prompts of their own.
//!
//! Reading order: `texts` → here → `briefing` (the parts that differ from run to run) → `skills` → `files` → `notes` → `book`
//! (cache by content) → `snapshots` → `stored_skills`.

mod book;
mod briefing;
mod files;
mod notes;
mod skills;
mod snapshots;
mod stored_skills;
mod texts;

use belay_protocol::{Prompt, ToolSet};

pub use self::book::PromptBook;
pub use self::briefing::{About, Briefing, BriefingSource, SkillsOrigin};
pub use self::notes::NoteLines;
pub use self::snapshots::Snapshots;
use crate::config::AgentConfig;
use crate::own_tools::TERMINATE;
use crate::terminate::TEACHING;
use crate::untrusted::RULE;

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptPart {
    /// Its name in reports.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

/// The name of the part with notes.
pub const NOTES: &str = "notes";

/// The persona of the agent, at the beginning of every prompt for conversations with people.
pub fn persona(config: &AgentConfig) -> &str {
    config.system_prompt.as_deref().unwrap_or(texts::PERSONA)
}

/// The parts of a conversation's prompt, in order. `tools`: the offered tools. `outputs`: the instructions for declared
/// outputs, if the run must produce them instead of a text.
pub fn parts(
    config: &AgentConfig,
    briefing: &Briefing,
    tools: Option<&ToolSet>,
    outputs: Option<&str>,
) -> Vec<PromptPart> {
    let tools = tools.filter(|tools| !tools.is_empty());
    let has = |name: &str| tools.is_some_and(|tools| tools.get(name).is_some());
    let ending = match (outputs, has(TERMINATE)) {
        (Some(outputs), _) => Some(outputs.to_owned()),
        (None, true) => Some(TEACHING.to_owned()),
        (None, false) => None,
    };
    let use_of_tools = tools.map(|_| match outputs {
        Some(_) => texts::TOOLS.to_owned(),
        None => format!("{} {}", texts::TOOLS, texts::ANSWER),
    });
    let silence = (briefing.may_be_silent && outputs.is_none()).then(|| texts::SILENCE.to_owned());
    [
        ("identity", Some(briefing.persona.as_deref().unwrap_or_else(|| persona(config)).to_owned())),
        ("tools", use_of_tools),
        ("ending", ending),
        ("safety", Some(format!("{} {RULE}", texts::SAFETY))),
        ("skills", tools.and_then(|tools| skills::part(&briefing.skills, tools))),
        ("workspace", has("read_file").then(|| texts::WORKSPACE.to_owned())),
        ("files", files::part(&briefing.files.files, has("read_file"))),
        ("output", silence),
        ("channel", briefing.hints.clone()),
        (NOTES, briefing.notes.as_ref().map(|lines| notes::part(lines, has))),
        ("date", briefing.today.as_ref().map(|today| format!("Today is {today}."))),
        ("extra", briefing.extra.clone()),
    ]
    .into_iter()
    .filter_map(|(name, text)| text.filter(|text| !text.trim().is_empty()).map(|text| PromptPart { name, text }))
    .collect()
}

/// Joins the parts into one prompt.
pub fn join(parts: &[PromptPart]) -> Prompt {
    let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
    Prompt::new(texts.join("\n\n"))
}

#[cfg(test)]
mod tests;
