//! The way from a call to a person: the call waits in its place for the answer.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::form::Form;

/// The answer to a form.
#[derive(Clone, Debug, PartialEq)]
pub enum FormAnswer {
    /// These values, checked.
    Given(Map<String, Value>),
    /// A person refused.
    Declined,
    /// Nobody answered in time.
    Expired,
    /// The call, its run, or the question has ended.
    Stopped,
    /// Nobody can be asked, for this reason.
    Unasked(String),
}

/// Asks the person that a call works for.
#[async_trait]
pub trait AskPerson: Send + Sync {
    /// Asks a person to fill in a form, and waits. The question is in the store before anyone sees it, and its answer
    /// before it is returned. `nth`: the number of the question within the call. The wait counts for no limit of the run.
    ///
    /// # Cancel safety
    /// If the future is dropped or `stop` is cancelled, the question is withdrawn.
    async fn fill_in(&self, form: Form, nth: u32, stop: &CancellationToken) -> FormAnswer;
}

/// The person whom a call can ask. The default can ask nobody.
#[derive(Clone, Default)]
pub struct PersonPort(Option<Arc<dyn AskPerson>>);

impl PersonPort {
    /// Asks by this port.
    pub fn to(asker: Arc<dyn AskPerson>) -> Self {
        Self(Some(asker))
    }

    /// Asks a person to fill in a form. See [`AskPerson::fill_in`].
    pub async fn fill_in(&self, form: Form, nth: u32, stop: &CancellationToken) -> FormAnswer {
        match &self.0 {
            Some(asker) => asker.fill_in(form, nth, stop).await,
            None => FormAnswer::Unasked("this run cannot ask anybody".into()),
        }
    }
}

impl fmt::Debug for PersonPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PersonPort({})", if self.0.is_some() { "asks" } else { "nobody" })
    }
}
