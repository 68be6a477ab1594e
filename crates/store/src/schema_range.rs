//! The decision about the schema of a store: a program may use it, migrates it, waits, or refuses it.
//!
//! A schema has a number: that of its last migration. A program names the range of schemas that it opens, and a store names
//! its schema and the oldest program that may use it. So an older program keeps working beside a newer one after a migration
//! that only adds, and it is never started on a schema that it does not understand.

/// The schemas of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The oldest schema that it opens, from 1: it migrates that one and all later ones to its own.
    pub(crate) oldest: u32,
    /// Its own schema: the number of its last migration.
    pub(crate) own: u32,
    /// The oldest program, by its own schema, that can use a store after the migrations of this one.
    pub(crate) oldest_beside: u32,
}

/// What a store says about its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The number of its last migration.
    pub(crate) version: u32,
    /// The oldest program, by its own schema, that may use the store. At most `version`.
    pub(crate) oldest_program: u32,
}

/// What a program does with a store that has tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It uses the store as it is.
    Use,
    /// It migrates the store to its own schema.
    Migrate {
        /// The oldest program that may use the store then.
        oldest_program: u32,
    },
    /// It waits for the end of living nodes, which could not use the store after the migration.
    Wait {
        /// Their places in the list of living nodes.
        too_old: Vec<usize>,
    },
    /// A newer program has migrated the store, and this one does not understand it.
    TooNew,
    /// The store is older than each schema that this program can migrate.
    TooOld,
}

/// Decides. `living`: the own schemas of the other nodes that live. The caller makes sure that no node registers until the
/// migration is committed.
pub(crate) fn decide(program: Program, stored: Stored, living: &[u32]) -> Step {
    if program.own < stored.oldest_program {
        return Step::TooNew;
    }
    if stored.version >= program.own {
        return Step::Use;
    }
    if stored.version < program.oldest {
        return Step::TooOld;
    }
    let oldest_program = stored.oldest_program.max(program.oldest_beside);
    let too_old: Vec<usize> = (0..living.len()).filter(|at| living[*at] < oldest_program).collect();
    if too_old.is_empty() { Step::Migrate { oldest_program } } else { Step::Wait { too_old } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn program(oldest: u32, own: u32, oldest_beside: u32) -> Program {
        Program { oldest, own, oldest_beside }
    }

    #[test]
    fn each_case_has_its_step() {
        let migrate = |oldest_program| Step::Migrate { oldest_program };
        for (case, program, (version, oldest_program), living, expected) in [
            ("the same schema", program(1, 1, 1), (1, 1), vec![1], Step::Use),
            ("an expansion beside older nodes", program(1, 2, 1), (1, 1), vec![1, 1], migrate(1)),
            ("a contraction without nodes", program(1, 2, 2), (1, 1), vec![], migrate(2)),
            (
                "a contraction beside older nodes",
                program(1, 3, 2),
                (1, 1),
                vec![2, 1, 3, 1],
                Step::Wait { too_old: vec![1, 3] },
            ),
            ("a contraction beside nodes that know it", program(1, 3, 2), (1, 1), vec![2, 3], migrate(2)),
            ("an older program after an expansion", program(1, 1, 1), (2, 1), vec![2], Step::Use),
            ("an older program after a contraction", program(1, 1, 1), (2, 2), vec![], Step::TooNew),
            ("between the two", program(1, 2, 1), (5, 2), vec![5], Step::Use),
            ("the demand of an earlier migration stays", program(1, 4, 1), (3, 3), vec![3], migrate(3)),
            ("a store that is too old", program(3, 5, 1), (2, 1), vec![], Step::TooOld),
            ("the oldest store", program(3, 5, 1), (3, 1), vec![], migrate(1)),
        ] {
            assert_eq!(decide(program, Stored { version, oldest_program }, &living), expected, "{case}");
        }
    }

    /// The releases of one history of migrations: the program n has the first n migrations.
    fn releases() -> impl Strategy<Value = Vec<Program>> {
        prop::collection::vec((any::<bool>(), any::<bool>()), 1..7).prop_map(|migrations| {
            let (mut oldest, mut beside) = (1, 1);
            let release = |(at, (contracts, forgets)): (usize, (bool, bool))| {
                let own = u32::try_from(at).unwrap_or(u32::MAX) + 1;
                beside = if contracts { own } else { beside };
                oldest = if forgets { own } else { oldest };
                Program { oldest, own, oldest_beside: beside }
            };
            migrations.into_iter().enumerate().map(release).collect()
        })
    }

    proptest! {
        /// Nodes of all releases start and end in any order on one store.
        #[test]
        fn no_living_node_meets_a_schema_that_it_does_not_understand(
            releases in releases(),
            acts in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..40),
        ) {
            let mut stored: Option<Stored> = None;
            let mut living: Vec<u32> = Vec::new();
            for (which, starts) in acts {
                if !starts {
                    if !living.is_empty() {
                        living.remove(which.index(living.len()));
                    }
                    continue;
                }
                let program = releases[which.index(releases.len())];
                let made = Stored { version: program.own, oldest_program: program.oldest_beside };
                let before = *stored.get_or_insert(made);
                match decide(program, before, &living) {
                    Step::Use => living.push(program.own),
                    Step::Migrate { oldest_program } => {
                        stored = Some(Stored { version: program.own, oldest_program });
                        prop_assert!(before.version < program.own && before.oldest_program <= oldest_program);
                        living.push(program.own);
                    }
                    Step::Wait { too_old } => {
                        prop_assert!(!too_old.is_empty());
                        let left: Vec<u32> =
                            (0..living.len()).filter(|at| !too_old.contains(at)).map(|at| living[at]).collect();
                        let then = decide(program, before, &left);
                        prop_assert!(matches!(then, Step::Migrate { .. }), "the end of those nodes is enough: {then:?}");
                    }
                    Step::TooNew => prop_assert!(program.own < before.version),
                    Step::TooOld => prop_assert!(before.version < program.oldest),
                }
                let now = stored.unwrap_or(made);
                prop_assert!(now.oldest_program <= now.version);
                // Each living node can use the store, and the history has a migration for each of its steps.
                prop_assert!(living.iter().all(|own| *own >= now.oldest_program), "{living:?} {now:?}");
                prop_assert_eq!(now.oldest_program, releases[now.version as usize - 1].oldest_beside);
            }
        }
    }
}
