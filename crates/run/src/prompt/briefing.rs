//! The briefing of a run: the parts of its prompt that differ from run to run, read when it begins.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Bootstrap, BootstrapFile, ChannelId, Clock, ContextSource, RunOptions, SessionKey, Skills, Variable,
};
use tokio::time::timeout;

use super::Snapshots;
use super::files;
use crate::rights::Channels;

/// Time limit for reading a briefing. It consists of small local files; a disk that takes longer is broken.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Sources of briefings.
pub struct BriefingSource {
    /// Reads files and skills of the workspace.
    pub context: Arc<dyn ContextSource>,
    /// The skills that each conversation began with.
    pub snapshots: Snapshots,
    /// The configured channels, by name.
    pub channels: Channels,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The parts of a prompt that differ from run to run.
#[derive(Clone, Debug, Default)]
pub struct Briefing {
    /// A persona set by hooks.
    pub persona: Option<String>,
    /// Files of the workspace.
    pub files: Arc<Bootstrap>,
    /// Skills of the workspace.
    pub skills: Arc<Skills>,
    /// Formatting hints for the channel of the answer.
    pub hints: Option<String>,
    /// Whether the run may give no answer.
    pub may_be_silent: bool,
    /// The date in the prompt; `None`: the prompt has no date.
    pub today: Option<String>,
    /// Additional instructions of the message or the session.
    pub extra: Option<String>,
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
}

impl Briefing {
    /// Reads the briefing of a run that begins. A conversation keeps the skills that it began with.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost.
    pub async fn of_run(source: &BriefingSource, about: About<'_>) -> Self {
        let briefing = Self::of(source, about).await;
        source.snapshots.keep(about.session, &briefing.skills);
        briefing
    }

    /// Like [`Self::of_run`], but does not store the skills. For reports.
    pub async fn of(from: &BriefingSource, About { session, channel, group, options }: About<'_>) -> Self {
        let source = &from.context;
        let read = async {
            let skills = match from.snapshots.of(session) {
                Some(skills) => skills,
                None => source.skills().await,
            };
            (skills, source.bootstrap().await)
        };
        let (skills, files) = timeout(READ_LIMIT, read).await.unwrap_or_else(|_elapsed| {
            tracing::error!(%session, "the workspace could not be read in time; a run begins without its files and skills");
            (source.known_skills(), Arc::default())
        });
        let hints = channel.and_then(|channel| from.channels.get(channel)).and_then(|channel| channel.profile().hints);
        Self {
            persona: None,
            files,
            skills,
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
        Self { persona, files, ..self }
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
        let Self { persona, files, skills, hints, may_be_silent, today, extra } = self;
        Arc::ptr_eq(files, &other.files)
            && Arc::ptr_eq(skills, &other.skills)
            && (persona, hints, may_be_silent) == (&other.persona, &other.hints, &other.may_be_silent)
            && (today, extra) == (&other.today, &other.extra)
    }
}
