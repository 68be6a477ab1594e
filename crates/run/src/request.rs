//! The request of a run. It is created once, when the message is accepted or restored, and shared by everything that
//! works on the run.
//!
//! [`LiveRun`] has the same id and session, but is created earlier: the dispatcher creates it before the message is
//! accepted, and after a restart without reading the message.

use std::sync::Arc;

use belay_protocol::{
    Asker, Audience, Authority, ChannelId, Inbound, ReplyRoute, RunId, RunOptions, SessionKey, UnixMillis, Work,
};

use crate::live::LiveRun;

/// Why an autonomous run cannot ask a person.
const BY_ITSELF: &str = "this run is autonomous, and nobody can be asked; do what is possible without it";
/// Why a run with a relayed message cannot ask a person.
const RELAYED: &str =
    "this message was relayed by another bot, so nobody can be asked; the person can send it directly";
/// Why a part of a run cannot ask a person whose client waits for one answer.
const ONE_ANSWER: &str =
    "the client of this request cannot be asked about a part of the work; report what is missing in the result";

/// The request of a run: who asked, from where, and with which options. It never changes.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The id of the run.
    pub run: RunId,
    /// The session that it belongs to.
    pub session: SessionKey,
    /// The kind of work.
    pub work: Work,
    /// The channel of the message.
    pub channel: ChannelId,
    /// The principal that the run works for.
    pub asker: Asker,
    /// The destination of the reply; `None`: no reply is sent.
    pub reply_to: Option<ReplyRoute>,
    /// Who can read the conversation of the message.
    pub audience: Audience,
    /// The platform's id of the message. An edit of the message has the same id.
    pub message_id: Option<String>,
    /// The options of the message. During a turn they include the options of the session, see [`Self::over`].
    pub options: RunOptions,
    /// Whether the client waits for one answer, as an OpenAI client does: it learns of a question only when the run is
    /// paused. `false` after a restart, which the client does not outlive.
    pub only_now: bool,
    /// When the message was accepted.
    pub accepted_at: UnixMillis,
}

impl RunRequest {
    /// The request of a message that is accepted at this date.
    pub fn of(run: &LiveRun, inbound: &Inbound, accepted_at: UnixMillis) -> Self {
        let provenance = inbound.provenance.as_deref();
        Self {
            run: run.id,
            session: run.session.clone(),
            work: inbound.work,
            channel: inbound.channel.clone(),
            asker: Asker::of(&inbound.principal, inbound.relayed),
            reply_to: inbound.reply_to.clone(),
            audience: provenance.map_or(Audience::Person, |provenance| provenance.audience),
            message_id: provenance.and_then(|provenance| provenance.message_id.clone()),
            options: inbound.options.clone(),
            only_now: inbound.only_now,
            accepted_at,
        }
    }

    /// The request of maintenance work on a conversation that no message asked for, such as a compaction. It has no
    /// reply.
    pub fn without_message(run: &LiveRun, options: RunOptions, accepted_at: UnixMillis) -> Self {
        let principal = run.origin.principal.to_string();
        Self {
            run: run.id,
            session: run.session.clone(),
            work: Work::Chat,
            channel: run.origin.channel.clone(),
            asker: Asker { principal, authority: Authority::Conversation, relayed: false },
            reply_to: None,
            audience: Audience::Person,
            message_id: None,
            options,
            only_now: false,
            accepted_at,
        }
    }

    /// The request with the options of the session added. An option of the message wins.
    #[must_use]
    pub fn over(self: &Arc<Self>, session: &RunOptions) -> Arc<Self> {
        if session.is_default() {
            return self.clone();
        }
        let mut request = Self::clone(self);
        request.options = request.options.over(session);
        Arc::new(request)
    }

    /// Whether a person can be asked.
    ///
    /// # Errors
    /// The reason why not, as the end of a sentence.
    pub fn may_ask(&self) -> Result<(), &'static str> {
        match self.work {
            Work::Chat if self.asker.relayed => Err(RELAYED),
            Work::Chat => Ok(()),
            Work::Job { .. } | Work::RoutineRun { .. } | Work::Heartbeat { .. } => Err(BY_ITSELF),
        }
    }

    /// Whether a person can be asked by a run that the run of this request starts, which may ask as `parent` may.
    ///
    /// # Errors
    /// The reason why not, as the end of a sentence.
    pub(crate) fn parts_may_ask(&self, parent: Result<(), &'static str>) -> Result<(), &'static str> {
        parent.and(if self.only_now { Err(ONE_ANSWER) } else { Ok(()) })
    }

    /// The destination of later messages of this work: the conversation, not as a reply to the message.
    pub fn conversation(&self) -> Option<ReplyRoute> {
        self.reply_to.clone().map(|route| ReplyRoute { reply_to: None, ..route })
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::JobId;

    use super::*;
    use crate::live::RunOrigin;

    fn request(options: RunOptions) -> Arc<RunRequest> {
        let origin = RunOrigin { work: Work::Chat, source: None, channel: "test".into(), principal: "alice".into() };
        let run = LiveRun::new(RunId::new(), "alice".into(), origin, false);
        Arc::new(RunRequest::without_message(&run, options, UnixMillis(1)))
    }

    #[test]
    fn the_session_says_what_the_message_leaves_open() {
        let message = request(RunOptions { verbose: Some(false), ..RunOptions::default() });
        assert!(Arc::ptr_eq(&message, &message.over(&RunOptions::default())), "nothing is copied");
        let session = RunOptions { verbose: Some(true), model: Some("m".into()), ..RunOptions::default() };
        let both = message.over(&session);
        assert_eq!((both.options.verbose, both.options.model.as_deref()), (Some(false), Some("m")));
        assert_eq!((both.run, message.options.model.as_deref()), (message.run, None));
    }

    #[test]
    fn a_person_is_asked_by_a_chat_that_was_not_relayed_and_by_nothing_else() {
        let job = Work::Job { job: JobId::new(), attempt: Some(1) };
        for (work, relayed, may) in [(Work::Chat, false, true), (Work::Chat, true, false), (job, false, false)] {
            let mut request = RunRequest::clone(&request(RunOptions::default()));
            (request.work, request.asker.relayed) = (work, relayed);
            assert_eq!(request.may_ask().is_ok(), may, "{work:?} {relayed}");
            assert_eq!(request.parts_may_ask(request.may_ask()), request.may_ask());
            request.only_now = true;
            assert_eq!(request.may_ask().is_ok(), may, "the run itself pauses");
            assert!(request.parts_may_ask(request.may_ask()).is_err());
        }
    }
}
