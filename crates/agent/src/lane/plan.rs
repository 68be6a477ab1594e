//! Commands about the plan of the running turn. The lane posts them to the turn, and answers them when the turn has stored
//! the change. Meanwhile it takes other mail.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use belay_protocol::{PlanCommand, Refusal, StopReason};
use tokio::sync::oneshot;

use super::port::{note, refuse_command};
use super::{CommandResult, Lane, Undone};
use crate::mail::{LaneCommand, LaneNote, PlanOrder};
use crate::queued_run::QueuedRun;
use belay_run::live::{ENDED, NOT_READY, PlanAnswer, StopCause};

/// Without a plan.
const NONE: &str = "No plan is being carried out here. /plan TEXT makes one: it is split into steps, which are carried out \
one after the other. /plan --review TEXT shows the steps first and waits for /plan approve.";
const WAITS_ITS_TURN: &str = "The plan waits its turn behind another message. /stop takes it back.";
const NOT_YOURS: &str = "Somebody else has asked for this plan. Its steps are changed and approved by that person or by an \
operator; /plan hold, /plan drop N and /plan cancel are for everybody here.";
const CANCELLED: &str = "The plan was cancelled.";

/// Commands that the running turn carries out, each with its answer to come.
#[derive(Default)]
pub(super) struct PlanCommands(Vec<(LaneCommand, oneshot::Receiver<PlanAnswer>)>);

impl PlanCommands {
    /// Waits for the next answer, if a command waits for one. `None` as the answer: the steps have ended.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn answered(&mut self) -> (LaneCommand, Option<PlanAnswer>) {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(answer) = Pin::new(&mut self.0[at].1).poll(context) {
                    return Poll::Ready((self.0.remove(at).0, answer.ok()));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the commands without an answer.
    pub(super) fn take(&mut self) -> impl Iterator<Item = LaneCommand> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(command, _)| command)
    }
}

impl Lane {
    /// Carries out a command about the plan, or posts it to the turn.
    pub(super) async fn plan_command(&mut self, command: LaneCommand, order: PlanOrder) {
        let said = match self.state.current().filter(|current| current.run.plan.is_expected()) {
            Some(current) if may(current, &command, &order) => match order.command {
                PlanCommand::Show => current.run.plan.shown().ok_or(NOT_READY),
                PlanCommand::Cancel => {
                    let cause = StopCause { told: true, ..StopCause::of(StopReason::UserStop) };
                    note(&self.port.notes, LaneNote::Stop { run: current.run.clone(), cause }).await;
                    Ok(CANCELLED.to_owned())
                }
                order => match current.run.plan.post(order, command.origin.principal.clone()) {
                    Ok(answer) => return self.plan_commands.0.push((command, answer)),
                    Err(why) => Err(why),
                },
            },
            Some(_) => Err(NOT_YOURS),
            None if self.queue.iter().any(|waiting| waiting.run.plan.is_expected()) => Err(WAITS_ITS_TURN),
            None => Err(NONE),
        };
        self.say(command, said.map_err(|why| Undone::Refused(why.to_owned()))).await;
    }

    /// Answers a command that the turn has carried out.
    pub(super) async fn end_plan_command(&self, command: LaneCommand, answer: Option<PlanAnswer>) {
        let said: CommandResult = match answer {
            Some(PlanAnswer::Done(text)) => Ok(text),
            Some(PlanAnswer::Refused(why)) => Err(Undone::Refused(why)),
            Some(PlanAnswer::Unstored(why)) => Err(Undone::Unstored(why)),
            None => Err(Undone::Refused(ENDED.to_owned())),
        };
        self.say(command, said).await;
    }

    /// Refuses the commands without an answer, because the lane ends.
    pub(super) async fn refuse_plan_commands(&mut self, refusal: Refusal) {
        for command in self.plan_commands.take() {
            refuse_command(&self.port.notes, command, refusal.clone()).await;
        }
    }
}

/// Whether the sender may do this with the plan of this run. What begins a step, or is the text of one, is up to the person
/// whose run it is, as with a message that joins a run. Whatever does less is up to everybody here, as `/stop` is.
fn may(current: &QueuedRun, command: &LaneCommand, order: &PlanOrder) -> bool {
    let adds = match order.command {
        PlanCommand::Approve | PlanCommand::Change { .. } | PlanCommand::Add { .. } => true,
        PlanCommand::Show | PlanCommand::Hold | PlanCommand::Cancel | PlanCommand::Drop { .. } => false,
    };
    let (own, sender) = (&current.run.origin, &command.origin);
    !adds || order.by_operator || (own.channel == sender.channel && own.principal == sender.principal)
}
