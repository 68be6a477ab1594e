//! The tools that work for a run at this moment.

use std::sync::Arc;

use tokio::sync::watch;

/// The calls whose tools work. A tool that does not react to a stop stays in the list until its task has ended: a task is
/// aborted, but that has no effect while the tool blocks its thread.
#[derive(Debug, Default)]
pub struct WorkingCalls(Arc<watch::Sender<Vec<Arc<str>>>>);

/// A tool that works. Dropped at the end of its task, however that ends.
#[derive(Debug)]
pub(crate) struct WorkingCall {
    calls: Arc<watch::Sender<Vec<Arc<str>>>>,
    tool: Arc<str>,
}

impl WorkingCalls {
    /// Adds a call of this tool until the returned value is dropped.
    pub(crate) fn begin(&self, tool: &str) -> WorkingCall {
        let tool: Arc<str> = tool.into();
        self.0.send_modify(|working| working.push(tool.clone()));
        WorkingCall { calls: self.0.clone(), tool }
    }

    /// The names of the tools that work.
    pub fn working(&self) -> Vec<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Waits until no tool works.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ended(&self) {
        let mut calls = self.0.subscribe();
        // Fails only without a sender, and this has one.
        let _ = calls.wait_for(Vec::is_empty).await;
    }
}

impl Drop for WorkingCall {
    fn drop(&mut self) {
        self.calls.send_modify(|working| {
            if let Some(place) = working.iter().position(|tool| Arc::ptr_eq(tool, &self.tool)) {
                working.remove(place);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_works_until_its_task_has_ended_and_no_longer() {
        let calls = WorkingCalls::default();
        let (one, two) = (calls.begin("echo"), calls.begin("echo"));
        drop(one);
        assert_eq!(calls.working(), [Arc::from("echo")]);
        let task = tokio::spawn(async move {
            let _two = two;
            std::future::pending::<()>().await;
        });
        task.abort();
        calls.ended().await;
        assert!(calls.working().is_empty());
    }
}
