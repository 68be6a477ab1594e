//! The ways into the gateway and the principal of each. Every principal of this channel is made here, so that two
//! entries never share a principal by accident. These ids and roles decide who asked a question, who created a job, and
//! who may answer or change it.

use belay_protocol::{Authority, Principal, PrincipalRole};

/// A way into the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The API token: over HTTP, on the OpenAI-compatible routes, over WebSocket and over MCP.
    Token,
    /// The operator's token, on the same routes.
    OperatorToken,
    /// A browser that a one-time link of the control socket has signed in.
    Link,
    /// A loopback client, while no token is configured.
    Loopback,
    /// The control socket.
    ControlSocket,
    /// The holder of the secret that signs `POST /webhook`: it may send messages in the session that it names, and
    /// reads nothing.
    Signer,
    /// The holder of the secret of one routine's webhook, `POST /hooks/{path}`: it triggers that routine.
    RoutineHook,
}

impl Entry {
    /// Every entry.
    pub(crate) const ALL: [Self; 7] = [
        Self::Token,
        Self::OperatorToken,
        Self::Link,
        Self::Loopback,
        Self::ControlSocket,
        Self::Signer,
        Self::RoutineHook,
    ];

    /// The id of this entry's principal.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::OperatorToken => "operator-token",
            Self::Link => "console-link",
            Self::Loopback => "loopback",
            Self::ControlSocket => "control-socket",
            Self::Signer => "webhook",
            Self::RoutineHook => "routine-webhook",
        }
    }

    /// The role of this entry's principal.
    pub(crate) fn role(self) -> PrincipalRole {
        match self {
            Self::OperatorToken | Self::Link | Self::Loopback | Self::ControlSocket => PrincipalRole::Operator,
            // Programs call a routine's webhook. Its secret has already selected the routine.
            Self::Token | Self::RoutineHook => PrincipalRole::Client,
            // It may decide and stop only its own work, in the session of its message.
            Self::Signer => PrincipalRole::User,
        }
    }

    /// The principal of this entry.
    pub(crate) fn principal(self) -> Principal {
        Principal { id: self.id().into(), role: self.role() }
    }

    /// The authority of this entry.
    pub(crate) fn authority(self) -> Authority {
        self.role().into()
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Asker, SessionKey};

    use super::*;

    /// A user of another channel.
    fn person(id: &str) -> Principal {
        Principal { id: id.into(), role: PrincipalRole::User }
    }

    /// All principals: of every entry here, two Telegram users, and the operator at the terminal.
    fn everybody() -> Vec<Principal> {
        let elsewhere = [person("42"), person("43"), Principal::operator("terminal")];
        Entry::ALL.into_iter().map(Entry::principal).chain(elsewhere).collect()
    }

    #[test]
    fn no_two_ways_in_are_the_same_principal() {
        let mut ids: Vec<_> = everybody().iter().map(|who| who.id.to_string()).collect();
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    /// One row for each asker: who may answer in the conversation of the question, and who may answer by its id from
    /// another conversation.
    #[test]
    fn a_question_is_answered_by_its_asker_or_by_a_stronger_authority_only() {
        let operators = ["operator-token", "console-link", "loopback", "control-socket", "terminal"];
        let programs = ["token", "routine-webhook"];
        let rows: [(&str, &[&str], &[&str]); 10] = [
            ("token", &["token"], &["token"]),
            ("operator-token", &[], &[]),
            ("console-link", &[], &[]),
            ("loopback", &[], &[]),
            ("control-socket", &[], &[]),
            ("webhook", &["webhook", programs[0], programs[1]], &programs),
            ("routine-webhook", &["routine-webhook"], &["routine-webhook"]),
            ("42", &["42", programs[0], programs[1]], &programs),
            ("43", &["43", programs[0], programs[1]], &programs),
            ("terminal", &[], &[]),
        ];
        let (here, there) = (SessionKey::new("here"), SessionKey::new("there"));
        for (asker, (id, in_it, by_id)) in everybody().iter().zip(rows) {
            assert_eq!(&*asker.id, id);
            for (session, expected) in [(&here, in_it), (&there, by_id)] {
                let asked = Asker::of(asker, false);
                let may: Vec<_> =
                    everybody().into_iter().filter(|who| asked.may_be_decided_by(&here, who, session)).collect();
                let mut may: Vec<_> = may.iter().map(|who| &*who.id).filter(|id| !operators.contains(id)).collect();
                let mut expected = expected.to_vec();
                may.sort();
                expected.sort();
                assert_eq!(may, expected, "asked by {id}, answered in {session}");
                let all_operators = everybody()
                    .iter()
                    .filter(|who| who.is_operator())
                    .all(|who| asked.may_be_decided_by(&here, who, session));
                assert!(all_operators, "an operator answers what {id} asked");
            }
        }
    }

    #[test]
    fn only_operators_do_what_concerns_everything_and_only_the_token_watches_all_conversations() {
        for (entry, role) in [
            (Entry::Token, PrincipalRole::Client),
            (Entry::OperatorToken, PrincipalRole::Operator),
            (Entry::Link, PrincipalRole::Operator),
            (Entry::Loopback, PrincipalRole::Operator),
            (Entry::ControlSocket, PrincipalRole::Operator),
            (Entry::Signer, PrincipalRole::User),
            (Entry::RoutineHook, PrincipalRole::Client),
        ] {
            assert_eq!((entry.role(), entry.authority()), (role, Authority::from(role)), "{entry:?}");
        }
    }

    #[test]
    fn work_belongs_to_its_creator_and_to_operators() {
        let http = belay_protocol::ChannelId::from("http");
        for creator in everybody() {
            for who in everybody() {
                let owns = Asker::of(&who, false).owns(&http, &Asker::of(&creator, false), &http);
                assert_eq!(owns, who.is_operator() || who.id == creator.id, "{} of {}", who.id, creator.id);
            }
        }
    }
}
