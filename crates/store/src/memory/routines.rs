//! Routines and their firings.

use std::collections::{BTreeMap, HashMap};

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{
    Claim, FiringEnd, FiringFilter, FiringId, FiringRecord, FiringStatus, Held, JobId, NewFiring, NewRoutine,
    RoutineNumbers, RoutinePut, RoutineRecord, RunId, Settled, StoreError, UnixMillis,
};

use super::state::State;
use crate::routines::{
    check_end, claimed, count_end, ended, firings_limit, go_on, held_back, is_settled, left_ms, made, missed,
    name_taken, no_firing, no_routine, off, path_of, path_taken, put_again, settle_time, switched, told, too_many,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Routines {
    by_name: BTreeMap<String, Routine>,
    /// In the order of commit.
    firings: BTreeMap<u64, Firing>,
    places: HashMap<FiringId, u64>,
    /// Of each routine, by what makes the cause recognisable.
    keys: HashMap<(String, String), FiringId>,
    /// The number of the newest firing.
    newest: u64,
}

#[derive(Clone, Debug)]
struct Routine {
    record: RoutineRecord,
    /// When it was last set off other than by hand.
    set_off_at: Option<UnixMillis>,
}

#[derive(Clone, Debug)]
struct Firing {
    record: FiringRecord,
    content: Option<String>,
}

impl Routines {
    pub(super) fn put(&mut self, new: NewRoutine, fresh: bool) -> RoutinePut {
        let name = new.spec.name.clone();
        let old = self.by_name.get(&name);
        if old.is_some() && fresh {
            return name_taken(&name);
        }
        if old.is_none() && self.by_name.len() >= MAX_ROUTINES as usize {
            return too_many();
        }
        if let Some(path) = path_of(&new.spec.trigger) {
            let mut others = self.by_name.iter().filter(|(other, _)| **other != name);
            if let Some((by, _)) = others.find(|(_, other)| path_of(&other.record.spec.trigger) == Some(path)) {
                return path_taken(path, by);
            }
        }
        let (set_off_at, record) = match old.cloned() {
            Some(old) => (old.set_off_at, put_again(old.record, new)),
            None => (None, made(new)),
        };
        self.by_name.insert(name, Routine { record: record.clone(), set_off_at });
        RoutinePut::Done(Box::new(record))
    }

    pub(super) fn enable(
        &mut self,
        name: &str,
        on: bool,
        why: &str,
        next_at: Option<UnixMillis>,
        at: UnixMillis,
    ) -> Option<RoutineRecord> {
        let routine = self.by_name.get_mut(name)?;
        routine.record = switched(routine.record.clone(), on, why, next_at, at);
        Some(routine.record.clone())
    }

    pub(super) fn delete(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
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
        let records = self.by_name.values().map(|routine| &routine.record);
        let mut due: Vec<_> = records.filter(|routine| routine.next_at.is_some_and(|next| next <= now)).collect();
        due.sort_by_key(|routine| routine.next_at); // stable: equal dates stay in the order of their names
        due.into_iter().take(limit as usize).cloned().collect()
    }

    pub(super) fn numbers(&self) -> RoutineNumbers {
        RoutineNumbers {
            enabled: self.by_name.values().filter(|routine| routine.record.enabled).count() as u64,
            at_work: self.open_firings().len() as u64,
            next_at: self.next_due(),
        }
    }

    pub(super) fn next_due(&self) -> Option<UnixMillis> {
        self.by_name.values().filter_map(|routine| routine.record.next_at).min()
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
        let own = self.running().filter(|firing| firing.routine == new.routine).count();
        if own >= guard.max_concurrent as usize {
            return Some(Held::Concurrent);
        }
        if self.running().count() >= global as usize {
            return Some(Held::Global);
        }
        if new.by_hand {
            return None;
        }
        if let Some(left) = routine.set_off_at.and_then(|since| left_ms(since, guard.cooldown_s, new.at)) {
            return Some(Held::Cooldown(left));
        }
        let again = |firing: &Firing| {
            let same = firing.record.routine == new.routine && firing.content == new.content;
            same && left_ms(firing.record.claimed_at, guard.dedup_window_s, new.at).is_some()
        };
        (new.content.is_some() && self.firings.values().any(again)).then_some(Held::Content)
    }

    fn insert(&mut self, record: FiringRecord, content: Option<String>) {
        self.newest += 1;
        self.places.insert(record.firing_id, self.newest);
        self.keys.insert((record.routine.clone(), record.key.clone()), record.firing_id);
        self.firings.insert(self.newest, Firing { record, content });
    }

    /// Firings that ended before the date.
    pub(super) fn ended_before(&self, date: UnixMillis, keys_before: UnixMillis) -> Vec<FiringId> {
        let records = self.firings.values().map(|firing| &firing.record);
        let old = records.filter(|it| it.ended_at.is_some_and(|at| at < date) && it.claimed_at < keys_before);
        old.map(|firing| firing.firing_id).collect()
    }

    pub(super) fn forget(&mut self, id: FiringId) {
        if let Some(Firing { record, .. }) = self.places.remove(&id).and_then(|place| self.firings.remove(&place)) {
            self.keys.remove(&(record.routine, record.key));
        }
    }
}

impl State {
    pub(super) fn claim(&mut self, new: NewFiring, global: u32) -> Claim {
        let key = (new.routine.clone(), new.key.clone());
        if let Some(known) = self.routines.keys.get(&key).and_then(|id| self.routines.firing(*id)) {
            self.pass_by(&new);
            return Claim::Known(Box::new(known));
        }
        let Some(mut routine) = self.routines.by_name.get(&new.routine).cloned() else {
            return no_routine(&new.routine);
        };
        if let Some(off) = off(&routine.record, new.scheduled_at) {
            self.pass_by(&new);
            return off;
        }
        let held = self.routines.held(&routine, &new, global);
        if let Some(held) = held.filter(|_| new.scheduled_at.is_none()) {
            return Claim::Held(held);
        }
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
                    routine.set_off_at = Some(new.at);
                }
                let firing = claimed(&new, revision);
                self.keep_firing(firing.clone(), new.content.clone());
                Claim::Claimed(Box::new(firing))
            }
        };
        self.routines.by_name.insert(new.routine, routine);
        claim
    }

    /// Where the routine still waits for this time, which is settled, it goes on to the next.
    fn pass_by(&mut self, new: &NewFiring) {
        let Some(routine) = self.routines.by_name.get_mut(&new.routine) else { return };
        if let Some(time) = new.scheduled_at.filter(|_| routine.record.enabled) {
            go_on(&mut routine.record, time, new.next_at);
        }
    }

    pub(super) fn miss(&mut self, name: &str, times: &[UnixMillis], next_at: Option<UnixMillis>, at: UnixMillis) {
        let Some(mut routine) = self.routines.by_name.get(name).filter(|routine| routine.record.enabled).cloned()
        else {
            return;
        };
        self.record_missed(&mut routine.record, times, at);
        go_on(&mut routine.record, times.iter().copied().fold(at, UnixMillis::max), next_at);
        self.routines.by_name.insert(name.to_owned(), routine);
    }

    fn record_missed(&mut self, routine: &mut RoutineRecord, times: &[UnixMillis], at: UnixMillis) {
        for time in times {
            let key = (routine.spec.name.clone(), time.0.to_string());
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
        let mut routine = self.routines.by_name.get(&firing.routine).map(|routine| routine.record.clone());
        let disabled = routine.as_mut().is_some_and(|routine| count_end(routine, &firing, end.at));
        let notices: Vec<_> = end.notice.into_iter().chain(end.disabled_notice.filter(|_| disabled)).collect();
        notices.iter().try_for_each(|notice| self.check_outbound(notice))?;
        notices.into_iter().try_for_each(|notice| self.enqueue(notice))?;
        if let (Some(changed), Some(routine)) = (routine, self.routines.by_name.get_mut(&firing.routine)) {
            routine.record = changed;
        }
        if let Some(kept) = self.routines.firing_mut(firing.firing_id) {
            *kept = firing.clone();
        }
        self.push_events(&told(&firing, disabled));
        Ok(Settled::Now { firing: Box::new(firing), disabled })
    }
}
