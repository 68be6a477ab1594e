//! The briefing of a run: the parts of its prompt that differ from run to run, read when it begins.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Bootstrap, BootstrapFile, ChannelId, Clock, ContextSource, ConversationSettings, FIND_TOOLS, MemoryOwner, Message,
    MessageBody, PromptNotes, RunOptions, SessionKey, SkillStore, Skills, Skipped, ToolNames, ToolSet, Variable,
};
use tokio::time::{Instant, sleep, timeout};

use super::notes::{self, NoteLines};
use super::{Snapshots, files, stored_skills};
use crate::rights::Channels;

/// Time limit for reading a briefing. It consists of small local files; a disk that takes longer is broken.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Pause before files that could not be opened are read again.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// Sources of briefings.
pub struct BriefingSource {
    /// Reads files and skills of the workspace.
    pub context: Arc<dyn ContextSource>,
    /// The skills that each conversation began with.
    pub snapshots: Snapshots,
    /// The same, in the store.
    pub stored: Arc<dyn SkillStore>,
    /// The configured channels, by name.
    pub channels: Channels,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Reads notes.
    pub notes: Arc<dyn PromptNotes>,
    /// The maximum length of notes in a prompt, in characters; 0: none.
    pub note_chars: u32,
}

/// The parts of a prompt that differ from run to run.
#[derive(Clone, Debug, Default)]
pub struct Briefing {
    /// The persona of the conversation or of hooks, in place of that of the agent.
    pub persona: Option<String>,
    /// The tools that the run may use. `None`: all tools of its kind.
    pub tools: Option<ToolNames>,
    /// Files of the workspace.
    pub files: Arc<Bootstrap>,
    /// Skills of the workspace.
    pub skills: Arc<Skills>,
    /// Notes of the owner of the run's memory.
    pub notes: Option<NoteLines>,
    /// Formatting hints for the channel of the answer.
    pub hints: Option<String>,
    /// Whether the run may give no answer.
    pub may_be_silent: bool,
    /// The date in the prompt; `None`: the prompt has no date.
    pub today: Option<String>,
    /// Additional instructions of the message or the session.
    pub extra: Option<String>,
}

/// Where the skills of a conversation come from, if memory does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SkillsOrigin {
    /// It begins: it has the present skills.
    #[default]
    Present,
    /// The model has answered in it, and the store had no skills of it: it began without, or after its lane was opened.
    Unknown,
    /// The store has the skills that it began with.
    Stored,
}

impl SkillsOrigin {
    /// The origin for a conversation with these messages and this summary. `stored`: whether the store has its skills.
    pub fn of(summary: Option<&str>, messages: &[Arc<Message>], stored: bool) -> Self {
        let is_answer = |message: &Arc<Message>| matches!(message.body, MessageBody::Assistant { .. });
        match stored {
            true => Self::Stored,
            false if summary.is_some() || messages.iter().any(is_answer) => Self::Unknown,
            false => Self::Present,
        }
    }
}

/// Identifies the run of a briefing.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The session.
    pub session: &'a SessionKey,
    /// The channel of the answer.
    pub channel: Option<&'a ChannelId>,
    /// Whether several people read the conversation.
    pub group: bool,
    /// The options of the message.
    pub options: &'a RunOptions,
    /// The owner of the run's notes.
    pub memory: &'a MemoryOwner,
    /// The settings of the conversation that the run belongs to.
    pub settings: Option<&'a ConversationSettings>,
    /// The origin of the skills of the conversation.
    pub skills: SkillsOrigin,
}

impl Briefing {
    /// Reads the briefing of a run that begins. A conversation keeps the skills that it began with. If a file exists and
    /// cannot be opened, such as while no file descriptors are left, the run waits for it.
    ///
    /// # Errors
    /// The file, and why it cannot be read. Without its instructions the run must not work.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost.
    pub async fn of_run(source: &BriefingSource, about: About<'_>) -> Result<Self, String> {
        let until = Instant::now() + READ_LIMIT;
        let briefing = loop {
            let briefing = Self::of(source, about).await;
            let Some(Skipped { what, why, .. }) = briefing.unread() else { break briefing };
            if Instant::now() >= until {
                return Err(format!("{what} ({why})"));
            }
            tracing::warn!(session = %about.session, file = what, why, "a run waits for its instructions");
            sleep(READ_AGAIN).await;
        };
        let skills = &briefing.skills;
        if source.snapshots.keep(about.session, skills)
            && about.skills == SkillsOrigin::Present
            && !skills.list.is_empty()
            && let Err(error) = source.stored.keep_skills(about.session, stored_skills::snapshot(skills)).await
        {
            tracing::warn!(session = %about.session, %error, "the skills of a conversation were not stored");
        }
        Ok(briefing)
    }

    /// A file of the workspace that could not be read at this moment.
    fn unread(&self) -> Option<&Skipped> {
        self.files.skipped.iter().chain(&self.skills.skipped).find(|skipped| skipped.unread)
    }

