//! The rights of autonomous work: those that its creator had when it was made, or has now, whichever are fewer. They
//! are checked before each attempt at a job and each routine run, and again by the run itself, which may have been
//! resumed after a restart. Subagents, steps and workers have the rights of the run that started them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use belay_protocol::{
    Asker, Authority, Channel, ChannelAccess, ChannelId, ConversationSettings, FreezeScope, JobRecord, Principal,
    ReplyRoute, RoutineRecord, SessionKey, is_own_channel,
};

use crate::live::RunOrigin;

/// The channels of this start, by name.
pub type Channels = Arc<HashMap<ChannelId, Arc<dyn Channel>>>;

/// Access rules of disabled channels, by name, from their settings.
pub type DisabledChannels = HashMap<ChannelId, Arc<dyn ChannelAccess>>;

/// Access rules of all channels.
pub struct AccessPolicy {
    channels: Channels,
    absent: DisabledChannels,
}

impl AccessPolicy {
    /// The access rules of the channels of this start, and of disabled ones.
    pub fn new(channels: Channels, absent: DisabledChannels) -> Self {
        Self { channels, absent }
    }

    /// Whether there is a channel of this name, of this start or disabled.
    pub fn has_channel(&self, channel: &ChannelId) -> bool {
        self.channels.contains_key(channel) || self.absent.contains_key(channel)
    }

    /// The channels of this start and the disabled ones, in order.
    fn names(&self) -> BTreeSet<ChannelId> {
        self.channels.keys().chain(self.absent.keys()).cloned().collect()
    }

    fn carries_people(&self, channel: &ChannelId) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.profile().carries_people)
    }

    fn check_channel(&self, channel: &ChannelId) -> Result<(), String> {
        if self.has_channel(channel) || is_own_channel(channel) {
            return Ok(());
        }
        let names = self.names();
        let names: Vec<&str> = names.iter().map(ChannelId::as_str).collect();
        Err(format!("there is no channel {channel}; there are {}", names.join(", ")))
    }

    fn door(&self, channel: &ChannelId) -> ChannelQuery<'_> {
        match self.channels.get(channel) {
            Some(channel) => channel.admission().map_or(ChannelQuery::CannotSay, ChannelQuery::Says),
            None => {
                self.absent.get(channel).map_or(ChannelQuery::Unknown, |admission| ChannelQuery::Says(&**admission))
            }
        }
    }
}

/// Checks whether a freeze of this part can cover anything: whether there is such a channel, and whether it can have a
/// person of this id. A routine may be created later.
///
/// # Errors
/// Why it cannot, and what there is instead.
pub fn check_scope(access: &AccessPolicy, scope: &FreezeScope) -> Result<(), String> {
    match scope {
        FreezeScope::All | FreezeScope::Routine { .. } => Ok(()),
        FreezeScope::Channel { channel } => access.check_channel(channel),
        FreezeScope::Person { channel: Some(channel), id } => {
            access.check_channel(channel)?;
            match access.door(channel) {
                ChannelQuery::Says(admission) if !admission.may_exist(id) => Err(format!(
                    "the channel {channel} has nobody with the id {id}; ids are numbers or words in lower case, as `belay people` and the log \
                     show them"
                )),
                _ => Ok(()),
            }
        }
        FreezeScope::Person { channel: None, id } => {
            let may_exist = access.names().iter().any(|channel| match access.door(channel) {
                ChannelQuery::Says(admission) => admission.may_exist(id),
                ChannelQuery::CannotSay | ChannelQuery::Unknown => access.carries_people(channel),
            });
            let why = || {
                format!(
                    "no channel has somebody with the id {id}; write ID or CHANNEL:ID, as `belay people` and the log show it"
                )
            };
            may_exist.then_some(()).ok_or_else(why)
        }
    }
}

/// The creator of the work has no access any more. The text is the reason, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked(pub String);

/// The present rights of a job's creator.
///
/// # Errors
/// The creator has no access any more.
pub fn of_job(access: &AccessPolicy, job: &JobRecord) -> Result<Asker, Revoked> {
    now(access, &job.channel, &job.creator, job.reply_to.as_ref())
}

/// A routine with the present rights of its creator. If the creator is no operator any more, settings that only an
/// operator may make are removed: the routine writes to the conversation that made it.
///
/// # Errors
/// The creator has no access any more.
pub fn of_routine(access: &AccessPolicy, routine: &RoutineRecord) -> Result<RoutineRecord, Revoked> {
    let creator = now(access, &routine.channel, &routine.creator, routine.reply_to.as_ref())?;
    let mut routine = routine.clone();
    // An operator may have set the destination of another person's routine.
    if routine.creator.authority == Authority::Operator && creator.authority != Authority::Operator {
        routine.spec.notify.to = None;
    }
    Ok(RoutineRecord { creator, ..routine })
}

