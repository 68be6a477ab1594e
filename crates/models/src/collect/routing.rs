//! Routes the pieces of streamed tool calls: by the id, then by the index, then to the call that began last.
//!
//! Servers disagree about what identifies a call. Gemini's compatible interface gives each call the index 0, some proxies
//! send no index, and others repeat the id and the name with each piece. `docs/reference/model-servers.md` lists them.

use super::{CallAt, Collector, PartialCall};

/// The identity of a piece of a call. An empty text counts as missing.
pub(crate) struct CallHead<'a> {
    /// The index that the server gave the call.
    pub(crate) index: Option<u64>,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
}

impl CallHead<'_> {
    /// Whether the name is that of the call, as far as both are known.
    fn has_name_of(&self, call: &PartialCall) -> bool {
        self.name.is_empty() || call.name.is_empty() || self.name == call.name
    }

    /// Whether the id identifies the call. Two calls may share an id: then each has a head, with an index of its own.
    fn has_id_of(&self, call: &PartialCall) -> bool {
        let is_other_head = !self.name.is_empty() && self.index.is_some_and(|index| index != call.key);
        !self.id.is_empty() && self.id == call.id && self.has_name_of(call) && !is_other_head
    }

    /// Whether a piece with the index of the call continues it. A different id begins another call only with a name:
    /// some servers make up a new id for each piece.
    fn continues(&self, call: &PartialCall) -> bool {
        let is_known = self.id.is_empty() || call.id.is_empty() || self.id == call.id;
        if is_known { self.has_name_of(call) } else { self.name.is_empty() }
    }
}

impl Collector {
    /// Finds the call that a piece continues; `None` if the piece begins a call.
    pub(crate) fn continued(&self, head: &CallHead<'_>) -> Option<CallAt> {
        let latest = |is: &dyn Fn(&PartialCall) -> bool| self.calls.iter().rposition(is);
        let by_id = latest(&|call| head.has_id_of(call));
        let by_index = || match head.index {
            Some(index) => latest(&|call| call.key == index).filter(|at| head.continues(&self.calls[*at])),
            // A name continues the last call only if that has none yet: its arguments came first.
            None => {
                let last = self.calls.last()?;
                let continues = head.name.is_empty() || (last.name.is_empty() && head.continues(last));
                continues.then(|| self.calls.len() - 1)
            }
        };
        by_id.or_else(by_index).map(CallAt)
    }

    /// The key of a call without an index: the number of calls before it.
    pub(crate) fn next_key(&self) -> u64 {
        self.calls.len() as u64
    }
}
