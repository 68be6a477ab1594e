//! The way from a call to the store: a call keeps what it needs to be found again after a restart.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::json_bytes::json_bytes;

/// Largest handle, in bytes of JSON. 4 KiB: the state of a run has all of them, and each step writes it.
pub const MAX_HANDLE: usize = 4 * 1024;

/// Stores the handle of a running call.
#[async_trait]
pub trait KeepHandle: Send + Sync {
    /// Stores the handle. Returns whether it is on disk, or may be.
    ///
    /// # Cancel safety
    /// If the future is dropped, the handle may be stored or not.
    async fn keep(&self, handle: Value) -> bool;
}

/// The place where a call keeps its handle: a reference to work that goes on without Belay, such as a task of a server.
/// After a crash a call with a handle is made again with it, and continues that work instead of beginning it. Only the tool of the
/// call knows the form of a handle. The default keeps nothing.
#[derive(Clone, Default)]
pub struct HandlePort {
    earlier: Option<Value>,
    keeper: Option<Arc<dyn KeepHandle>>,
}

impl HandlePort {
    /// Keeps handles by this port. `earlier`: the handle that an earlier attempt at the call has kept.
    pub fn new(earlier: Option<Value>, keeper: Arc<dyn KeepHandle>) -> Self {
        Self { earlier, keeper: Some(keeper) }
    }

    /// The handle that an earlier attempt at this call has kept; `None`: the call begins.
    pub fn earlier(&self) -> Option<&Value> {
        self.earlier.as_ref()
    }

    /// Keeps a handle instead of the one before. Returns whether it is on disk; `false` also for one that is larger than
    /// [`MAX_HANDLE`], and where nothing is kept.
    ///
    /// # Cancel safety
    /// See [`KeepHandle::keep`].
    pub async fn keep(&self, handle: Value) -> bool {
        match &self.keeper {
            Some(keeper) if json_bytes(&handle) <= MAX_HANDLE => keeper.keep(handle).await,
            _ => false,
        }
    }
}

impl fmt::Debug for HandlePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A handle may give access to the work.
        let (earlier, keeps) = (self.earlier.is_some(), self.keeper.is_some());
        write!(f, "HandlePort(earlier: {earlier}, keeps: {keeps})")
    }
}
