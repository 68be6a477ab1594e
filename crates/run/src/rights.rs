//! What work that goes on by itself may do: what whoever it works for could do when it was made, or can do now, whichever is
//! less. Looked at before each attempt at a job and each firing, and once more by the run itself, which a restart may have taken
//! up. What is below such a run, subagents, steps and workers, has its rights.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{
    Admission, Asker, Channel, ChannelId, JobRecord, Place, Principal, PrincipalRole, ReplyRoute, RoutineRecord,
    is_own_channel,
};

/// The channels of this start, by name.
pub type Channels = Arc<HashMap<ChannelId, Arc<dyn Channel>>>;

/// Who is let in through channels that are switched off, by name: their settings still say.
pub type Absent = HashMap<ChannelId, Arc<dyn Admission>>;

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

    fn door(&self, channel: &ChannelId) -> Door<'_> {
        match self.channels.get(channel) {
            Some(channel) => channel.admission().map_or(Door::CannotSay, Door::Says),
            None => self.absent.get(channel).map_or(Door::Unknown, |admission| Door::Says(&**admission)),
        }
    }
}

/// Whom work was for is let in no more; the words say why, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLonger(pub String);

/// For whom a job works now.
///
/// # Errors
/// Nobody: its creator is let in no more.
pub fn of_job(access: &AccessPolicy, job: &JobRecord) -> Result<Asker, NoLonger> {
    now(access, &job.channel, &job.creator, job.reply_to.as_ref())
}

/// A routine with what is left of its creator's rights. What only an operator may say it says no longer where they are none:
/// it writes to the conversation that made it.
///
/// # Errors
/// Nothing is left: its creator is let in no more.
pub fn of_routine(access: &AccessPolicy, routine: &RoutineRecord) -> Result<RoutineRecord, NoLonger> {
    let creator = now(access, &routine.channel, &routine.creator, routine.reply_to.as_ref())?;
    let mut routine = routine.clone();
    // An operator may have said where somebody else's routine writes to.
    if routine.creator.place == Place::Operator && creator.place != Place::Operator {
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
) -> Result<Asker, NoLonger> {
    if is_own_channel(channel) {
        return Ok(creator.clone()); // the configuration's own, which is switched off once that has it no more
    }
    let conversation = asked_in.filter(|route| route.channel == *channel).map(|route| &*route.conversation);
    match access.door(channel).left_of(creator, conversation) {
        Ok(place) => Ok(Asker { place, ..creator.clone() }),
        Err(why) => {
            let who = &creator.principal;
            Err(NoLonger(format!("{who}, for whom it worked, is no longer let in through {channel}: {why}")))
        }
    }
}

/// Whether a conversation may still be told that work of it has ended.
pub fn may_tell(access: &AccessPolicy, route: &ReplyRoute) -> bool {
    match access.door(&route.channel) {
        Door::Says(admission) => admission.serves(&route.conversation),
        Door::CannotSay | Door::Unknown => true,
    }
}

/// The sender of a message in the name of whom work is for.
pub fn principal(asker: &Asker) -> Principal {
    let role = match asker.place {
        Place::Conversation => PrincipalRole::User,
        Place::Token => PrincipalRole::Client,
        Place::Operator => PrincipalRole::Operator,
    };
    Principal { id: asker.principal.as_str().into(), role }
}

/// What can be asked about a channel.
enum Door<'a> {
    /// Who is let in.
    Says(&'a dyn Admission),
    /// It is there, and lets in whoever comes.
    CannotSay,
    /// There is none of that name, and no settings of one.
    Unknown,
}

impl Door<'_> {
    /// What is left of the place that somebody spoke from.
    fn left_of(&self, creator: &Asker, conversation: Option<&str>) -> Result<Place, String> {
        match self {
            Self::Says(admission) => admission.standing_of(&creator.principal, conversation).at_most(creator.place),
            Self::CannotSay => Ok(creator.place),
            // Nothing says any more what they may do, so it is as little as anybody may who is let in somewhere.
            Self::Unknown => Ok(Place::Conversation),
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Standing;

    use super::*;

    /// Lets everybody in as the same.
    struct As(Standing);

    impl Admission for As {
        fn standing_of(&self, _principal: &str, _conversation: Option<&str>) -> Standing {
            self.0.clone()
        }

        fn serves(&self, _conversation: &str) -> bool {
            true
        }
    }

    #[test]
    fn what_is_left_is_the_lesser_of_what_was_and_what_is() {
        use Place::{Conversation, Operator, Token};
        let says = |place| As(Standing::May(place));
        let (user, token, operator) = (says(Conversation), says(Token), says(Operator));
        let nobody = As(Standing::NotAllowed("no such person".into()));
        let gone = || Err("no such person".to_owned());
        let doors = [
            Door::Says(&user),
            Door::Says(&token),
            Door::Says(&operator),
            Door::Says(&nobody),
            Door::CannotSay,
            Door::Unknown,
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
