//! The prepared statements of a connection.

use std::collections::HashMap;

use tokio_postgres::Statement;

use crate::value::{Kind, Param};

/// The number of prepared statements that a connection keeps: more than the store has. Beyond it, the one that was not used
/// for the longest time is closed.
const KEPT: usize = 512;

/// The prepared statements, by their text in the dialect of SQLite and the kinds of their parameters.
#[derive(Default)]
pub(super) struct Statements {
    by_text: HashMap<Box<str>, Vec<Prepared>>,
    count: usize,
    uses: u64,
}

struct Prepared {
    kinds: Vec<Kind>,
    names: Vec<&'static str>,
    statement: Statement,
    used: u64,
}

impl Prepared {
    fn is_for(&self, names: &[&'static str], params: &[Param<'_>]) -> bool {
        self.names == names && self.kinds.iter().copied().eq(params.iter().map(Param::kind))
    }
}

impl Statements {
    /// The statement for this text and these parameters, if it is prepared.
    pub(super) fn get(&mut self, sql: &str, names: &[&'static str], params: &[Param<'_>]) -> Option<Statement> {
        let found = self.by_text.get_mut(sql)?.iter_mut().find(|prepared| prepared.is_for(names, params))?;
        self.uses += 1;
        found.used = self.uses;
        Some(found.statement.clone())
    }

    /// Keeps a statement.
    pub(super) fn keep(&mut self, sql: &str, names: &[&'static str], params: &[Param<'_>], statement: &Statement) {
        if self.count >= KEPT {
            self.drop_oldest();
        }
        self.uses += 1;
        let kinds = params.iter().map(Param::kind).collect();
        let prepared = Prepared { kinds, names: names.to_vec(), statement: statement.clone(), used: self.uses };
        self.by_text.entry(sql.into()).or_default().push(prepared);
        self.count += 1;
    }

    /// The number of kept statements.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn drop_oldest(&mut self) {
        let oldest = self.by_text.values().flatten().map(|prepared| prepared.used).min();
        self.by_text.retain(|_, all| {
            all.retain(|prepared| Some(prepared.used) != oldest);
            !all.is_empty()
        });
        self.count -= 1;
    }
}
