//! The news that a stream of a run waits for.

use std::sync::Arc;

use belay_protocol::{Delta, RunRecord, RunWatch};
use tokio::sync::broadcast::error::RecvError;

use crate::app::App;

/// News of a run.
pub(super) enum News {
    Delta(Delta),
    /// Deltas were dropped, because the client reads too slowly.
    Lost,
    /// No more deltas will come.
    Nothing,
    /// The run has ended or waits for approval, or is no longer live. Its record, if there is one.
    EndedOrPaused(Option<Arc<RunRecord>>),
}

/// Returns the next delta, or the record of the run when no delta is left. `biased`: deltas come before the end.
pub(super) async fn next_news(app: &App, watch: &mut RunWatch) -> News {
    let RunWatch { finished, deltas, .. } = watch;
    let fragment = async {
        match deltas {
            Some(receiver) => receiver.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        delta = fragment => match delta {
            Ok(delta) => News::Delta(delta),
            Err(RecvError::Lagged(_)) => News::Lost,
            Err(RecvError::Closed) => {
                *deltas = None;
                News::Nothing
            }
        },
        record = app.end_or_pause(finished) => News::EndedOrPaused(record),
    }
}
