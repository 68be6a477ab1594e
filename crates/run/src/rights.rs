//! What work that goes on by itself may do: what whoever it works for could do when it was made, or can do now, whichever is
//! less. Looked at before each attempt at a job and each routine run, and once more by the run itself, which a restart may have taken
//! up. What is below such a run, subagents, steps and workers, has its rights.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{
    Asker, Authority, Channel, ChannelAccess, ChannelId, JobRecord, Principal, PrincipalRole, ReplyRoute,
    RoutineRecord, is_own_channel,
};

/// The channels of this start, by name.
pub type Channels = Arc<HashMap<ChannelId, Arc<dyn Channel>>>;

/// Who is let in through channels that are switched off, by name: their settings still say.
pub type Absent = HashMap<ChannelId, Arc<dyn ChannelAccess>>;

/// Who is let in through which channel.
pub struct AccessPolicy {
    channels: Channels,
    absent: Absent,
}

impl AccessPolicy {
    /// Of the channels of this start, and of those that are switched off.
    pub fn new(channels: Channels, absent: Absent) -> Self {
        Self { channels, absent }
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

/// Whom work was for is let in no more; the words say why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked(pub String);

/// For whom a job works now.
///
/// # Errors
/// Nobody: its creator is let in no more.
pub fn of_job(access: &AccessPolicy, job: &JobRecord) -> Result<Asker, Revoked> {
    now(access, &job.channel, &job.creator, job.reply_to.as_ref())
}

/// A routine with what is left of its creator's rights. What only an operator may say it says no longer where they are none:
/// it writes to the conversation that made it.
///
/// # Errors
/// Nothing is left: its creator is let in no more.
pub fn of_routine(access: &AccessPolicy, routine: &RoutineRecord) -> Result<RoutineRecord, Revoked> {
    let creator = now(access, &routine.channel, &routine.creator, routine.reply_to.as_ref())?;
    let mut routine = routine.clone();
    // An operator may have said where somebody else's routine writes to.
    if routine.creator.place == Authority::Operator && creator.place != Authority::Operator {
        routine.spec.notify.to = None;
    }
    Ok(RoutineRecord { creator, ..routine })
}

/// The rights that `creator`, who spoke through `channel` in the conversation `asked_in`, has left.
///
/// # Errors
/// None: they are let in no more.
pub fn now(
    access: &AccessPolicy,
    channel: &ChannelId,
    creator: &Asker,
    asked_in: Option<&ReplyRoute>,
) -> Result<Asker, Revoked> {
    if is_own_channel(channel) {
        return Ok(creator.clone()); // the configuration's own, which is switched off once that has it no more
    }
    let conversation = asked_in.filter(|route| route.channel == *channel).map(|route| &*route.conversation);
    match access.door(channel).left_of(creator, conversation) {
        Ok(place) => Ok(Asker { place, ..creator.clone() }),
        Err(why) => {
            let who = &creator.principal;
            Err(Revoked(format!("{who}, for whom it worked, is no longer let in through {channel}: {why}")))
        }
    }
}

/// Whether a conversation may still be told that work of it has ended.
pub fn may_tell(access: &AccessPolicy, route: &ReplyRoute) -> bool {
    match access.door(&route.channel) {
        ChannelQuery::Says(admission) => admission.serves(&route.conversation),
        ChannelQuery::CannotSay | ChannelQuery::Unknown => true,
    }
}

/// The sender of a message in the name of whom work is for.
pub fn principal(asker: &Asker) -> Principal {
    let role = match asker.place {
        Authority::Conversation => PrincipalRole::User,
        Authority::Token => PrincipalRole::Client,
        Authority::Operator => PrincipalRole::Operator,
    };
    Principal { id: asker.principal.as_str().into(), role }
}

/// What can be asked about a channel.
enum ChannelQuery<'a> {
    /// Who is let in.
    Says(&'a dyn ChannelAccess),
    /// It is there, and lets in whoever comes.
    CannotSay,
    /// There is none of that name, and no settings of one.
    Unknown,
}

impl ChannelQuery<'_> {
    /// What is left of the place that somebody spoke from.
    fn left_of(&self, creator: &Asker, conversation: Option<&str>) -> Result<Authority, String> {
        match self {
            Self::Says(admission) => admission.standing_of(&creator.principal, conversation).at_most(creator.place),
            Self::CannotSay => Ok(creator.place),
            // Nothing says any more what they may do, so it is as little as anybody may who is let in somewhere.
            Self::Unknown => Ok(Authority::Conversation),
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::AccessDecision;

    use super::*;

    /// Lets everybody in as the same.
    struct As(AccessDecision);

    impl ChannelAccess for As {
        fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> AccessDecision {
            self.0.clone()
        }

        fn serves(&self, _conversation: &str) -> bool {
            true
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
            let creator = Asker { principal: "ann".into(), place: was, relayed: false };
            let left: Vec<_> = doors.iter().map(|door| door.left_of(&creator, None)).collect();
            assert_eq!(left, expected, "{was:?}");
        }
    }
}
