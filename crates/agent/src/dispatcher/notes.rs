//! Handles the notes from lanes.

use std::sync::Arc;

use belay_protocol::{Ack, IdempotencyKey, Refusal, RunId, SessionOwner};
use tokio::time::Instant;

use super::Dispatcher;
use crate::mail::{LaneNote, Settled};
use belay_run::live::LiveRun;

impl Dispatcher {
    pub(crate) fn note(&mut self, note: LaneNote) {
        match note {
            LaneNote::Settled { run, key, outcome } => self.settled(run, key, outcome),
            LaneNote::Ended { run } => self.forget(run),
            LaneNote::Recovered { run } => {
                self.sessions.insert(run.id, run.session.clone());
                if let Some(lane) = self.lanes.get_mut(&run.session) {
                    lane.runs.retain(|live| live.id != run.id); // it was sent to another node, and has come back
                    lane.runs.push(run);
                }
            }
            LaneNote::Opened { session } => {
                if let Some(lane) = self.lanes.get_mut(&session) {
                    lane.opening = false;
                }
                self.resumed(&session);
            }
            LaneNote::WantsParking { session, runs, go_on } => self.park(&session, runs, go_on),
            LaneNote::Paused(waits) => {
                match waits.in_place {
                    false => {
                        self.admission.pause(waits.run, true);
                        if let Some(SessionOwner::RoutineRun(_)) = SessionOwner::of(&waits.session) {
                            self.services.asker.paused(waits.run);
                        }
                    }
                    // As at the beginning of the drain.
                    true if self.services.draining.is_cancelled() => {
                        let run: Vec<_> = self.find(waits.run).into_iter().collect();
                        let cause = self.shutdown;
                        self.stop(&run, |_| cause);
                    }
                    true => {}
                }
                self.questions.insert(waits.approval, *waits);
            }
            LaneNote::Resumed { approval } => {
                self.services.work_questions.ended(approval);
                if let Some(waits) = self.questions.remove(&approval) {
                    self.admission.pause(waits.run, false);
                    self.services.asker.goes_on(waits.run);
                }
            }
            LaneNote::Unasked { approval, withdraw } => self.unasked(approval, withdraw),
            LaneNote::Stop { run, cause } => self.stop(&[run], |_| cause),
            LaneNote::Thawed => self.thawed(),
            LaneNote::Frozen(new) => new.iter().for_each(|freeze| drop(self.stop_as_frozen(freeze.id))),
            LaneNote::Ordered(order) => self.ordered(*order),
            LaneNote::Removed { channel, id } => self.stop_removed(channel, id),
            LaneNote::NotActedOn { key } => self.not_acted_on(key),
            LaneNote::Lost { run } => {
                let refusal = Refusal::Store("it was not accepted".into());
                let key = self.keys.of_run(run);
                self.settled(run, key, Settled::Refused { refusal, reply_to: None });
            }
            LaneNote::Foreign { session, runs } => self.leave(&session, runs),
            LaneNote::LeaseLost { session, mail, mailbox } => self.lease_lost(session, mail, mailbox),
            LaneNote::Unfinished(runs) => self.take_over(runs),
            LaneNote::Sent { id, at, session, mail } => self.await_answer(id, at, session, *mail),
            LaneNote::Elsewhere { run, key, outcome } => self.elsewhere(&run, key, outcome),
            LaneNote::Routed(mail) => {
                for mail in mail {
                    self.route_mail(mail);
                }
            }
            LaneNote::Brought { mail, handled } => {
                let handled_here = mail.into_iter().filter_map(|mail| self.route_mail(mail)).collect();
                let _ = handled.send(handled_here); // fails only when the lane has ended
            }
            LaneNote::Background(work) => self.spawn(work),
            LaneNote::Answer { session, answer } => self.post_answer(&session, answer),
            LaneNote::Commanded { session, say } => {
                if let Some(lane) = self.lanes.get_mut(&session) {
                    lane.commands = lane.commands.saturating_sub(1);
                    lane.idle_since = Instant::now();
                }
                if let Some((route, text)) = say {
                    self.notifier.say(Some(route), text);
                }
            }
        }
    }

    fn settled(&mut self, run: RunId, key: Option<IdempotencyKey>, outcome: Settled) {
        if let Settled::Accepted { at, frozen } = outcome {
            key.iter().for_each(|key| self.keys.accepted(key, at));
            if let Some((route, line)) = frozen {
                self.say_frozen(run, route, line);
            }
            return;
        }
        self.tell_waiters(key, outcome);
        self.forget(run);
    }

    /// Settles a message whose lane another node owns. If the lane has come here meanwhile, it has a live run of its own
    /// for the message.
    fn elsewhere(&mut self, run: &Arc<LiveRun>, key: Option<IdempotencyKey>, outcome: Settled) {
        self.tell_waiters(key, outcome);
        let runs = self.lanes.get(&run.session).map_or(&[][..], |lane| &lane.runs);
        if !runs.iter().any(|live| live.id == run.id && !Arc::ptr_eq(live, run)) {
            self.forget(run.id);
        }
    }

    /// Acknowledges the redeliveries of a message that has no live run here.
    fn tell_waiters(&mut self, key: Option<IdempotencyKey>, outcome: Settled) {
        let waiters = key.map(|key| self.keys.not_accepted(&key)).unwrap_or_default();
        match outcome {
            Settled::Accepted { .. } => {}
            Settled::Known(known) => {
                waiters.into_iter().for_each(|ack| ack.send(Ack::Accepted(known.clone().again(None))));
            }
            Settled::Refused { refusal, reply_to } => {
                waiters.into_iter().for_each(|ack| ack.send(Ack::Refused(refusal.clone())));
                self.say_refusal(reply_to, &refusal);
            }
        }
    }

    /// Removes a run that has ended or was never accepted. Watchers that still wait for its end learn that it will not
    /// come.
    pub(super) fn forget(&mut self, run: RunId) {
        self.keys.ended(run);
        self.admission.remove(run);
        self.services.asker.goes_on(run);
        for (approval, _) in self.questions.extract_if(|_, waits| waits.run == run) {
            self.services.work_questions.ended(approval);
        }
        let Some(session) = self.sessions.remove(&run) else { return };
        if let Some(lane) = self.lanes.get_mut(&session) {
            lane.runs.iter().filter(|live| live.id == run).for_each(|live| live.gone.cancel());
            lane.runs.retain(|live| live.id != run);
            lane.idle_since = Instant::now();
        }
    }
}
