//! Shared behaviour of runs without a person: jobs and the executors of plans. A text ends such a run only if it states
//! that the work is done. However the run ends, its best text is not lost.

use belay_agent_loop::{LoopContext, LoopOutcome, TextAction};
use belay_protocol::{FinishReason, Message, MessageBody};

use crate::completion::signals_completion;
use crate::completion_check;
use crate::core::RunCore;
use crate::reply::{self, Reply};

/// Notices for texts that do not end the run.
pub struct Manner {
    /// For a text without a call that does not state that the work is done.
    pub nudge: &'static str,
    /// For an empty text.
    pub empty: &'static str,
    /// Whether the second such text in a row ends the run anyway.
    pub second_is_end: bool,
}

/// The texts of a run since its last tool call.
#[derive(Debug, Default)]
pub struct Texts {
    /// The previous text, if it was complete.
    said: Option<String>,
    /// Whether the previous text was answered with a notice.
    nudged: bool,
}

impl Texts {
    /// Resets the state after tool calls or a message of somebody else.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Evaluates a text: it ends the run, or gets a notice to continue. `task`: the run's request.
    pub async fn hear(
        &mut self,
        text: &str,
        manner: &Manner,
        task: &str,
        core: &mut RunCore,
        context: &mut LoopContext,
    ) -> TextAction {
        let text = match reply::shape(text) {
            Reply::Text(text) => text,
            Reply::OnlyEchoes | Reply::Empty | Reply::Silent => String::new(),
        };
        let second = std::mem::replace(&mut self.nudged, true);
        if text.is_empty() {
            // After the notice the model has nothing to add, so its previous text is the answer.
            if let Some(said) = self.said.take() {
                return TextAction::Return(LoopOutcome::Response(said));
            }
            if second && manner.second_is_end {
                return TextAction::Return(LoopOutcome::Response(text));
            }
            context.push(Message::system(manner.empty).for_run());
            return TextAction::Continue;
        }
        context.push(Message::assistant(&text));
        let whole = matches!(context.state.last_finish, FinishReason::Stop | FinishReason::ToolCalls);
        let is_end = (second && manner.second_is_end) || (whole && signals_completion(&text));
        if !is_end {
            self.said = whole.then_some(text);
            context.push(Message::system(manner.nudge).for_run());
            return TextAction::Continue;
        }
        if core.services.config.completion_check {
            let step = context.state.iteration;
            // A store that does not respond causes an error at the next write; here the text counts as the end.
            let missing = completion_check::missing(core, task, &text, step).await.ok().flatten();
            if let Some(missing) = missing {
                let notice = format!("A check found that this answer is incomplete: {missing}. {}", manner.nudge);
                context.push(Message::system(notice).for_run());
                return TextAction::Continue;
            }
        }
        TextAction::Return(LoopOutcome::Response(text))
    }
}

/// The last text of the model after index `from` of the context.
pub fn last_words(context: &LoopContext, from: usize) -> Option<String> {
    let own = context.messages.get(from..).unwrap_or_default().iter().rev();
    let said = own.filter(|said| matches!(said.body, MessageBody::Assistant { .. }));
    said.map(|message| message.text().trim()).find(|text| !text.is_empty()).map(str::to_owned)
}
