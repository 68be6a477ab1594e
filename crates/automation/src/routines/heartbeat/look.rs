//! Decides whether a beat has something to do, before it calls a model.

use belay_protocol::{
    HEARTBEAT, Presence, Purpose, RoutineRecord, RoutineRunFilter, RoutineRunRecord, RoutineRunStatus, SkipReason,
    StopReason, StoreError, UnixMillis,
};

use super::back_off::{self, Failed};
use super::config::Heartbeat;
use super::list;
use crate::routines::RoutineService;

/// Most bytes of the list that are read and shown to the model.
pub(super) const LIST_MAX_BYTES: u64 = 16 * 1024;

/// The facts for the decision.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The time for which the beat was scheduled.
    pub(super) at: UnixMillis,
    /// When the facts were read. It is later than `at` after a crash or a wait for a slot.
    pub(super) now: UnixMillis,
    /// The newest of the failures in a row, if the last attempted beat failed.
    pub(super) failed: Option<Failed>,
    /// Whether the channel of `deliver_to` exists.
    pub(super) reaches: bool,
    /// The beginning of the list, or why it cannot be read. `None`: the file does not exist.
    pub(super) list: Result<Option<String>, String>,
    /// Activity in the conversation of `deliver_to`, or in all conversations when that is not set.
    pub(super) presence: Presence,
    /// Whether today's budget has money left.
    pub(super) money: bool,
}

