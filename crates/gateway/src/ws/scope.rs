//! What a connection may do. The scopes come from its principal, never from its own claims.

use belay_protocol::{Principal, PrincipalRole};

/// A group of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Read runs, sessions and events.
    Read,
    /// Send messages and stop runs.
    Write,
    /// Everything that is reserved for operators.
    Admin,
    /// Answer approval requests.
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
    /// The scopes of a principal, limited to the requested ones if some are requested. Unknown and foreign words are
    /// left out.
    pub(crate) fn of(principal: &Principal, asked: Option<&[String]>) -> Self {
        let own: &[Scope] = match principal.role {
            PrincipalRole::Operator => &Scope::ALL,
            // The agent checks which approval requests are the client's own.
            PrincipalRole::Client => &[Scope::Read, Scope::Write, Scope::Approvals],
            PrincipalRole::User => &[],
        };
        // A scope includes its parts: admin includes write, and write includes read.
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

    /// Whether it contains a scope.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// The words of the scopes.
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
