//! A report for operators about the context of a session: its parts, as the model would get them now, with their sizes.

use std::sync::Arc;

use belay_protocol::context::{FileReport, PartReport, SkillReport};
use belay_protocol::{
    Audience, BootstrapFile, ChannelId, ContextReport, Conversation, MemoryOwner, Message, MessageBody, Moment,
    Principal, Refusal, RunId, SessionKey, Skill, SkillLocation, Tool, Work,
};

use crate::agent_services::AgentServices;
use belay_run::compaction;
use belay_run::live::RunOrigin;
use belay_run::prompt::{self, About, Briefing, NOTES, PromptPart, SkillsOrigin};
use belay_run::rights;

/// Makes the report for this principal of this channel. It does not include changes by hooks, which are called only when
/// a run begins. Only operators and the owner read the texts of notes.
///
/// # Errors
/// The session does not exist, or it cannot be read.
pub(crate) async fn of(
    services: &AgentServices,
    session: &SessionKey,
    full: bool,
    (reader, from): (&Principal, &ChannelId),
) -> Result<ContextReport, Refusal> {
    let conversation = services.store.conversations.conversation(session).await;
    let conversation = conversation.map_err(|error| Refusal::Store(error.to_string()))?;
    let Some(Conversation { summary, messages, options, channel, principal, has_skills }) = conversation else {
        return Err(Refusal::Unknown(format!("There is no session {session}.")));
    };
    let newest = messages.iter().rev().find_map(|message| message.provenance.as_ref());
    let group = newest.is_some_and(|provenance| provenance.audience == Audience::Group);
    let origin = RunOrigin {
        work: Work::Chat,
        source: None,
        channel: channel.clone().unwrap_or_else(|| ChannelId::new("")),
        principal: principal.unwrap_or_default(),
    };
    let audience = if group { Audience::Group } else { Audience::Person };
    let memory = services.run.memory.owner_in(&origin, session, audience);
    let settings = rights::settings_of(&services.jobs.access, &origin, session);
    let settings = settings.as_deref();
    let skills = SkillsOrigin::of(summary.as_deref(), &messages, has_skills);
    let about =
        About { session, channel: channel.as_ref(), group, options: &options, memory: &memory, settings, skills };
    let briefing = Briefing::of(&services.briefings, about).await;
    let tools = &services.run.tools_of(&briefing);
    let parts = prompt::parts(&services.run.config, &briefing, Some(tools), None);
    let summary = summary.map(|summary| of_messages("summary", &[compaction::pinned(&summary)], full));
    let conversation = of_messages("messages", &messages, full);
    let reads_notes = match &memory {
        MemoryOwner::Person { channel, id } => reader.is_operator() || (channel, id) == (from, &reader.id),
        MemoryOwner::Group { .. } => true,
    };
    let shown = |part: &PromptPart| full && (reads_notes || part.name != NOTES);
    let prompt: Vec<_> = parts.iter().map(|part| report(part.name, &part.text, shown(part))).collect();
    let offered = services.run.offered(tools, Moment { session, run: RunId::new(), messages: &messages });
    let tools: Vec<_> = offered.as_ref().unwrap_or(tools).iter().map(|tool| of_tool(&**tool, full)).collect();
    let used = prompt.iter().chain(&tools).chain(&summary).chain([&conversation]).map(|part| part.tokens).sum();
    let info = services.run.model.info();
    Ok(ContextReport {
        session: session.clone(),
        model: options.model.unwrap_or_else(|| info.model.clone()),
        context_tokens: info.context_tokens,
        used_tokens: used,
        prompt,
        files: briefing.files.files.iter().map(of_file).collect(),
        skills: briefing.skills.list.iter().map(of_skill).collect(),
        skipped: briefing.files.skipped.iter().chain(&briefing.skills.skipped).cloned().collect(),
        tools,
        summary,
        messages: messages.len(),
        conversation,
    })
}

fn report(name: &str, text: &str, full: bool) -> PartReport {
    PartReport {
        name: name.to_owned(),
        chars: text.chars().count(),
        tokens: text.len() as u64 / 4,
        text: full.then(|| text.to_owned()),
    }
}

fn of_tool(tool: &dyn Tool, full: bool) -> PartReport {
    let spec = tool.spec();
    report(&spec.name, &format!("{}\n{}", spec.description, spec.shown_schema().get()), full)
}

fn of_file(file: &BootstrapFile) -> FileReport {
    let BootstrapFile { name, text, whole_chars, cut } = file;
    FileReport { name: name.clone(), chars: *whole_chars, told_chars: text.chars().count(), cut: *cut }
}

fn of_skill(skill: &Skill) -> SkillReport {
    SkillReport {
        name: skill.name.clone(),
        command: skill.user_invocable.then(|| format!("/{}", skill.command())),
        listed: skill.listed,
        path: match &skill.place {
            SkillLocation::Workspace(path) => Some(path.clone()),
            SkillLocation::Elsewhere => None,
        },
        variables: skill.variables.iter().map(|variable| variable.name.clone()).collect(),
    }
}

fn of_messages(name: &str, messages: &[Arc<Message>], full: bool) -> PartReport {
    PartReport {
        name: name.to_owned(),
        chars: messages.iter().map(|message| message.text().chars().count()).sum(),
        tokens: messages.iter().map(|message| message.estimated_tokens()).sum(),
        text: full.then(|| messages.iter().map(|message| line(message)).collect::<Vec<_>>().join("\n")),
    }
}

/// A message as a line for people. Calls appear only by name, because their arguments may be sensitive.
fn line(message: &Message) -> String {
    let text = message.text();
    match &message.body {
        MessageBody::System { .. } => format!("system> {text}"),
        MessageBody::User { .. } => format!("user> {}", message.for_model()),
        MessageBody::Data { .. } => format!("data> {text}"),
        MessageBody::Assistant { tool_calls, .. } => {
            let calls = tool_calls.iter().map(|call| format!(" [calls {}]", call.name));
            format!("assistant> {text}{}", calls.collect::<String>())
        }
        MessageBody::Tool(result) => format!("{}> {text}", result.name),
    }
}
