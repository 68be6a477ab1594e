//! Routines and their firings.

use std::collections::{BTreeMap, HashMap};

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{
    Aside, Claim, FiringEnd, FiringFilter, FiringId, FiringRecord, FiringStatus, Held, JobId, NewFiring, NewRoutine,
    PutRule, RoutineId, RoutineNumbers, RoutineOrigin, RoutinePut, RoutineRecord, RunId, SessionKey, Settled,
    StoreError, UnixMillis, firing_session,
};

use super::state::State;
use crate::routines::{
    check_end, claimed, count_end, ended, firings_limit, go_on, held_back, is_echo, is_settled, left_ms, made, missed,
    most_of_owner, no_firing, no_routine, off, over, path_of, path_taken, put_again, settle_time, switched, told,
    too_many, too_many_each,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Routines {
    by_name: BTreeMap<String, Routine>,
    names: HashMap<RoutineId, String>,
    /// Raised with each change of what sets routines off.
    changes: u64,
    /// In the order of commit.
    firings: BTreeMap<u64, Firing>,
    places: HashMap<FiringId, u64>,
    /// Of each routine, by what makes the cause recognisable.
    keys: HashMap<(RoutineId, String), FiringId>,
    /// The number of the newest firing.
    newest: u64,
}

#[derive(Clone, Debug)]
struct Routine {
    record: RoutineRecord,
    /// Until when it is laid aside.
    not_before: Option<UnixMillis>,
}

impl Routine {
    fn due_at(&self) -> Option<UnixMillis> {
        self.record.next_at.map(|next| self.not_before.map_or(next, |until| next.max(until)))
    }

    /// Becomes what it is now. One that waits for another time is not laid aside.
    fn become_now(&mut self, record: RoutineRecord) {
        if (record.routine_id, record.next_at) != (self.record.routine_id, self.record.next_at) {
            self.not_before = None;
        }
        self.record = record;
    }
}

#[derive(Clone, Debug)]
struct Firing {
    record: FiringRecord,
    content: Option<String>,
}

impl Routines {
    pub(super) fn put(&mut self, new: NewRoutine, rule: PutRule) -> RoutinePut {
        let name = new.spec.name.clone();
        let old = self.by_name.get(&name);
        let new = match old {
            Some(old) => match over(&old.record, new, rule) {
                Ok(new) => new,
                Err(refused) => return refused,
            },
            None => match self.no_room(&new, rule) {
                Some(refused) => return refused,
                None => new,
            },
        };
        if let Some(path) = path_of(&new.spec.trigger) {
            let mut others = self.by_name.iter().filter(|(other, _)| **other != name);
            if let Some((by, _)) = others.find(|(_, other)| path_of(&other.record.spec.trigger) == Some(path)) {
                return path_taken(path, by);
            }
        }
        let routine = match old.cloned() {
            Some(mut old) => {
                self.names.remove(&old.record.routine_id); // what takes the name may be another one
                old.become_now(put_again(old.record.clone(), new));
                old
            }
            None => Routine { record: made(new), not_before: None },
        };
        let record = routine.record.clone();
        self.names.insert(record.routine_id, name.clone());
        self.by_name.insert(name, routine);
        self.changes += 1;
        RoutinePut::Done(Box::new(record))
    }

    /// Why there is no room for one more.
    fn no_room(&self, new: &NewRoutine, rule: PutRule) -> Option<RoutinePut> {
        if self.by_name.len() >= MAX_ROUTINES as usize {
            return Some(too_many());
        }
        let most = most_of_owner(rule)?;
        let own = |routine: &&Routine| {
            let RoutineRecord { creator, channel, origin, .. } = &routine.record;
            *origin == RoutineOrigin::Made && creator.principal == new.creator.principal && *channel == new.channel
        };
        (self.by_name.values().filter(own).count() >= most as usize).then(|| too_many_each(most))
    }

    fn by_id(&mut self, id: RoutineId) -> Option<&mut Routine> {
        self.by_name.get_mut(self.names.get(&id)?)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn defer(&mut self, id: RoutineId, Aside { waits_for, until, at_work }: Aside) {
        let own = self.running().filter(|firing| firing.routine_id == id).count();
        let as_read = |routine: &&mut Routine| routine.record.next_at == Some(waits_for) && own >= at_work as usize;
        if let Some(routine) = self.by_id(id).filter(as_read) {
            routine.not_before = Some(until);
        }
    }

    pub(super) fn enable(
        &mut self,
        id: RoutineId,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Option<RoutineRecord> {
        let routine = self.by_id(id)?;
        let record = switched(routine.record.clone(), on, why, next_at, at);
        *routine = Routine { record: record.clone(), not_before: None };
        self.changes += 1;
        Some(record)
    }

    pub(super) fn delete(&mut self, name: &str, id: Option<RoutineId>) -> bool {
        let is_meant = |routine: &&Routine| id.is_none_or(|id| routine.record.routine_id == id);
        let gone = self.by_name.get(name).filter(is_meant).cloned();
        if let Some(gone) = &gone {
            self.by_name.remove(name);
            self.names.remove(&gone.record.routine_id);
            self.changes += 1;
        }
        gone.is_some()
    }

    pub(super) fn routine(&self, name: &str) -> Option<RoutineRecord> {
        self.by_name.get(name).map(|routine| routine.record.clone())
    }

    pub(super) fn routine_at(&self, path: &str) -> Option<RoutineRecord> {
        let mut all = self.by_name.values();
        all.find(|routine| path_of(&routine.record.spec.trigger) == Some(path)).map(|routine| routine.record.clone())
    }

    pub(super) fn routines(&self) -> Vec<RoutineRecord> {
        self.by_name.values().map(|routine| routine.record.clone()).collect()
    }

    pub(super) fn due(&self, now: UnixMillis, limit: u32) -> Vec<RoutineRecord> {
        let dated = self.by_name.values().filter_map(|routine| Some((routine.due_at()?, &routine.record)));
        let mut due: Vec<_> = dated.filter(|(due_at, _)| *due_at <= now).collect();
        due.sort_by_key(|(due_at, _)| *due_at); // stable: equal dates stay in the order of their names
        due.into_iter().take(limit as usize).map(|(_, record)| record.clone()).collect()
    }

    pub(super) fn numbers(&self) -> RoutineNumbers {
        RoutineNumbers {
            enabled: self.by_name.values().filter(|routine| routine.record.enabled).count() as u64,
            at_work: self.open_firings().len() as u64,
            next_at: self.next_due(),
        }
    }

    pub(super) fn next_due(&self) -> Option<UnixMillis> {
        self.by_name.values().filter_map(Routine::due_at).min()
    }

    pub(super) fn firing(&self, id: FiringId) -> Option<FiringRecord> {
        self.firings.get(self.places.get(&id)?).map(|firing| firing.record.clone())
    }

    fn firing_mut(&mut self, id: FiringId) -> Option<&mut FiringRecord> {
        let place = self.places.get(&id)?;
        self.firings.get_mut(place).map(|firing| &mut firing.record)
    }

    pub(super) fn firings(&self, filter: &FiringFilter) -> Vec<FiringRecord> {
        let wanted = self.firings.values().rev().map(|firing| &firing.record).filter(|firing| {
            filter.routine.as_ref().is_none_or(|name| firing.routine == *name)
                && filter.routine_id.is_none_or(|id| firing.routine_id == id)
                && filter.status.is_none_or(|status| firing.status == status)
        });
        wanted.take(firings_limit(filter) as usize).cloned().collect()
    }

    fn running(&self) -> impl Iterator<Item = &FiringRecord> {
        let records = self.firings.values().map(|firing| &firing.record);
        records.filter(|firing| firing.status == FiringStatus::Running)
    }

    pub(super) fn open_firings(&self) -> Vec<FiringRecord> {
        self.running().cloned().collect()
    }

    pub(super) fn note_work(&mut self, id: FiringId, run: Option<RunId>, job: Option<JobId>) -> Result<(), StoreError> {
        let firing = self.firing_mut(id).ok_or_else(|| no_firing(id))?;
        firing.run_id = run.or(firing.run_id);
        firing.job_id = job.or(firing.job_id);
        Ok(())
    }

    /// The guardrail that holds a firing of this routine back, if one does.
    fn held(&self, routine: &Routine, new: &NewFiring, global: u32) -> Option<Held> {
        let guard = &routine.record.spec.guard;
        let own = self.running().filter(|firing| firing.routine_id == new.routine_id).count();
        if own >= guard.max_concurrent as usize {
            return Some(Held::Concurrent);
        }
        if self.running().count() >= global as usize {
            return Some(Held::Global);
        }
        if new.by_hand {
            return None;
        }
        if let Some(left) = routine.record.set_off_at.and_then(|since| left_ms(since, guard.cooldown_s, new.at)) {
            return Some(Held::Cooldown(left));
        }
        let again = |firing: &Firing| {
            let same = firing.record.routine_id == new.routine_id && firing.content == new.content;
            same && left_ms(firing.record.claimed_at, guard.dedup_window_s, new.at).is_some()
        };
        (new.content.is_some() && self.firings.values().any(again)).then_some(Held::Content)
    }

    /// The firing that this one is, if it was claimed before.
    fn known(&self, new: &NewFiring) -> Option<FiringRecord> {
        let by_key = |key: &str| self.firing(*self.keys.get(&(new.routine_id, key.to_owned()))?);
        let echo = || {
            let echo = new.echo.as_ref()?;
            by_key(&echo.key).filter(|earlier| is_echo(echo, earlier))
        };
        by_key(&new.key).or_else(echo)
    }

    fn insert(&mut self, record: FiringRecord, content: Option<String>) {
        self.newest += 1;
        self.places.insert(record.firing_id, self.newest);
        self.keys.insert((record.routine_id, record.key.clone()), record.firing_id);
        self.firings.insert(self.newest, Firing { record, content });
    }

    /// The sessions of firings that ended before the date.
    pub(super) fn sessions_ended_before(&self, date: UnixMillis) -> impl Iterator<Item = SessionKey> {
        let records = self.firings.values().map(|firing| &firing.record);
        let old = records.filter(move |firing| firing.ended_at.is_some_and(|at| at < date));
        old.map(|firing| firing_session(firing.firing_id))
    }

    /// Firings that ended before the date; those that are recognised by their row alone, if they were claimed before another.
    pub(super) fn ended_before(&self, date: UnixMillis, keys_before: UnixMillis) -> Vec<FiringId> {
        let records = self.firings.values().map(|firing| &firing.record);
        let old = records.filter(|it| {
            it.ended_at.is_some_and(|at| at < date) && (it.scheduled_at.is_some() || it.claimed_at < keys_before)
        });
        old.map(|firing| firing.firing_id).collect()
    }

    pub(super) fn forget(&mut self, id: FiringId) {
        if let Some(Firing { record, .. }) = self.places.remove(&id).and_then(|place| self.firings.remove(&place)) {
            self.keys.remove(&(record.routine_id, record.key));
        }
    }
}

impl State {
    pub(super) fn claim(&mut self, new: NewFiring, global: u32) -> Claim {
        if let Some(known) = self.routines.known(&new) {
            self.pass_by(&new);
            return Claim::Known(Box::new(known));
        }
        let Some(mut routine) = self.routines.by_id(new.routine_id).cloned() else {
            return no_routine(&new.routine);
        };
        if let Some(off) = off(&routine.record, new.scheduled_at) {
            self.pass_by(&new);
            return off;
        }
        let held = self.routines.held(&routine, &new, global);
        if let Some(held) = held.filter(|held| new.scheduled_at.is_none() || *held == Held::Global) {
            return Claim::Held(held);
        }
        let before = routine.record.next_at;
        self.record_missed(&mut routine.record, &new.missed, new.at);
        if let Some(time) = new.scheduled_at {
            settle_time(&mut routine.record, time);
            go_on(&mut routine.record, time, new.next_at);
        }
        let revision = routine.record.revision;
        let claim = match held {
            Some(held) => {
                self.keep_firing(held_back(&new, revision, held), None);
                Claim::Held(held)
            }
            None => {
                routine.record.fired_at = Some(new.at);
                routine.record.firings = routine.record.firings.saturating_add(1);
                if !new.by_hand {
                    routine.record.set_off_at = Some(new.at);
                }
                let firing = claimed(&new, revision);
                self.keep_firing(firing.clone(), new.content.clone());
                Claim::Claimed(Box::new(firing))
            }
        };
        routine.not_before = routine.not_before.filter(|_| routine.record.next_at == before);
        self.routines.by_name.insert(routine.record.spec.name.clone(), routine);
        claim
    }

    /// Where the routine still waits for this time, which is settled, it goes on to the next.
    fn pass_by(&mut self, new: &NewFiring) {
        let Some(routine) = self.routines.by_id(new.routine_id) else { return };
        if let Some(time) = new.scheduled_at {
            let mut record = routine.record.clone();
            go_on(&mut record, time, new.next_at);
            routine.become_now(record);
        }
    }

    pub(super) fn miss(&mut self, id: RoutineId, times: &[UnixMillis], next_at: Option<UnixMillis>, at: UnixMillis) {
        let found = self.routines.by_id(id).filter(|routine| routine.record.enabled);
        let Some(mut record) = found.map(|routine| routine.record.clone()) else { return };
        self.record_missed(&mut record, times, at);
        go_on(&mut record, times.iter().copied().fold(at, UnixMillis::max), next_at);
        if let Some(routine) = self.routines.by_id(id) {
            routine.become_now(record);
        }
    }

    fn record_missed(&mut self, routine: &mut RoutineRecord, times: &[UnixMillis], at: UnixMillis) {
        for time in times {
            let key = (routine.routine_id, time.0.to_string());
            if is_settled(routine, *time) || self.routines.keys.contains_key(&key) {
                continue;
            }
            self.keep_firing(missed(routine, *time, at), None);
        }
        times.iter().for_each(|time| settle_time(routine, *time));
    }

    fn keep_firing(&mut self, firing: FiringRecord, content: Option<String>) {
        self.push_events(&told(&firing, false));
        self.routines.insert(firing, content);
    }

    pub(super) fn settle_firing(&mut self, end: FiringEnd) -> Result<Settled, StoreError> {
        check_end(end.status)?;
        let running = self.routines.firing(end.firing).filter(|firing| firing.status == FiringStatus::Running);
        let Some(firing) = running else { return Ok(Settled::Before) };
        let firing = ended(firing, &end);
        let mut routine = self.routines.by_id(firing.routine_id).map(|routine| routine.record.clone());
        let disabled = routine.as_mut().is_some_and(|routine| count_end(routine, &firing, &end));
        let notices: Vec<_> = end.notice.into_iter().chain(end.disabled_notice.filter(|_| disabled)).collect();
        notices.iter().try_for_each(|notice| self.check_outbound(notice))?;
        notices.into_iter().try_for_each(|notice| self.enqueue(notice))?;
        if let (Some(record), Some(routine)) = (routine, self.routines.by_id(firing.routine_id)) {
            // What it was laid aside for may have been this end.
            *routine = Routine { record, not_before: None };
        }
        self.routines.changes += u64::from(disabled);
        if let Some(kept) = self.routines.firing_mut(firing.firing_id) {
            *kept = firing.clone();
        }
        self.push_events(&told(&firing, disabled));
        Ok(Settled::Now { firing: Box::new(firing), disabled })
    }
}