impl Facts {
    /// Reads the facts.
    ///
    /// # Errors
    /// The store does not answer.
    pub(super) async fn gather(
        service: &RoutineService,
        routine: Option<&RoutineRecord>,
        at: UnixMillis,
    ) -> Result<Self, StoreError> {
        let heartbeat = &service.heartbeat;
        let config = &heartbeat.config;
        let route = heartbeat.route();
        let list = service.context.file_start(&config.file, LIST_MAX_BYTES).await;
        let idle_ms = i64::try_from(config.idle_after_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        let since = UnixMillis(at.0.saturating_sub(idle_ms));
        Ok(Self {
            at,
            now: service.clock.now(),
            failed: failed(service, routine).await?,
            reaches: route.as_ref().is_some_and(|route| service.channels.contains_key(&route.channel)),
            list: list.map(|list| list.map(|(text, _)| text)).map_err(|unusable| unusable.why),
            presence: service.conversations.presence(route.as_ref(), since).await?,
            money: service.run.cost.has_room(Purpose::Heartbeat),
        })
    }

    /// The first reason to skip the beat. A beat that a person starts by hand ignores the quiet hours, the back-off
    /// and the idle time.
    ///
    /// # Errors
    /// The list cannot be read: the beat has failed.
    pub(super) fn reason(&self, heartbeat: &Heartbeat, by_hand: bool) -> Result<Option<SkipReason>, String> {
        let config = &heartbeat.config;
        let held = self.failed.and_then(|failed| back_off::until(heartbeat.interval(), failed));
        // A beat that was due before the quiet hours and is executed in them would also wake people.
        if !by_hand && (heartbeat.is_quiet(self.at) || heartbeat.is_quiet(self.now)) {
            return Ok(Some(SkipReason::QuietHours));
        }
        if !by_hand && held.is_some_and(|until| self.at < until) {
            return Ok(Some(SkipReason::BackOff));
        }
        if !self.reaches && !config.use_tools {
            return Ok(Some(SkipReason::NoRoute));
        }
        let list = self.list.as_ref().map_err(|why| format!("{} cannot be used: {why}.", config.file))?;
        if !list.as_deref().is_some_and(list::has_tasks) {
            return Ok(Some(SkipReason::NothingToDo));
        }
        if !by_hand && config.idle_after_s > 0 && !self.presence.spoken {
            return Ok(Some(SkipReason::Idle));
        }
        // Work in other conversations than that of `deliver_to` does not matter.
        if self.presence.at_work && config.deliver_to.is_some() {
            return Ok(Some(SkipReason::AtWork));
        }
        Ok((!self.money).then_some(SkipReason::NoBudget))
    }
}

/// The newest of the failures in a row.
async fn failed(service: &RoutineService, routine: Option<&RoutineRecord>) -> Result<Option<Failed>, StoreError> {
    let Some(routine) = routine.filter(|routine| routine.failures > 0) else { return Ok(None) };
    let filter = RoutineRunFilter {
        routine: Some(HEARTBEAT.into()),
        status: Some(RoutineRunStatus::Failed),
        limit: 1,
        ..RoutineRunFilter::default()
    };
    let newest = service.routines.routine_runs(filter).await?.into_iter().next();
    let Some(newest) = newest.filter(|newest| newest.routine_id == routine.routine_id) else { return Ok(None) };
    let run = match newest.run_id {
        Some(run) => service.runs.run(run).await?,
        None => None,
    };
    Ok(Some(Failed {
        in_a_row: routine.failures,
        at: time_of(&newest),
        key_refused: run
            .is_some_and(|run| matches!(run.reason, Some(StopReason::ProviderAuth | StopReason::ProviderQuota))),
    }))
}

/// The time for which a beat was scheduled. Later beats count from it, not from the time of execution.
pub(super) fn time_of(routine_run: &RoutineRunRecord) -> UnixMillis {
    routine_run.scheduled_at.unwrap_or(routine_run.claimed_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(toml: &str) -> Heartbeat {
        Heartbeat::of(toml::from_str(toml).expect("read")).expect("settings")
    }

    /// The facts of a beat at noon that has no reason to be skipped.
    fn noon() -> Facts {
        Facts {
            at: UnixMillis(12 * 3_600_000),
            now: UnixMillis(12 * 3_600_000),
            failed: None,
            reaches: true,
            list: Ok(Some("- look at the inbox".to_owned())),
            presence: Presence { spoken: true, at_work: false },
            money: true,
        }
    }

    #[test]
    fn a_beat_is_skipped_for_the_first_reason_and_a_hand_passes_some() {
        use SkipReason as Skip;
        let told = r#"deliver_to = { channel = "telegram", conversation = "42" }"#;
        let failed = |hours: i64| Some(Failed { in_a_row: 3, at: UnixMillis(hours * 3_600_000), key_refused: false });
        let silent = Presence { spoken: false, at_work: false };
        let busy = Presence { spoken: true, at_work: true };
        for (what, settings, facts, scheduled, by_hand) in [
            ("nothing is against it", told, noon(), None, None),
            ("at night", told, Facts { at: UnixMillis(0), ..noon() }, Some(Skip::QuietHours), None),
            (
                "of the day, but begun at night",
                told,
                Facts { now: UnixMillis(23 * 3_600_000), ..noon() },
                Some(Skip::QuietHours),
                None,
            ),
            (
                "an hour after the third failure",
                told,
                Facts { failed: failed(11), ..noon() },
                Some(Skip::BackOff),
                None,
            ),
            ("two hours after it", told, Facts { failed: failed(10), ..noon() }, None, None),
            ("no list", told, Facts { list: Ok(None), ..noon() }, Some(Skip::NothingToDo), Some(Skip::NothingToDo)),
            (
                "an empty list",
                told,
                Facts { list: Ok(Some("# Heartbeat\n- [ ]\n".into())), ..noon() },
                Some(Skip::NothingToDo),
                Some(Skip::NothingToDo),
            ),
            ("nobody is there", told, Facts { presence: silent, ..noon() }, Some(Skip::Idle), None),
            ("nobody need be there", "idle_after_s = 0", Facts { presence: silent, ..noon() }, None, None),
            ("somebody is answered", told, Facts { presence: busy, ..noon() }, Some(Skip::AtWork), Some(Skip::AtWork)),
            ("somebody is answered somewhere", "", Facts { presence: busy, ..noon() }, None, None),
            ("no money", told, Facts { money: false, ..noon() }, Some(Skip::NoBudget), Some(Skip::NoBudget)),
            ("nowhere to go, but tools", "", Facts { reaches: false, ..noon() }, None, None),
            (
                "nowhere to go and no tools",
                "use_tools = false",
                Facts { reaches: false, ..noon() },
                Some(Skip::NoRoute),
                Some(Skip::NoRoute),
            ),
            (
                "everything at once",
                told,
                Facts { at: UnixMillis(0), list: Ok(None), presence: silent, money: false, ..noon() },
                Some(Skip::QuietHours),
                Some(Skip::NothingToDo),
            ),
        ] {
            let heartbeat = heartbeat(settings);
            let reasons = [false, true].map(|by_hand| facts.reason(&heartbeat, by_hand));
            assert_eq!(reasons, [Ok(scheduled), Ok(by_hand)], "{what}");
        }
        let unreadable = Facts { list: Err("it is not text".into()), ..noon() };
        let failed = unreadable.reason(&heartbeat(told), true);
        assert_eq!(failed, Err("HEARTBEAT.md cannot be used: it is not text.".to_owned()));
    }
}