    /// Like [`Self::of_run`], but does not store the skills. For reports.
    pub async fn of(from: &BriefingSource, about: About<'_>) -> Self {
        let (About { session, channel, group, options, memory, settings, skills: origin }, source) =
            (about, &from.context);
        let read = async {
            let skills = match from.snapshots.of(session) {
                Some(skills) => skills,
                None => skills_of(from, session, origin).await,
            };
            (skills, source.bootstrap().await)
        };
        let (skills, files) = timeout(READ_LIMIT, read).await.unwrap_or_else(|_elapsed| {
            let (what, why) = ("the workspace".to_owned(), "it could not be read in time".to_owned());
            let skipped = vec![Skipped { what, why, unread: true }];
            (source.known_skills(), Arc::new(Bootstrap { skipped, ..Bootstrap::default() }))
        });
        let hints = channel.and_then(|channel| from.channels.get(channel)).and_then(|channel| channel.profile().hints);
        Self {
            persona: settings.and_then(|settings| settings.persona.clone()),
            tools: settings.and_then(|settings| settings.tools.clone()),
            files,
            skills,
            notes: notes_of(from, memory).await,
            hints: hints.map(str::to_owned),
            may_be_silent: group,
            today: source.today(from.clock.now()),
            extra: options.extra_prompt.clone(),
        }
    }

    /// Forgets the skills of a session whose new conversation begins, and looks for skills at once, so that commands
    /// can name a new skill.
    pub async fn begin_anew(source: &BriefingSource, session: &SessionKey) {
        source.snapshots.forget(session);
        if timeout(READ_LIMIT, source.context.skills()).await.is_err() {
            tracing::error!(%session, "skills could not be looked for in time");
        }
    }

    /// Replaces the persona and the files by those of hooks.
    pub fn with(self, persona: Option<String>, files: Option<Vec<BootstrapFile>>) -> Self {
        let files = match files {
            Some(files) => Arc::new(Bootstrap { files, skipped: self.files.skipped.clone() }),
            None => self.files,
        };
        Self { persona: persona.or(self.persona), files, ..self }
    }

    /// The tools of this set that the run may use. Tools that somebody has listed are offered at once, so none finds
    /// them.
    pub fn allowed(&self, tools: &Arc<ToolSet>) -> Arc<ToolSet> {
        let Some(names) = &self.tools else { return tools.clone() };
        let is_allowed = |name: &str| name != FIND_TOOLS && names.contain(name);
        let allowed = tools.iter().filter(|tool| is_allowed(&tool.spec().name));
        Arc::new(ToolSet::new(allowed.cloned().collect()))
    }

    /// The rules of the workspace, which follow the prompts of subagents, steps of plans and workers. Empty: there are
    /// none.
    pub fn rules(&self) -> String {
        files::rules(&self.files.files).map(|rules| format!("\n\n{rules}")).unwrap_or_default()
    }

    /// Environment variables for the commands of the run.
    pub fn variables(&self) -> Arc<[Variable]> {
        self.skills.variables()
    }

    /// Whether both give the same prompts. Files and skills are compared by address, not by content.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let Self { persona, tools, files, skills, notes, hints, may_be_silent, today, extra } = self;
        Arc::ptr_eq(files, &other.files)
            && Arc::ptr_eq(skills, &other.skills)
            && (persona, hints, may_be_silent) == (&other.persona, &other.hints, &other.may_be_silent)
            && (today, extra, notes, tools) == (&other.today, &other.extra, &other.notes, &other.tools)
    }
}

/// The skills of a conversation that memory does not know. A workspace without skills costs no query.
async fn skills_of(from: &BriefingSource, session: &SessionKey, origin: SkillsOrigin) -> Arc<Skills> {
    let present = from.context.skills().await;
    match origin {
        SkillsOrigin::Present => return present,
        SkillsOrigin::Unknown if present.list.is_empty() => return present,
        SkillsOrigin::Unknown | SkillsOrigin::Stored => {}
    }
    match from.stored.kept_skills(session).await {
        Ok(Some(text)) => stored_skills::restored(&text, &present).unwrap_or_else(|| {
            tracing::error!(%session, "the stored skills of a conversation cannot be read");
            present
        }),
        Ok(None) => Arc::new(Skills { list: Vec::new(), ..Skills::clone(&present) }), // it began without
        Err(error) => {
            tracing::warn!(%session, %error, "a run begins with the present skills");
            present
        }
    }
}

/// The notes of this owner for the prompt. An owner without notes costs no query.
async fn notes_of(from: &BriefingSource, owner: &MemoryOwner) -> Option<NoteLines> {
    if from.note_chars == 0 || !from.notes.may_have_notes(owner) {
        return None;
    }
    match timeout(READ_LIMIT, from.notes.prompt_notes(owner, from.note_chars)).await {
        Ok(Ok(notes)) => notes::lines_of(owner, &notes),
        Ok(Err(error)) => {
            tracing::warn!(%error, "a run begins without its notes");
            None
        }
        Err(_elapsed) => {
            tracing::warn!("a run begins without its notes: the store does not answer");
            None
        }
    }
}