/// The present rights of `creator`, who used `channel` in the conversation `asked_in`.
///
/// # Errors
/// The creator has no access any more.
pub fn now(
    access: &AccessPolicy,
    channel: &ChannelId,
    creator: &Asker,
    asked_in: Option<&ReplyRoute>,
) -> Result<Asker, Revoked> {
    if is_own_channel(channel) {
        return Ok(creator.clone()); // work of the configuration, disabled once the configuration lacks it
    }
    let conversation = asked_in.filter(|route| route.channel == *channel).map(|route| &*route.conversation);
    match access.door(channel).left_of(creator, conversation) {
        Ok(authority) => Ok(Asker { authority, ..creator.clone() }),
        Err(why) => {
            let who = &creator.principal;
            Err(Revoked(format!("{who}, who created this work, no longer has access through {channel}: {why}")))
        }
    }
}

/// Whether a conversation may still be notified that its work has ended.
pub fn may_tell(access: &AccessPolicy, route: &ReplyRoute) -> bool {
    match access.door(&route.channel) {
        ChannelQuery::Says(admission) => admission.serves(&route.conversation),
        ChannelQuery::CannotSay | ChannelQuery::Unknown => true,
    }
}

/// Whether the channel knows which person a principal is. Programs, the control socket and terminals do not.
pub fn tells_persons_apart(access: &AccessPolicy, channel: &ChannelId) -> bool {
    matches!(access.door(channel), ChannelQuery::Says(admission) if admission.tells_persons_apart())
}

/// The session of a conversation. `None`: its channel does not say.
pub fn session_of(access: &AccessPolicy, route: &ReplyRoute) -> Option<SessionKey> {
    match access.door(&route.channel) {
        ChannelQuery::Says(admission) => admission.session_of(&route.conversation),
        ChannelQuery::CannotSay | ChannelQuery::Unknown => None,
    }
}

/// The settings of the conversation that a run in this session belongs to. Autonomous work has a session of its own; it
/// belongs to the conversation in which it was asked for. `None`: the conversation has no settings of its own.
pub fn settings_of(
    access: &AccessPolicy,
    origin: &RunOrigin,
    session: &SessionKey,
) -> Option<Arc<ConversationSettings>> {
    let (channel, session) = match origin.source.as_deref() {
        Some(source) => (&source.channel, &source.asked_in),
        None => (&origin.channel, session),
    };
    if let ChannelQuery::Says(admission) = access.door(channel)
        && let Some(settings) = admission.settings_of(session)
    {
        return Some(settings);
    }
    // A program may write to the conversation of another channel, whose settings hold for it too.
    let others = access.channels.values().filter_map(|other| other.admission());
    others.into_iter().find_map(|admission| admission.settings_of(session))
}

/// The principal for messages in the name of this person.
pub fn principal(asker: &Asker) -> Principal {
    asker.to_principal()
}

/// The access rules of one channel.
enum ChannelQuery<'a> {
    /// The channel has access rules.
    Says(&'a dyn ChannelAccess),
    /// The channel exists and admits everybody.
    CannotSay,
    /// No channel of that name exists, and no settings of one.
    Unknown,
}

impl ChannelQuery<'_> {
    /// The remaining authority of a creator.
    fn left_of(&self, creator: &Asker, conversation: Option<&str>) -> Result<Authority, String> {
        match self {
            Self::Says(admission) => admission.standing_of(&creator.principal, conversation).at_most(creator.authority),
            Self::CannotSay => Ok(creator.authority),
            // Without access rules, only the lowest authority remains that an admitted person has.
            Self::Unknown => Ok(Authority::Conversation),
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::AccessDecision;

    use super::*;

    /// Gives everybody the same access.
    struct As(AccessDecision);

    impl ChannelAccess for As {
        fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
            self.0.clone()
        }

        fn serves(&self, _conversation: &str) -> bool {
            true
        }

        fn session_of(&self, _conversation: &str) -> Option<SessionKey> {
            None
        }
    }

    #[test]
    fn what_is_left_is_the_lesser_of_what_was_and_what_is() {
        use Authority::{Conversation, Operator, Token};
        let says = |place| As(AccessDecision::May(place));
        let (user, token, operator) = (says(Conversation), says(Token), says(Operator));
        let nobody = As(AccessDecision::NotAllowed("no such person".into()));
        let gone = || Err("no such person".to_owned());
        let doors = [
            ChannelQuery::Says(&user),
            ChannelQuery::Says(&token),
            ChannelQuery::Says(&operator),
            ChannelQuery::Says(&nobody),
            ChannelQuery::CannotSay,
            ChannelQuery::Unknown,
        ];
        for (was, expected) in [
            (
                Conversation,
                [Ok(Conversation), Ok(Conversation), Ok(Conversation), gone(), Ok(Conversation), Ok(Conversation)],
            ),
            (Token, [Ok(Conversation), Ok(Token), Ok(Token), gone(), Ok(Token), Ok(Conversation)]),
            (Operator, [Ok(Conversation), Ok(Token), Ok(Operator), gone(), Ok(Operator), Ok(Conversation)]),
        ] {
            let creator = Asker { principal: "ann".into(), authority: was, relayed: false };
            let left: Vec<_> = doors.iter().map(|door| door.left_of(&creator, None)).collect();
            assert_eq!(left, expected, "{was:?}");
        }
    }
}
