//! What a connection may do: derived from who it is, never from what it says of itself.

use belay_protocol::{Principal, PrincipalRole};

/// A part of what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Read runs, sessions and events.
    Read,
    /// Send messages and stop runs.
    Write,
    /// Everything that only an operator may.
    Admin,
    /// Answer questions.
    Approvals,
}

impl Scope {
    /// Every scope.
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Approvals];

    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "operator.read",
            Self::Write => "operator.write",
            Self::Admin => "operator.admin",
            Self::Approvals => "operator.approvals",
        }
    }
}

/// The scopes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scopes(Vec<Scope>);

impl Scopes {
    /// Those of a principal; of these the asked-for ones, where some are asked for. Words that it does not have are left out.
    pub(crate) fn of(principal: &Principal, asked: Option<&[String]>) -> Self {
        let own: &[Scope] = match principal.role {
            PrincipalRole::Operator => &Scope::ALL,
            // Which questions are its own, the agent knows.
            PrincipalRole::Client => &[Scope::Read, Scope::Write, Scope::Approvals],
            PrincipalRole::User => &[],
        };
        // Who asks for the whole asks for its parts: admin holds write, and write holds read.
        let wanted = |scope: Scope| {
            let holds = |word: &String| match scope {
                Scope::Read => [Scope::Read, Scope::Write, Scope::Admin].iter().any(|s| s.word() == word),
                Scope::Write => [Scope::Write, Scope::Admin].iter().any(|s| s.word() == word),
                Scope::Admin | Scope::Approvals => scope.word() == word,
            };
            asked.is_none_or(|asked| asked.iter().any(holds))
        };
        Self(own.iter().copied().filter(|scope| wanted(*scope)).collect())
    }

    /// Whether a scope is among them.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Their words.
    pub(crate) fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|scope| scope.word()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_only_narrows() {
        let operator = Principal::operator("o");
        let client = Principal { id: "c".into(), role: PrincipalRole::Client };
        let user = Principal { id: "u".into(), role: PrincipalRole::User };
        type Words = &'static [&'static str];
        let rows: &[(&Principal, Option<Words>, Words)] = &[
            (&operator, None, &["operator.read", "operator.write", "operator.admin", "operator.approvals"]),
            (&client, None, &["operator.read", "operator.write", "operator.approvals"]),
            (&user, None, &[]),
            (&client, Some(&["operator.admin"]), &["operator.read", "operator.write"]),
            (&client, Some(&["operator.read"]), &["operator.read"]),
            (&operator, Some(&["operator.admin"]), &["operator.read", "operator.write", "operator.admin"]),
            (&operator, Some(&[]), &[]),
            (&operator, Some(&["everything"]), &[]),
        ];
        for (principal, asked, expected) in rows {
            let asked = asked.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
            assert_eq!(Scopes::of(principal, asked.as_deref()).words(), *expected, "{principal:?} {asked:?}");
        }
    }
}
