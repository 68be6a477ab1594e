//! What a run is told of its surroundings, as they are when it begins.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Bootstrap, BootstrapFile, ChannelId, Clock, ContextSource, RunOptions, SessionKey, Skills, Variable,
};
use tokio::time::timeout;

use super::Snapshots;
use super::files;
use crate::rights::Channels;

/// How long the surroundings may take to be read. They are small local files; a disk that takes longer is broken.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Where the surroundings of runs are read.
pub struct BriefingSource {
    /// Where files and skills of the workspace are read.
    pub context: Arc<dyn ContextSource>,
    /// The skills that conversations began with.
    pub snapshots: Snapshots,
    /// The configured channels, by name.
    pub channels: Channels,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// What a run is told besides its conversation.
#[derive(Clone, Debug, Default)]
pub struct Briefing {
    /// Who the model is told it is, where hooks have said so.
    pub persona: Option<String>,
    /// Files of the workspace.
    pub files: Arc<Bootstrap>,
    /// Skills of the workspace.
    pub skills: Arc<Skills>,
    /// How answers are written for the place where they go.
    pub hints: Option<String>,
    /// Whether nothing may be an answer.
    pub may_be_silent: bool,
    /// The date as the prompt states it; `None`: the prompt has none.
    pub today: Option<String>,
    /// What the message, or the session, adds.
    pub extra: Option<String>,
}

/// Whose surroundings.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The session.
    pub session: &'a SessionKey,
    /// Where the answer goes.
    pub channel: Option<&'a ChannelId>,
    /// Whether several people read the conversation.
    pub group: bool,
    /// What the message asks of its run.
    pub options: &'a RunOptions,
}

impl Briefing {
    /// The surroundings of a run that begins. The skills are those that the conversation began with.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn of_run(source: &BriefingSource, about: About<'_>) -> Self {
        let briefing = Self::of(source, about).await;
        source.snapshots.keep(about.session, &briefing.skills);
        briefing
    }

    /// The same, for whoever only looks.
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

    /// A conversation begins anew: skills are looked for at once, so that commands which name a new one know it.
    pub async fn begin_anew(source: &BriefingSource, session: &SessionKey) {
        source.snapshots.forget(session);
        if timeout(READ_LIMIT, source.context.skills()).await.is_err() {
            tracing::error!(%session, "skills could not be looked for in time");
        }
    }

    /// The same, with what hooks have said.
    pub fn with(self, persona: Option<String>, files: Option<Vec<BootstrapFile>>) -> Self {
        let files = match files {
            Some(files) => Arc::new(Bootstrap { files, skipped: self.files.skipped.clone() }),
            None => self.files,
        };
        Self { persona, files, ..self }
    }

    /// What subagents, steps of plans and workers are told as well, behind their own prompts: the rules of the workspace.
    /// Empty: there are none.
    pub fn rules(&self) -> String {
        files::rules(&self.files.files).map(|rules| format!("\n\n{rules}")).unwrap_or_default()
    }

    /// Variables for the commands of the run.
    pub fn variables(&self) -> Arc<[Variable]> {
        self.skills.variables()
    }

    /// Whether both make the same prompts. What was read once is compared by where it is, not by what it says.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let Self { persona, files, skills, hints, may_be_silent, today, extra } = self;
        Arc::ptr_eq(files, &other.files)
            && Arc::ptr_eq(skills, &other.skills)
            && (persona, hints, may_be_silent) == (&other.persona, &other.hints, &other.may_be_silent)
            && (today, extra) == (&other.today, &other.extra)
    }
}
