//! Passes the news of a run to a channel that shows it as it works.

use belay_protocol::{Delta, LiveNews, LiveView, RunId};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use belay_run::live::LiveRun;

/// Shows the run until `finish` is cancelled; the pieces that are ready then are still shown. The caller shows the end.
///
/// # Cancel safety
/// If the future is dropped midway, because the turn has panicked, the run is shown as ended.
pub(super) async fn show(run: &LiveRun, view: &dyn LiveView, finish: &CancellationToken) {
    // Everything from now on: a run that was paused has shown the text before.
    let (_, mut deltas) = run.output.subscribe();
    let mut state = run.display.follow();
    let mut end = EndGuard { run: run.id, view, is_armed: true };
    view.show(run.id, LiveNews::Began);
    loop {
        tokio::select! {
            biased; // the end last, after all that was said before it
            delta = deltas.recv() => match delta {
                Ok(Delta::Text { step, text }) => {
                    // The calls of the step before have ended already: they are shown above the text.
                    if state.has_changed().unwrap_or(false) {
                        let now = state.borrow_and_update().clone();
                        view.show(run.id, LiveNews::State(now));
                    }
                    view.show(run.id, LiveNews::Text { step, text });
                }
                Ok(Delta::Reasoning { .. } | Delta::Tool { .. }) => {}
                Err(RecvError::Lagged(_)) => view.show(run.id, LiveNews::Lost),
                Err(RecvError::Closed) => break,
            },
            Ok(()) = state.changed() => {
                let state = state.borrow_and_update().clone();
                view.show(run.id, LiveNews::State(state));
            }
            () = finish.cancelled() => break,
        }
    }
    end.is_armed = false;
}

/// Ends the display of a run whose turn does not end it.
struct EndGuard<'a> {
    run: RunId,
    view: &'a dyn LiveView,
    is_armed: bool,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.view.show(self.run, LiveNews::Ended { answered: false });
        }
    }
}
