//! A command that goes on in the background: what a person reads about it, and its start.

use std::time::Duration;

use belay_exec::{Launch, Stdin};
use belay_protocol::{CallPreview, ToolContext, ToolFailure, ToolOutput};

use super::runner::{Runner, not_started};
use crate::processes::{Begun, Keeper, Wanted};

/// The name of the fact that an approval of a background command is bound to.
const FACT: &str = "background";

/// How a command stays in the background.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) keeper: Keeper,
    /// The time after which it is ended.
    pub(super) limit: Duration,
}

impl Stay {
    /// The fact that an approval is bound to.
    fn fact(self) -> String {
        let limit = self.limit();
        match self.keeper {
            Keeper::Run => format!("goes on in the background until this run ends, {limit} at most"),
            Keeper::Session => format!("goes on in the background also after this turn, {limit} at most"),
        }
    }

    /// The preview of the command, with what a person has to know about its stay. An "always" for the command does not
    /// cover that it stays, and one that outlives the turn is asked about each time, whatever the rules say.
    pub(super) fn added_to(self, mut preview: CallPreview) -> CallPreview {
        let limit = self.limit();
        let outlives = self.keeper == Keeper::Session;
        let place = if outlives { "in the background, also after this turn" } else { "in the background" };
        preview.summary = format!("{}, {place}, {limit} at most", preview.summary);
        preview.bound.push((FACT.to_owned(), self.fact()));
        preview.covers = preview.covers.filter(|_| !outlives).map(|covers| format!("{covers}, in the background"));
        preview.must_ask = outlives;
        preview
    }

    fn limit(self) -> String {
        let seconds = self.limit.as_secs();
        if seconds.is_multiple_of(60) { format!("{} min", seconds / 60) } else { format!("{seconds} s") }
    }
}

impl Runner {
    /// Starts a command in the background, and returns its handle.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is started, or the started process is ended.
    pub(super) async fn start(
        &self,
        launch: Launch,
        what: &str,
        stay: Stay,
        input: Option<String>,
        context: &ToolContext,
    ) -> ToolOutput {
        let is_approved = context.approved.as_ref().and_then(|facts| facts.get(FACT)) == Some(&stay.fact());
        if stay.keeper == Keeper::Session && !is_approved {
            return Err(ToolFailure::Denied(
                "Not started: a person must approve that it goes on after this turn.".into(),
            ));
        }
        let wanted = Wanted { what, keeper: stay.keeper, limit: stay.limit, context };
        let slot = self.background.slot(wanted).await?;
        let (launch, home) = self.wrapped(Launch { stdin: Stdin::Piped, ..launch }).await?;
        let (processes, run, generation) = (self.processes.clone(), context.run_id, context.generation.clone());
        let (what, current) = (what.to_owned(), generation.clone());
        let starting = async move {
            let running = match stay.keeper {
                Keeper::Run => processes.start(launch, run, &generation, &what).await?,
                Keeper::Session => processes.start_without_run(launch, &what).await?,
            };
            Ok(Begun { running, home, input })
        };
        // A process of the conversation does not end with the run. A stop of the run must end it nevertheless, and lists
        // it until it has ended.
        let name = slot.start(starting, move || !current.is_current()).await.map_err(not_started)?;
        let (ends, limit) = (if stay.keeper == Keeper::Run { "with this run, or " } else { "" }, stay.limit());
        Ok(format!("[{name} runs in the background. It ends {ends}after {limit}. The tool process reads it.]").into())
    }
}
