//! Whether this daemon may still act for its runs.

use std::fmt;
use std::sync::Arc;

/// Asks whether the lease of this node of a cluster holds at this moment. A node that was stopped for a while may learn by
/// this that other nodes have its runs. The default holds always: a daemon that is alone.
#[derive(Clone, Default)]
pub struct Membership(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Membership {
    /// One that this function answers for. It is quick.
    pub fn by(holds: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self(Some(holds))
    }

    /// Whether it holds at this moment.
    pub(super) fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| holds())
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Membership({})", self.holds())
    }
}
