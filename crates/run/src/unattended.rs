//! What runs have in common that nobody reads along with, jobs and the executors of plans: a text is no end unless it says that
//! the work is done, and whatever ends them, the best that they had to say is not lost.

use belay_agent_loop::{LoopContext, LoopOutcome, TextAction};
use belay_protocol::{FinishReason, Message, MessageBody};

use crate::completion::signals_completion;
use crate::completion_check;
use crate::core::RunCore;
use crate::reply::{self, Reply};

/// How a kind of run answers texts that are no end.
pub struct Manner {
    /// A text without a call that does not say that the work is done.
    pub nudge: &'static str,
    /// Nothing at all.
    pub empty: &'static str,
    /// Whether the second such text in a row is an end all the same.
    pub second_is_end: bool,
}

/// The texts of a run since it last called a tool.
#[derive(Debug, Default)]
pub struct Texts {
    /// The one before, where it was whole.
    said: Option<String>,
    /// Whether the one before was answered with a notice.
    nudged: bool,
}

impl Texts {
    /// Something came in between: calls, or words of somebody else.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Takes a text: as the end, or with a notice to go on. `task`: what the run was asked for.
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
            // Told to end the work or to go on, it has nothing to add: what it said before is its answer.
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
            // A store that does not answer shows itself at the next write; the text stands.
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

/// The last text of the model behind this place of the context.
pub fn last_words(context: &LoopContext, from: usize) -> Option<String> {
    let own = context.messages.get(from..).unwrap_or_default().iter().rev();
    let said = own.filter(|said| matches!(said.body, MessageBody::Assistant { .. }));
    said.map(|message| message.text().trim()).find(|text| !text.is_empty()).map(str::to_owned)
}
