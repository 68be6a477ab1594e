//! Questions to people: runs that rest on them, answers, and what the answers grant.

use belay_protocol::{
    Decided, Gate, GateFilter, GateId, GateState, Lease, NewEvent, PausedRun, RunId, RunRecord, RunStatus, SessionKey,
    StoreError, ThreadState, UnixMillis, WaitingFor,
};

use super::state::{Delivery, Run, Stage, State};
use crate::gates::{asked, check_answer, check_question, decided, gates_limit, not_approved, withdrawn};

impl State {
    /// Lays a run to rest on its question.
    pub(super) fn pause_run(&mut self, lease: &Lease, paused: PausedRun) -> Result<(), StoreError> {
        self.lane(lease)?;
        check_question(lease, &paused)?;
        let PausedRun { checkpoint, gate, outbound } = paused;
        let id = checkpoint.run;
        if self.gate(gate.id).is_some() {
            return Err(StoreError::Unavailable(format!("question {} is asked already", gate.id)));
        }
        if let Some(outbound) = &outbound {
            self.check_outbound(outbound)?;
        }
        self.checkpoint(lease, checkpoint)?;
        let run = self.run_of(&lease.session, id);
        let place = run.and_then(|run| {
            run.status = RunStatus::Paused;
            run.place
        });
        if let Some((thread, _)) = place {
            self.thread_mut(thread).touch(Some(ThreadState::AwaitingApproval), gate.asked_at);
        }
        if let Some(message) = outbound {
            self.outbox.push(Delivery { message, attempts: 0, stage: Stage::Waiting(None) });
        }
        self.push_events(&[asked(&gate)]);
        self.gates.push(gate);
        Ok(())
    }

    /// Refuses approvals that are not the run's, or do not stand.
    pub(super) fn check_approved(&self, run: RunId, approvals: &[GateId]) -> Result<(), StoreError> {
        let stands =
            |id: &GateId| self.gate(*id).is_some_and(|gate| gate.run_id == run && gate.state == GateState::Approved);
        let twice = |place: usize, id: &GateId| approvals[..place].contains(id);
        match approvals.iter().enumerate().find(|(place, id)| !stands(id) || twice(*place, id)) {
            None => Ok(()),
            Some((_, id)) => Err(not_approved(*id)),
        }
    }

    /// Uses approvals up that have been checked.
    pub(super) fn use_up(&mut self, approvals: &[GateId]) {
        for gate in self.gates.iter_mut().filter(|gate| approvals.contains(&gate.id)) {
            gate.state = GateState::Used;
        }
    }

    /// Takes back what a run that ends has asked and not used, and returns the facts of it.
    pub(super) fn withdraw(&mut self, session: &SessionKey, run: RunId, at: UnixMillis) -> Vec<NewEvent> {
        let own = self.gates.iter_mut().filter(|gate| gate.run_id == run);
        let open = own.filter(|gate| matches!(gate.state, GateState::Waiting | GateState::Approved));
        open.map(|gate| {
            gate.state = GateState::Withdrawn;
            withdrawn(gate.id, session, run, at)
        })
        .collect()
    }

    pub(super) fn decide(
        &mut self,
        id: GateId,
        state: GateState,
        always: bool,
        by: &str,
        at: UnixMillis,
    ) -> Result<Decided, StoreError> {
        check_answer(state)?;
        let Some(gate) = self.gates.iter_mut().find(|gate| gate.id == id) else { return Ok(Decided::Unknown) };
        if gate.state != GateState::Waiting {
            return Ok(Decided::Before(Box::new(gate.clone())));
        }
        gate.state = state;
        gate.decided_by = Some(by.into());
        gate.decided_at = Some(at);
        let gate = gate.clone();
        if let (true, GateState::Approved, Some(covers)) = (always, state, &gate.covers) {
            self.grants.insert((gate.session.clone(), gate.tool.clone(), covers.clone()));
        }
        self.push_events(&[decided(&gate, by, at)]);
        Ok(Decided::Now(Box::new(gate)))
    }

    pub(super) fn gate(&self, id: GateId) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.id == id)
    }

    /// The question that a run rests on, or rested on last.
    pub(super) fn newest_gate_of(&self, run: RunId) -> Option<&Gate> {
        self.gates.iter().rev().find(|gate| gate.run_id == run)
    }

    pub(super) fn gates(&self, filter: &GateFilter) -> Vec<Gate> {
        let newest = self.gates.iter().rev();
        let wanted = newest
            .filter(|gate| filter.id.as_ref().is_none_or(|id| id.begins(gate.id.as_uuid())))
            .filter(|gate| !filter.waiting || gate.state == GateState::Waiting)
            .filter(|gate| filter.session.as_ref().is_none_or(|session| gate.session == *session))
            .filter(|gate| {
                let channel = self.run(gate.run_id).map(|run| &run.input.channel);
                filter.channel.is_none() || filter.channel.as_ref() == channel
            });
        wanted.take(gates_limit(filter) as usize).cloned().collect()
    }

    /// The record of a run with what it waits for, while it is paused and nobody has answered.
    pub(super) fn record(&self, run: &Run) -> RunRecord {
        let paused = run.status == RunStatus::Paused;
        let newest = self.newest_gate_of(run.input.run_id).filter(|gate| paused && gate.state == GateState::Waiting);
        RunRecord { waiting_for: newest.map(WaitingFor::from), ..run.record() }
    }

    pub(super) fn forget_grants(&mut self, session: &SessionKey) -> u32 {
        let before = self.grants.len();
        self.grants.retain(|(owner, ..)| owner != session);
        u32::try_from(before - self.grants.len()).unwrap_or(u32::MAX)
    }
}
