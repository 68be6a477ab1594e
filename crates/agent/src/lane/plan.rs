//! Commands about the plan of the running turn. The lane posts them to the turn, and answers them when the turn has stored
//! the change. Meanwhile it takes other mail.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use belay_protocol::{PlanCommand, Refusal, StopReason};
use tokio::sync::oneshot;

use super::port::{note, refuse_command};
use super::{CommandResult, Lane, Undone};
use crate::mail::{LaneCommand, LaneNote, PlanOrder};
use crate::queued_run::QueuedRun;
use belay_run::live::{LiveRun, NOT_READY, PlanAnswer, StopCause};

/// Without a plan.
const NONE: &str = "No plan is being carried out here. /plan TEXT makes one: it is split into steps, which are carried out \
one after the other. /plan --review TEXT shows the steps first and waits for /plan approve.";
const WAITS_ITS_TURN: &str = "The plan waits its turn behind another message. /stop takes it back.";
const NOT_YOURS: &str = "Somebody else has asked for this plan. Its steps are changed and approved by that person or by an \
operator; /plan hold, /plan drop N and /plan cancel are for everybody here.";
const CANCELLED: &str = "The plan was cancelled.";

/// Commands that the running turn carries out, each with its answer to come.
#[derive(Default)]
pub(super) struct PlanCommands(Vec<Posted>);

struct Posted {
    command: LaneCommand,
    /// The run whose turn carries it out.
    run: Arc<LiveRun>,
    answer: oneshot::Receiver<PlanAnswer>,
}

/// A command with its answer: that of the turn, or why it got none.
pub(super) type Answered = (LaneCommand, PlanAnswer);

impl PlanCommands {
    /// Waits for the next answer, if a command waits for one.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn answered(&mut self) -> Answered {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(answer) = Pin::new(&mut self.0[at].answer).poll(context) {
                    let Posted { command, run, .. } = self.0.remove(at);
                    let why = |_| PlanAnswer::Refused(run.plan.closed().to_owned());
                    return Poll::Ready((command, answer.unwrap_or_else(why)));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the commands without an answer.
    pub(super) fn take(&mut self) -> impl Iterator<Item = LaneCommand> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|posted| posted.command)
    }

    /// Takes the commands that the turn has answered, which may be before the lane has looked.
    fn take_answered(&mut self) -> Vec<Answered> {
        let (mut answered, mut open) = (Vec::new(), Vec::new());
        for mut posted in std::mem::take(&mut self.0) {
            match posted.answer.try_recv() {
                Ok(answer) => answered.push((posted.command, answer)),
                Err(_) => open.push(posted),
            }
        }
        self.0 = open;
        answered
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
                    Ok(answer) => {
                        let run = current.run.clone();
                        return self.plan_commands.0.push(Posted { command, run, answer });
                    }
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
    pub(super) async fn end_plan_command(&self, (command, answer): Answered) {
        let said: CommandResult = match answer {
            PlanAnswer::Done(text) => Ok(text),
            PlanAnswer::Refused(why) => Err(Undone::Refused(why)),
            PlanAnswer::Unstored(why) => Err(Undone::Unstored(why)),
        };
        self.say(command, said).await;
    }

    /// Answers the commands that the turn has answered. Call it when the turn has ended, and before the others are given back
    /// or refused: what is done and stored must not be refused, or done twice.
    pub(super) async fn end_plan_commands(&mut self) {
        for answered in self.plan_commands.take_answered() {
            self.end_plan_command(answered).await;
        }
    }

    /// Refuses the commands without an answer, because the lane ends.
    pub(super) async fn refuse_plan_commands(&mut self, refusal: Refusal) {
        self.end_plan_commands().await;
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

#[cfg(test)]
mod tests {
    use belay_protocol::{AckSender, RunId, Work};
    use belay_run::live::RunOrigin;

    use super::*;
    use crate::mail::LaneOrder;

    /// A command of this person for a turn, and its answer to come.
    fn posted(who: &str) -> (Posted, oneshot::Sender<PlanAnswer>) {
        let (channel, principal) = ("test".into(), who.into());
        let origin = RunOrigin { work: Work::Chat, source: None, channel, principal };
        let run = LiveRun::new(RunId::new(), "s".into(), origin.clone(), false);
        let command = LaneCommand {
            session: "s".into(),
            order: LaneOrder::Plan(PlanOrder { command: PlanCommand::Hold, by_operator: false }),
            origin,
            word: "/plan".into(),
            reply_to: None,
            sent: None,
            claimed: None,
            forwarded: None,
            ack: AckSender::nobody(),
        };
        let (to, answer) = oneshot::channel();
        (Posted { command, run, answer }, to)
    }

    #[tokio::test]
    async fn what_is_done_is_told_and_only_the_rest_is_given_back_when_a_lane_ends() {
        let ((open, _to), (done, to_done), (dropped, _), (refused, to_refused)) =
            (posted("open"), posted("done"), posted("dropped"), posted("refused"));
        let mut commands = PlanCommands(vec![open, done, dropped, refused]);
        to_done.send(PlanAnswer::Done("held".into())).expect("awaited");
        to_refused.send(PlanAnswer::Refused("no".into())).expect("awaited");
        let who = |command: LaneCommand| command.origin.principal.to_string();
        let told: Vec<_> =
            commands.take_answered().into_iter().map(|(command, answer)| (who(command), answer)).collect();
        let expected = [("done", PlanAnswer::Done("held".into())), ("refused", PlanAnswer::Refused("no".into()))];
        assert_eq!(told, expected.map(|(who, answer)| (who.to_owned(), answer)));
        assert_eq!(commands.take().map(who).collect::<Vec<_>>(), ["open", "dropped"]);
    }

    #[tokio::test]
    async fn without_an_answer_a_plan_that_has_steps_left_was_interrupted() {
        for (ends, why) in [(true, "All steps of the plan have ended."), (false, "The plan was interrupted;")] {
            let (posted, to) = posted("ann");
            let open = posted.run.plan.open();
            if ends {
                open.end()
            } else {
                drop(open)
            }
            drop(to);
            let (_, answer) = PlanCommands(vec![posted]).answered().await;
            assert!(matches!(&answer, PlanAnswer::Refused(text) if text.starts_with(why)), "{answer:?}");
        }
    }
}
